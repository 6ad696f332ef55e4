"""The README's one line for an existing openai client, as it stands there."""

import re
from pathlib import Path

import pytest
from tests.hosts import fakes
from tests.hosts.scenarios import only_our_attempts

pytestmark = pytest.mark.hosts

README = Path(__file__).parents[2] / "README.md"


async def test_the_readmes_openai_client_is_protected():
    """The block makes a client, and one call of it goes through a refusal."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    code = next(block for block in blocks if "import openai" in block)
    messages = [{"role": "user", "content": "apples"}]
    names: dict = {}
    with fakes.Server(lambda _seen, number: fakes.refused(429, "busy") if number == 0 else None) as server:
        exec(code.replace("http://localhost:8000/v1", server.url), names)
        async with names["pool"]:
            done = await names["client"].chat.completions.create(model="gpt-4o-mini", messages=messages)

    assert done.choices[0].message.content == fakes.said("apples")
    assert len(server.seen) == 2
    only_our_attempts(server)
