"""Renders the chart with the helm program; a machine without it skips these tests, CI fails them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from chart import CHART, KUBERNETES, Documents, RefusedError, Render


@pytest.fixture(scope="session")
def helm() -> str:
    """Path of the helm program."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "turnwire" / "bin"
    found = shutil.which("helm") or shutil.which("helm", path=str(cache))
    if found:
        return found
    if os.environ.get("TURNWIRE_TEST_NO_SKIP") == "1":
        pytest.fail("helm is missing: run scripts/install_helm.sh")
    pytest.skip("helm is missing: run scripts/install_helm.sh")


@pytest.fixture
def render(helm: str, tmp_path: Path) -> Render:
    """Render the chart; gives the documents by (kind, name), or raises RefusedError.

    Keyword `values` is a mapping, `file` one of the chart's ci files; both may be left out.
    """

    def run(values: dict | None = None, file: str = "") -> Documents:
        command = [helm, "template", "tw", str(CHART), "--kube-version", KUBERNETES, "--namespace", "agents"]
        if file:
            command += ["--values", str(CHART / "ci" / file)]
        if values is not None:
            own = tmp_path / "values.yaml"
            own.write_text(yaml.safe_dump(values), encoding="utf-8")
            command += ["--values", str(own)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RefusedError(done.stderr)
        documents = [document for document in yaml.safe_load_all(done.stdout) if document]
        return {(document["kind"], document["metadata"]["name"]): document for document in documents}

    return run
