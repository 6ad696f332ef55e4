"""`llm-client simulate`: what it prints, draws and refuses."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from llm_client.cli.main import main
from llm_client.cli.simulate import SCENARIOS

SMALL = """
server: slots
settings: {slots: 4, queue: 4, seconds: 0.1, retry_after: 1}
rate: 30
seconds: 5
kinds:
  - {priority: high, share: 1, deadline: 5, stream: true}
  - {priority: low, share: 2, deadline: 5}
changes:
  - [2.0, slots, 2]
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


def test_a_scenario_of_a_file_is_played_and_told_by_class(small, capsys):
    """The table names every class; the same seed plays the same."""
    assert main(["simulate", "built-in", small, "--seed", "3"]) == 0
    first = capsys.readouterr().out

    assert main(["simulate", "built-in", small, "--seed", "3"]) == 0
    assert first == capsys.readouterr().out
    assert first.splitlines()[0].startswith("calls ")
    assert [line.split()[0] for line in first.splitlines()[-2:]] == ["high", "low"]

    assert main(["simulate", "built-in", small, "--seed", "4", "--clients", "2"]) == 0
    assert first != capsys.readouterr().out


def test_a_profile_file_is_obeyed(small, tmp_path, capsys):
    """A queue of no places turns calls away that the built-in profile lets wait."""
    file = tmp_path / "profiles.yaml"
    file.write_text(
        "version: 1\npool:\n  queue: {size: 0}\n  concurrency: {kind: fixed, limit: 1}\n"
        "  endpoints:\n    - {name: a, base_url: http://a/v1}\n"
    )

    assert main(["simulate", str(file), small]) == 0
    shed = sum(int(line.split()[3]) for line in capsys.readouterr().out.splitlines()[-2:])
    assert main(["simulate", "built-in", small]) == 0
    patient = sum(int(line.split()[3]) for line in capsys.readouterr().out.splitlines()[-2:])

    assert shed > 2 * patient + 10


def test_a_named_burst_is_played(capsys):
    """Burst B: 150 calls on two slots, all answered."""
    assert main(["simulate", "built-in", "burst-b"]) == 0
    assert capsys.readouterr().out.startswith("calls 150, answered 150,")


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_the_report_stands_alone(small, tmp_path, capsys, suffix):
    """Well-formed, three panels with curves, and nothing from elsewhere."""
    path = tmp_path / f"report{suffix}"

    assert main(["simulate", "built-in", small, "--report", str(path)]) == 0

    text = path.read_text()
    svg = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    curves = [each for each in svg.iter() if each.get("class") in {"a", "b"}]

    assert str(path) in capsys.readouterr().out
    assert len(curves) == 4
    assert all("L" in each.get("d") and "nan" not in each.get("d") for each in curves)
    assert text.count("http") == 1  # the name space
    assert "<script" not in text
    assert ("<pre>" in text) is (suffix == ".html")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[1, 2]", "expected a map"),
        ("{rate: 1, speed: 3}", "unknown speed"),
        ("{server: cloud, rate: 1}", "server: expected slots, batch, bucket"),
        ("{rate: -1}", "rate: expected a number"),
        ("{rate: .nan}", "rate: expected a number"),
        ("{seconds: 3}", "nothing arrives"),
        ("{burst: true}", "burst: expected a whole number"),
        ("{burst: 5, clients: 0}", "clients: expected at least 1"),
        ("{load: 1}", "load: only a batch server"),
        ("{rate: 1, settings: {gpus: 3}}", "settings: expected a map of"),
        ("{rate: 1, settings: {slots: many}}", "settings.slots: expected a number"),
        ("{rate: 1, kinds: []}", "kinds: expected a list"),
        ("{rate: 1, kinds: [{priority: urgent}]}", "kinds[0].priority"),
        ("{rate: 1, kinds: [{share: x}]}", "kinds[0].share: expected a number"),
        ("{rate: 1, kinds: [{begin: 5}]}", "kinds: at least one"),
        ("{rate: 1, kinds: [{profile: nobody}]}", "no profile is called 'nobody'"),
        ("{rate: 1, changes: [[1, slots]]}", "changes[0]: expected [second"),
        ("{rate: 1, changes: [[1, gpus, 2]]}", "no setting 'gpus'"),
        ("{rate: 1", "not YAML"),
    ],
)
def test_a_wrong_scenario_is_refused_by_name(tmp_path, capsys, text, named):
    """Exit status 2 and one line that says what is wrong where."""
    path = tmp_path / "wrong.yaml"
    path.write_text(text)

    assert main(["simulate", "built-in", str(path)]) == 2

    said = capsys.readouterr().err

    assert named in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["built-in", "steadily"],
        ["built-in", "missing.yaml"],
        ["missing.yaml", "steady"],
        ["built-in", "burst-b", "--report", "x.png"],
        ["built-in", "burst-b", "--clients", "0"],
        ["built-in", "burst-b", "--report", "/nowhere/x.svg"],
    ],
)
def test_wrong_words_are_refused(capsys, words):
    """No such scenario, file, kind of report or number of clients."""
    assert main(["simulate", *words]) == 2
    assert capsys.readouterr().err.startswith("llm-client: ")


def test_every_named_scenario_can_be_played():
    """A name that the help shows starts something."""
    assert set(SCENARIOS) == {
        *("steady", "overload", "overload-3", "halved", "priorities", "hosted", "outage"),
        *("burst-a", "burst-b", "burst-c", "burst-d", "burst-e"),
    }
    for each in SCENARIOS.values():
        assert each.rate or each.load or each.burst
