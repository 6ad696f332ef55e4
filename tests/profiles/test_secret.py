"""A secret is used on the wire and seen nowhere else."""

import copy
import json
import logging
import pickle
import traceback

import pytest
from llm_client.profiles import Secret, built_in, load, merge, parse
from llm_client.profiles.expand import BadReferenceError, expand, literal_part, resolve
from llm_client.profiles.secret import PrivateMap
from pydantic import SecretStr
from tests.profiles.helpers import endpoint, endpoint_mistakes, mistakes, read

CANARY = "sk-canary-123"


def test_a_secret_shows_itself_to_nobody():
    """Neither to repr, str, format, logging, JSON, nor among the locals of a traceback."""
    secret = Secret(CANARY)
    with pytest.raises(TypeError) as caught:
        int(secret)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    record = logging.LogRecord("x", 10, "f", 1, "%s %r", (secret, secret), None)

    assert CANARY not in repr(secret) + str(secret) + f"{secret}" + shown + record.getMessage() + str([secret])
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_a_secret_is_revealed_on_request():
    """And only so."""
    assert Secret(CANARY).reveal() == CANARY


def test_secrets_compare_by_their_text():
    """Two profiles with the same key are equal, and can be kept in a set."""
    assert {Secret("a"), Secret("a", reference="${X}")} == {Secret("a")}
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_literal_secret_refuses_to_be_pickled(protocol):
    """With a sentence that holds the remedy and not the secret."""
    with pytest.raises(TypeError, match=r"never pickled.*\$\{VARIABLE\}") as caught:
        pickle.dumps(Secret(CANARY), protocol)

    assert CANARY not in str(caught.value)


def test_a_secret_from_the_environment_is_pickled_by_its_name(monkeypatch):
    """And read anew where it arrives."""
    pickled = pickle.dumps(Secret(CANARY, reference="${KEY_OF_TEST}"))
    monkeypatch.setenv("KEY_OF_TEST", "sk-other-side")

    assert CANARY.encode() not in pickled
    assert pickle.loads(pickled).reveal() == "sk-other-side"


def test_a_secret_from_a_file_is_pickled_by_its_path(tmp_path):
    """And read anew where it arrives."""
    path = tmp_path / "key"
    path.write_text(" sk-in-file\n")

    assert pickle.loads(pickle.dumps(Secret("old", reference=f"file:{path}"))).reveal() == "sk-in-file"


def test_a_secret_can_be_copied_inside_the_process():
    """Copying crosses no border."""
    secret = Secret(CANARY)

    assert copy.deepcopy({"a": secret})["a"] is secret
    assert copy.copy(secret) is secret


def test_headers_show_their_names_only():
    """Values may be secrets."""
    headers = PrivateMap({"x-team": CANARY})

    assert repr(headers) == "PrivateMap(['x-team'])"
    assert headers["x-team"] == CANARY
    assert copy.deepcopy(headers) == headers


def test_headers_are_pickled_by_reference(monkeypatch):
    """Plain values go, references are read anew, literal secrets stay."""
    monkeypatch.setenv("TEAM_OF_TEST", "blue")
    plain = endpoint("headers: {x-team: '${TEAM_OF_TEST}', x-app: web}", TEAM_OF_TEST="red").headers
    secret = endpoint(f"headers: {{x-api-token: {CANARY}}}").headers

    assert dict(pickle.loads(pickle.dumps(plain))) == {"x-team": "blue", "x-app": "web"}
    with pytest.raises(TypeError, match="x-api-token"):
        pickle.dumps(secret)


def test_a_file_pickles_its_references(monkeypatch):
    """The other process has its own environment."""
    monkeypatch.setenv("KEY_OF_TEST", CANARY)
    file = parse("pool: {endpoints: [{name: a, base_url: 'http://h', api_key: '${KEY_OF_TEST}'}]}")
    pickled = pickle.dumps(merge(file, profile={"retry": {"attempts": 2}}))
    monkeypatch.setenv("KEY_OF_TEST", "sk-other-side")

    there = pickle.loads(pickled)

    assert CANARY.encode() not in pickled
    assert there.pool.endpoints[0].api_key.reveal() == "sk-other-side"
    assert there.profiles["default"].retry.attempts == 2
    assert copy.deepcopy(file) is file


@pytest.mark.parametrize(
    "keys",
    [
        f"api_key: {CANARY}",
        f"api_key: '${{NO_SUCH:-{CANARY}}}'",
        f"headers: {{authorization: Bearer {CANARY}}}",
        f"query: {{api_key: {CANARY}}}",
    ],
)
def test_a_file_with_a_literal_secret_refuses_to_be_pickled(keys):
    """It names the key path, not the secret; a default is as literal as a value."""
    file = read(f"pool: {{endpoints: [{{base_url: 'http://h', {keys}}}]}}")

    with pytest.raises(TypeError, match=r"pool\.endpoints\[0\]\.\w+.* written literally") as caught:
        pickle.dumps(file)

    assert CANARY not in str(caught.value)


def test_a_literal_that_was_taken_out_forbids_nothing():
    """Overridden under another spelling, it is gone."""
    file = read(f"pool: {{http: {{headers: {{X-Token: {CANARY}}}}}}}")
    without = merge(file, pool={"http": {"headers": {"x-token": None}}})

    assert pickle.loads(pickle.dumps(without.pool.http.headers)) == {}
    with pytest.raises(TypeError):
        pickle.dumps(file)


def test_a_scheme_before_a_reference_is_no_secret(monkeypatch):
    """`Bearer ${KEY}` pickles as it stands."""
    monkeypatch.setenv("KEY_OF_TEST", "k")
    file = parse("pool: {endpoints: [{base_url: 'http://h', headers: {authorization: 'Bearer ${KEY_OF_TEST}'}}]}")

    assert pickle.loads(pickle.dumps(file)).pool.endpoints[0].headers["authorization"] == "Bearer k"


