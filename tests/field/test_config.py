"""Field cases about the set-up: what is told at load, and what never leaves the process; names carry the case's id."""

import logging
import traceback

import pytest
from llm_client.errors import ConfigError
from llm_client.profiles import built_in, explain, merge, parse
from llm_client.profiles.load import load

CANARY = "sk-canary-4711"


def mistakes(text, **env):
    """Return what is said about a profile that must not be accepted."""
    with pytest.raises(ConfigError) as caught:
        parse(text, env=env)
    return str(caught.value)


def test_fc_cf_01_words_stay_words():
    """Profiles called `on` and `no`, a model called `yes`: nothing becomes true or false where text was expected."""
    file = parse(
        "pool: {endpoints: [{name: NO, base_url: 'http://h', models: [yes, off]}]}\n"
        "profiles:\n  on: {model: yes, fallback: off}\n  no: {extends: on, endpoints: [NO]}\n",
        env={},
    )

    assert {"on", "no", "default"} == set(file.profiles)
    assert (
        file.profiles["on"].model,
        file.profiles["on"].fallback,
        file.profiles["no"].endpoints,
    ) == ("yes", (), ("NO",))
    assert (file.pool.endpoints[0].name, dict(file.pool.endpoints[0].models)) == ("NO", {"yes": "yes", "off": "off"})


def test_fc_cf_01_switches_take_on_and_off():
    """In boolean fields, and nowhere else."""
    file = parse("pool: {http: {http2: on, verify: off}}\nprofiles: {default: {measure_first_token: on}}", env={})

    assert (
        file.pool.http.http2,
        file.pool.http.verify,
        file.profiles["default"].measure_first_token,
    ) == (True, False, True)
    assert "profiles.default.hedge: expected off | a map" in mistakes("profiles: {default: {hedge: on}}")
    assert "profiles.default.priority: expected critical" in mistakes("profiles: {default: {priority: off}}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pool: {limits: {total: {requests: 0600/min}}}", "0600 has a leading zero, which YAML reads as octal, 384"),
        ("pool: {limits: {total: {tokens: 010000/min}}}", "010000 has a leading zero, which YAML reads as octal, 4096"),
        ("pool: {queue: {size: 08080}}", "08080 has a leading zero, which YAML reads as text; write 8080"),
        ("pool: {endpoints: [{base_url: 'http://h', max_context: 010000}]}", "octal, 4096; write 10000"),
    ],
)
def test_fc_cf_03_a_leading_zero_is_never_octal(text, told):
    """The text and what YAML would make of it are both shown."""
    assert told in mistakes(text)


def test_fc_cf_03_a_text_of_digits_stays_a_text():
    """An organisation's number is a name."""
    headers = parse(
        "pool: {endpoints: [{base_url: 'http://h', headers: {openai-organization: 0555567}, api_key: 0555567}]}", env={}
    ).pool.endpoints[0]

    assert (headers.headers["openai-organization"], headers.api_key.reveal()) == ("0555567", "0555567")


@pytest.mark.parametrize("version", ["2024-02-01", "2024-02-15-preview"])
def test_fc_cf_04_an_api_version_is_text(version):
    """Quoted or not, it is the same configuration."""
    text = "pool: {{endpoints: [{{base_url: 'http://h', query: {{api-version: {}}}}}]}}"
    plain, quoted = (parse(text.format(each), env={}) for each in (version, f"'{version}'"))

    assert dict(plain.pool.endpoints[0].query) == {"api-version": version}
    assert plain == quoted


def test_fc_cf_06_a_key_written_twice_is_a_mistake():
    """Both lines are named; a merge key may be overridden."""
    twice = "profiles:\n  a:\n    retry:\n      attempts: 6\n" + "    # nothing here\n" * 14 + "      attempts: 60\n"
    same_name = "profiles:\n  a: {deadline: 3s}\n  b: {}\n  a: {deadline: 4s}\n"
    merged = "x-a: &a {attempts: 6, refusals: 1}\nprofiles: {a: {retry: {<<: *a, attempts: 60}}}"

    assert "profiles.a.retry.attempts: written twice: in line 4 and in line 19; keep one" in mistakes(twice)
    assert "profiles.a: written twice: in line 2 and in line 4; keep one" in mistakes(same_name)
    assert ((made := parse(merged, env={}).profiles["a"].retry).attempts, made.refusals) == (60, 1)


