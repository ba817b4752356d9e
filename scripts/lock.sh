#!/usr/bin/env bash
# Resolve both lock files: versions and hashes, no address of any registry. The image's lock is a subset.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() {
  .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
    --all-extras pyproject.toml "$@"
}
compile --group dev --upgrade --output-file requirements-dev.lock
compile --constraint requirements-dev.lock --output-file requirements.lock
