"""Options, environment, defaults, and errors that name the setting."""

import subprocess
import sys

import pytest
from llm_client.server.limits import Rate
from llm_client.server.settings import Settings, SettingsError, from_sources


def test_command_line_beats_environment_beats_default():
    """Each option is also a variable."""
    environ = {"LLM_SERVER_QUEUE": "7", "LLM_SERVER_WORKERS": "3"}
    settings = from_sources(["--queue", "10"], environ)

    assert (settings.queue, settings.workers, settings.seconds) == (10, 3, 1.0)


def test_every_kind_of_option_is_read():
    """Times, rates, switches, lists, words for nothing."""
    argv = "--seconds 200ms --queue unbounded --retry-after 2s --key-requests 10/s --strict-models --models a,b"
    settings = from_sources(
        [*argv.split(), "--thresholds", "on"], {"LLM_SERVER_API_KEYS": "k1,k2", "LLM_SERVER_ADMIN": "on"}
    )

    assert settings.seconds == 0.2
    assert settings.bound is None
    assert settings.retry_after == 2.0
    assert settings.key_requests == Rate(10, 1)
    assert settings.strict_models
    assert settings.models == ("a", "b")
    assert settings.thresholds == (0.9, 0.7, 0.5)
    assert settings.api_keys == ("k1", "k2")
    assert settings.admin


def test_queue_sizes_itself():
    """`auto` is patience over service time times workers."""
    settings = from_sources(["--queue", "auto", "--max-latency", "5", "--seconds", "0.5", "--workers", "10"], {})

    assert settings.bound == 100


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--queue many", "--queue"),
        ("--queue -1", "queue"),
        ("--status 500", "status"),
        ("--overflow explode", "overflow"),
        ("--engine tpu", "engine"),
        ("--dialect klingon", "dialect"),
        ("--seconds fast", "--seconds"),
        ("--key-requests ten", "--key-requests"),
        ("--thresholds 0.9,0.7", "thresholds"),
        ("--thresholds 9,0.7,0.5", "thresholds"),
        ("--port 70000", "port"),
        ("--models ,", "models"),
        ("--strict-models perhaps", "--strict-models"),
    ],
)
def test_wrong_value_names_its_setting(argv, words):
    """Nobody should have to guess which one."""
    with pytest.raises(SettingsError, match=words):
        from_sources(argv.replace("--queue -1", "--queue=-1").split(), {})


def test_keys_do_not_show_in_a_repr():
    """Settings end up in logs."""
    assert "hunter2" not in repr(Settings(api_keys=("hunter2",)))


def test_wrong_setting_ends_the_program_with_a_sentence():
    """Exit status 2, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "llm_client.server", "--queue", "many"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith("error: --queue")
    assert "Traceback" not in done.stderr


def test_missing_extra_is_told_with_its_remedy():
    """Without uvicorn the program says what to install."""
    code = "import sys; sys.modules['uvicorn'] = None\nfrom llm_client.server.__main__ import main\nsys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert "pip install 'resilient-llm-client[server]'" in done.stderr
    assert "uvicorn" in done.stderr


def test_server_shares_no_code_with_the_client():
    """Of the package it may know the version, nothing else."""
    import ast
    from pathlib import Path

    import llm_client.server

    allowed = {"llm_client._version"}
    for file in Path(llm_client.server.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level <= 1, file
                names = [node.module or ""] if node.level == 0 else []
            assert not {name for name in names if name.split(".")[0] == "llm_client"} - allowed, file
