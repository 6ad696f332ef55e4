"""Streams that are begun anew on request: marked, bounded, and nothing is left open."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from llm_client import (
    AsyncClient,
    BadRequestError,
    Client,
    StreamInterruptedError,
    StreamRestarted,
    arestarting,
    restarting,
)
from tests.client.kit import MESSAGES, refused, streamed, token
from tests.integration.shared import idle
from tests.transport.rawserver import RESET, STREAM, RawServer

ASK = {"model": "m", "messages": MESSAGES, "stream": True}
BROKEN = [STREAM, *map(token, ["The", " answer", " is", " for"]), RESET]
COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


def read(colour, server, *, restarts=1, stop=None):
    """Collect what an iteration gives, texts and marks, and what ends it; `stop` leaves it after so many."""
    seen, error = [], None
    url = server.url("/v1")

    async def run():
        async with AsyncClient(base_url=url) as client:
            made = arestarting(lambda: client.chat.completions.create(**ASK), restarts=restarts)
            async with contextlib.aclosing(made):
                async for each in made:
                    seen.append(each)
                    if len(seen) == stop:
                        break
            assert idle(client.pool)

    try:
        if colour == "async":
            asyncio.run(run())
        else:
            with Client(base_url=url) as client:
                with contextlib.closing(
                    restarting(lambda: client.chat.completions.create(**ASK), restarts=restarts)
                ) as made:
                    for each in made:
                        seen.append(each)
                        if len(seen) == stop:
                            break
                assert idle(client.pool)
    except StreamInterruptedError as caught:
        error = caught
    return [each if isinstance(each, StreamRestarted) else each.text for each in seen], error


@COLOURS
def test_fc_st_13_a_restart_is_told_before_its_first_token(colour):
    """FC-ST-13, opt-in: the old text, the mark, the new text; two requests."""
    with RawServer(BROKEN, streamed("The answer is", " forty-two.")) as server:
        seen, error = read(colour, server)

        assert error is None
        assert [each for each in seen if each] == [
            "The",
            " answer",
            " is",
            " for",
            seen[4],
            "The answer is",
            " forty-two.",
        ]
        assert isinstance(seen[4], StreamRestarted)
        assert seen[4].number == 1
        assert seen[4].error.partial == "The answer is for"
        assert len(server.requests) == 2


@COLOURS
@pytest.mark.parametrize("restarts", [0, 2])
def test_restarts_are_bounded(colour, restarts):
    """One request more than restarts, and then the error."""
    with RawServer(BROKEN) as server:
        seen, error = read(colour, server, restarts=restarts)

        assert isinstance(error, StreamInterruptedError)
        assert [each.number for each in seen if isinstance(each, StreamRestarted)] == list(range(1, restarts + 1))
        assert len(server.requests) == 1 + restarts


@COLOURS
def test_when_no_restart_is_to_be_had_the_break_is_raised(colour):
    """With the text so far, which is void only once there is a new one; and with what came of the restart."""
    with RawServer(BROKEN, refused(400)) as server:
        seen, error = read(colour, server)

        assert seen == ["The", " answer", " is", " for"]
        assert error.partial == "The answer is for"
        assert isinstance(error.__cause__, BadRequestError)


@COLOURS
def test_leaving_it_closes_the_stream(colour):
    """Whichever stream it is at."""
    with RawServer(BROKEN, streamed("a", "b", "c")) as server:
        seen, error = read(colour, server, stop=6)

        assert error is None
        assert seen[5] == "a"
        assert len(server.requests) == 2
