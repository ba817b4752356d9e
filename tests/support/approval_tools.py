"""Tools that somebody has to allow, beside one that nobody has to."""

from __future__ import annotations

from pathlib import Path

from turnwire.extend.tools import Mode, Risk, tool


@tool(risk=Risk.DANGEROUS)
def erase(file: str, line: str) -> str:
    """Leave a line in a file: each line is one run."""
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"{line}\n")
    return f"erased {line}"


@tool(risk=Risk.SENSITIVE, mode=Mode.PARALLEL)
def send(file: str, line: str) -> str:
    """Leave a line in a file: each line is one run."""
    return _leave(file, line)


@tool(mode=Mode.PARALLEL)
def note(file: str, line: str) -> str:
    """Leave a line in a file: each line is one run."""
    return _leave(file, line)


@tool
def hold(pipe: str) -> str:
    """Wait until somebody writes to a named pipe."""
    return Path(pipe).read_text(encoding="utf-8")


def _leave(file: str, line: str) -> str:
    """Leave a line in a file."""
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"{line}\n")
    return f"left {line}"
