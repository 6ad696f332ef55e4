"""The `pool:` section: what is read from it, and what is refused."""

import pytest
from llm_client.core.circuit import _COUNTABLE
from llm_client.model import Priority
from llm_client.profiles.pool_schema import BREAKER
from llm_client.profiles.pool_types import (
    BreakerSpec,
    BudgetSpec,
    ConcurrencySpec,
    HttpSpec,
    OpenFor,
    QueueSpec,
    StoreSpec,
)
from tests.profiles.helpers import changed, pool, pool_mistakes, refused


def test_every_key_of_the_queue_is_read():
    """All of them, away from their defaults."""
    keys = "size: 7, max_bytes: 1MiB, overflow: wait, ageing: off, order: adaptive, lifo_after: 500ms, ceilings: on"

    assert (
        QueueSpec(size=7, max_bytes=2**20, overflow="wait", ageing=None, lifo_after=0.5, ceilings=(1.0, 0.9, 0.7, 0.5))
        == pool(f"queue: {{{keys}}}").queue
    )


def test_ceilings_are_indexed_by_priority():
    """Those that are not written keep their tier."""
    ceilings = pool("queue: {ceilings: {low: 0.3}}").queue.ceilings

    assert (ceilings[Priority.LOW], ceilings[Priority.HIGH]) == (0.3, 0.9)
    assert pool("queue: {ceilings: off}").queue.ceilings is None
    assert pool("queue: {ceilings: null}").queue.ceilings is None


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("size: -1", "pool.queue.size: expected a whole number of at least 0; got '-1'"),
        ("size: 1.5", "pool.queue.size: expected a whole number"),
        ("size: [5]", "pool.queue.size: expected a whole number of at least 0, got a list"),
        ("size: off", "pool.queue.size: expected a whole number"),
        ("max_bytes: 0B", "at least 1B"),
        ("max_bytes: 256", "with its unit"),
        ("overflow: block", "expected one of reject, drop, wait; got 'block'"),
        ("ageing: 0s", "expected a duration above 0"),
        ("order: fifo, lifo_after: 2s", "lifo_after: has no effect while order is fifo; it belongs to order: adaptive"),
        ("order: lifo", "expected one of adaptive, fifo"),
        ("ceilings: {high: 1.1}", "at most 1"),
        ("ceilings: {high: 0.3}", "a more urgent class must not have a lower ceiling"),
        ("ceilings: 0.5", "expected off | on | a map"),
        ("size: 0, overflow: wait", "overflow: has no effect while size is 0"),
        ("szie: 5", "pool.queue.szie: unknown key; did you mean `size`?"),
    ],
)
def test_a_queue_that_cannot_work_is_refused(keys, told):
    """With the key path and what was expected."""
    assert told in pool_mistakes(f"queue: {{{keys}}}")


def test_a_queue_of_size_0_lets_nobody_wait():
    """Allowed: it is the classic client without a queue."""
    assert pool("queue: {size: 0}").queue.size == 0


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        ("kind: adaptive, max: 64, retry_after_scope: endpoint", {"max": 64, "retry_after_scope": "endpoint"}),
        ("kind: fixed, limit: 8", {"kind": "fixed", "limit": 8}),
        ("kind: fixed, limit: '8 '", {"kind": "fixed", "limit": 8}),
        ("kind: latency, target: 1s, window: 50, max: 9", {"kind": "latency", "target": 1.0, "window": 50, "max": 9}),
        ("kind: off", {"kind": "off"}),
    ],
)
def test_concurrency_has_four_kinds(keys, made):
    """Each with the keys it reads."""
    assert ConcurrencySpec(**made) == pool(f"concurrency: {{{keys}}}").concurrency


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("limit: 8", "limit: has no effect while kind is adaptive; it belongs to kind: fixed"),
        ("kind: fixed", "pool.concurrency: `limit` is missing"),
        ("kind: fixed, limit: 8, max: 9", "max: has no effect while kind is fixed"),
        ("kind: off, max: 9", "max: has no effect while kind is off"),
        ("target: 2s", "it belongs to kind: latency"),
        ("kind: fast", "expected one of adaptive, fixed, latency, off"),
    ],
)
def test_a_concurrency_key_without_effect_is_refused(keys, told):
    """A limit that is never read would be trusted."""
    assert told in pool_mistakes(f"concurrency: {{{keys}}}")


