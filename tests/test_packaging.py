"""What is in the archives, what a base install can do, and what an import costs."""

import email
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from tests.hosts import fakes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "llm_client"

CALL = ".chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'apples'}])"
BASE = {"httpx", "pybreaker", "pydantic", "pyyaml", "sniffio", "tenacity"}
CONSUMER = """
from typing import assert_type
from llm_client import AsyncClient, Client, LLMClientError, Pool, StreamInterruptedError

with Client(base_url="http://localhost:8000/v1", api_key="none") as client:
    done = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "apples"}])
    assert_type(done.choices[0].message.content, str | None)
    for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
        assert_type(chunk.choices[0].delta.content, str | None)

async def main(pool: Pool) -> str:
    try:
        stream = await AsyncClient(pool).chat.completions.create(model="m", messages=[], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    except StreamInterruptedError as error:
        return error.partial
    except LLMClientError as error:
        return f"{error.kind} {error.retry_after}"
"""


def modules() -> set[str]:
    """Every file of the package that has to be in an archive."""
    found = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found if not path.name.startswith(".")}


def run(
    *command: object, cwd: Path | str = "/", env: dict[str, str] | None = None, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, so that only what is installed can be imported."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a wheel and an sdist, built without the network."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", folder, cwd=ROOT)

    assert done.returncode == 0, done.stderr
    return folder


def closure(names: set[str]) -> set[str]:
    """Distributions that these need, transitively, without extras."""
    todo, found = set(names), set()
    while todo:
        name = todo.pop()
        found.add(name)
        for requirement in metadata.distribution(name).requires or ():
            needed, _, marker = requirement.partition(";")
            if "extra" in marker or ("python_version" in marker and "<" in marker):
                continue
            other = re.match(r"[\w.-]+", needed)[0].lower()
            if other not in found and installed(other):
                todo.add(other)
    return found


def installed(name: str) -> bool:
    """Tell whether a distribution is here; one left out by its marker is not."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture(scope="module")
def base(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with our wheel, its base dependencies, and no extra."""
    folder = tmp_path_factory.mktemp("base")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    for name in closure(BASE):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    wheel = next(archives.glob("*.whl"))
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel)

    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_both_archives_hold_every_module_and_the_typing_marker(archives):
    """FC-PK-02: nothing of the package is left out of wheel or sdist."""
    wheel = set(zipfile.ZipFile(next(archives.glob("*.whl"))).namelist())
    with tarfile.open(next(archives.glob("*.tar.gz"))) as sdist:
        source = {name.partition("/")[2] for name in sdist.getnames()}

    assert "llm_client/py.typed" in wheel
    assert modules() - wheel == set()
    assert modules() - source == set()
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= source


