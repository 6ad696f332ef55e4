"""The `profiles:` section: what is read from it, and what is refused."""

import os

import pytest
from llm_client.model import Kind, Priority
from llm_client.profiles.types import (
    FALLBACK_ON,
    BackoffSpec,
    BackpressureSpec,
    CachedFallback,
    CallableFallback,
    HedgeSpec,
    ModelFallback,
    Profile,
    ProfileFallback,
    RetrySpec,
    StaticFallback,
    Timeouts,
)
from tests.profiles.helpers import changed, default, default_mistakes, mistakes, read, refused

TO = "{{fallback: [{{kind: cached}}, {{kind: profile, profile: {}}}]}}"
TWO = "pool: {endpoints: [{name: a, base_url: 'http://a'}, {name: b, base_url: 'http://b', models: [m]}]}\n"


def test_every_key_of_a_profile_is_read():
    """All of them, away from their defaults."""
    made = default(
        "priority: high, deadline: 30s, deadline_covers: first_token, timeouts: {connect: 1s, attempt: 20s,"
        " first_token: 10s, progress: 60s, liveness: 15s}, queue: {max_wait: 0s}, retry: {attempts: 3, refusals: 9,"
        " backoff: {kind: equal_jitter, base: 1s, cap: 5s}, retry_after: {cap: 60s}, unknown_outcome: off},"
        " endpoints: [a], model: m, backpressure: {kind: queue_depth, watch: 0.4, refuse: 0.6},"
        " measure_first_token: on, fallback: [{kind: static, text: busy}], fallback_on: [queue_full]"
    )

    assert (
        Profile(
            priority=Priority.HIGH,
            deadline=30.0,
            deadline_covers="first_token",
            timeouts=Timeouts(connect=1.0, attempt=20.0, first_token=10.0, progress=60.0, liveness=15.0),
            queue_max_wait=0.0,
            retry=RetrySpec(
                attempts=3,
                refusals=9,
                backoff=BackoffSpec(kind="equal_jitter", base=1.0, cap=5.0),
                retry_after_cap=60.0,
                unknown_outcome=False,
            ),
            endpoints=("a",),
            model="m",
            backpressure=BackpressureSpec(watch=0.4, refuse=0.6),
            measure_first_token=True,
            fallback=(StaticFallback(text="busy"),),
            fallback_on=frozenset({"queue_full"}),
        )
        == made
    )


def test_off_and_null_switch_off():
    """And say the same."""
    keys = "deadline: off, timeouts: {first_token: off, connect: null}, hedge: off, backpressure: null, fallback: off"
    made = default(keys)

    assert (made.deadline, made.timeouts.first_token, made.timeouts.connect) == (None, None, None)
    assert (made.hedge, made.backpressure, made.fallback) == (None, None, ())


def test_null_elsewhere_is_not_written():
    """Where nothing can be switched off, the built-in value holds."""
    assert RetrySpec() == default("retry: {attempts: null, backoff: null}").retry


def test_words_stand_for_no_bound():
    """`deadline` and `all`."""
    made = default("queue: {max_wait: deadline}, endpoints: all")

    assert (made.queue_max_wait, made.endpoints) == (None, None)


