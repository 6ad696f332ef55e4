"""The flow that reads a live body on: one piece per run, so that whoever consumes it sets the pace."""

from __future__ import annotations

from llm_client.flow.delivery import Delivery
from llm_client.flow.effects import Close, Fault, Flow, Peek
from llm_client.wire.stream import Chunk


def read_on(delivery: Delivery) -> Flow[tuple[bytes, list[Chunk]] | None]:
    """Read the next piece of a body: its raw bytes and the chunks they complete; None at the end.

    The permit is settled as soon as the end is known, however slowly the rest is consumed; an error that
    came after content is raised once the content has been handed out.

    Raises:
        LLMClientError: the body broke off, or its end was an error.
    """
    if not delivery.open:
        if delivery.error is not None:
            raise delivery.error
        return None
    exchange = delivery.exchange
    try:
        late = delivery.late()
        if late is not None:
            raise late
        data: bytes | None = yield Peek(exchange, delivery.until)
    except Fault as fault:
        error = delivery.broke(fault)
        yield Close(exchange)
        if error is not None:
            raise error from fault
        return None
    if data is None:
        error = delivery.end()
        yield Close(exchange, drain=True)
        late_chunks = delivery.reader.late if delivery.reader is not None else []
        if late_chunks:
            return b"", late_chunks  # an error comes with the next run
        if error is not None:
            raise error
        return None
    chunks = delivery.feed(data)
    if delivery.ended:
        delivery.end()
        yield Close(exchange, drain=True)
    return data, chunks


def closing(delivery: Delivery) -> Flow[None]:
    """Close a body whose rest nobody wants; it has been given up already."""
    yield Close(delivery.exchange)
