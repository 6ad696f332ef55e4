#!/usr/bin/env bash
# Make the pinned environments .envs/hosts-NAME: foreign SDKs (new, mid, old) and our own lowest bounds; or those named.
# llm_client goes in without its dependencies: what is pinned there is what it has to live with.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- new mid old lowest
for name in "$@"; do
  env=.envs/hosts-$name
  [ -x "$env/bin/python" ] || python3 -m venv "$env"
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile -r "tests/hosts/$name.txt"
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-deps -e .
done
