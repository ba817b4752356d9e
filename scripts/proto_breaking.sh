#!/usr/bin/env bash
# Compare the protos with the frozen contract in protos/baseline.binpb.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -e protos/baseline.binpb ]; then
  echo "proto-breaking: protos/baseline.binpb does not exist yet; nothing is frozen"
  exit 0
fi
exec .venv/bin/buf breaking protos --against protos/baseline.binpb
