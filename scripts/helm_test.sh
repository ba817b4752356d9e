#!/usr/bin/env bash
# Lint the chart and render it with each file of ci/, then run the tests that read what it renders.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/turnwire/bin
chart=helm/turnwire
oldest=1.27.0

command -v helm >/dev/null || { echo "helm is missing: run scripts/install_helm.sh" >&2; exit 1; }
for values in "$chart"/ci/*-values.yaml; do
  echo "$values"
  helm lint "$chart" --strict --quiet --kube-version $oldest --values "$values"
  helm template tw "$chart" --kube-version $oldest --values "$values" > /dev/null
done
if [ "${TURNWIRE_HELM_TESTS:-1}" = 1 ]; then
  .venv/bin/python -m pytest tests/helm "$@"
fi