@pytest.mark.parametrize(
    ("written", "priority"),
    [("critical", 0), ("High", 1), ("medium", 2), ("normal", 2), ("low", 3), ("0", 0), ("3", 3)],
)
def test_a_priority_is_a_name_or_a_number(written, priority):
    """Smaller goes first."""
    assert priority == default(f"priority: {written}").priority


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            "priority: urgent",
            "priority: expected critical | high | normal | low, or 0 to 3 (0 goes first); got 'urgent'",
        ),
        ("priority: 4", "priority: expected"),
        ("deadline: 30", "deadline: a duration needs a unit: 30s"),
        ("deadline: never", "deadline: expected a duration"),
        ("deadline: 0s", "deadline: expected a duration above 0"),
        ("deadline: 0600s", "leading zero"),
        ("deadline_covers: all", "expected one of end, first_token"),
        ("deadline: off, deadline_covers: first_token", "deadline_covers: has no effect while deadline is off"),
        ("retry: {attempts: 0}", "retry.attempts: expected a whole number of at least 1"),
        ("retry: {attempts: 2.5}", "retry.attempts: expected a whole number"),
        ("retry: {attempts: 1, refusals: 5}", "retry.refusals: has no effect with attempts: 1"),
        ("retry: {attempts: 1, backoff: {base: 1s}}", "retry.backoff.base: has no effect with attempts: 1"),
        ("retry: {attempts: 1, retry_after: {cap: 1s}}", "retry.retry_after.cap: has no effect with attempts: 1"),
        ("retry: {attempts: 1, unknown_outcome: off}", "retry.unknown_outcome: has no effect with attempts: 1"),
        ("retry: {backoff: {kind: constant, cap: 5s}}", "cap: has no effect while kind is constant"),
        ("retry: {backoff: {base: 30s}}", "base: the first wait (base) is longer than the longest (cap)"),
        ("retry: {backoff: {base: 3s, cap: 2s}}", "cap: the first wait (base) is longer than the longest (cap)"),
        ("retry: {backoff: {kind: random}}", "expected one of full_jitter"),
        ("deadline: 5s, timeouts: {attempt: 6s}", "timeouts.attempt: has no effect: the deadline of 5s comes first"),
        ("deadline: 5s, queue: {max_wait: 6s}", "queue.max_wait: has no effect: the deadline of 5s comes first"),
        ("deadline: 5s, timeouts: {progress: 6s}", "timeouts.progress: has no effect"),
        ("queue: {max_wait: never}", "queue.max_wait: expected a duration such as"),
        ("endpoints: a", "endpoints: expected all | a list of: a text"),
        ("endpoints: []", "endpoints: the list is empty"),
        ("backpressure: on", "backpressure: expected off | a map"),
        ("backpressure: {watch: 0.5}", "backpressure: `kind` is missing"),
        ("backpressure: {kind: queue_depth, watch: 0.9}", "watch: watch comes before refuse"),
        ("backpressure: {kind: queue_depth, refuse: 1.5}", "refuse: the queue is never fuller than 1.0"),
        ("backpressure: {kind: queue_depth, target: 2s}", "target: has no effect while kind is queue_depth"),
        ("hedge: on", "hedge: expected off | a map"),
        ("hedge: {after: p99}", "hedge.after: expected a duration"),
        ("hedge: {budget: 0}", "hedge.budget: expected a number above 0"),
        ("hedge: {}, retry: {attempts: 1}", "hedge: cannot work with retry.attempts: 1"),
        ("hedge: {after: 1s}, retry: {attempts: 1}", "hedge: cannot work with retry.attempts: 1"),
        ("fallback: [{text: x}]", "fallback[0]: `kind` is missing"),
        ("fallback: [{kind: static}]", "fallback[0]: `text` is missing"),
        ("fallback: [{kind: static, text: ''}]", "fallback[0].text: expected a text that is not empty"),
        ("fallback: [{kind: static, text: x, ttl: 5s}]", "ttl: has no effect while kind is static"),
        ("fallback: [{kind: models, model: m}]", "expected one of static, callable, profile, model, cached"),
        ("fallback: {kind: static, text: x}", "fallback: expected a list"),
        ("fallback: [busy]", "fallback[0]: expected a map"),
        ("fallback: [{kind: callable, target: 'no.such:f'}]", "cannot import the module no.such"),
        ("fallback: [{kind: profile, profile: nope}]", "no profile 'nope' in this file; there are: default"),
        ("fallback: [{kind: model, model: m}], model: m", "is the profile's own model"),
        (
            "fallback: [{kind: cached}, {kind: cached}]",
            "fallback[1].kind: the same fallback stands in the chain before",
        ),
        ("fallback_on: [queue_full]", "fallback_on: has no effect without a fallback"),
        ("fallback_on: [config], fallback: [{kind: cached}]", "fallback_on[0]: expected one of rate_limited"),
        ("fallback_on: [], fallback: [{kind: cached}]", "the list is empty"),
        ("extends: [a]", "extends: expected the name of one profile"),
        ("retries: 3", "retries: unknown key; did you mean `profiles.<name>.retry.attempts`"),
        ("jitter: off", "jitter: unknown key"),
    ],
)
def test_a_profile_that_cannot_work_is_refused(keys, told):
    """With the key path and what was expected."""
    assert told in default_mistakes(keys)


@pytest.mark.parametrize("key", ["breaker", "concurrency", "retry_budget", "http", "limits", "store"])
def test_a_pool_key_in_a_profile_is_told_where_it_belongs(key):
    """It is shared by all profiles of the file."""
    assert f"profiles.default.{key}: unknown key; it is shared by all profiles and belongs to pool.{key}" in (
        default_mistakes(f"{key}: {{}}")
    )


def test_the_queue_s_size_belongs_to_the_pool():
    """A profile's queue section has only its own wait."""
    said = default_mistakes("queue: {size: 5}")

    assert (
        "profiles.default.queue.size: unknown key; it is shared by all profiles and belongs to pool.queue.size" in said
    )


@pytest.mark.parametrize("keys", ["profiles: {default: 5}", "profiles: {default: [a]}"])
def test_a_profile_is_a_map(keys):
    """Nothing else."""
    assert "profiles.default: expected a map" in mistakes(keys)


def test_one_attempt_tries_nothing_again():
    """Not even what was refused, without having to say so."""
    assert default("retry: {attempts: 1}").retry.refusals == 0
    assert default("retry: {attempts: 1, refusals: 0}").retry.refusals == 0


def test_backpressure_by_latency_has_defaults_of_its_own():
    """Two seconds over a hundred answers."""
    assert BackpressureSpec(kind="latency", watch=1.0, refuse=1.5, target=2.0, window=100) == (
        default("backpressure: {kind: latency}").backpressure
    )
    assert BackpressureSpec(kind="queue_depth", watch=0.5, refuse=0.8) == (
        default("backpressure: {kind: queue_depth}").backpressure
    )


