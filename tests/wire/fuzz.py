"""Fuzz what reads a server's words, guided by coverage: SSE decoder, stream reader, Retry-After, error bodies.

Run by hand, where atheris installs:

    pip install atheris
    python tests/wire/fuzz.py stream CORPUS_DIRECTORY -max_total_time=120

The first argument names what is fuzzed (`sse`, `stream`, `waits`, `errors`), the second where the corpus is kept, which
starts with the bodies of the recorded cases; the rest is libFuzzer's.
It ends with a traceback and a file that reproduces it when anything leaves our tree of errors, or when one cut of the
bytes reads otherwise than another. `test_reading_fuzz.py` holds the same properties in every test run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["llm_client"]):
    from llm_client.core.retry_after import parse_delay, parse_reset, rate_headers, read_hint
    from llm_client.errors import LLMClientError
    from llm_client.model import Headers
    from llm_client.wire.classify import of_response
    from llm_client.wire.failure import MAX_MESSAGE, to_error
    from llm_client.wire.problem import read_problem
    from llm_client.wire.sse import Decoder
    from llm_client.wire.stream import StreamReader

CASES = Path(__file__).parents[1] / "cases" / "wire.json"
LIMIT = 1 << 20  # never met: an event above its bound is refused at the cut after it, so there the cuts may tell
TYPES = ("text/event-stream", "application/json", "text/html", "application/x-ndjson", "")
FAULTS = (None, "eof_abrupt", "read_timeout", "client_deadline", "decode_error", "reset")
ROUTES = ("chat", "completions", "responses", "embeddings", "models", "other")
WAITS = ("retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "x-ratelimit-reset", "ratelimit", "date")


def headers(data: atheris.FuzzedDataProvider) -> Headers:
    """Make headers, some of them about waiting."""
    pairs = [("content-type", data.PickValueInList(list(TYPES)))]
    pairs += [(name, data.ConsumeUnicode(24)) for name in WAITS if data.ConsumeBool()]
    return Headers(pairs)


def sse(data: atheris.FuzzedDataProvider) -> None:
    """Events do not depend on where the bytes are cut."""
    pieces = data.ConsumeIntInRange(1, 16)
    body = data.ConsumeBytes(sys.maxsize)
    whole, other = Decoder(LIMIT), Decoder(LIMIT)
    seen = [*whole.feed(body), *whole.end()]
    again = [each for at in range(0, len(body), pieces) for each in other.feed(body[at : at + pieces])]
    assert seen == [*again, *other.end()]


def stream(data: atheris.FuzzedDataProvider) -> None:
    """A body has one outcome however it is cut, and a failure becomes an error of our tree."""
    route, about = data.PickValueInList(list(ROUTES[:3])), headers(data)
    fault = data.PickValueInList(list(FAULTS))
    strict, held = data.ConsumeBool(), data.ConsumeBool()
    size = data.ConsumeIntInRange(1, 16)
    body = data.ConsumeBytes(sys.maxsize)
    results = []
    for step in (max(len(body), 1), size):
        reader = StreamReader(route, headers=about, wall=0.0, max_event_bytes=LIMIT, strict=strict, held=held)
        for at in range(0, len(body), step):
            reader.feed(body[at : at + step])
        outcome = reader.cut(fault) if fault else reader.end()
        results.append((outcome, reader.text, reader.reasoning, reader.usage, reader.assemble()))
    assert results[0] == results[1]
    outcome, text = results[0][:2]
    assert held or not (outcome.retryable and text)
    if not outcome.ok:
        check(to_error(outcome, body=body, headers=about, endpoint="e", partial=text))


def waits(data: atheris.FuzzedDataProvider) -> None:
    """A wait is None or a finite number that is not negative."""
    about = headers(data)
    hint = read_hint(about, wall=1.8e9)
    assert hint is None or 0 <= hint.seconds < float("inf")
    rate_headers(about, wall=1.8e9)
    value = data.ConsumeUnicode(sys.maxsize)
    for parse in (parse_delay, parse_reset):
        seconds = parse(value, wall=1.8e9)
        assert seconds is None or 0 <= seconds < float("inf")


def errors(data: atheris.FuzzedDataProvider) -> None:
    """Any status with any body is classified."""
    status, route, about = data.ConsumeIntInRange(200, 599), data.PickValueInList(list(ROUTES)), headers(data)
    body = data.ConsumeBytes(sys.maxsize)
    read_problem(body)
    outcome = of_response(status, about, body, route=route, wall=1.8e9)
    assert outcome.ok == (outcome.kind is None)
    if not outcome.ok:
        check(to_error(outcome, body=body, headers=about))


def check(error: BaseException) -> None:
    """Fail unless it is one of ours, and short."""
    assert isinstance(error, LLMClientError)
    assert len(str(error)) <= MAX_MESSAGE


def sow(corpus: Path) -> None:
    """Write the recorded bodies down, each with two endings: from those the numbers are drawn."""
    corpus.mkdir(parents=True, exist_ok=True)
    for case in json.loads(CASES.read_text(encoding="utf-8")):
        pieces = case["body_chunks"] if "body_chunks" in case else [case.get("body") or ""]
        for ending in (bytes(24), bytes(range(24))):
            (corpus / f"{case['id']}-{ending[-1]}").write_bytes("".join(pieces).encode() + ending)


TARGETS: dict[str, Callable[[atheris.FuzzedDataProvider], None]] = {
    "sse": sse,
    "stream": stream,
    "waits": waits,
    "errors": errors,
}


def main() -> None:
    """Hand libFuzzer what to call."""
    if len(sys.argv) < 3 or sys.argv[1] not in TARGETS:
        sys.exit(__doc__)
    target = TARGETS[sys.argv.pop(1)]
    sow(Path(sys.argv[1]))
    atheris.Setup(sys.argv, lambda raw: target(atheris.FuzzedDataProvider(raw)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
