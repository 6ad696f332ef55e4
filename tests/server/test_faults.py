"""What goes wrong on purpose: the words, the rules, and the bytes on the wire."""

import asyncio
import json
import random
import socket
import time
from itertools import pairwise

import httpx
import pytest
from llm_client.server.faults import Faults, Rule, parse, rules, script
from llm_client.server.settings import SettingsError
from llm_client.server.text import answer

HEADER = "x-llm-fault"


def _faults():
    return Faults(random.Random(1))


def _pick(faults, now=0.0, path="/infer", model="m", headers=None):
    return faults.pick(path, model, headers or {}, now)


def test_header_is_read_as_words_and_as_json():
    """`stall=3, stall_for=2s`, a bare word, or an object."""
    assert parse("stall=3, stall_for=200ms").stall_for == 0.2
    assert parse("hang").hang
    assert parse('{"text": "a\\u2028b"}').text == "a\u2028b"
    assert parse("stream_error=0, code=503").code == "503"


@pytest.mark.parametrize(
    ("text", "word"),
    [("stal=3", "stal"), ("stall=-1", "stall"), ("status=99", "status"), ("{", "JSON"), ("brownout=2", "rule")],
)
def test_header_that_makes_no_sense_is_told(text, word):
    """The word at fault is in the message."""
    with pytest.raises(ValueError, match=word):
        parse(text)


def test_rule_hits_at_most_so_many_times():
    """`times: 2` and then never again."""
    faults = _faults()
    faults.add(Rule(status=500, times=2), 0.0)

    assert [_pick(faults) is not None for _ in range(4)] == [True, True, False, False]


def test_rule_has_a_beginning_and_an_end():
    """`at` and `for` count from when it was put into force."""
    faults = _faults()
    faults.add(rules({"status": 500, "at": "5s", "for": "2s"})[0], 100.0)

    assert [_pick(faults, now) is not None for now in (104.9, 105.0, 106.9, 107.0)] == [False, True, True, False]
    assert faults.listing(108.0) == []


def test_rate_is_kept_by_the_dice():
    """Half of a thousand, give or take."""
    faults = _faults()
    faults.add(Rule(status=500, rate=0.5), 0.0)
    hits = sum(_pick(faults) is not None for _ in range(1000))

    assert 450 < hits < 550


def test_rule_hits_whom_it_is_meant_for():
    """By path, model and header."""
    faults = _faults()
    faults.add(Rule(status=500, path="/chat/completions", model="m", header={"x-tenant": "*"}), 0.0)
    headers = {"x-tenant": "a"}

    assert _pick(faults, path="/v1/chat/completions", headers=headers) is not None
    assert _pick(faults, path="/v1/completions", headers=headers) is None
    assert _pick(faults, path="/v1/chat/completions", headers=headers, model="n") is None
    assert _pick(faults, path="/v1/chat/completions") is None


def test_rules_can_be_taken_out():
    """One by its number, or all."""
    faults = _faults()
    first = faults.add(Rule(status=500), 0.0)
    faults.add(Rule(status=503), 0.0)

    assert faults.remove(first)
    assert not faults.remove(first)
    assert _pick(faults).status == 503
    faults.clear()
    assert _pick(faults) is None


def test_script_is_read_from_yaml(tmp_path):
    """A list, or a mapping with `faults`."""
    file = tmp_path / "faults.yaml"
    file.write_text("faults:\n  - {at: 1s, for: 500ms, brownout: 4}\n  - {status: 503, rate: 0.1}\n")

    assert [rule.brownout for rule in script(file)] == [4, 1]


@pytest.mark.parametrize("text", ["- {sttus: 503}", "faults: [", "- 3"])
def test_script_with_an_error_names_the_file(tmp_path, text):
    """A clear error before the server starts."""
    file = tmp_path / "faults.yaml"
    file.write_text(text)

    with pytest.raises(SettingsError, match=r"faults\.yaml"):
        script(file)