def test_fc_cf_07_a_misspelled_key_is_never_dropped():
    """Each with its path and the nearest right name, all together; notes are allowed."""
    said = mistakes(
        "pool: {breaker: {enable: false}, x-note: mine}\n"
        "profiles:\n  default:\n    max_retires: 5\n    timout: 3\n    retry: {rpm: 60}\n    x-note: mine\n"
    )

    assert "4 mistakes in the profile:" in said
    assert "line 1: pool.breaker.enable: unknown key; did you mean `enabled`?" in said
    assert "line 4: profiles.default.max_retires: unknown key; did you mean `profiles.<name>.retry.attempts`" in said
    assert "line 5: profiles.default.timout: unknown key; did you mean `deadline`" in said
    assert "line 6: profiles.default.retry.rpm: unknown key; did you mean `pool.limits.total.requests`" in said
    assert "x-note" not in said


def test_fc_cf_08_an_unset_variable_is_never_sent():
    """Unset without default is a mistake that names variable and path; defaults work; empty is no secret."""
    server = "pool: {{endpoints: [{{base_url: '{}', api_key: '{}'}}]}}"

    missing = mistakes(server.format("http://h", "${LLM_KEY_MISSING}"))
    empty = mistakes(server.format("http://h", "${LLM_KEY}"), LLM_KEY="")
    none = parse(server.format("http://h", "${LLM_KEY_MISSING:-}"), env={}).pool.endpoints[0]
    url = parse(server.format("${LLM_URL:-http://127.0.0.1:8000/v1}", ""), env={}).pool.endpoints[0]

    assert "pool.endpoints[0].api_key: the environment variable LLM_KEY_MISSING is not set" in missing
    assert "pool.endpoints[0].api_key: the environment variable LLM_KEY is empty" in empty
    assert none.api_key is None
    assert url.base_url == "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize("key", ["${LLM_KEY", "${}", "$${LLM_KEY}"])
def test_fc_cf_08_nothing_is_sent_that_still_is_a_reference(key):
    """Malformed, escaped, in a constructor, or as another variable's value."""
    assert "pool.endpoints[0].api_key" in mistakes(f"pool: {{endpoints: [{{base_url: 'http://h', api_key: '{key}'}}]}}")
    with pytest.raises(ConfigError, match="api_key"):
        built_in("http://h", key, env={})
    with pytest.raises(ConfigError, match="api_key"):
        parse("pool: {endpoints: [{base_url: 'http://h', api_key: '${A}'}]}", env={"A": key})


@pytest.mark.parametrize(("key", "sent"), [("sk-abc\n", "sk-abc"), (" sk-abc ", "sk-abc"), ("\tsk-abc\r\n", "sk-abc")])
def test_fc_cf_10_outer_white_space_of_a_key_is_dropped(key, sent):
    """It came with copying."""
    assert built_in("http://h", key, env={}).pool.endpoints[0].api_key.reveal() == sent


@pytest.mark.parametrize("key", ["", None, "  \n"])
def test_fc_cf_10_no_key_sends_no_key(key):
    """Local servers want none."""
    assert built_in("http://h", key, env={}).pool.endpoints[0].api_key is None


@pytest.mark.parametrize("key", ["sk-a b", "sk-\u00e9", "sk-a\nb", "sk-a\x00", "\u201csk-a\u201d"])
def test_fc_cf_10_a_broken_key_is_told_at_once_and_not_quoted(key):
    """Nothing is sent and nothing retried; the message holds no part of it."""
    with pytest.raises(ConfigError, match="api_key") as caught:
        built_in("http://h", key, env={})

    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "chat"),
    [
        ("http://h:1", "http://h:1/v1/chat/completions"),
        ("http://h:1/", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
        ("http://h:1/inference/v1", "http://h:1/inference/v1/chat/completions"),
        ("http://h:1/openai/deployments/m", "http://h:1/openai/deployments/m/chat/completions"),
        ("http://h:1/v10", "http://h:1/v10/chat/completions"),
    ],
)
def test_fc_cf_11_a_base_url_may_be_written_in_many_ways(base_url, chat):
    """With or without /v1 and slash; an explicit path is left alone; a route is appended with one slash."""
    server = built_in(base_url, env={}).pool.endpoints[0]

    assert chat == f"{server.base_url}/chat/completions"


