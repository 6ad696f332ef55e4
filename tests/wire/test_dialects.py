"""What servers do differently: priorities, health, load reports, marks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_client.errors import ConfigError
from llm_client.model import Headers, Priority
from llm_client.profiles.pool_types import DIALECTS as IN_PROFILES
from llm_client.profiles.pool_types import WITH_PRIORITY
from llm_client.wire.dialects import DIALECTS, dialect, guess, parse_load


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("vllm", [-2, -1, 0, 1]), ("sglang", [2, 1, 0, -1]), ("triton", [1, 2, 3, 4])],
)
def test_priorities_run_in_the_servers_direction(name, numbers):
    """VLLM and Triton run smaller numbers first, SGLang larger ones; normal is the server's own default."""
    server = dialect(name)

    assert numbers == [server.priority_value(priority) for priority in Priority]
    assert server.priority_field == "priority"


@pytest.mark.parametrize("name", sorted(set(DIALECTS) - {"vllm", "sglang", "triton"}))
def test_no_other_server_gets_a_priority(name):
    """An unknown direction would turn the order round."""
    assert dialect(name).priority_field is None


def test_profiles_offer_only_what_exists():
    """A name that passes the profile's check is a dialect, and the ones with priorities agree."""
    assert set(IN_PROFILES) == set(DIALECTS)
    assert set(WITH_PRIORITY) == {name for name, one in DIALECTS.items() if one.priority_field}


def test_an_unknown_name_is_a_config_error_that_lists_the_known():
    """The remedy is in the message."""
    with pytest.raises(ConfigError, match="vllm"):
        dialect("vlm")


@pytest.mark.parametrize(
    ("headers", "models", "name"),
    [
        ({"Server": "llama.cpp"}, None, "llamacpp"),
        ({"server": "uvicorn"}, {"data": [{"id": "m", "owned_by": "vllm"}]}, "vllm"),
        ({"server": "uvicorn"}, {"data": [{"id": "m", "owned_by": "SGLang"}]}, "sglang"),
        ({"x-envoy-upstream-service-time": "3"}, {"data": [{"owned_by": "vllm"}]}, "vllm"),
        ({"x-envoy-upstream-service-time": "3"}, None, "envoy"),
        ({"server": "nginx/1.22"}, None, "nginx"),
        ({"x-litellm-call-id": "c"}, {"data": [{"owned_by": "openai"}]}, "litellm"),
        ({"apim-request-id": "a", "openai-processing-ms": "3"}, None, "azure"),
        ({"openai-processing-ms": "3"}, None, "openai"),
        ({"via": "1.1 kong/3.4"}, None, "kong"),
        ({}, {"data": "x"}, "auto"),
        ({}, [], "auto"),
        ({}, {"data": [None, {"owned_by": 3}]}, "auto"),
    ],
)
def test_a_server_gives_itself_away(headers, models, name):
    """The model list names the engine, even behind a gateway; headers name the rest."""
    assert name == guess(Headers(headers), models)


@pytest.mark.parametrize(
    "value",
    [
        "TEXT named_metrics.kv_cache_utilization=0.4, named_metrics.num_requests_waiting=3.0",
        "named_metrics.kv_cache_utilization=0.4,named_metrics.num_requests_waiting=3",
        'JSON {"named_metrics": {"kv_cache_utilization": 0.4, "num_requests_waiting": 3}}',
        '{"named_metrics": {"kv_cache_utilization": 0.4, "num_requests_waiting": 3}}',
    ],
)
def test_a_load_report_is_read_in_both_forms(value):
    """ORCA's TEXT and JSON say the same."""
    report = parse_load(value)

    assert (report.kv_cache, report.waiting, report.running) == (0.4, 3.0, None)
    assert report.metrics == {"kv_cache_utilization": 0.4, "num_requests_waiting": 3.0}


@pytest.mark.parametrize("value", ["", "TEXT", "TEXT nonsense", "JSON {", 'JSON {"named_metrics": 3}', "BIN AAECAw=="])
def test_a_report_that_says_nothing_is_none(value):
    """Unknown forms are no load."""
    assert parse_load(value) is None


@settings(deadline=None)
@given(st.text())
def test_no_report_breaks_the_reader(value):
    """Any text, with any prefix."""
    for prefix in ("", "TEXT ", "JSON ", "JSON {"):
        report = parse_load(prefix + value)
        assert report is None or report.metrics
