"""What users import is listed: `__all__` in the public packages names exactly what their modules define."""

from __future__ import annotations

import ast

import pytest
from source_tree import Source, dotted, sources

PUBLIC = ("turnwire.extend", "turnwire_client")


def public_sources() -> list[Source]:
    """Modules of the public packages whose every name part is public."""
    return [
        source
        for source in sources()
        if any(source.module == name or source.module.startswith(name + ".") for name in PUBLIC)
        and not any(part.startswith("_") for part in source.parts)
    ]


def declared(source: Source) -> list[str] | None:
    """Read the module's `__all__`, or None where it has none."""
    for node in source.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            return list(ast.literal_eval(value)) if value is not None else None
    return None


def is_type_variable(value: ast.expr) -> bool:
    """Tell whether an assignment makes a TypeVar or ParamSpec, which is no name for users."""
    return isinstance(value, ast.Call) and dotted(value.func) in {"TypeVar", "ParamSpec"}


def defined(source: Source) -> set[str]:
    """Public names that the module itself binds: classes, functions, constants, type aliases."""
    names: set[str] = set()
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and not is_type_variable(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_") and name != "logger"}


def imported(source: Source) -> set[str]:
    return {
        alias.asname or alias.name
        for node in source.tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("source", public_sources(), ids=lambda source: source.module)
def test_all_names_exactly_what_the_module_offers(source: Source) -> None:
    names = declared(source)
    if names is None:
        assert not defined(source), f"{source.module} defines public names and has no __all__"
        return
    assert len(names) == len(set(names)), "a name is listed twice"
    assert not defined(source) - set(names), "defined, public and not listed"
    assert not set(names) - defined(source) - imported(source), "listed and not there"
