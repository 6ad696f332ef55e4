"""The asyncio connection by itself: fair, lossless, and closable at any time."""

import asyncio
import socket

import pytest
from llm_client.transport import connect_aio
from llm_client.transport.connect_aio import _alternate, connect
from llm_client.transport.net_aio import Plain
from llm_client.transport.sockets import Sockets
from llm_client.transport.through import Through


@pytest.fixture
async def pair():
    """One end as a connection, the other as a socket."""
    left, right = socket.socketpair()
    left.setblocking(False)
    plain = Plain(left, Sockets())
    yield plain, right
    plain.close()
    right.close()


async def test_a_fast_peer_leaves_the_loop_to_others(pair):
    """Data that is always there does not keep a reader running for ever, not even inside `Through`."""
    plain, peer = pair
    peer.sendall(b"x" * 20_000)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(200):
        await Through(plain.receive(100, 1.0))
    counting.cancel()

    assert turns >= 10


async def test_a_cancelled_read_loses_nothing(pair):
    """Whatever arrives in the step of the cancellation is there for the next read."""
    plain, peer = pair
    got = b""
    for number in range(50):
        task = asyncio.create_task(plain.receive(100, 1.0))
        await asyncio.sleep(0)
        peer.sendall(bytes([number]))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        task.cancel()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        got += result if isinstance(result, bytes) else await plain.receive(100, 1.0)

    assert got == bytes(range(50))


async def test_closing_ends_a_read_and_a_write(pair):
    """With an error, not with a hang."""
    plain, _ = pair
    reading = asyncio.create_task(plain.receive(100, None))
    writing = asyncio.create_task(plain.send(b"x" * 10_000_000, None))
    await asyncio.sleep(0.01)
    plain.close()
    results = await asyncio.gather(reading, writing, return_exceptions=True)

    assert [type(result) for result in results] == [ConnectionAbortedError, ConnectionAbortedError]


async def test_a_peer_that_trickles_does_not_stretch_a_write(pair):
    """The time is for all of it, not for each piece the peer takes."""
    plain, peer = pair
    writing = asyncio.create_task(plain.send(b"x" * 10_000_000, 0.05))
    started = asyncio.get_running_loop().time()
    while not writing.done():
        await asyncio.sleep(0.005)
        peer.recv(20_000)

    assert isinstance(writing.exception(), TimeoutError)
    assert asyncio.get_running_loop().time() - started < 0.5


def test_address_families_take_turns():
    """Beginning with the preferred one (RFC 8305, section 4)."""
    infos = [(6, "a"), (6, "b"), (4, "c"), (6, "d"), (4, "e")]

    assert [name for _, name in _alternate(infos)] == ["a", "c", "b", "e", "d"]


async def test_a_silent_address_does_not_hold_up_a_good_one(monkeypatch):
    """The second is tried a quarter of a second later; the loser's socket is closed."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as good:
        port = good.getsockname()[1]
        real, dialled = loop.sock_connect, []

        async def connect_or_hang(sock, address):
            dialled.append(sock)
            if address[0] == "127.0.0.2":
                await asyncio.sleep(60)
            await real(sock, address)

        async def both(*_args, **_options):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(loop, "sock_connect", connect_or_hang)
        monkeypatch.setattr(loop, "getaddrinfo", both)
        monkeypatch.setattr(connect_aio, "_STAGGER", 0.02)
        sock = await connect("two.test", port, None, ())
        await asyncio.sleep(0)

        assert sock.getpeername() == ("127.0.0.1", port)
        assert [one.fileno() >= 0 for one in dialled] == [False, True]
        sock.close()
