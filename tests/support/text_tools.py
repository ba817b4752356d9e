"""Tools whose results are hard to keep: long ones, broken characters, numbers that no double can hold."""

from __future__ import annotations

from turnwire.extend.tools import tool

__all__ = ["BROKEN", "broken", "emoji", "number"]

BROKEN = "a\0b \ud83d\ude00 \ud83d c"


@tool
def emoji(count: int) -> str:
    """Give so many emoji."""
    return "😀" * count


@tool
def broken() -> str:
    """Give text with NUL and half a character."""
    return BROKEN


@tool
def number(value: int) -> str:
    """Give a number back."""
    return str(value)
