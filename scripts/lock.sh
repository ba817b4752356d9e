#!/usr/bin/env bash
# Resolve both lock files: versions and hashes, no address of any registry. The image's lock is a subset:
# it leaves out the optional ways to models, which the tests need all the same.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
    pyproject.toml "$@"
}
compile --all-extras --group dev --upgrade --output-file requirements-dev.lock
compile --extra all --constraint requirements-dev.lock --output-file requirements.lock
