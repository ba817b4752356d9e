"""A file holds one idea and a function one step: both stay small enough to read at once."""

from __future__ import annotations

import ast

from source_tree import ROOT, Source, sources

FILE_LINES = 400
FUNCTION_LINES = 40

Function = ast.FunctionDef | ast.AsyncFunctionDef


def length(node: Function) -> int:
    """Count a function's lines from `def` to its end, without the docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def functions(source: Source) -> list[Function]:
    return [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_are_at_most_400_lines() -> None:
    found = [
        f"{source.path.relative_to(ROOT)}: {lines} lines"
        for source in sources()
        if (lines := source.text.count("\n")) > FILE_LINES
    ]
    assert not found, "\n".join(found)


def test_functions_are_at_most_40_lines() -> None:
    found = [
        f"{source.at(node)} {node.name}: {length(node)} lines"
        for source in sources()
        for node in functions(source)
        if length(node) > FUNCTION_LINES
    ]
    assert not found, "\n".join(found)
