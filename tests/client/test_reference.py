"""The tables of the client's reference page say what the code does."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
from llm_client import AsyncClient, Client, errors
from llm_client.client.settings import _CHANGEABLE, _KNOWN
from llm_client.model import Headers, Kind
from llm_client.wire.base import OPTION_NAMES
from llm_client.wire.classify import of_fault, of_response
from llm_client.wire.failure import to_error

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "client.md").read_text("utf-8")
# What has to be said for a status to mean this; the empty body where nothing has.
WORDS = {
    "context_length": "maximum context length is 8192 tokens",
    "content_filter": "content_filter",
    "quota_exhausted": "insufficient_quota",
    "overloaded": "queue full",
}


def rows(columns):
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:3] == "| `"]
    return [row for row in found if len(row) == columns]


ERRORS = [
    (kind.strip("`"), name.strip("`"), [int(status) for status in re.findall(r"\d{3}", statuses)])
    for kind, name, statuses in rows(3)
    if kind.strip("`") in set(Kind)
]
CASES = [(kind, name, status) for kind, name, statuses in ERRORS for status in statuses if status not in {200, 302}]


@pytest.mark.parametrize(("kind", "name", "status"), CASES)
def test_a_status_leads_to_its_row(kind, name, status):
    """Kind and class exactly."""
    said = WORDS.get(kind)
    body = json.dumps({"error": {"message": said, "code": said}}).encode() if said else b""
    error = to_error(of_response(status, Headers(), body, route="chat", wall=0.0))

    assert (str(error.kind), type(error).__name__) == (kind, name)


@pytest.mark.parametrize(
    ("kind", "name", "outcome"),
    [
        ("timeout", "APITimeoutError", of_fault("read_timeout")),
        ("unavailable", "ConnectError", of_fault("connect_refused")),
        ("unavailable", "APIConnectionError", of_fault("reset")),
        ("stream_interrupted", "StreamInterruptedError", of_fault("eof_abrupt", body_started=True)),
        ("protocol", "InvalidResponseError", of_response(200, Headers(), b"<html>", route="chat", wall=0.0)),
        ("protocol", "InvalidResponseError", of_response(302, Headers(), b"", route="chat", wall=0.0)),
    ],
)
def test_what_has_no_status_leads_to_its_row_too(kind, name, outcome):
    """Faults of the network, and answers that are none."""
    error = to_error(outcome)

    assert (str(error.kind), type(error).__name__) == (kind, name)
    assert (kind, name) in [row[:2] for row in ERRORS]


def test_every_kind_stands_in_a_table():
    """But for cancellation, which is not an error of ours."""
    decided = {row[0].strip("`"): row[1].strip("`") for row in rows(2) if row[1].endswith("Error`")}

    assert {kind for kind, _, _ in ERRORS} | decided.keys() | {"cancelled"} == set(Kind)
    for kind, name in decided.items():
        found = getattr(errors, name)
        assert found.default_kind == kind
        assert issubclass(found, errors.RejectedError) is (kind not in {"deadline", "config"})


def test_every_argument_and_option_stands_in_a_table():
    """And no other."""
    names = {name for row in rows(2) for name in re.findall(r"`(\w+)`", row[0])}

    assert set(_KNOWN) <= names
    assert OPTION_NAMES - {"timeout"} <= names
    for kind in (Client, AsyncClient):
        assert set(_KNOWN) | {"self", "unknown"} == set(inspect.signature(kind.__init__).parameters)
        assert set(_CHANGEABLE) | {"self", "unknown"} == set(inspect.signature(kind.with_options).parameters)