def test_fc_cf_11_an_empty_path_can_be_meant():
    """`path: as_is`."""
    text = "pool: {endpoints: [{base_url: 'http://h:1/', path: as_is}]}"

    assert parse(text, env={}).pool.endpoints[0].base_url == "http://h:1"


def test_fc_cf_14_one_precedence_and_every_origin(tmp_path):
    """Built-in 600, profile 30, environment 20, constructor 10; the call's own 5 is not known here."""
    path = tmp_path / "p.yaml"
    path.write_text("profiles:\n  default:\n    deadline: 30s\n")
    variable = {"LLM_CLIENT_PROFILE__DEADLINE": "20s"}

    def told(file):
        (row,) = [row for row in explain(file) if row.path == "profiles.default.deadline"]
        return file.profiles["default"].deadline, row.value, row.origin

    assert told(built_in(env={})) == (600.0, "10m", "built-in")
    assert (30.0, "30s", f"{path}, line 3") == told(load(path, env={}))
    assert told(load(path, env=variable)) == (20.0, "20s", "environment LLM_CLIENT_PROFILE__DEADLINE")
    assert told(merge(load(path, env=variable), profile={"deadline": 10})) == (10.0, "10s", "constructor")
    assert told(built_in(env=variable)) == (20.0, "20s", "environment LLM_CLIENT_PROFILE__DEADLINE")


@pytest.mark.parametrize(
    ("server", "path"),
    [
        ("{{name: a, api_key: {0}}}", "pool.endpoints[0]"),
        ("{{base_url: 'http://h', api_key: [{0}]}}", "pool.endpoints[0].api_key"),
        ("{{base_url: 'http://h', api_key: {{value: {0}}}}}", "pool.endpoints[0].api_key"),
        ("{{base_url: 'http://h', api_key: {0}\u00e9}}", "pool.endpoints[0].api_key"),
        ("{{base_url: 'http://h', api_key: '{0} {0}'}}", "pool.endpoints[0].api_key"),
        ("{{base_url: 'http://h', api_key: {0}, api_kee: {0}}}", "pool.endpoints[0].api_kee"),
        ("{{base_url: 'http://h', api_key: {0}, headers: [{0}]}}", "pool.endpoints[0].headers"),
        ("{{base_url: 'http://h', headers: {{x-a: [{0}]}}}}", "pool.endpoints[0].headers.x-a"),
        ("{{base_url: 'http://h', headers: {{x-a: '{0}\\n{0}\u00e9'}}}}", "pool.endpoints[0].headers.x-a"),
        ("{{base_url: 'http://u:{0}@h'}}", "pool.endpoints[0].base_url"),
        ("{{base_url: 'http://h/v1?key={0}'}}", "pool.endpoints[0].base_url"),
        ("{{base_url: 'http://h', auth: '{0}'}}", "pool.endpoints[0].auth"),
        ("{{base_url: 'http://h', api_key: *{0}}}", "line 1"),
        ("{{base_url: 'http://h', api_key: !{0} x}}", "pool.endpoints[0].api_key"),
    ],
)
def test_fc_se_03_no_message_quotes_a_secret(server, path):
    """Whatever is wrong around it, or with it; the path is named."""
    with pytest.raises(ConfigError) as caught:
        parse(f"pool: {{endpoints: [{server.format(CANARY)}]}}", env={})

    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    assert path in str(error)
    assert CANARY not in shown


