"""What the README and the docs show does run, and what they say about the repository is so."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.snippets import blocks

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(page.read_text("utf-8")))]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The reference server as its own process, quick enough for a page."""
    command = [sys.executable, "-m", "llm_client.server", "--port", "0", "--seconds", "0.1", "--queue", "10"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()

        assert line.startswith("listening on http://127.0.0.1:")
        try:
            yield line.removeprefix("listening on ").strip()
        finally:
            process.terminate()


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page, server, tmp_path):
    """Every Python block, in order, as a reader would run it against a server on his machine."""
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "tests" / "snippets.py", page, server],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_links_between_pages_lead_somewhere():
    """Relative links of the README and its neighbours name files that are there."""
    broken = [
        f"{page.name}: {target}"
        for page in (README, *ROOT.glob("[A-Z]*.md"))
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]

    assert broken == []


def test_every_page_is_in_the_navigation():
    """The site generator says nothing about a page that is missing from `nav`, or the other way round."""

    class Loader(yaml.SafeLoader):
        """Reads the one Python name that mkdocs.yml holds as nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)
    config = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)

    def files(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        children = entry.values() if isinstance(entry, dict) else entry
        return [file for child in children for file in files(child)]

    there = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert set(files(config["nav"])) == there


@pytest.mark.parametrize("end", ["/pytest", "/llm-client demo"])
def test_the_readme_has_each_command_once_on_one_line(end):
    """CI runs the lines it finds there: one to pass the tests, one to run the demo."""
    lines = [line for line in README.read_text("utf-8").splitlines() if line.startswith("python3 -m venv")]

    assert sum(line.endswith(end) for line in lines) == 1
