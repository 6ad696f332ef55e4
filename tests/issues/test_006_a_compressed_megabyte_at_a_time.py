"""A compressed answer was unpacked by the mebibyte, and cost far more than the limit that was set for it.

A step of a mebibyte was bounded, but not small: a stream's events are parsed as they come, and a mebibyte of short ones
took more than twenty when parsed; of an error body, of which 64 KiB are read, two of them were in memory. A step is now
as much as a read from a socket gives. `tests/wire/test_memory.py` holds the other lines.
"""

import gzip

from llm_client.model import Headers
from llm_client.transport.body import Body
from llm_client.wire.stream import StreamReader
from tests.wire.peak import Peak

EVENTS = {"content-type": "text/event-stream"}
LIMIT, SPARE = 1_000_000, 1_000_000


def test_a_compressed_stream_is_not_unpacked_by_the_megabyte():
    """Its events are parsed as they come, so that all of them in one packet are not all there at once."""
    wire = gzip.compress(b'data: {"choices":[]}\n\n' * 50_000, 9)
    body = Body(Headers({**EVENTS, "content-encoding": "gzip"}))
    reader = StreamReader("chat", headers=Headers(EVENTS), wall=0.0, max_event_bytes=LIMIT)
    with Peak() as peak:
        body.feed(wire)
        while piece := body.take():
            reader.feed(piece)

    assert peak.bytes <= LIMIT + SPARE