def test_a_hedge_is_read():
    """All of its keys."""
    assert HedgeSpec() == default("hedge: {}").hedge
    assert HedgeSpec(after=1.0, budget=0.1, priority=Priority.CRITICAL, max_prompt=10) == (
        default("hedge: {after: 1s, budget: 0.1, priority: critical, max_prompt: 10}").hedge
    )
    assert default("hedge: {after: p95}").hedge.after is None


def test_every_kind_of_fallback_is_read():
    """In the order of the chain."""
    made = read(
        "profiles: {b: {}, default: {fallback: [{kind: cached, max_entries: 5, ttl: 1m}, {kind: model, model: s},"
        " {kind: profile, profile: b}, {kind: callable, target: 'os:getcwd'}, {kind: static, text: busy}]}}"
    ).profiles["default"]

    assert (
        CachedFallback(max_entries=5, ttl=60.0),
        ModelFallback(model="s"),
        ProfileFallback(profile="b"),
        CallableFallback(target="os:getcwd", function=os.getcwd),
        StaticFallback(text="busy"),
    ) == made.fallback
    assert made.fallback[3].function is os.getcwd
    assert [each.kind for each in made.fallback] == ["cached", "model", "profile", "callable", "static"]


def test_a_fallback_may_be_a_function_in_python():
    """No need to name it."""

    def busy(call, error):
        return "busy"

    made = changed(profile={"fallback": [{"kind": "callable", "target": busy}]}).profiles["default"].fallback[0]

    assert made.function is busy
    assert made.target.endswith("busy")
    assert "target: expected a function" in refused(profile={"fallback": [{"kind": "callable", "target": 5}]})


def test_fallbacks_answer_what_another_answer_can_help_with():
    """Shed, refused, gone; never a bad request."""
    assert default("").fallback_on == FALLBACK_ON
    assert not {Kind.BAD_REQUEST, Kind.AUTH, Kind.CONTEXT_LENGTH} & FALLBACK_ON
    assert default("fallback: [{kind: cached}], fallback_on: [auth]").fallback_on == {"auth"}


def test_first_token_deadlines_leave_the_rest_of_a_stream_alone():
    """Progress goes on after the deadline is met."""
    assert default("deadline: 5s, deadline_covers: first_token, timeouts: {progress: 60s}").timeouts.progress == 60.0


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("endpoints: [a, c]", "endpoints: no endpoint 'c'; there are: a, b"),
        ("endpoints: [a, a]", "a is in the list twice"),
        ("endpoints: [b], model: x", "model: no endpoint of this profile serves 'x'; they serve: m"),
        ("endpoints: [b], hedge: {after: 1s}", "hedge: cannot work with one endpoint"),
    ],
)
def test_names_must_exist(keys, told):
    """Endpoints, models, and a second endpoint for a hedge."""
    assert told in mistakes(f"{TWO}profiles: {{default: {{{keys}}}}}")


def test_a_model_that_some_endpoint_takes_is_accepted():
    """One without a list takes any."""
    assert read(f"{TWO}profiles: {{default: {{model: x, hedge: {{}}}}}}").profiles["default"].model == "x"


def test_a_fallback_model_that_nobody_serves_is_refused():
    """It would fail exactly when it is needed."""
    text = "pool: {endpoints: [{name: b, base_url: 'http://b', models: [m]}]}\nprofiles: {default: {fallback: "

    assert "fallback[0].model: no endpoint serves 'x'; there are: m" in mistakes(
        f"{text}[{{kind: model, model: x}}]}}}}"
    )


@pytest.mark.parametrize(
    ("profiles", "told"),
    [
        (
            "{a: {fallback: [{kind: profile, profile: a}]}}",
            "profiles.a.fallback[0].profile: leads back to itself: a -> a",
        ),
        (
            "{b: {fallback: [{kind: profile, profile: a}]}, a: {fallback: [{kind: profile, profile: b}]}}",
            "profiles.a.fallback[0].profile: leads back to itself: a -> b -> a",
        ),
        (
            f"{{a: {TO.format('b')}, b: {TO.format('c')}, c: {TO.format('a')}}}",
            "leads back to itself: a -> b -> c -> a",
        ),
    ],
)
def test_a_circle_of_fallbacks_is_told_once(profiles, told):
    """It would try the same servers without end."""
    said = mistakes(f"profiles: {profiles}")

    assert told in said
    assert said.count("leads back") == 1


def test_a_tree_of_fallbacks_is_no_circle():
    """Two ways to one end."""
    profiles = (
        f"{{a: {{fallback: [{{kind: profile, profile: b}}, {{kind: profile, profile: c}}]}}, b: {TO.format('c')}, c: }}"
    )

    assert len(read(f"profiles: {profiles}").profiles["a"].fallback) == 2
