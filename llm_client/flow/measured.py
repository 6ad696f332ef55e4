"""Plain calls that the server is asked to stream, so that their first token is seen and a stall is noticed.

Nothing of it reaches the caller: the events are put together before the answer leaves the flow, and a break in the
middle is a failed attempt like any other, for nothing was delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llm_client.model import Call, Kind, Outcome
from llm_client.wire import PEEKED

# What a stream cannot say, or says in another form than the plain answer.
_WHOLE_ONLY: Final = frozenset({"audio", "background", "prompt_logprobs", "use_beam_search", "return_hidden_states"})
# Routes whose stream counts tokens only when it is asked to.
_COUNTS_ON_REQUEST: Final = frozenset({"chat", "completions"})
_REFUSING: Final = frozenset({400, 422, 501})


def may_stream(call: Call) -> bool:
    """Tell whether a plain call can be answered by a stream without a difference to its caller."""
    data = call.data
    if call.stream or call.route not in PEEKED or not call.replayable or data is None:
        return False
    if any(data.get(name) for name in _WHOLE_ONLY) or call.request.method != "POST":
        return False
    if data.get("n") not in {None, 1} or data.get("best_of") not in {None, 1}:
        return False
    prompt = data.get("prompt")
    return not isinstance(prompt, list) or all(isinstance(token, int) for token in prompt) or len(prompt) == 1


def streaming_fields(call: Call, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body that ask for a stream, and for its token counts."""
    fields: dict[str, Any] = {"stream": True}
    if call.route in _COUNTS_ON_REQUEST:
        fields["stream_options"] = {**(data.get("stream_options") or {}), "include_usage": True}
    return fields


def refuses_streaming(outcome: Outcome, body: bytes) -> bool:
    """Tell whether an error is about streaming, which the caller did not ask for; one without words may be."""
    if outcome.status not in _REFUSING or outcome.kind not in {Kind.BAD_REQUEST, Kind.SERVER_ERROR}:
        return False
    return b"stream" in body.lower() or not outcome.message
