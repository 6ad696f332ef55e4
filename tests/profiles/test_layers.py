"""Who overrides whom, and who is told to have set what."""

import pytest
from llm_client.errors import ConfigError
from llm_client.model import Priority
from llm_client.profiles import built_in, explain, merge, parse
from llm_client.profiles.layers import PRECEDENCE
from llm_client.profiles.types import File, Profile, RetrySpec
from tests.profiles.helpers import changed, mistakes, read, refused


def origins(file):
    """Return who set what, by key path."""
    return {row.path: (row.value, row.origin) for row in explain(file)}


def test_a_heir_starts_from_what_it_extends():
    """Maps merge, lists are replaced, what is not written comes from the root of the chain."""
    file = read(
        "profiles:\n"
        "  base: {priority: high, retry: {attempts: 3, backoff: {base: 1s}}, fallback: [{kind: cached}]}\n"
        "  middle: {extends: base, retry: {attempts: 4}}\n"
        "  top: {extends: middle, retry: {backoff: {cap: 9s}}, fallback: [{kind: static, text: x}], deadline: off}\n"
    )
    top = file.profiles["top"]

    assert (top.retry.attempts, top.retry.backoff.base, top.retry.backoff.cap) == (4, 1.0, 9.0)
    assert [each.kind for each in top.fallback] == ["static"]
    assert (top.priority, top.deadline) == (Priority.HIGH, None)
    assert file.profiles["default"] == Profile()


def test_null_removes_what_was_inherited():
    """The built-in value holds again, or nothing where nothing is meant."""
    file = read(
        "profiles: {a: {priority: high, model: m, retry: {attempts: 3}, queue: {max_wait: 2s}},"
        " b: {extends: a, priority: null, model: null, retry: null, queue: {max_wait: null}}}"
    )

    assert Profile(name="b") == file.profiles["b"]


def test_default_can_be_extended_without_being_written():
    """It is there in any case."""
    assert read("profiles: {a: {extends: default, priority: low}}").profiles["a"].priority == Priority.LOW


def test_a_map_of_another_kind_is_replaced():
    """The thresholds of a queue mean something else for a latency."""
    file = read(
        "profiles: {a: {backpressure: {kind: queue_depth, watch: 0.1, refuse: 0.2}},"
        " b: {extends: a, backpressure: {kind: latency}}, c: {extends: a, backpressure: {refuse: 0.3}}}"
    )

    assert ((b := file.profiles["b"].backpressure).watch, b.refuse) == (1.0, 1.5)
    assert ((c := file.profiles["c"].backpressure).watch, c.refuse) == (0.1, 0.3)


def test_an_inherited_key_may_fall_out_of_use():
    """Only who writes a key in vain is told so."""
    file = read(
        "profiles: {a: {timeouts: {attempt: 9m}, retry: {attempts: 9, refusals: 9, backoff: {base: 1s}}},"
        " b: {extends: a, deadline: 5s, retry: {attempts: 1}}}"
    )

    assert (file.profiles["b"].deadline, file.profiles["b"].retry.refusals) == (5.0, 0)
    assert "profiles.b.timeouts.attempt: has no effect" in mistakes(
        "profiles: {a: {deadline: 5s}, b: {extends: a, timeouts: {attempt: 6s}}}"
    )


def test_a_mistake_in_a_base_is_told_once():
    """Where it stands, however many inherit it."""
    said = mistakes("profiles:\n  a: {dedline: 3s}\n  b: {extends: a}\n  c: {extends: b}\n")

    assert said == "<string>, line 2: profiles.a.dedline: unknown key; did you mean `deadline`?"


@pytest.mark.parametrize(
    ("profiles", "told"),
    [
        ("{a: {extends: a}}", "profiles.a.extends: extends itself in a circle: a -> a"),
        ("{b: {extends: a}, a: {extends: b}}", "extends itself in a circle: a -> b -> a"),
        ("{c: {extends: b}, b: {extends: a}, a: {extends: b}}", "extends itself in a circle: a -> b -> a"),
        ("{a: {extends: nope}}", "profiles.a.extends: no profile 'nope' in this file; there are: a, default"),
    ],
)
def test_extends_leads_to_an_end(profiles, told):
    """Circles and strangers are told once."""
    said = mistakes(f"profiles: {profiles}")

    assert told in said
    assert "mistakes" not in said


