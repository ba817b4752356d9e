"""Pages of the documentation as tests read them: code blocks, tables, names in backticks."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["ROOT", "blocks", "cells", "page", "pages", "table"]

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    """Give the text of a page by its path below the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def pages() -> dict[str, str]:
    """Give every page that people write by hand or generate: the README and what is below docs/."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in found}


def blocks(text: str, language: str) -> list[str]:
    """Give the code blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def table(text: str, heading: str) -> list[list[str]]:
    """Give the rows of the table whose first column has that heading, without the two lines of its head."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return rows


def cells(line: str) -> list[str]:
    """Give the cells of one line of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
