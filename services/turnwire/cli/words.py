"""Foreign text made harmless, and values of enums as words."""

from __future__ import annotations

import re
from typing import Protocol

__all__ = ["clean", "word"]


# All control characters but tab and line feed, and the marks that reverse the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Make control characters visible instead of effective."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\r\n", "\n"))


class _Enum(Protocol):
    def Name(self, number: int) -> str: ...


def word(enum: _Enum, value: int, prefix: str) -> str:
    """Give `completed` for TURN_STATE_COMPLETED; empty for the value that is never sent, else its number."""
    try:
        name = enum.Name(value)
    except ValueError:
        return str(value)
    return name.removeprefix(prefix).lower().replace("unspecified", "")
