#!/usr/bin/env bash
# Make the pinned environments .envs/hosts-NAME: foreign SDKs (new, mid, old), our own lowest bounds, a foreign judge (llmock); or those named.
# llm_client goes in without its dependencies: what is pinned there is what it has to live with.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- new old mid lowest llmock

# With uv: pip weighs every file of every release of three hundred packages, for minutes.
uv=.envs/uv/bin/uv
if [ ! -x "$uv" ]; then
  python3 -m venv --without-pip .envs/uv
  python3 -m pip --python .envs/uv/bin/python install --quiet --disable-pip-version-check --no-compile uv
fi
for name in "$@"; do
  env=.envs/hosts-$name
  [ -x "$env/bin/python" ] || python3 -m venv --without-pip "$env"
  # The system's certificates, as pip: a company's proxy has its own.
  "$uv" pip install --quiet --system-certs --python "$env/bin/python" --no-deps -r "tests/hosts/$name.txt" -e .
done
