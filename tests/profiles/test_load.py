"""Files, texts and base URLs become a validated file, quickly, or a ConfigError that says everything at once."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.errors import ConfigError
from llm_client.profiles import built_in, merge, parse
from llm_client.profiles.hints import paths
from llm_client.profiles.load import load
from llm_client.profiles.types import File, PoolSpec, Profile
from tests.profiles.helpers import mistakes

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "profiles").glob("*.yaml"))


def test_the_built_in_profile_is_the_records_defaults():
    """They stand in one place."""
    file = built_in(env={})

    assert File() == file
    assert (PoolSpec(), {"default": Profile()}) == (file.pool, dict(file.profiles))


def test_the_built_in_profile_of_a_server():
    """A base URL is enough."""
    (server,) = built_in("http://gpu-a:8000", env={}).pool.endpoints

    assert (server.name, server.base_url, server.api_key) == ("gpu-a:8000", "http://gpu-a:8000/v1", None)


def test_the_built_in_profile_takes_openai_s_variables():
    """Where the constructor says nothing."""
    env = {"OPENAI_BASE_URL": "http://e/v1", "OPENAI_API_KEY": "sk-env"}
    from_env = built_in(env=env).pool.endpoints[0]
    told = built_in("http://h", "sk-told", env=env).pool.endpoints[0]

    assert (
        from_env.base_url,
        from_env.api_key.reveal(),
        from_env.api_key.reference,
    ) == ("http://e/v1", "sk-env", "${OPENAI_API_KEY}")
    assert (told.base_url, told.api_key.reveal()) == ("http://h/v1", "sk-told")
    assert built_in("http://h", "", env=env).pool.endpoints[0].api_key is None
    assert built_in("http://h", env={"OPENAI_API_KEY": ""}).pool.endpoints[0].api_key is None


def test_the_built_in_profile_takes_the_keys_of_an_endpoint():
    """Headers, query, dialect and the rest."""
    keys = {"headers": {"x-a": "b"}, "query": {"api-version": "2024-02-01"}, "dialect": "vllm", "auth": "none"}
    server = built_in("http://h", endpoint=keys, env={"OPENAI_API_KEY": "sk-env"}).pool.endpoints[0]

    assert (
        server.headers["x-a"],
        server.query["api-version"],
        server.dialect,
        server.api_key,
    ) == ("b", "2024-02-01", "vllm", None)


def test_a_function_may_give_the_token():
    """As openai-python's api_key does."""

    def token():
        return "t"

    server = built_in("http://h", token, env={}).pool.endpoints[0]

    assert ("callable", token, None) == (server.auth, server.token, server.api_key)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("localhost:8000",), "constructor: base_url: expected a URL such as http://gpu-a:8000/v1"),
        (("http://h", "sk a"), "constructor: api_key: the key has blanks"),
        (("http://h", 5), "constructor: api_key: expected a text"),
        ((None, "sk-a"), "base_url is missing: say where the server is, or set OPENAI_BASE_URL"),
    ],
)
def test_a_wrong_constructor_is_refused(arguments, told):
    """In the constructor's own words."""
    with pytest.raises(ConfigError, match=told):
        built_in(*arguments, env={})


def test_a_file_is_read(tmp_path):
    """With its path as the source of everything in it; a byte order mark is no key."""
    path = tmp_path / "p.yaml"
    path.write_bytes("\ufeffprofiles:\r\n  é: {deadline: 3s}\r\n".encode())

    file = load(path, env={})

    assert (str(path), 3.0) == (file.source, file.profiles["é"].deadline)
    assert load(str(path), env={}) == file


def test_a_mistake_knows_its_place(tmp_path):
    """File, line and path, in words and as attributes."""
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\npool:\n  queue:\n    szie: 5\n")

    with pytest.raises(ConfigError) as caught:
        load(path, env={})

    error = caught.value
    assert str(error) == f"{path}, line 4: pool.queue.szie: unknown key; did you mean `size`?"
    assert (str(path), 4, "pool.queue.szie", "config") == (error.file, error.line, error.path, error.kind)
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read the profile file .*No such file"),
        (b"a: \xff", "line 1: not UTF-8"),
        (b"\n\n\xc3(", "line 3"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, told):
    """No traceback needed to see what to fix."""
    path = tmp_path / "p.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=told) as caught:
        load(path, env={})

    assert caught.value.file == str(path)


