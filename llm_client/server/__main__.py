"""`python -m llm_client.server`: start a server and say where it listens."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .settings import SettingsError, from_sources

INSTALL = "pip install 'resilient-llm-client[server]'"


def main(argv: Sequence[str] | None = None, prog: str = "python -m llm_client.server") -> int:
    """Read the settings, serve until a signal ends it, return the exit status."""
    try:
        settings = from_sources(sys.argv[1:] if argv is None else argv, os.environ, prog)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    try:
        from .run import Server, serve
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: the reference server needs {error.name}: {INSTALL}\n")
        return 2

    def ready(server: Server) -> None:
        sys.stdout.write(f"listening on {server.url}\n")
        sys.stdout.flush()

    serve(settings, ready)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
