"""The live page: what it is fed, what it may load, and how it behaves in a browser."""

import asyncio
import importlib.util
import json
import re
from pathlib import Path

import httpx
import pytest
from llm_client.server.faults import Rule
from llm_client.server.limits import Rate
from llm_client.server.page import percentiles, snapshot


def test_page_allows_its_own_script_and_style_only(inside, simulate):
    """No outside assets, and the policy says so."""

    async def scenario():
        return await inside().call("/", method="GET")

    page = simulate(scenario())
    text = page.body.decode()

    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", text)
    assert "style=" not in text
    assert "onclick" not in text


def test_feed_tells_everything_the_page_shows(inside, simulate):
    """Queue by class, slots, refusals, latency, tokens, buckets, faults."""

    async def scenario():
        server = inside(queue=2, key_requests=Rate(10, 1), admin=True)
        server.state.begin()
        calls = [asyncio.create_task(server.call(body={"prompt": "x", "priority": n})) for n in (0, 1, 3, 3)]
        await asyncio.sleep(0.1)
        busy = snapshot(server.state, switches=True)
        await asyncio.gather(*calls)
        server.state.faults.add(Rule(status=500), 0.0)
        return busy, snapshot(server.state, switches=False)

    busy, done = simulate(scenario())

    assert busy["queue"] == {
        "size": 2, "waiting": 2,
        "classes": {"critical": 0, "high": 1, "normal": 0, "low": 1, "outside": 0},
    }  # fmt: skip
    assert (busy["engine"]["running"], busy["switches"]) == (1, True)
    assert done["books"]["answered"] == 3
    assert done["reasons"] == {"queue_full": 1}
    assert done["latency"]["p50"] > 0
    assert done["tokens"]["completion"] > 0
    assert done["buckets"][0]["size"] == 10
    assert done["faults"][0]["status"] == 500
    assert json.dumps(done)


def test_percentiles_of_nothing_are_nothing():
    """No answer yet is not zero seconds."""
    assert percentiles([]) == {"p50": None, "p95": None}
    assert percentiles([float(n) for n in range(101)]) == {"p50": 50.0, "p95": 95.0}


def test_feed_is_bounded_and_ends_with_its_viewer(serve):
    """A closed page frees its place."""
    server = serve()
    with httpx.Client(base_url=server.url, verify=False) as client:
        for _ in range(60):
            with client.stream("GET", "/events") as feed:
                assert feed.status_code == 200
                assert next(feed.iter_lines()).startswith("data: ")


def _browser(folder):
    spec = importlib.util.spec_from_file_location("chromium", Path(__file__).with_name("chromium.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = module.find()
    if program is None:
        pytest.skip("no Chromium is installed")
    return module.Browser(program, folder)


@pytest.fixture
def browser(tmp_path):
    """A headless Chromium."""
    one = _browser(tmp_path / "profile")
    yield one
    one.close()


@pytest.mark.browser
def test_page_lives_in_a_browser(serve, browser):
    """It connects, shows what happens, loads nothing from elsewhere and logs no error."""
    server = serve(workers=1, queue=1, seconds=1.0)
    browser.open(f"{server.url}/")
    browser.until("document.getElementById('state')?.textContent === 'ready'")

    async def load():
        async with httpx.AsyncClient(verify=False, timeout=30) as client:
            calls = [client.post(f"{server.url}/infer", json={"prompt": str(n), "max_tokens": 7}) for n in range(4)]
            return [answer.status_code for answer in await asyncio.gather(*calls)]

    assert sorted(asyncio.run(load())) == [200, 200, 429, 429]
    books = "[...document.querySelectorAll('#books tr')].map(r => r.innerText.replace(/\\s+/g, ' '))"
    browser.until(f"{books}.includes('answered 2')")
    assert "refused 2" in browser.value(books)
    browser.until("document.getElementById('reasons').innerText.includes('queue_full')")
    browser.until("document.getElementById('tokens').innerText.includes('14')")
    assert "queue-line" in browser.value("document.querySelector('svg[role=img] polyline').parentElement.id")
    assert browser.value("document.querySelector('#queue-line polyline').getAttribute('points').length") > 3
    assert {url.split("/")[2] for url in browser.requested() if url.startswith("http")} == {server.url[7:]}
    assert browser.problems() == []


@pytest.mark.browser
def test_page_shows_words_from_outside_as_words(serve, browser):
    """A fault's text is no markup."""
    server = serve(admin=True)
    server.loop.call_soon_threadsafe(
        server.parts.faults.add, Rule(status=500, model="<img src=x onerror=alert(1)>"), server.loop.time()
    )
    browser.open(f"{server.url}/")
    browser.until("document.getElementById('faults')?.innerText.includes('onerror')")

    assert browser.value("document.querySelectorAll('#faults img').length") == 0


@pytest.mark.browser
def test_switches_work_by_keyboard(serve, browser):
    """Tab to the first switch, space switches on, space switches off; a status says so."""
    server = serve(admin=True, seconds=0.0)
    browser.open(f"{server.url}/")
    browser.until("document.getElementById('switches') && !document.getElementById('switches').hidden")

    seen = []
    for _ in range(12):
        browser.press("Tab", 9)
        seen.append(browser.value("document.activeElement.textContent"))
        if seen[-1] == "All are overloaded":
            break
    assert seen[0] == "Skip to the figures"
    browser.press(" ", 32, " ")
    browser.until("document.activeElement.getAttribute('aria-pressed') === 'true'")
    refused = httpx.post(f"{server.url}/infer", json={"prompt": "x"}, verify=False)
    said = browser.until("document.getElementById('said').textContent")
    browser.press(" ", 32, " ")
    browser.until("document.activeElement.getAttribute('aria-pressed') === 'false'")
    browser.until("document.getElementById('said').textContent.endsWith('off')")
    served = httpx.post(f"{server.url}/infer", json={"prompt": "x"}, verify=False)

    assert refused.status_code == 429
    assert said == "All are overloaded: on"
    assert served.status_code == 200
    assert browser.problems() == []


@pytest.mark.browser
def test_page_reads_well_aloud(serve, browser):
    """Landmarks, headings, tables with captions, named meters and buttons, a live state."""
    server = serve(admin=True, key_requests=Rate(10, 1))
    httpx.post(f"{server.url}/infer", json={"prompt": "x"}, verify=False)
    browser.open(f"{server.url}/")
    browser.until("document.getElementById('buckets')?.innerText.includes('requests')")
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    tree = [
        (node.get("role", {}).get("value"), node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
    ]
    roles = {role for role, _ in tree}

    assert {"main", "banner", "heading", "table", "meter", "button", "status", "link"} <= roles
    assert browser.value("document.documentElement.lang") == "en"
    assert browser.value("document.querySelectorAll('h1').length") == 1
    assert all(name for role, name in tree if role in {"meter", "button", "link", "table", "image", "region"})
    assert browser.value("[...document.querySelectorAll('table')].every(t => t.caption)")
    assert browser.value("[...document.querySelectorAll('tbody tr > :first-child')].every(c => c.scope === 'row')")
    assert ("status", "") in [(role, "") for role, _ in tree]
