"""`llm-client profile check FILE`: what a profile file comes down to, value by value, and where each comes from."""

from __future__ import annotations

import argparse
import json

from llm_client.errors import ConfigError
from llm_client.profiles import load as profiles

LAYERS = "fallback -> retry -> admission (queue, limit, circuit, buckets) -> attempt"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="validate a file and print the effective profile")
    check.add_argument("file", help="the YAML file")
    check.add_argument("--json", action="store_true", help="print rows of path, value, origin as JSON")


def run(options: argparse.Namespace) -> int:
    """Print every setting with its origin."""
    try:
        file = profiles.load(options.file)
    except OSError as error:
        raise ConfigError(f"{options.file}: {error.strerror}") from error
    rows = profiles.explain(file)
    if options.json:
        print(json.dumps([{"path": row[0], "value": row[1], "origin": str(row[2])} for row in rows], indent=1))
        return 0
    width = max(len(row[0]) for row in rows)
    values = min(40, max(len(str(row[1])) for row in rows))
    for row in rows:
        print(f"{row[0]:<{width}}  {row[1]!s:<{values}}  {row[2]}")
    print(f"\nlayers, outermost first: {LAYERS}")
    return 0