def test_notes_are_left_alone():
    """Keys that begin with x- are the writer's, at every level."""
    file = read(
        "x-a: {any: [thing, 0600]}\n"
        "pool: {x-b: 1, queue: {x-c: 2}, endpoints: [{base_url: 'http://h', x-d: 3}]}\n"
        "profiles: {x-base: {retry: {nonsense: 1}}, a: {x-e: 4}}\n"
    )

    assert sorted(file.profiles) == ["a", "default"]


def test_constructor_changes_hold_for_every_profile():
    """Profile keys in all of them, pool keys in the pool."""
    file = read("pool: {queue: {size: 5}}\nprofiles: {a: {retry: {attempts: 7}}, b: {priority: low}}")

    made = merge(file, pool={"queue": {"ageing": 3.0}}, profile={"retry": {"attempts": 2}})

    assert (made.pool.queue.size, made.pool.queue.ageing) == (5, 3.0)
    assert {2} == {profile.retry.attempts for profile in made.profiles.values()}
    assert made.profiles["b"].priority == Priority.LOW
    assert file.profiles["a"].retry.attempts == 7


def test_later_changes_win():
    """Also over earlier ones that they put out of use."""
    file = merge(
        changed(profile={"retry": {"attempts": 3, "backoff": {"base": 1}}}), profile={"retry": {"attempts": 1}}
    )

    assert RetrySpec(attempts=1, refusals=0, backoff=file.profiles["default"].retry.backoff) == (
        file.profiles["default"].retry
    )
    assert merge(file, profile={"retry": {"attempts": 4}}).profiles["default"].retry.refusals == 50


def test_a_change_of_kind_in_the_constructor():
    """From fixed to adaptive and back."""
    file = read("pool: {concurrency: {kind: fixed, limit: 8}}")
    adaptive = merge(file, pool={"concurrency": {"kind": "adaptive"}})

    assert (adaptive.pool.concurrency.kind, adaptive.pool.concurrency.limit) == ("adaptive", None)
    assert merge(read("pool: {concurrency: {max: 9}}"), pool={"concurrency": {"kind": "fixed", "limit": 3}})


def test_changes_are_told_as_the_constructor_s():
    """No file and line to point at, but a path."""
    assert refused(profile={"retry": {"attemps": 2}}) == (
        "constructor: profile.retry.attemps: unknown key; did you mean `attempts`?"
    )
    assert "constructor: profile.extends: only a profile of a file can extend another" in refused(
        profile={"extends": "a"}
    )
    assert "profile.queue.size: unknown key; it is shared by all profiles" in refused(profile={"queue": {"size": 5}})


def test_a_file_made_by_hand_cannot_be_changed():
    """Nobody knows what it was made from."""
    with pytest.raises(ConfigError, match="put together by hand"):
        merge(File(), pool={"queue": {"size": 5}})


def test_the_environment_overrides_the_file():
    """Levels are separated by two underscores; profile keys hold for every profile."""
    env = {
        "LLM_CLIENT_POOL__QUEUE__SIZE": "500",
        "LLM_CLIENT_POOL__BREAKER__FAILURE_RATE": "off",
        "LLM_CLIENT_POOL__HTTP__PROXY": "http://u:sk-canary@p:1",
        "LLM_CLIENT_PROFILE__RETRY__ATTEMPTS": " 2 ",
        "LLM_CLIENT_PROFILE__DEADLINE": "20s",
        "LLM_CLIENT_PROFILE__MODEL": "null",
        "LLM_CLIENT_PROFILE__FALLBACK": "[{kind: static, text: busy}]",
        "LLM_CLIENT_PROFILES": "profiles.yaml",
        "LLM_CLIENT_SERVER__PORT": "8000",
    }

    file = parse("pool: {queue: {size: 5}}\nprofiles: {a: {deadline: 30s, model: m}}", env=env)
    profile = file.profiles["a"]

    assert (file.pool.queue.size, file.pool.breaker.failure_rate) == (500, None)
    assert (
        profile.retry.attempts,
        profile.deadline,
        profile.model,
        profile.fallback[0].kind,
    ) == (2, 20.0, None, "static")
    assert file.pool.http.proxy.reference == "${LLM_CLIENT_POOL__HTTP__PROXY}"
    assert "canary" not in str(explain(file))


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (
            {"LLM_CLIENT_POOL__QUEUE__SZIE": "5"},
            "environment LLM_CLIENT_POOL__QUEUE__SZIE: pool.queue.szie: unknown key",
        ),
        ({"LLM_CLIENT_PROFILE__DEADLINE": "20"}, "profile.deadline: a duration needs a unit"),
        ({"LLM_CLIENT_POOL_QUEUE_SIZE": "5"}, "LLM_CLIENT_POOL_QUEUE_SIZE: write a level after each double underscore"),
        ({"LLM_CLIENT_POOL__": "5"}, "LLM_CLIENT_POOL__: write a level after each double underscore"),
        ({"LLM_CLIENT_PROFILE": "fast"}, "LLM_CLIENT_PROFILE: write a level after each double underscore"),
        (
            {"LLM_CLIENT_POOL__QUEUE": "{size: 5}", "LLM_CLIENT_POOL__QUEUE__AGEING": "3s"},
            "another variable sets the section",
        ),
        (
            {"LLM_CLIENT_POOL__QUEUE": "{size: 5"},
            "environment LLM_CLIENT_POOL__QUEUE, line 2: pool.queue: not valid YAML",
        ),
        ({"LLM_CLIENT_PROFILE__EXTENDS": "a"}, "only a profile of a file can extend another"),
    ],
)
def test_a_variable_that_cannot_work_is_refused(env, told):
    """By its name, before anything relies on it."""
    assert told in mistakes("", **env)