def test_the_classic_breaker_is_one_line():
    """As the documentation writes it."""
    keys = "{failures: 3, counts: [failures, rate_limited, overloaded, timeout], open_for: 10s}"

    assert (
        BreakerSpec(
            failures=3,
            counts=frozenset({"failures", "rate_limited", "overloaded", "timeout"}),
            open_for=OpenFor(base=10.0, cap=10.0),
        )
        == pool(f"breaker: {keys}").breaker
    )


def test_every_key_of_the_breaker_is_read():
    """All of them, away from their defaults."""
    keys = "enabled: on, failures: 9, failure_rate: off, window: 10s, open_for: {base: 1s, cap: 2s}, probes: 3"

    assert (
        BreakerSpec(
            failures=9,
            failure_rate=None,
            window=10.0,
            open_for=OpenFor(base=1.0, cap=2.0),
            probes=3,
            successes=4,
            slow_first_token=5.0,
        )
        == pool(f"breaker: {{{keys}, successes: 4, slow_first_token: 5s}}").breaker
    )


@pytest.mark.parametrize("keys", ["breaker: off", "breaker: null", "breaker: {enabled: false, failures: 3}"])
def test_the_breaker_can_be_switched_off(keys):
    """By a word, or for a while by its switch."""
    assert pool(keys).breaker.enabled is False


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("failures: 0", "at least 1"),
        ("failure_rate: 0", "above 0"),
        ("failure_rate: 50", "at most 1"),
        ("open_for: 10", "needs a unit"),
        ("open_for: {base: 70s}", "base: the first time (base) is longer than the longest (cap)"),
        ("open_for: {base: 2s, cap: 1s}", "cap: the first time (base) is longer"),
        ("counts: []", "the list is empty"),
        ("counts: failures", "expected a list"),
        ("counts: [auth]", "expected one of failures"),
        ("counts: [timeout, timeout]", "timeout is in the list twice"),
        ("failure_rate: off, window: 5s", "window: has no effect while failure_rate and slow_first_token are off"),
        ("enable: false", "unknown key; did you mean `enabled`?"),
        ("on", "expected off | a map"),
    ],
)
def test_a_breaker_that_cannot_work_is_refused(keys, told):
    """With the key path and what was expected."""
    assert told in pool_mistakes(f"breaker: {keys}" if keys == "on" else f"breaker: {{{keys}}}")


def test_what_the_breaker_may_count_is_what_it_can_count():
    """The profile's words are the decision's words."""
    counts = BREAKER.shape.by_name["counts"].shape.shape.takes

    assert set(counts.split(" | ")) == {str(word) for word in _COUNTABLE}


def test_the_retry_budget_is_read():
    """A share and a saving."""
    assert BudgetSpec(ratio=0.2, burst=5) == pool("retry_budget: {ratio: 0.2, burst: 5}").retry_budget
    assert "nan is no number" in pool_mistakes("retry_budget: {ratio: .nan}")


def test_every_key_of_http_is_read(tmp_path):
    """All of them, away from their defaults."""
    keys = "family: httpx2, trust_env: no, ca_file: /ca.pem, client_cert: /c.pem, proxy: 'http://p:1', http2: yes"

    http = pool(f"http: {{{keys}, keepalive: 0s, headers: {{a: b}}, query: {{api-version: 2024-02-01}}}}").http

    assert (
        http.family,
        http.trust_env,
        http.verify,
        http.ca_file,
        http.http2,
        http.keepalive,
    ) == ("httpx2", False, True, "/ca.pem", True, 0.0)
    assert (http.headers["a"], http.query["api-version"]) == ("b", "2024-02-01")


