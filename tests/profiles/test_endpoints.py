"""Endpoints and rate limits: what is read of them, and what is refused."""

import pytest
from llm_client.profiles import merge
from llm_client.profiles.pool_types import DIALECTS, WITH_PRIORITY, Rate
from llm_client.wire import dialects
from tests.profiles.helpers import endpoint, endpoint_mistakes, pool, pool_mistakes, read


def test_limits_are_rates_with_an_optional_burst():
    """Short, long, and for all scopes."""
    limits = pool(
        "limits: {total: {requests: 600/min}, accounts: {h: {tokens: {rate: 90000/min, burst: 5000}}},"
        " models: {m: {requests: 10/s, pacing: leaky}}}, endpoints: [{name: h, base_url: 'http://h'}]"
    ).limits

    assert Rate(amount=600.0, period=60.0) == limits.total.requests
    assert Rate(amount=90000.0, period=60.0, burst=5000.0) == limits.accounts["h"].tokens
    assert limits.models["m"].pacing == "leaky"


def test_a_fleet_and_pacing_are_kept_as_written():
    """What they come to is the buckets' business."""
    limits = endpoint("limits: {requests: 600/min, fleet_size: 4, pacing: leaky}").limits

    assert (limits.fleet_size, limits.pacing) == (4, "leaky")
    assert limits.requests == Rate(amount=600.0, period=60.0)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ("requests: 0/s", "expected a rate above 0"),
        ("requests: 600", "expected a rate such as"),
        ("requests: {burst: 5}", "`rate` is missing"),
        ("requests: {rate: 5/s, burst: 0}", "at least 1"),
        ("rpm: 60", "did you mean `requests`, as in requests: 600/min?"),
        ("pacing: leaky", "pacing: has no effect: no rate is set here"),
        ("fleet_size: 4", "fleet_size: has no effect: no rate is set here"),
        ("requests: 5/s, pessimistic: on", "pessimistic: has no effect without a limit on tokens"),
        ("pacing: leaky, requests: {rate: 5/s, burst: 9}", "burst has no effect with pacing: leaky"),
        ("fleet_size: 0, requests: 5/s", "at least 1"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(limits, told):
    """With the key path and what was expected."""
    assert told in endpoint_mistakes(f"limits: {{{limits}}}")


def test_limits_of_nobody_are_refused():
    """An account or model that no endpoint has would never be limited."""
    servers = "endpoints: [{name: a, base_url: 'http://h', models: [m]}]"

    assert "accounts.prod: has no effect: no endpoint has this account; there are: a" in pool_mistakes(
        f"limits: {{accounts: {{prod: {{requests: 1/s}}}}}}, {servers}"
    )
    assert "models.x: has no effect: no endpoint serves this model; there are: m" in pool_mistakes(
        f"limits: {{models: {{x: {{requests: 1/s}}}}}}, {servers}"
    )


def test_null_takes_an_entry_out_of_a_table():
    """As `extends` and constructors do."""
    file = read("pool: {limits: {models: {a: {requests: 1/s}, b: {requests: 2/s}}}}")

    assert list(merge(file, pool={"limits": {"models": {"a": None}}}).pool.limits.models) == ["b"]
    assert list(endpoint("models: {m: served, n: null}").models) == ["m"]


def test_every_key_of_an_endpoint_is_read():
    """All of them, away from their defaults."""
    found = endpoint(
        "name: a, path: as_is, api_key: k, auth: api-key, account: prod, dialect: vllm, weight: 2.5,"
        " models: {alias: served, m: 0555}, limits: {requests: 1/s}, forward_priority: true,"
        " headers: {x-a: b}, query: {api-version: 2024-02-01}, max_context: 8192"
    )

    assert (
        found.name,
        found.base_url,
        found.api_key.reveal(),
        found.account,
        found.auth,
        found.dialect,
        found.weight,
    ) == ("a", "http://h:1", "k", "prod", "api-key", "vllm", 2.5)
    assert (
        dict(found.models),
        found.forward_priority,
        found.max_context,
        found.path_mode,
    ) == ({"alias": "served", "m": "0555"}, True, 8192, "as_is")
    assert (found.headers["x-a"], found.query["api-version"], found.limits.requests.amount) == ("b", "2024-02-01", 1.0)


def test_models_may_be_a_list():
    """Names that are not aliases."""
    assert dict(endpoint("models: [a, 0555]").models) == {"a": "a", "0555": "0555"}
    assert endpoint("weight: 1").models is None


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("weight: 0", "weight: expected a number above 0"),
        ("dialect: vlm", "dialect: expected one of auto, vllm"),
        ("dialect: tgi, forward_priority: true", "has no effect: tgi reads no priority; vllm, sglang, triton do"),
        ("models: []", "the list is empty"),
        ("models: {}", "the map is empty"),
        ("models: [a, a]", "a is in the list twice"),
        ("max_context: 0", "at least 1"),
        ("name: ''", "not empty"),
        ("timout: 3", "unknown key"),
        ("deadline: 3s", "deadline: unknown key; it belongs to profiles.<name>.deadline"),
    ],
)
def test_an_endpoint_that_cannot_work_is_refused(keys, told):
    """With the key path and what was expected."""
    assert told in endpoint_mistakes(keys)


def test_an_endpoint_needs_a_url():
    """Nothing can be guessed."""
    assert "pool.endpoints[0]: `base_url` is missing" in pool_mistakes("endpoints: [{name: a}]")


def test_endpoints_have_names_of_their_own():
    """Told at the second, for metrics and errors would mix them."""
    twice = "[{base_url: 'http://h'}, {name: h, base_url: 'http://i'}]"

    assert "pool.endpoints[1].name: two endpoints are called h" in pool_mistakes(f"endpoints: {twice}")
    assert "pool.endpoints[1].base_url: two endpoints are called h" in pool_mistakes(
        "endpoints: [{base_url: 'http://h'}, {base_url: 'https://h'}]"
    )


def test_dialects_are_those_of_the_wire():
    """The profile knows their names without loading the wire."""
    assert set(DIALECTS) == set(dialects.DIALECTS)
    assert set(WITH_PRIORITY) == {name for name, each in dialects.DIALECTS.items() if each.priority_field is not None}
