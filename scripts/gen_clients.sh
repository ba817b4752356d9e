#!/usr/bin/env bash
# Generate the Go and TypeScript stubs from protos/ and note which protos they come from.
# Usage: scripts/gen_clients.sh          needs Go and Node.js; installs the plugins below .tools/ and node_modules/
#        scripts/gen_clients.sh --check  needs neither: fails when a proto changed since the stubs were made
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=clients/generated-from.sha256

if [ "${1:-}" = --check ]; then
  sha256sum --check --quiet $stamp \
    || { echo "clients/go and clients/typescript are not what protos/ say: run scripts/gen_clients.sh" >&2; exit 1; }
  exit
fi

export GOBIN=$PWD/.tools/bin PATH=$PWD/.tools/bin:$PATH
go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
(cd clients/typescript && npm ci --silent)
rm -rf clients/go/turnwire clients/typescript/src/gen
.venv/bin/buf generate
find protos -name '*.proto' | LC_ALL=C sort | xargs sha256sum > $stamp