def test_script_plays_from_the_start_of_the_server(inside, simulate, tmp_path):
    """An outage from the second to the third second."""
    file = tmp_path / "faults.yaml"
    file.write_text("- {at: 2s, for: 1s, status: 503}")

    async def scenario():
        server = inside(seconds=0.0, faults=str(file))
        out = []
        for _ in range(5):
            out.append((await server.chat()).status)
            await asyncio.sleep(0.9)
        return out

    assert simulate(scenario()) == [200, 200, 200, 503, 200]


def test_brownout_slows_the_engine_for_everybody(inside, simulate):
    """Four times slower while it lasts."""

    async def scenario():
        server = inside(seconds=1.0)
        server.state.faults.add(Rule(brownout=4), asyncio.get_running_loop().time())
        slow = (await server.chat()).took
        server.state.faults.clear()
        return slow, (await server.chat()).took

    assert simulate(scenario()) == (pytest.approx(4.0), pytest.approx(1.0))


def _stream(inside, simulate, fault, **body):
    async def scenario():
        server = inside(seconds=0.5)
        got = await server.chat(stream=True, max_tokens=5, headers={HEADER: fault}, **body)
        return got, server.ledger

    return simulate(scenario())


def test_status_comes_instead_of_the_work(inside, simulate):
    """Any status, body, type and headers; the engine is not bothered."""

    async def scenario():
        server = inside()
        fault = {
            "status": 503,
            "body": "<html>busy</html>",
            "content_type": "text/html",
            "headers": {"Retry-After": "7"},
        }
        got = await server.chat(headers={HEADER: json.dumps(fault)})
        return got, server.ledger.executed, server.ledger.reasons

    got, executed, reasons = simulate(scenario())

    assert (got.status, got.body, got.headers["retry-after"]) == (503, b"<html>busy</html>", "7")
    assert got.headers["content-type"] == "text/html"
    assert executed == 0
    assert reasons == {"fault_status": 1}


def test_latency_comes_before_everything(inside, simulate):
    """Two seconds more, and the client that leaves meanwhile is noticed."""

    async def scenario():
        server = inside(seconds=1.0)
        late = await server.chat(headers={HEADER: "latency=2"})
        await server.chat(headers={HEADER: "latency=2"}, leave_after=0.5)
        return late.took, server.ledger.results["abandoned"]

    assert simulate(scenario()) == (pytest.approx(3.0), 1)


def test_overload_can_be_ordered(inside, simulate):
    """The refusal of a full queue, from an idle server."""

    async def scenario():
        return await inside().chat(headers={HEADER: "overload"})

    got = simulate(scenario())

    assert (got.status, got.data["error"]["code"]) == (429, "queue_full")


def test_stalled_stream_is_silent_and_goes_on(inside, simulate):
    """Two tokens, three seconds from when the third was due, the rest; comments if asked for."""
    got, _ = _stream(inside, simulate, "stall=2, stall_for=3")
    times = [when for when, part in got.parts if part]
    assert max(b - a for a, b in pairwise(times)) == pytest.approx(3.1)
    assert got.text == answer("hello", 5)

    got, _ = _stream(inside, simulate, "stall=2, stall_for=3, ping=1")
    assert got.body.count(b": keep-alive\n\n") == 3


def test_truncated_stream_ends_cleanly_without_an_end(inside, simulate):
    """Two tokens and a proper end of the body: no reason, no `[DONE]`."""
    got, ledger = _stream(inside, simulate, "truncate=2")

    assert got.complete
    assert got.text == answer("hello", 2)
    assert b"[DONE]" not in got.body
    assert ledger.reasons == {"fault_truncate": 1}


def test_broken_stream_frees_its_slot_at_once(inside, simulate):
    """The engine does not go on for an answer that ended early."""

    async def scenario():
        server = inside(seconds=10.0)
        await server.chat(stream=True, max_tokens=10, headers={HEADER: "truncate=1"})
        return server.door.engine.load().running, len(server.door.live)

    assert simulate(scenario()) == (0, 0)


