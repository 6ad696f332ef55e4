"""Endpoints that come and go, by hand, behind a name, from a function, and what becomes of calls."""

from __future__ import annotations

import logging
import socket
from collections import Counter

import pytest
from llm_client import ConfigError, NotFoundError, QueueTimeoutError
from llm_client.compose import housekeeping
from llm_client.profiles.load import parse
from tests.virtual import IDLE, Bench, answer

ONE_EACH = {"concurrency": {"kind": "fixed", "limit": 1}}


def names(bench):
    return {each.name for each in bench.pool.endpoints}


def hosts(bench):
    return Counter(request.url.split("/")[2] for _, request in bench.server.requests)


@pytest.fixture
def zone(monkeypatch):
    """A name server: host name to addresses."""
    known = {}

    def look(host, port, **options):
        if not known.get(host):
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in known[host]]

    monkeypatch.setattr(housekeeping.socket, "getaddrinfo", look)
    return known


def behind(name="dns+http://gpu:8000/v1", **keys):
    return {"endpoints": [{"name": "gpu", "base_url": name, **keys}]}


# -- by hand


def test_a_new_endpoint_takes_waiting_calls_at_once():
    """Nobody waits for the old one while the new one is free."""
    bench = Bench(pool={**ONE_EACH})
    bench.server.default = answer(10.0)
    for _ in range(3):
        bench.start()
    bench.world.at(1.0, bench.pool.add_endpoint, {"name": "b", "base_url": "http://b/v1"})
    bench.run()

    assert bench.server.times() == [0.0, 1.0, 10.0]
    assert hosts(bench) == {"a": 2, "b": 1}


def test_a_drained_endpoint_finishes_its_work_and_goes():
    """What is under way ends there; nothing new is sent; with the last answer it is removed."""
    bench = Bench(hosts=("a", "b"))
    bench.server.default = answer(5.0)
    results = [bench.start() for _ in range(4)]
    bench.world.at(1.0, bench.pool.drain_endpoint, "a")
    seen = []
    bench.world.at(4.9, lambda: seen.append(names(bench)))
    results += [bench.at(2.0 + n / 10) for n in range(10)]
    bench.run()

    assert all(each.ok for each in results)
    assert hosts(bench) == {"a": 2, "b": 12}
    assert [{"a", "b"}] == seen
    assert {"b"} == names(bench)
    assert bench.idle() == IDLE

    bench.pool.works.tidy()

    assert {"b"} == set(bench.pool.services.targets)


def test_an_idle_endpoint_goes_at_once():
    """There is nothing to wait for."""
    bench = Bench(hosts=("a", "b"))
    bench.pool.drain_endpoint("a")

    assert {"b"} == names(bench)

    with pytest.raises(KeyError):
        bench.pool.drain_endpoint("a")


def test_waiting_calls_outlive_their_last_endpoint():
    """The one that served them goes and another one comes: no call is lost between."""
    bench = Bench(pool={**ONE_EACH})
    bench.server.default = answer(2.0)
    results = [bench.start() for _ in range(3)]
    bench.world.at(0.5, bench.pool.drain_endpoint, "a")
    bench.world.at(5.0, bench.pool.add_endpoint, {"name": "b", "base_url": "http://b/v1"})
    bench.run()

    assert all(each.ok for each in results)
    assert hosts(bench) == {"a": 1, "b": 2}
    assert results[2].reply.meta.waited["no_endpoint"] == pytest.approx(4.5)


def test_without_any_endpoint_calls_wait_no_longer_than_they_may():
    """A call that was waiting times out; a new one learns at once that nobody serves it."""
    bench = Bench(pool={**ONE_EACH}, profile={"queue": {"max_wait": 3.0}})
    bench.server.default = answer(2.0)
    bench.start()
    waiting = bench.start()
    bench.world.at(0.5, bench.pool.drain_endpoint, "a")
    late = bench.at(2.5)
    bench.run()

    assert isinstance(waiting.error, QueueTimeoutError)
    assert pytest.approx(3.0) == waiting.elapsed
    assert isinstance(late.error, NotFoundError)


def test_a_stream_survives_the_end_of_its_endpoint():
    """Drained while it delivers: it is read to its end, and then the endpoint is gone."""
    bench = Bench(hosts=("a", "b"))
    bench.server.default = answer(5.0, "streamed")
    results = [bench.start(stream=True) for _ in range(2)]
    bench.world.at(1.0, bench.pool.drain_endpoint, "a")
    bench.run()

    assert [each.text for each in results] == ["streamed", "streamed"]
    assert {"b"} == names(bench)


def test_one_endpoint_replaces_another_of_its_name():
    """The old one's answers still come; new calls go to the new address."""
    bench = Bench()
    bench.server.default = answer(5.0)
    old = bench.start()
    bench.world.at(1.0, bench.pool.add_endpoint, {"name": "a", "base_url": "http://moved/v1"})
    new = bench.at(2.0)
    bench.run()

    assert old.ok
    assert new.ok
    assert hosts(bench) == {"a": 1, "moved": 1}
    assert bench.idle() == IDLE


def test_an_endpoint_is_checked_before_it_is_added():
    """A mistake names its key."""
    with pytest.raises(ConfigError, match=r"endpoints\[0\]\.base_url"):
        Bench().pool.add_endpoint({"name": "b", "base_url": "b:8000"})


# -- behind a name


def test_every_address_of_a_name_is_an_endpoint(zone):
    """A headless service: one queue, one limit and one circuit for each of its servers."""
    zone["gpu"] = ["10.0.0.1", "10.0.0.2"]
    bench = Bench(pool=behind())
    for n in range(20):
        bench.at(float(n))
    bench.run()

    assert {"gpu@10.0.0.1:8000", "gpu@10.0.0.2:8000"} == names(bench)
    assert {"10.0.0.1:8000", "10.0.0.2:8000"} == set(hosts(bench))
    assert all((request.url or "").endswith("/v1/chat/completions") for _, request in bench.server.requests)


