"""Run the Python blocks of a Markdown page, in order and in one namespace: `snippets.py PAGE SERVER_URL`.

Run in a process of its own, in an empty folder.
YAML blocks that hold a profile file are written to `profiles.yaml` first.
"""

import ast
import asyncio
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path

LOCAL = "http://localhost:8000"
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?^```(?P<language>python|yaml)[^\n]*\n(?P<code>.*?)^```"
    r"|^<!-- setup\n(?P<setup>.*?)^-->",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A piece of a page that is run; `line` is where its code starts."""

    line: int
    language: str
    code: str

    @property
    def script(self) -> bool:
        """Starts a loop of its own, so it cannot run inside ours."""
        return "asyncio.run(" in self.code


def blocks(text: str) -> list[Block]:
    """Find what a page wants run."""
    found = []
    for match in BLOCK.finditer(text):
        if match["skip"]:
            continue
        group = "setup" if match["setup"] is not None else "code"
        line = text.count("\n", 0, match.start(group)) + 1
        found.append(Block(line, match["language"] or "python", match[group]))
    return found


async def run(page: str, found: list[Block]) -> None:
    """Run the blocks that are not whole scripts, with top-level await."""
    names: dict[str, object] = {"__name__": "page"}
    for block in found:
        source = "\n" * (block.line - 1) + block.code
        result = eval(compile(source, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(result):
            await result


def main(page: str, url: str) -> None:
    """Write profiles, run whole scripts, then the rest."""
    found = blocks(Path(page).read_text(encoding="utf-8").replace(LOCAL, url))
    for block in found:
        if block.language == "yaml" and "profiles:" in block.code:
            Path("profiles.yaml").write_text(block.code, encoding="utf-8")
    python = [block for block in found if block.language == "python"]
    for block in python:
        if block.script:
            exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), {"__name__": "__main__"})
    asyncio.run(run(page, [block for block in python if not block.script]))


if __name__ == "__main__":
    main(*sys.argv[1:])
