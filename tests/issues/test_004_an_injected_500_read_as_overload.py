"""A fault injected into the reference server with status 500 once carried the error type of an overload.

The client rightly read `overloaded_error` before the status: it cooled the endpoint down for 50 ms instead of
retrying a failure, so tests that meant to show failures showed overload, and five failures in a hundred doubled the
time of a load. Found when a pool under such faults was half idle.
"""

from __future__ import annotations

import pytest
from llm_client import Client, LLMClientError


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "server_error"), (502, "unavailable"), (429, "rate_limited"), (401, "auth")]
)
def test_an_injected_status_is_read_as_what_it_says(llm_server, status, kind):
    """Once through the whole client, without retries."""
    llm_server.faults(status=status, times=1)
    with Client(base_url=llm_server.base_url, profile={"retry": {"attempts": 1}, "deadline": 3}) as client:
        try:
            done = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
            kinds = [each.kind for each in done.meta.attempts]
        except LLMClientError as error:
            kinds = [error.kind]

    assert kinds[0] == kind