def test_explain_tells_who_set_what():
    """Line, variable, constructor or built-in; with the value as YAML has it."""
    env = {"LLM_CLIENT_PROFILE__RETRY__ATTEMPTS": "3", "KEY": "sk-canary"}
    server = "{name: a, base_url: 'http://h/', api_key: '${KEY}'}"
    text = f"pool:\n  endpoints:\n    - {server}\nprofiles:\n  a:\n    deadline: 90s\n"

    rows = origins(merge(parse(text, source="p.yaml", env=env), pool={"queue": {"size": 5}}))

    assert rows["profiles.default.deadline"] == ("10m", "built-in")
    assert rows["profiles.a.deadline"] == ("90s", "p.yaml, line 6")
    assert rows["profiles.a.retry.attempts"] == ("3", "environment LLM_CLIENT_PROFILE__RETRY__ATTEMPTS")
    assert rows["pool.queue.size"] == ("5", "constructor")
    assert rows["pool.endpoints[0].base_url"] == ("http://h/v1", "p.yaml, line 3")
    assert rows["pool.endpoints[0].api_key"] == ("******** (from ${KEY})", "p.yaml, line 3")
    assert rows["pool.endpoints"] == ("[a]", "p.yaml, line 2")


def test_explain_shows_what_holds():
    """Short forms, words, tables, and what follows from something else."""
    file = read(
        "pool: {breaker: {open_for: 10s, counts: [timeout, failures]}, queue: {ceilings: {low: 0.25}},"
        " limits: {accounts: {a: {requests: {rate: 600/min, burst: 5}}}}, http: {headers: {x-a: b}, client_cert: /c},"
        " endpoints: [{name: a, base_url: 'http://h', models: {m: served}, auth: {callable: 'os:getcwd'}}]}\n"
        "profiles: {a: {retry: {attempts: 1}, queue: {max_wait: 2s}, fallback: [{kind: cached}], hedge: off}}"
    )

    rows = {path: value for path, (value, _) in origins(file).items()}

    assert {
        "pool.breaker.open_for": "10s",
        "pool.breaker.counts": "[failures, timeout]",
        "pool.queue.ceilings.low": "0.25",
        "pool.limits.accounts.a.requests.rate": "600/min",
        "pool.limits.accounts.a.requests.burst": "5",
        "pool.http.headers.x-a": "********",
        "pool.http.client_cert": "/c",
        "pool.endpoints[0].models.m": "served",
        "pool.endpoints[0].auth.callable": "os:getcwd",
        "profiles.a.retry.refusals": "0",
        "profiles.a.queue.max_wait": "2s",
        "profiles.a.fallback[0].ttl": "1h",
        "profiles.a.fallback": "[cached]",
        "profiles.a.hedge": "off",
        "profiles.a.endpoints": "all",
        "pool.endpoints[0].account": "a",
    }.items() <= rows.items()


def test_explain_has_a_row_for_every_key():
    """Of the built-in profile, down to each default."""
    rows = origins(built_in(env={}))

    assert len(rows) > 60
    assert {"built-in"} == {origin for _, origin in rows.values()}
    assert rows["pool.breaker.open_for"] == ("{base: 500ms, cap: 1m}", "built-in")


def test_precedence_is_one_line():
    """For the command line to print."""
    assert PRECEDENCE == ("built-in", "profile file", "environment", "constructor", "call")
