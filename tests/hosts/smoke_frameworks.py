"""The page that shows how to put our client under a framework: each section's code, as it stands there."""

import ast
import inspect
import json
import os
import re
import sys
from pathlib import Path

import pytest
from llm_client import Pool
from tests.hosts import fakes
from tests.hosts.scenarios import QUICK, only_our_attempts

pytestmark = pytest.mark.hosts

# Without it LiteLLM fetches its price table from the network when imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "frameworks.md"
ENVIRONMENT = Path(sys.prefix).name.removeprefix("hosts-")
# Where each section's package is installed.
ENVIRONMENTS = {
    "openai": "new",
    "LangChain": "new",
    "LiteLLM": "new",
    "pydantic-ai": "new",
    "instructor": "mid",
    "LlamaIndex": "old",
}


def codes(text: str, language: str = "python") -> list[str]:
    """Find the blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


INTRODUCTION, *REST = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
SECTIONS = {section.splitlines()[0]: codes(section) for section in REST}
# Each block, after those of its section that it builds upon.
BLOCKS = [
    pytest.param(blocks[: number + 1], id=f"{name}-{number}")
    for name, blocks in SECTIONS.items()
    if ENVIRONMENTS[name] == ENVIRONMENT
    for number in range(len(blocks))
]


def answer(seen: fakes.Seen) -> fakes.Answer:
    """Answer in JSON where the question asks for it."""
    wants_json = "response_format" in seen.body
    return fakes.chat(seen, json.dumps({"words": fakes.said("Hello")}) if wants_json else fakes.said(seen.prompt))


async def run(code: str, names: dict) -> None:
    """Run a block that may await."""
    result = eval(compile(code, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(result):
        await result


async def play(blocks: list[str], server: fakes.Server) -> dict:
    """Run the page's beginning with its own profile, then some blocks; forget what the earlier ones sent."""
    Path("profiles.yaml").write_text(codes(INTRODUCTION, "yaml")[0].replace("http://localhost:8000/v1", server.url))
    names: dict = {}
    await run(codes(INTRODUCTION)[0], names)
    async with names["pool"]:
        for block in blocks:
            server.seen.clear()
            names.pop("text", None)
            await run(block.replace("http://localhost:8000/v1", server.url), names)
    return names


def test_each_section_has_code_and_an_environment():
    """A framework that is added to the page is run somewhere."""
    assert set(ENVIRONMENTS) == set(SECTIONS)
    assert all(SECTIONS.values())
    assert BLOCKS


@pytest.mark.parametrize("blocks", BLOCKS)
async def test_the_code_is_answered_through_a_refusal(blocks, tmp_path, monkeypatch):
    """One call, refused once: two requests, both ours, and the wishes in the headers stay here."""
    monkeypatch.chdir(tmp_path)
    busy = fakes.refused(429, "busy", retry_after="0")
    with fakes.Server(lambda seen, number: busy if number == 0 else answer(seen)) as server:
        names = await play(blocks, server)

    assert names["text"] == fakes.said("Hello")
    assert len(server.seen) == 2
    assert not [name for name in server.seen[1].headers if name == "x-llm-client-priority"]
    only_our_attempts(server)


@pytest.mark.parametrize("blocks", BLOCKS)
async def test_the_code_does_not_repeat_what_we_gave_up(blocks, tmp_path, monkeypatch):
    """A server that always fails sees our three attempts: no loop of the framework's is left on."""
    monkeypatch.chdir(tmp_path)
    failing = False
    broken = fakes.refused(500, "broken")
    with fakes.Server(lambda seen, _number: broken if failing else answer(seen)) as server:
        Path("quick.yaml").write_text(QUICK.format(url=server.url, max_wait="deadline"))
        names: dict = {}
        await run(codes(INTRODUCTION)[0].replace("profiles.yaml", "quick.yaml"), names)
        async with names["pool"]:
            for number, block in enumerate(blocks, 1):
                failing = number == len(blocks)
                server.seen.clear()
                code = block.replace("http://localhost:8000/v1", server.url)
                if not failing:
                    await run(code, names)
                    continue
                with pytest.raises(Exception, match=r"scripted broken|Internal|500"):
                    await run(code, names)

    assert isinstance(names["pool"], Pool)
    assert len(server.seen) == 3
    only_our_attempts(server)
