"""Values of enums as words; a value of a later version is shown as its number."""

from __future__ import annotations

from typing import Protocol

__all__ = ["word"]


class _Enum(Protocol):
    def Name(self, number: int) -> str: ...


def word(enum: _Enum, value: int, prefix: str) -> str:
    """Give `completed` for TURN_STATE_COMPLETED; empty for the value that is never sent."""
    try:
        name = enum.Name(value)
    except ValueError:
        return str(value)
    return name.removeprefix(prefix).lower().replace("unspecified", "")
