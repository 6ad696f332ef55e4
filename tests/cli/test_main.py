"""The command as a user meets it: help, mistakes in one line, exit statuses."""

from __future__ import annotations

import json

import pytest
from llm_client.cli.main import main


def test_help_names_every_command(capsys):
    """Without a command the help is shown, and that is wrong usage."""
    status = main([])
    said = capsys.readouterr().out

    assert 2 == status
    assert all(name in said for name in ("demo", "serve", "bench", "profile", "simulate"))


def test_an_unknown_command_is_wrong_usage(capsys):
    """A typo is one line on stderr and exit status 2."""
    with pytest.raises(SystemExit) as left:
        main(["dmeo"])

    assert 2 == left.value.code
    assert "dmeo" in capsys.readouterr().err


def test_a_missing_profile_is_one_line(capsys, tmp_path):
    """No traceback for a wrong path; `--debug` shows one."""
    status = main(["profile", "check", str(tmp_path / "none.yaml")])
    said = capsys.readouterr().err

    assert 2 == status
    assert "none.yaml" in said
    assert "Traceback" not in said


def test_a_wrong_profile_names_file_line_and_key(capsys, tmp_path):
    """Several mistakes are reported together."""
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\npool:\n  quue: {size: 1}\n  queue: {size: -1}\n")
    status = main(["profile", "check", str(path)])
    said = capsys.readouterr().err

    assert 2 == status
    assert "p.yaml" in said
    assert "quue" in said
    assert "queue.size" in said


def test_a_profile_is_explained_value_by_value(capsys, tmp_path):
    """Every setting comes with its origin, as text and as JSON."""
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\npool: {endpoints: [{name: a, base_url: 'http://a:1'}], queue: {size: 7}}\n")

    assert 0 == main(["profile", "check", str(path)])
    assert "pool.queue.size" in capsys.readouterr().out
    assert 0 == main(["profile", "check", str(path), "--json"])
    rows = {row["path"]: row for row in json.loads(capsys.readouterr().out)}

    assert "7" == str(rows["pool.queue.size"]["value"])
    assert "p.yaml" in rows["pool.queue.size"]["origin"]


def test_an_unknown_burst_is_wrong_usage(capsys):
    """The names are listed."""
    assert 2 == main(["bench", "burst", "Z"])
    assert "A, B, C, D, E" in capsys.readouterr().err


def test_the_demo_keeps_its_promises_and_draws_them(capsys, tmp_path):
    """Three acts at a tenth of the time: exit status 0, every promise held; the report has no outside assets."""
    report = tmp_path / "demo.html"
    status = main(["demo", "--fast", "--report", str(report)])
    said = capsys.readouterr().out
    drawn = report.read_text()

    assert 0 == status
    assert 3 == drawn.count("<svg")
    assert 9 == drawn.count("<polyline")
    assert "#c62828'><title>open from" in drawn
    assert "http" not in drawn.replace("HTTP", "")
    assert "Act 3" in said
    assert "Every promise held." in said
