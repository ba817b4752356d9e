#!/usr/bin/env bash
# Make .venv hold exactly what requirements-dev.lock names, and turnwire itself as an editable install.
# Usage: scripts/setup.sh; PYTHON=/path/to/python3 chooses the interpreter for a new environment.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  fail "Python 3.11 or later is needed; on Debian: apt-get install -y python3 python3-venv"
}

if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
  python=$(find_python)
  # Debian ships ensurepip apart from python3; without it venv leaves half an environment behind.
  "$python" -c 'import ensurepip' 2>/dev/null \
    || fail "this Python cannot make environments (ensurepip is missing)" \
            "on Debian: apt-get install -y python3-venv"
  "$python" -m venv --clear .venv
fi

# uv comes first and by hash, like everything else: its entry is cut out of the same lock.
lock=requirements-dev.lock
wanted=$(sed -n 's/^uv==\([^ ;]*\).*/\1/p' $lock)
if [ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$wanted" ]; then
  awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' $lock > .venv/uv.lock.txt
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/uv.lock.txt
fi

export VIRTUAL_ENV=$PWD/.venv UV_NO_CONFIG=1
.venv/bin/uv pip sync --quiet --require-hashes $lock
.venv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
