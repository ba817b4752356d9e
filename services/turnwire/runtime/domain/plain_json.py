"""JSON that people and models wrote, read by the letter: what is ambiguous is refused, nothing is repaired.

One value, nothing before or after it, no name twice in one object, no NaN or Infinity, no integer above 4,300
digits, no deeper than the limit that the caller gives.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["depth_of", "read_json"]

MAX_INTEGER_DIGITS = 4300


class _Refused(ValueError):
    """It is JSON, but not as we take it."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _Refused(f"the name {twice[:60]!r} stands twice in one object")
    return found


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise _Refused(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise _Refused("a number is too large")
    return value


def _constant(name: str) -> float:
    raise _Refused(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def read_json(text: str, max_depth: int) -> Any:
    """Read one JSON value.

    Raises:
        ValueError: it is none; the text says why in words that may be shown.
    """
    try:
        value = _DECODER.decode(text)
    except _Refused:
        raise
    except json.JSONDecodeError as error:
        if not text.strip():
            raise ValueError("there is no JSON") from None
        if error.msg == "Extra data":
            raise ValueError(f"something follows the JSON at character {error.pos}") from None
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError(f"it is nested more than {max_depth} levels deep") from None
    if depth_of(value) > max_depth:
        raise ValueError(f"it is nested more than {max_depth} levels deep")
    return value


def depth_of(value: Any) -> int:
    """Return how many lists and objects stand one inside the other, 0 for a plain value."""
    depth, level = 0, [value] if isinstance(value, (dict, list)) else []
    while level:
        depth += 1
        inner = [item for found in level for item in (found.values() if isinstance(found, dict) else found)]
        level = [item for item in inner if isinstance(item, (dict, list))]
    return depth
