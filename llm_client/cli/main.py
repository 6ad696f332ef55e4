"""The `llm-client` command: finds the sub-command, and turns errors into one line and an exit status.

Exit status: 0 when all went well, 1 when it did not, 2 for wrong usage or a wrong profile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from llm_client._version import __version__
from llm_client.errors import ConfigError, LLMClientError

# Name -> (module, one line of help). A module has `arguments(parser)` and `run(options) -> int`.
COMMANDS = {
    "demo": ("llm_client.cli.demo", "show what back-pressure does: one exercise, three clients, one reference server"),
    "serve": ("llm_client.cli.serve", "run the reference server"),
    "bench": ("llm_client.cli.bench", "measure the built-in profile against clients that were told the capacity"),
    "simulate": ("llm_client.cli.simulate", "play a load against a modelled server with your profile, in virtual time"),
    "profile": ("llm_client.cli.profile", "check a profile file and print what it comes down to"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="llm-client", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    name = next((word for word in words if not word.startswith("-")), None)
    for command, (module, text) in COMMANDS.items():
        # Only the chosen command is imported: help must not need the extras of the others.
        sub = commands.add_parser(command, help=text, description=text, add_help=command != "serve")
        if command == name:
            import_module(module).arguments(sub)
    options, rest = parser.parse_known_args(words)
    if options.command is None:
        parser.print_help()
        return 2
    if rest and options.command != "serve":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    return _guarded(options)


def _guarded(options: argparse.Namespace) -> int:
    try:
        status: int = import_module(COMMANDS[options.command][0]).run(options)
        sys.stdout.flush()
    except (ConfigError, ImportError) as error:
        if options.debug:
            raise
        print(f"llm-client: {error}", file=sys.stderr)
        return 2
    except LLMClientError as error:
        if options.debug:
            raise
        print(f"llm-client: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read us has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


if __name__ == "__main__":
    raise SystemExit(main())
