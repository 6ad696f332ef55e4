"""Fail where pyright does not know the type of a name that the installed package offers."""

import json
import os
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """List the names whose types are unknown, in whole or in part."""
    # pyright finds the package through the first python on the path, whatever --pythonpath says.
    here = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pyright", "--verifytypes", "llm_client", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)["typeCompleteness"]
    # The reference server is a program on frameworks that are not wholly typed; nobody imports its names.
    symbols = [each for each in report["symbols"] if not each["name"].startswith("llm_client.server.")]
    unknown = [each for each in symbols if not each["isTypeKnown"] and not each["isTypeAmbiguous"]]
    for symbol in unknown:
        print(symbol["name"], *(diagnostic["message"] for diagnostic in symbol["diagnostics"]), sep="\n    ")
    print(f"{len(symbols)} names, {len(unknown)} of unknown type")
    return bool(unknown) or not symbols


if __name__ == "__main__":
    raise SystemExit(main())
