"""A window of the latency signal, for rooms that only read it."""

from __future__ import annotations

from llm_client.core.signal import Reading


def reading(**given):
    """Twenty calls in flight that took twice as long as the best."""
    return Reading(
        **{
            "wait": 1.0,
            "service": 1.0,
            "target": 2.0,
            "sure": False,
            "least": 1.0,
            "level": 20.0,
            "fresh": 1.0,
            "rate": 10.0,
            "alike": False,
        }
        | given
    )
