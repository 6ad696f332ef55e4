#!/usr/bin/env bash
# Make the pinned environments .envs/hosts-NAME: foreign SDKs (new, mid, old), our own lowest bounds, a foreign judge (llmock); or those named.
# llm_client goes in without its dependencies: what is pinned there is what it has to live with.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- new old mid lowest llmock

make() {
  local env=.envs/hosts-$1
  [ -x "$env/bin/python" ] || python3 -m venv "$env"
  # Most of these modules are never imported: compiling them all would take longer than installing them.
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile -r "tests/hosts/$1.txt"
  "$env/bin/pip" install --quiet --disable-pip-version-check --no-deps -e .
}

# Two at a time: one downloads while the other unpacks. xargs passes failure on.
export -f make
printf '%s\n' "$@" | xargs -P 2 -I {} bash -euc 'make "$1"' - {}
