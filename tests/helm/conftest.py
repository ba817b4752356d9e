"""Renders the chart with the helm program; a machine without it skips these tests, CI fails them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="session")
def render(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Render the chart; gives the documents by (kind, name), or raises RefusedError.

    Keyword `values` is a mapping, `file` one of the chart's ci files; both may be left out. Equal calls are
    rendered once and their documents shared: tests only read them.
    """
    known: dict[tuple[str, str], Documents] = {}
    folder = tmp_path_factory.mktemp("values")

    def run(values: dict[str, Any] | None = None, file: str = "") -> Documents:
        text = yaml.safe_dump(values or {})
        if (text, file) not in known:
            own = folder / "values.yaml"
            own.write_text(text, encoding="utf-8")
            files = [CHART / "ci" / file, own] if file else [own]
            known[text, file] = template(helm, files)
        return known[text, file]

    return run


def template(helm: str, files: list[Path]) -> Documents:
    """Run `helm template` with these value files, later ones winning."""
    command = [helm, "template", "tw", str(CHART), "--kube-version", KUBERNETES, "--namespace", "agents"]
    for file in files:
        command += ["--values", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RefusedError(done.stderr)
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}
