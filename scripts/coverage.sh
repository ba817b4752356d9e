#!/usr/bin/env bash
# Run the suite under coverage, processes that it starts included as far as they stop in good order.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/coverage erase
.venv/bin/coverage run -m pytest "$@"
.venv/bin/coverage combine --quiet
.venv/bin/coverage report