def test_fault_beyond_the_end_strikes_before_the_end_marker(inside, simulate):
    """Truncating after a hundred tokens of five still loses the end."""
    got, _ = _stream(inside, simulate, "truncate=100")

    assert got.text == answer("hello", 5)
    assert b"[DONE]" not in got.body


def test_garbled_event_is_no_json_and_the_others_are(inside, simulate):
    """Exactly one event is broken."""
    got, _ = _stream(inside, simulate, "garble=2")
    lines = [line[6:] for line in got.body.split(b"\n") if line.startswith(b"data: {")]
    broken = []
    for number, line in enumerate(lines):
        try:
            json.loads(line)
        except ValueError:
            broken.append(number)

    assert broken == [2]


@pytest.mark.parametrize("code", [503, 429, 400, "503", None])
def test_error_frame_ends_the_stream(inside, simulate, code):
    """The code as given, `[DONE]` only on request."""
    fault = json.dumps({"stream_error": 1, "code": code, "message": "gone", "done": code == 503})
    got, ledger = _stream(inside, simulate, fault)
    frame = next(event for event in got.events if isinstance(event, dict) and "error" in event)

    assert frame["error"]["code"] == code
    assert frame["error"]["message"] == "gone"
    assert (got.events[-1] == "[DONE]") is (code == 503)
    assert got.complete
    assert ledger.results["failed"] == 1


def test_dripping_stream_takes_its_time(inside, simulate):
    """A second between tokens, whatever the engine did."""
    got, _ = _stream(inside, simulate, "drip=1")

    assert got.took == pytest.approx(5.1, abs=0.2)
    assert got.text == answer("hello", 5)


def test_lingering_stream_keeps_the_body_open_after_the_end(inside, simulate):
    """The end marker at its time, the end of the body later."""
    got, _ = _stream(inside, simulate, "linger=30")
    marker = next(when for when, part in got.parts if b"[DONE]" in part)

    assert marker == pytest.approx(0.5)
    assert got.took == pytest.approx(30.5)


def test_finish_reason_can_be_a_lie(inside, simulate):
    """`abort` under 200, as a server that is being stopped says."""
    got, _ = _stream(inside, simulate, "finish_reason=abort")

    assert got.events[-2]["choices"][0]["finish_reason"] == "abort"


