"""Envoy's adaptive concurrency filter refuses with a 503 that says so in words; it was once read as an outage.

Refusals cost no attempt, outages do: of sixteen calls at once behind the filter six ended `unavailable`, with the
retry budget used up. Found by hand with a real Envoy.
"""

from __future__ import annotations

from llm_client.model import Headers, Kind
from llm_client.wire.classify import of_response


def test_reached_concurrency_limit_is_a_refusal():
    """Body and headers as Envoy sends them."""
    headers = Headers([("content-type", "text/plain"), ("server", "envoy")])
    outcome = of_response(503, headers, b"reached concurrency limit", route="chat", wall=0.0)

    assert outcome.kind is Kind.OVERLOADED
    assert outcome.refusal
    assert outcome.overload
    assert not outcome.breaker