def test_a_folder_is_no_profile(tmp_path):
    """Nor is anything else that cannot be read."""
    with pytest.raises(ConfigError, match="cannot read the profile file"):
        load(tmp_path)


def test_mistakes_are_told_together():
    """In the order of their lines."""
    said = mistakes("profiles:\n  a: {deadline: 3}\npool:\n  queue: {size: -1, foo: 2}\n  store: {kind: redis}\n")

    lines = said.splitlines()
    assert lines[0] == "4 mistakes in the profile:"
    assert [int(line.split("line ")[1].split(":")[0]) for line in lines[1:]] == [2, 4, 4, 5]


def test_only_version_1_is_read():
    """A later format may mean something else by the same words."""
    assert "version: this release reads version 1" in mistakes("version: 2")
    assert parse("version: 1", env={}).version == 1


def test_the_process_s_environment_is_the_default(monkeypatch):
    """Given none, it is read."""
    monkeypatch.setenv("MODEL_OF_TEST", "m")

    assert parse("profiles: {a: {model: '${MODEL_OF_TEST}'}}").profiles["a"].model == "m"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_reading_a_profile_is_quick(path):
    """A typical file takes a few milliseconds; the best of several, for machines are shared."""
    pytest.importorskip("yaml.cyaml", exc_type=ImportError)
    text = path.read_text()
    env = dict.fromkeys(
        ("VLLM_A", "VLLM_B", "VLLM_KEY", "HOSTED_KEY", "GPU_URL", "AZURE_KEY", "AZURE_RESOURCE"), "http://h"
    )
    times = []
    for _ in range(7):
        start = time.process_time()
        parse(text, env=env)
        times.append(time.process_time() - start)

    assert min(times) < 0.02


def test_importing_profiles_loads_no_parser():
    """A client that is given a base URL never pays for YAML, nor for comparing words."""
    code = (
        "import sys, types; package = types.ModuleType('llm_client'); package.__path__ = [sys.argv[1]];"
        "sys.modules['llm_client'] = package; import llm_client.profiles as p; p.built_in('http://h', env={});"
        "print(sorted({'yaml', 'difflib', 'pydantic', 'httpx', 'asyncio', 'json'} & set(sys.modules)))"
    )
    import llm_client

    folder = str(Path(llm_client.__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


KEYS = sorted({path.rpartition(".")[2].strip("<>[]") for path in paths()} | {"x-note", "a", "default", "on"})
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.floats(),
    st.sampled_from(["", "off", "on", "3s", "600/min", "1MB", "0600", "${A}", "${B:-x}", "${", "static", "fixed", "m"]),
    st.sampled_from(["http://h", "high", "all", "latency", "a", "default", "os:getcwd", "file:/no", "\u00e9", "\x00"]),
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
    max_leaves=25,
)
SECTIONS = st.dictionaries(st.sampled_from(KEYS), TREES, max_size=5)


@settings(deadline=None)
@given(SECTIONS, SECTIONS)
def test_whatever_is_written_is_read_or_refused(pool, profile):
    """In Python and, as JSON is YAML, in a file: a File or a ConfigError, and nothing else."""
    with suppress(ConfigError):
        assert isinstance(merge(built_in(env={}), pool=pool, profile=profile), File)
    document = {"pool": pool, "profiles": {"default": profile, "a": profile}}
    with suppress(ConfigError):
        assert isinstance(parse(json.dumps(document), env={"A": "3s"}), File)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_whatever_text_is_read_or_refused(text):
    """Most of it is no YAML at all."""
    with suppress(ConfigError):
        assert isinstance(parse(text, env={}), File)
