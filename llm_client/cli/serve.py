"""`llm-client serve`: the reference server, with the options of `python -m llm_client.server`."""

from __future__ import annotations

import argparse
import subprocess
import sys


def arguments(parser: argparse.ArgumentParser) -> None:
    """Take none here: every word goes to the server, `--help` included."""
    del parser


def run(options: argparse.Namespace) -> int:
    """Run the server as a process of its own until it ends or is interrupted."""
    server = subprocess.Popen([sys.executable, "-m", "llm_client.server", *options.rest])  # noqa: S603 - the user's own words
    while True:
        try:
            return server.wait()
        except KeyboardInterrupt:
            continue  # the server got the same signal and drains; a second one would end it at once