def test_fc_se_03_a_key_of_digits_is_a_key():
    """And is told no better than any other."""
    text = "pool: {endpoints: [{base_url: 'http://h', api_key: 123456789012, weight: 0}]}"

    assert "123456789012" not in mistakes(text)
    with pytest.raises(ConfigError, match="api_key") as caught:
        built_in("http://h", 123456789012, env={})
    assert "123456789012" not in str(caught.value)


def test_fc_se_03_a_valid_file_shows_no_secret(caplog):
    """Not in repr, str, explanation, or a log of it."""
    caplog.set_level(logging.DEBUG)
    file = parse(
        f"pool: {{http: {{proxy: 'http://u:{CANARY}@p:1', headers: {{x-b: {CANARY}}}, query: {{k: {CANARY}}}}},"
        f" endpoints: [{{base_url: 'http://h', api_key: {CANARY}, headers: {{x-a: {CANARY}}}}}]}}",
        env={},
    )
    logging.getLogger("test").debug("%s %r", file, file.pool)

    assert CANARY not in repr(file) + str(file) + caplog.text + str(explain(file))


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\nX-Evil: 1"},
        {"x": "a\nb"},
        {"x y": "a"},
        {"x:": "a"},
        {"": "a"},
        {"x": "caf\u00e9"},
        {"x": "\U0001f600"},
        {"x": "a\x00"},
        {"x\r\n": "a"},
        {"content-length": "5"},
    ],
)
def test_fc_se_07_a_header_that_could_smuggle_is_refused_at_construction(headers):
    """In a constructor, for the pool and for an endpoint."""
    with pytest.raises(ConfigError, match=r"pool\.http\.headers"):
        merge(built_in(env={}), pool={"http": {"headers": headers}})
    with pytest.raises(ConfigError, match=r"endpoints\[0\]\.headers"):
        built_in("http://h", endpoint={"headers": headers}, env={})


def test_fc_se_07_outer_blanks_of_a_header_are_trimmed():
    """A user agent made of platform strings ends in one now and then."""
    made = built_in("http://h", endpoint={"headers": {"x-app": "name ", "user-agent": " a/1 (b) "}}, env={})

    assert dict(made.pool.endpoints[0].headers) == {"x-app": "name", "user-agent": "a/1 (b)"}


@pytest.mark.parametrize("limit", [0, -1, float("nan"), True, 2.5, "x", None])
def test_fc_qu_07_a_nonsensical_concurrency_is_refused(limit):
    """At construction, by its path; nothing hangs for ever."""
    with pytest.raises(ConfigError, match=r"pool\.concurrency"):
        merge(built_in(env={}), pool={"concurrency": {"kind": "fixed", "limit": limit}})


def test_fc_qu_07_blanks_around_a_number_are_no_mistake():
    """'8 ' is 8."""
    file = merge(built_in(env={}), pool={"concurrency": {"kind": "fixed", "limit": "8 "}})

    assert file.pool.concurrency.limit == 8


def test_fc_qu_07_a_queue_of_size_0_means_no_waiting():
    """And a negative one means nothing."""
    assert merge(built_in(env={}), pool={"queue": {"size": 0}}).pool.queue.size == 0
    with pytest.raises(ConfigError, match=r"pool\.queue\.size: expected a whole number of at least 0"):
        merge(built_in(env={}), pool={"queue": {"size": -1}})


def test_fc_br_13_a_circle_of_fallbacks_is_refused_at_load():
    """A to B to A, and A to itself."""
    both = "{a: {fallback: [{kind: profile, profile: b}]}, b: {fallback: [{kind: profile, profile: a}]}}"

    assert "leads back to itself: a -> b -> a" in mistakes(f"profiles: {both}")
    assert "leads back to itself: a -> a" in mistakes("profiles: {a: {fallback: [{kind: profile, profile: a}]}}")
