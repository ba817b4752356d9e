"""The repository speaks of itself alone: no machine's paths, no registry's hosts, no promises for later."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from source_tree import ROOT

# Written in pieces so that this file does not find itself.
REGISTRY_HOSTS = [
    "py" + "pi.org",
    "files.python" + "hosted.org",
    "registry.npm" + "js.org",
    "www.npm" + "js.com",
    "registry.yarn" + "pkg.com",
    "proxy.golang" + ".org",
    "sum.golang" + ".org",
    "static.crates" + ".io",
    "index.crates" + ".io",
    "repo1.maven" + ".org",
    "repo.maven" + ".apache.org",
    "deb.debian" + ".org",
]
MACHINE_PATHS = ["/wo" + "rk/", "/ro" + "ot/", "/home" + "/[a-z]", "/User" + "s/", "\\.\\./sha" + "red"]
LATER = ["TO" + "DO", "FIX" + "ME", "X" + "XX\\b"]


@cache
def committed() -> dict[str, str]:
    """Text files that git knows or would add, by path relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    files = {}
    for name in listing.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if b"\0" not in data[:8000]:
                files[name] = data.decode("utf-8", errors="replace")
    return files


def lines_with(patterns: list[str], names: list[str]) -> list[str]:
    expression = re.compile("|".join(patterns))
    return [
        f"{name}:{number} {line.strip()[:120]}"
        for name in names
        if expression.search(committed()[name])
        for number, line in enumerate(committed()[name].splitlines(), 1)
        if expression.search(line)
    ]


def test_no_file_names_a_registry_host() -> None:
    assert not lines_with([re.escape(host) for host in REGISTRY_HOSTS], list(committed()))


def test_no_file_names_a_path_of_one_machine() -> None:
    assert not lines_with([rf"(?<![\w.\-/}}]){path}" for path in MACHINE_PATHS], list(committed()))


def test_no_code_promises_something_for_later() -> None:
    folders = ("services/", "clients/", "protos/", "tests/", "scripts/", "helm/", "examples/", "bench/")
    names = [name for name in committed() if name.startswith(folders)]
    assert not lines_with([rf"\b(?:{'|'.join(LATER)})"], names)


def test_every_committed_file_fits_a_review() -> None:
    large = [name for name in committed() if Path(ROOT / name).stat().st_size > 1_000_000]
    assert not large
