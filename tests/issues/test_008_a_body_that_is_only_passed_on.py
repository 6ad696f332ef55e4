"""The drop-in transports once altered two kinds of answers that they should only have passed on.

A download of more than 256 MiB broke off, because the bound on bodies that are kept in memory held for all; the way
to lift it was there, and nobody took it. And an answer in a content coding that is not undone here (`br`, `zstd`)
kept its bytes and lost its `content-encoding`, so that nobody could read it any more. Found by reading the two again.
"""

from __future__ import annotations

import gzip

import pytest
from llm_client import Pool, http_client
from tests.transport.rawserver import RawServer, answer, head

MEBI = 1 << 20
MANY = 257
FILE = "http://x/v1/files/file-1/content"
COLOURS = pytest.mark.parametrize("asynchronous", [False, True])


async def fetch(pool, asynchronous, method="GET"):
    """Read an answer piece by piece, as it is on the wire; return the response and its pieces' sizes and first bytes."""
    sizes, first = 0, b""
    if asynchronous:
        async with http_client(pool, asynchronous=True) as http, http.stream(method, FILE) as response:
            async for piece in response.aiter_raw():
                sizes, first = sizes + len(piece), first or piece
    else:
        with http_client(pool) as http, http.stream(method, FILE) as response:
            for piece in response.iter_raw():
                sizes, first = sizes + len(piece), first or piece
    return response, sizes, first


@COLOURS
async def test_a_download_larger_than_any_bound_comes_through(asynchronous):
    """Piece by piece, so it costs no memory either."""
    large = [head(content_type="application/octet-stream", content_length=str(MANY * MEBI)), *[b"x" * MEBI] * MANY]
    with RawServer(large) as server:
        async with Pool(base_url=server.url("/v1")) as pool:
            response, size, _ = await fetch(pool, asynchronous)

    assert (200, MANY * MEBI) == (response.status_code, size)
    assert response.headers["content-length"] == str(MANY * MEBI)


@COLOURS
@pytest.mark.parametrize("coding", ["br", "zstd", "x-own"])
async def test_a_coding_that_is_not_undone_keeps_its_name(asynchronous, coding):
    """With its bytes and its length."""
    with RawServer([answer(body=b"\x0b\x02\x80", content_encoding=coding)]) as server:
        async with Pool(base_url=server.url("/v1")) as pool:
            response, size, first = await fetch(pool, asynchronous)

    assert (coding, 3, b"\x0b\x02\x80") == (response.headers.get("content-encoding"), size, first)
    assert response.headers["content-length"] == "3"


@COLOURS
async def test_a_coding_that_is_undone_loses_it(asynchronous):
    """What comes out is plain, and its length is another."""
    with RawServer([answer(body=gzip.compress(b"plain" * 100), content_encoding="gzip")]) as server:
        async with Pool(base_url=server.url("/v1")) as pool:
            response, size, _ = await fetch(pool, asynchronous)

    assert 500 == size
    assert not {"content-encoding", "content-length"} & set(response.headers)