def test_a_constructor_s_key_is_a_literal():
    """It came from nowhere that another process could look it up."""
    with pytest.raises(TypeError, match="api_key"):
        pickle.dumps(built_in("http://h", CANARY, env={}))


def test_a_file_without_secrets_pickles():
    """Nothing to hide, nothing to refuse."""
    for file in (built_in(env={}), read("profiles: {a: {deadline: 3s}}"), built_in("http://h", env={})):
        assert file == pickle.loads(pickle.dumps(file))


@pytest.mark.parametrize("given", [SecretStr("sk-1"), Secret("sk-1"), " sk-1\n"], ids=["pydantic", "ours", "text"])
def test_a_key_may_come_wrapped(given):
    """Ours, pydantic's, or plain."""
    assert built_in("http://h", given, env={}).pool.endpoints[0].api_key == Secret("sk-1")


def test_a_key_may_stand_in_a_file(tmp_path):
    """By `file:`, by a key of its own, relative to the profile, or named by the environment."""
    (tmp_path / "key.txt").write_text("sk-in-file\n")
    profile = tmp_path / "p.yaml"
    ways = ["api_key: 'file:key.txt'", "api_key_file: key.txt", "api_key: 'file:${KEY_FILE}'", "api_key: '${BOTH}'"]
    env = {"KEY_FILE": str(tmp_path / "key.txt"), "BOTH": f"file:{tmp_path / 'key.txt'}"}

    for way in ways:
        profile.write_text(f"pool: {{endpoints: [{{base_url: 'http://h', {way}}}]}}")
        key = load.load(profile, env=env).pool.endpoints[0].api_key

        assert (key.reveal(), key.reference) == ("sk-in-file", f"file:{tmp_path / 'key.txt'}")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read the secret's file: No such file"),
        (b"", "is empty"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"x" * 70_000, "larger than 64 KiB"),
        (b"sk a", "blanks or control characters inside"),
    ],
)
def test_a_key_s_file_that_holds_no_key_is_refused(tmp_path, content, told):
    """Before the first request, with the reason."""
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)

    assert told in endpoint_mistakes(f"api_key_file: '{path}'")


def test_a_key_written_where_its_file_belongs_is_not_quoted():
    """Only what is clearly a path is shown."""
    assert CANARY not in endpoint_mistakes(f"api_key_file: {CANARY}")
    assert CANARY not in endpoint_mistakes(f"api_key: file:{CANARY}")
    assert "/no/such/file" in endpoint_mistakes("api_key_file: /no/such/file")


def test_two_ways_to_a_key_are_one_too_many(tmp_path):
    """Which one wins would be anybody's guess."""
    (tmp_path / "key").write_text("k")

    said = endpoint_mistakes(f"api_key: a, api_key_file: '{tmp_path / 'key'}'")

    assert "api_key_file: api_key is written as well; keep one" in said


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "1"),
        ("x${A}y${B:-2}", "x1y2"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${UNSET:-}", ""),
        ("$${A}", "${A}"),
        ("$A ${A:-5}", "$A 1"),
        ("${NESTED}", "${A}"),
        ("${UNSET:-a:-b}", "a:-b"),
    ],
)
def test_references_are_expanded_as_in_a_shell(text, expanded):
    """Defaults, empty values, escapes; values are not expanded again."""
    assert expanded == expand(text, {"A": "1", "EMPTY": "", "NESTED": "${A}"})


@pytest.mark.parametrize("text", ["${UNSET}", "${}", "${1A}", "${A", "${A-b}", "x ${", "${A:}"])
def test_a_reference_that_leads_nowhere_is_refused(text):
    """Unset, or not a reference at all."""
    with pytest.raises(BadReferenceError):
        expand(text, {"A": "1"})


def test_an_empty_variable_is_no_secret():
    """It is treated as unset, unless an empty default says that no key is meant."""
    with pytest.raises(BadReferenceError, match="KEY is empty"):
        expand("${KEY}", {"KEY": ""}, empty_is_unset=True)


def test_what_is_not_a_reference_is_literal():
    """Rest and defaults together."""
    assert literal_part("Bearer ${A}${B:-x}") == "Bearer x"


def test_resolving_reads_the_process_s_environment(monkeypatch):
    """As unpickling does."""
    monkeypatch.setenv("KEY_OF_TEST", " k ")

    assert resolve("${KEY_OF_TEST}") == "k"


def test_a_proxy_s_password_is_a_secret():
    """Its URL is shown to nobody, and a literal password forbids pickling."""
    file = read(f"pool: {{http: {{proxy: 'http://u:{CANARY}@p:3128'}}}}")

    assert CANARY not in repr(file)
    assert file.pool.http.proxy.reveal() == f"http://u:{CANARY}@p:3128"
    with pytest.raises(TypeError, match=r"pool\.http\.proxy"):
        pickle.dumps(file)
    assert CANARY not in mistakes(f"pool: {{http: {{proxy: 'ftp://u:{CANARY}@p'}}}}")
    pickle.dumps(read("pool: {http: {proxy: 'http://p:3128'}}"))


def test_a_certificate_s_password_is_a_secret():
    """And the short form needs none."""
    text = f"pool: {{http: {{client_cert: {{cert: /c.pem, key: /k.pem, password: '{CANARY}'}}}}}}"
    certificate = read(text).pool.http.client_cert

    assert (certificate.cert, certificate.key, certificate.password.reveal()) == ("/c.pem", "/k.pem", CANARY)
    assert CANARY not in repr(certificate)
    assert read("pool: {http: {client_cert: /c.pem}}").pool.http.client_cert.cert == "/c.pem"