def test_an_installed_wheel_types_its_consumer(base, tmp_path):
    """FC-PK-02: mypy and pyright, both strict, find no missing stub and see the types of answers and chunks."""
    consumer = tmp_path / "consumer.py"
    consumer.write_text(CONSUMER, "utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', "utf-8")
    mypy = ["mypy", "--strict", "--python-executable", base / "python", "--cache-dir", tmp_path / "mypy", consumer]
    pyright = ["pyright", "--pythonpath", base / "python", "--project", tmp_path]
    checked = [run(sys.executable, "-m", *command, cwd=tmp_path, seconds=120) for command in (mypy, pyright)]

    assert [done.returncode for done in checked] == [0, 0], "\n".join(done.stdout + done.stderr for done in checked)


def test_the_wheel_holds_nothing_but_the_package(archives):
    """Tests, examples and docs do not land in site-packages."""
    wheel = zipfile.ZipFile(next(archives.glob("*.whl"))).namelist()

    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {"llm_client"}


def test_dependencies_have_a_lower_bound_and_no_upper_one(archives):
    """FC-PK-01: ranges are declared, and nothing is pinned from above."""
    with zipfile.ZipFile(next(archives.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        described = email.message_from_string(wheel.read(name).decode())
    requirements = [text.partition(";")[0].strip() for text in described.get_all("Requires-Dist")]
    foreign = [text for text in requirements if not text.startswith("resilient-llm-client")]

    assert [text for text in foreign if not re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\d.]+", text)] == []
    assert {re.match(r"[\w.-]+", text)[0].lower() for text in foreign} >= BASE


def test_a_base_install_has_no_extra(base):
    """The fixture is what it says: none of the optional packages can be imported there."""
    optional = ["rich", "httpx2", "fastapi", "uvicorn", "prometheus_client", "redis", "pytest"]
    code = f"import importlib.util as u; print([name for name in {optional} if u.find_spec(name)])"
    done = run(base / "python", "-c", code)

    assert done.stdout.strip() == "[]", done.stderr


def test_a_base_install_calls_a_server(base):
    """FC-PK-03: import, a sync call and an async stream, with every warning an error."""
    code = """
import asyncio, sys
from llm_client import AsyncClient, Client
question = {"model": "m", "messages": [{"role": "user", "content": "apples"}]}
with Client(base_url=sys.argv[1], api_key="none") as client:
    print(client.chat.completions.create(**question).choices[0].message.content)
async def main():
    async with AsyncClient(base_url=sys.argv[1], api_key="none") as client:
        stream = await client.chat.completions.create(**question, stream=True)
        print("".join([chunk.choices[0].delta.content or "" async for chunk in stream]))
asyncio.run(main())
"""
    with fakes.Server() as server:
        done = run(base / "python", "-W", "error", "-c", code, server.url)

    assert done.stdout.splitlines() == [fakes.said("apples")] * 2, done.stderr


def test_a_base_install_has_the_command(base):
    """FC-PK-03: `llm-client --help` needs no extra."""
    done = run(base / "llm-client", "--help")

    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("server", ["python", "-m", "llm_client.server", "--port", "0"]),
        ("server", ["llm-client", "demo", "--fast"]),
        ("httpx2", ["python", "-c", "import llm_client; llm_client.http_client('http://x/v1', family='httpx2')"]),
        (
            "httpx2",
            ["python", "-c", "import llm_client; llm_client.Client(pool={'http': {'family': 'httpx2'}})" + CALL],
        ),
    ],
)
def test_a_missing_extra_names_the_command_that_installs_it(base, extra, command):
    """FC-PK-03: what needs an extra says so, and fails."""
    program, *arguments = command
    environment = {**os.environ, "OPENAI_BASE_URL": "http://x/v1", "OPENAI_API_KEY": "none"}
    done = run(base / program, *arguments, env=environment)

    assert done.returncode != 0
    assert f"pip install 'resilient-llm-client[{extra}]'" in done.stderr


def test_importing_leaves_optional_and_late_parts_alone():
    """With every extra installed, `import llm_client` loads none of them, nor what only profiles or breakers need."""
    late = {"redis", "tornado", "fastapi", "starlette", "uvicorn", "opentelemetry", "prometheus_client", "rich"}
    late |= {"pybreaker", "yaml", "httpx2", "llm_client.server", "llm_client.cli"}
    code = "import json, sys, llm_client; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run(sys.executable, "-c", code, cwd=ROOT).stdout))

    assert loaded & late == set()


def test_importing_costs_less_than_the_libraries_it_stands_on():
    """Median of five, in processor seconds: less than the libraries it loads later."""
    code = "import time; t = time.process_time(); import {}; print(time.process_time() - t)"

    def measured(what: str) -> float:
        return float(run(sys.executable, "-c", code.format(what), cwd=ROOT).stdout)

    pairs = [(measured("httpx, pydantic"), measured("llm_client")) for _ in range(5)]
    theirs, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"import httpx, pydantic: {theirs:.3f} s; import llm_client: {ours:.3f} s")

    assert ours <= theirs