@pytest.mark.parametrize(
    ("layout", "sign"),
    [("crlf", b"\r\n\r\n"), ("nospace", b"data:{"), ("split", b",\ndata: "), ("bom", b"\xef\xbb\xbfdata"),
     ("comments", b": comment"), ("fields", b"retry: 1000")],
)  # fmt: skip
def test_layouts_say_the_same_in_other_bytes(inside, simulate, layout, sign):
    """All are allowed by the standard; a reader of events finds the same text."""
    got, _ = _stream(inside, simulate, f"layout={layout}")
    assert sign in got.body

    text = got.body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    words = []
    for block in text.split(b"\n\n"):
        lines = [line.partition(b":")[2].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data")]
        data = b"\n".join(lines)
        if data.startswith(b"{"):
            words.extend(choice["delta"].get("content", "") for choice in json.loads(data)["choices"])
    assert "".join(words) == answer("hello", 5)


def test_text_can_be_prescribed_to_the_letter(inside, simulate):
    """Line separators that are none to SSE, unescaped."""
    words = "a\u2028b\u2029c\u0085d\u000be \u2705"
    got, _ = _stream(inside, simulate, json.dumps({"text": words}))

    assert got.text == words
    assert "\u2028".encode() in got.body


def test_hang_takes_the_request_and_never_answers(inside, simulate):
    """Until the client leaves."""

    async def scenario():
        server = inside()
        got = await server.chat(headers={HEADER: "hang"}, leave_after=60.0)
        return got, server.ledger.results

    got, results = simulate(scenario())

    assert (got.status, got.took) == (0, pytest.approx(60.0))
    assert results["abandoned"] == 1


def test_fault_header_can_be_switched_off(inside, simulate):
    """Where strangers may send requests."""

    async def scenario():
        return (await inside(fault_header=False).chat(headers={HEADER: "status=500"})).status

    assert simulate(scenario()) == 200


def test_admin_route_is_off_unless_enabled(inside, simulate):
    """There is no such route by default."""

    async def scenario():
        return (await inside().call("/admin/faults", {"status": 500})).status

    assert simulate(scenario()) == 404


def test_admin_route_switches_faults(inside, simulate):
    """On, listed, off."""

    async def scenario():
        server = inside(admin=True, seconds=0.0)
        made = await server.call("/admin/faults", [{"status": 500, "times": 1}, {"status": 503, "rate": 0.0}])
        hit = (await server.chat()).status
        listed = (await server.call("/admin/faults", method="GET")).data["faults"]
        gone = (await server.call(f"/admin/faults/{made.data['ids'][1]}", method="DELETE")).status
        again = (await server.call(f"/admin/faults/{made.data['ids'][1]}", method="DELETE")).status
        cleared = (await server.call("/admin/faults", method="DELETE")).status
        bad = await server.call("/admin/faults", {"sttus": 1})
        return made.status, hit, listed, gone, again, cleared, bad

    made, hit, listed, gone, again, cleared, bad = simulate(scenario())

    assert (made, hit, gone, again, cleared) == (201, 500, 204, 404, 204)
    assert [(each["status"], each["hits"]) for each in listed] == [(503, 0)]
    assert bad.status == 400
    assert "sttus" in bad.data["error"]["message"]


@pytest.mark.parametrize(
    ("change", "status"),
    [({"client": "192.0.2.1"}, 403), ({"headers": {"x-forwarded-for": "1.2.3.4"}}, 403),
     ({"headers": {"host": "evil.example"}}, 403), ({"headers": {"content-type": "text/plain"}}, 415)],
)  # fmt: skip
def test_admin_route_is_for_this_machine_only(inside, simulate, change, status):
    """Not from elsewhere, not through a proxy, not by a page that makes a browser do it."""

    async def scenario():
        return (await inside(admin=True).call("/admin/faults", {"status": 500}, **change)).status

    assert simulate(scenario()) == status


def _raw(server, fault, *, stream):
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": stream, "max_tokens": 9}
    ).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\nx-llm-fault: %s\r\n\r\n%s"
            % (len(body), fault.encode(), body)
        )
        data = b""
        try:
            while part := connection.recv(65536):
                data += part
        except ConnectionResetError:
            return data, "reset"
        return data, "end"


@pytest.mark.parametrize(
    ("fault", "stream", "end", "head", "tokens"),
    [
        ("reset=0", False, "reset", False, 0),
        ("reset=0", True, "reset", False, 0),
        ("reset=3", True, "reset", True, 3),
        ("cut=0", True, "end", False, 0),
        ("cut=3", True, "end", True, 3),
        ("cut=20", False, "end", True, 0),
        ("hang,stall_for=50ms", True, "end", False, 0),
    ],
)
def test_connections_break_the_way_they_should(serve, fault, stream, end, head, tokens):  # noqa: PLR0917 - columns
    """A reset is a TCP reset, a cut is a close without the end of the body; the books say failed."""
    server = serve(seconds=0.0)
    data, how = _raw(server, fault, stream=stream)

    assert how == end
    assert data.startswith(b"HTTP/1.1 200") is head
    assert data.count(b'"content":"') - data.count(b'"content":""') == tokens or not stream
    assert not data.endswith(b"0\r\n\r\n")
    for _ in range(100):
        if server.parts.ledger.results["failed"]:
            break
        time.sleep(0.01)
    assert server.parts.ledger.results == {"answered": 0, "refused": 0, "abandoned": 0, "failed": 1}


def test_broken_connections_leave_no_trace_in_the_log(serve, caplog):
    """What was ordered is no error of the server."""
    server = serve(seconds=0.0)
    for fault in ("reset=0", "reset=2", "cut=2", "hang,stall_for=10ms", "truncate=2"):
        _raw(server, f"{fault}", stream=True) if fault != "truncate=2" else httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "x"}], "stream": True},
            headers={HEADER: fault},
        )

    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