def test_paths_start_at_the_profile_s_folder(tmp_path):
    """So that a profile and its files can move together."""
    from llm_client.profiles.load import load

    (tmp_path / "p.yaml").write_text("pool: {http: {ca_file: certs/ca.pem}}")

    assert str(tmp_path / "certs/ca.pem") == load(tmp_path / "p.yaml", env={}).pool.http.ca_file


def test_authorities_have_no_effect_when_nothing_is_verified():
    """Whoever writes both believes in one of them wrongly."""
    assert "ca_file: has no effect while verify is false" in pool_mistakes("http: {verify: off, ca_file: /ca.pem}")


def test_the_store_is_memory():
    """Redis is a word of the format, and is refused with the remedy."""
    assert StoreSpec() == pool("store: {kind: memory}").store
    said = pool_mistakes("store: {kind: redis, url: 'redis://:sk-canary@h', on_error: local}")
    assert "pool.store.kind: a shared store is not available in this version; write memory" in said
    assert "canary" not in said
    assert "mistakes" not in said
    assert "url: has no effect while kind is memory" in pool_mistakes("store: {url: 'redis://h'}")


def test_python_values_need_no_units():
    """Seconds, bytes, amounts per second; texts with units are understood too."""
    from datetime import timedelta
    from pathlib import Path

    made = changed(
        pool={
            "queue": {"size": 500, "max_bytes": 10_000, "ageing": 3, "lifo_after": timedelta(seconds=1)},
            "breaker": {"open_for": 2.5, "failure_rate": None, "counts": {"failures", "timeout"}},
            "concurrency": {"kind": "fixed", "limit": 4},
            "http": {"keepalive": "2s", "ca_file": Path("/ca.pem"), "http2": True},
            "limits": {"total": {"requests": 10, "tokens": "90000/min"}},
        }
    ).pool

    assert QueueSpec(size=500, max_bytes=10_000, ageing=3.0, lifo_after=1.0) == made.queue
    assert made.breaker.open_for == OpenFor(base=2.5, cap=2.5)
    assert made.breaker.counts == {"failures", "timeout"}
    assert made.concurrency.limit == 4
    assert HttpSpec(keepalive=2.0, ca_file="/ca.pem", http2=True) == made.http
    assert (made.limits.total.requests.amount, made.limits.total.tokens.amount) == (10.0, 90000.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"queue": {"size": True}}, "pool.queue.size: expected a whole number of at least 0; got bool True"),
        ({"queue": {"size": 2.0}}, "pool.queue.size: expected a whole number"),
        ({"queue": {"ageing": float("nan")}}, "pool.queue.ageing: expected a number of seconds"),
        ({"queue": {"ageing": float("inf")}}, "pool.queue.ageing: expected a number of seconds"),
        ({"queue": {"ageing": -1}}, "pool.queue.ageing: expected a duration above 0"),
        ({"queue": {"ageing": "3"}}, "needs a unit"),
        ({"retry_budget": {"ratio": True}}, "pool.retry_budget.ratio: expected a number"),
        ({"http": {"verify": 1}}, "pool.http.verify: expected true or false"),
        ({"http": {"family": 5}}, "pool.http.family: int does not fit here"),
        ({"http": {"ca_file": 5}}, "pool.http.ca_file: expected the path of a file"),
        ({"limits": {"total": {"requests": True}}}, "pool.limits.total.requests: expected a number per second"),
        ({"nope": 1}, "constructor: pool.nope: unknown key"),
        ({"queue": 5}, "pool.queue: expected a map"),
        ([1], "pool: expected a mapping of settings, got list"),
        ("queue", "pool: expected a mapping of settings, got str"),
    ],
)
def test_python_values_are_checked_as_strictly(changes, told):
    """A bool is no number, NaN passes every comparison, a list is no mapping."""
    assert told in refused(pool=changes)