def test_addresses_are_looked_up_again(zone):
    """Every 10 s: the new one is used, the lost one gets nothing new and is gone after its last answer."""
    zone["gpu"] = ["10.0.0.1", "10.0.0.2"]
    bench = Bench(pool=behind())
    house = bench.pool.works.house
    bench.server.default = answer(30.0)
    first, second = bench.start(), bench.start()
    zone["gpu"] = ["10.0.0.2", "10.0.0.3"]

    assert house.tick(5.0) == 10.0
    assert {"gpu@10.0.0.1:8000", "gpu@10.0.0.2:8000"} == names(bench)

    bench.world.run(10.0)
    house.tick(10.0)
    bench.start()
    bench.run()

    assert first.ok
    assert second.ok
    assert hosts(bench) == {"10.0.0.1:8000": 1, "10.0.0.2:8000": 1, "10.0.0.3:8000": 1}
    assert {"gpu@10.0.0.2:8000", "gpu@10.0.0.3:8000"} == names(bench)


def test_a_silent_name_server_takes_nobody_away(zone, caplog):
    """The addresses of before stay; it is said once."""
    zone["gpu"] = ["10.0.0.1"]
    bench = Bench(pool=behind())
    zone.clear()
    with caplog.at_level(logging.WARNING, "llm_client"):
        bench.pool.works.house.tick(10.0)
        bench.pool.works.house.tick(20.0)

    assert {"gpu@10.0.0.1:8000"} == names(bench)
    assert len(caplog.records) == 1
    assert "could not be resolved" in caplog.text


def test_a_name_without_addresses_is_tried_as_it_stands(zone):
    """Calls find no address as with any server, and are sent once there is one."""
    bench = Bench(pool=behind())

    assert {"gpu@gpu:8000"} == names(bench)

    zone["gpu"] = ["10.0.0.7"]
    bench.pool.works.house.tick(10.0)

    assert {"gpu@10.0.0.7:8000"} == names(bench)


def test_a_profile_names_the_group(zone):
    """`endpoints: [gpu]` allows all that were found under that name, now and later."""
    zone["gpu"] = ["10.0.0.1"]
    text = (
        "pool: {endpoints: [{name: gpu, base_url: 'dns+http://gpu:8000'}, {name: other, base_url: 'http://other'}]}\n"
        "profiles: {default: {endpoints: [gpu]}}"
    )
    bench = Bench(file=parse(text))
    zone["gpu"] = ["10.0.0.2"]
    bench.start()
    bench.run()
    bench.pool.works.house.tick(20.0)
    bench.start()
    bench.run()

    assert hosts(bench) == {"10.0.0.1:8000": 1, "10.0.0.2:8000": 1}


def test_a_group_is_drained_as_one(zone):
    """And is not looked up again."""
    zone["gpu"] = ["10.0.0.1", "10.0.0.2"]
    bench = Bench(pool=behind())
    bench.pool.drain_endpoint("gpu")
    bench.pool.works.house.tick(20.0)

    assert set() == names(bench)


def test_members_have_accounts_of_their_own(zone):
    """One replica's quota says nothing about its neighbour, unless the profile says that they share one."""
    zone["gpu"] = ["10.0.0.1", "10.0.0.2"]

    assert len({each.account for each in Bench(pool=behind()).pool.endpoints}) == 2
    assert {"team"} == {each.account for each in Bench(pool=behind(account="team")).pool.endpoints}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("dns+https://gpu:8000", "a certificate names a host"),
        ("dns+ftp://gpu", "expected a URL"),
        ("dns+http://", "URL"),
    ],
)
def test_only_plain_names_are_resolved(url, message):
    """An address has no certificate of its own."""
    with pytest.raises(ConfigError, match=message):
        Bench(pool=behind(url))


# -- from a function


def test_a_function_may_say_who_is_there():
    """Asked at once and again every 10 s."""
    urls = ["http://a:1/v1", "http://b:1"]
    bench = Bench(pool={"endpoints": [{"name": "mine", "base_url": {"callable": lambda: urls}}]})

    assert {"mine@a:1", "mine@b:1"} == names(bench)

    urls[:] = ["http://c:1"]
    bench.pool.works.house.tick(10.0)
    bench.start()
    bench.run()

    assert {"mine@c:1"} == names(bench)
    assert hosts(bench) == {"c:1": 1}


def test_a_function_that_fails_later_takes_nobody_away(caplog):
    """Whatever it raises, and when it gives nothing."""
    answers = [["http://a:1"], RuntimeError("registry down"), []]

    def ask():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    bench = Bench(pool={"endpoints": [{"name": "mine", "base_url": {"callable": ask}}]})
    for now in (10.0, 20.0):
        bench.pool.works.house.tick(now)

    assert {"mine@a:1"} == names(bench)
    assert "registry down" in caplog.text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (list, "gave no URL"),
        (lambda: "http://a", "gave str, expected a list"),
        (lambda: ["a:8000"], "expected a URL"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_function_must_give_urls_the_first_time(function, message):
    """A pool without endpoints would only fail later."""
    with pytest.raises(ConfigError, match=message):
        Bench(pool={"endpoints": [{"name": "mine", "base_url": {"callable": function}}]})


def test_an_async_function_is_refused():
    """It is asked in a thread."""

    async def ask():
        return []

    with pytest.raises(ConfigError, match="make it sync"):
        Bench(pool={"endpoints": [{"name": "mine", "base_url": {"callable": ask}}]})
