"""What the architecture tests read: each Python file of ours as module name, syntax tree and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = (ROOT / "services", ROOT / "clients" / "python")
GENERATED = ROOT / "services" / "turnwire" / "api"


@dataclass(frozen=True)
class Source:
    """One Python file: `module` is its dotted name, `parts` that name split."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.module.split("."))

    def at(self, node: ast.AST) -> str:
        """Say where a node stands, as `path:line` relative to the repository."""
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


@cache
def sources() -> tuple[Source, ...]:
    """All hand-written modules of the services and the Python client."""
    return tuple(
        read(path, root)
        for root in SOURCE_ROOTS
        for path in sorted(root.rglob("*.py"))
        if GENERATED not in path.parents
    )


@cache
def suite_sources() -> tuple[Source, ...]:
    """All modules under tests/."""
    root = ROOT / "tests"
    return tuple(read(path, root) for path in sorted(root.rglob("*.py")))


def read(path: Path, root: Path) -> Source:
    """Parse one file; its module name is its path below `root`."""
    names = list(path.relative_to(root).with_suffix("").parts)
    if names[-1] == "__init__":
        names.pop()
    text = path.read_text(encoding="utf-8")
    return Source(path, ".".join(names), text, ast.parse(text, filename=str(path)))


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Yield each imported name in full, also those inside functions and TYPE_CHECKING blocks."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, f"{node.module or ''}.{alias.name}"


def dotted(node: ast.AST) -> str:
    """Give `a.b.c` for attribute chains on a name, else an empty text; calls inside read as `()`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    return ""


def is_under(name: str, *prefixes: str) -> bool:
    """Tell whether a dotted name is one of the prefixes or inside one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
