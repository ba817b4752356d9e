"""Counts as providers write them become whole numbers that can be added."""

from __future__ import annotations

from typing import Any

__all__ = ["count"]

# Above this a count is not a count.
_LARGEST = 2**53


def count(fields: Any, *names: str) -> int:
    """The first of these counts that is there and above 0; 0 where none is."""
    if isinstance(fields, dict):
        for name in names:
            value = fields.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LARGEST:
                return int(value)
    return 0
