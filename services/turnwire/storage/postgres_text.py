"""Statements and values as PostgreSQL wants them: `$1` for `?`, and each value in its wire form."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from turnwire.storage.units import SqlValue

__all__ = ["Encoded", "encode_values", "translate"]

# (types, values, formats): the types are OIDs, 0 where the server finds out itself.
Encoded = tuple[tuple[int, ...], list[bytes | None], list[int]]

# Texts, quoted names, comments and bodies in dollars, in which a `?` is a `?`.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$ | (\?)""",
    re.VERBOSE | re.DOTALL,
)
_BIGINT, _DOUBLE, _BYTES = 20, 701, 17
_LEAST, _MOST = -(2**63), 2**63 - 1


@lru_cache(maxsize=1024)
def translate(sql: str) -> tuple[bytes, int]:
    """Return the statement with `$1`, `$2` ... for its `?` places, and how many there are."""
    count = 0

    def place(match: re.Match[str]) -> str:
        nonlocal count
        if match[2] is None:
            return match[0]
        count += 1
        return f"${count}"

    return _TOKEN.sub(place, sql).encode(), count


def _text(value: str) -> bytes:
    encoded = value.encode()
    if b"\0" in encoded:
        raise ValueError("a text with a NUL character cannot be stored")
    return encoded


def _integer(value: int) -> bytes:
    if not _LEAST <= value <= _MOST:
        raise OverflowError("an integer beyond 64 bits cannot be stored")
    return b"%d" % value


def _double(value: float) -> bytes:
    return repr(float(value)).encode()


_ENCODERS: dict[type, tuple[int, Callable[..., bytes], int]] = {
    str: (0, _text, 0),
    int: (_BIGINT, _integer, 0),
    bool: (_BIGINT, _integer, 0),
    float: (_DOUBLE, _double, 0),
    bytes: (_BYTES, bytes, 1),
}


def encode_values(params: Sequence[SqlValue], count: int) -> Encoded:
    """Put the values of a statement with `count` places into their wire form.

    Raises:
        ValueError, OverflowError, TypeError: a value that cannot be stored, or another number of them.
    """
    if len(params) != count:
        raise ValueError(f"the statement has {count} places, and {len(params)} values were given")
    types: list[int] = []
    values: list[bytes | None] = []
    formats: list[int] = []
    for value in params:
        if value is None:
            types.append(0)
            values.append(None)
            formats.append(0)
            continue
        oid, encoder, form = _ENCODERS.get(type(value)) or _inherited(value)
        types.append(oid)
        values.append(encoder(value))
        formats.append(form)
    return tuple(types), values, formats


def _inherited(value: object) -> tuple[int, Callable[..., bytes], int]:
    for kind in (str, int, float, bytes):
        if isinstance(value, kind):
            return _ENCODERS[kind]
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored")
