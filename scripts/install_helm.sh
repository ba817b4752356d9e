#!/usr/bin/env bash
# Build helm from its Go module into ~/.cache/turnwire/bin, unless some helm is already there.
set -euo pipefail
bin=${XDG_CACHE_HOME:-$HOME/.cache}/turnwire/bin
version=v3.19.4
if command -v helm >/dev/null || [ -x "$bin/helm" ]; then exit 0; fi
command -v go >/dev/null || { echo "helm is built with Go 1.24 or later, which is missing" >&2; exit 1; }
echo "building helm $version; the first time takes some minutes"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
GOBIN=$bin GOFLAGS=-buildvcs=false go install "helm.sh/helm/v3/cmd/helm@$version" 2>"$log" || { cat "$log" >&2; exit 1; }
