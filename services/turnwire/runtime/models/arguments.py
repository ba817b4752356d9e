"""Tool arguments are taken as the model wrote them, or not at all.

Definition of arguments that may be executed: one JSON object, nothing before or after it, at most 256 KiB,
at most 64 levels deep, no name twice in one object, no NaN or Infinity, no integer above 4,300 digits.
Numbers are otherwise of any size and stay text: `9007199254740993` and `1e400` arrive at the tool as
written. Absent or blank arguments are `{}`. NUL and lone surrogates, escaped or not, become U+FFFD. Nothing
else is repaired.
"""

from __future__ import annotations

import json
import re
from typing import Any

from turnwire.core.text import repair
from turnwire.runtime.models.text import utf8_length

__all__ = [
    "MAX_ARGUMENT_BYTES",
    "MAX_DEPTH",
    "ObjectScan",
    "check_arguments",
    "is_complete_object",
    "oversize",
]

MAX_ARGUMENT_BYTES = 256 * 1024
MAX_DEPTH = 64
MAX_INTEGER_DIGITS = 4300

_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|.)", re.S
)


class _Refused(ValueError):
    """The arguments are JSON, but not arguments."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"the name {twice[:60]!r} stands twice in one object")
    return found


def _integer(digits: str) -> int:
    # The value is not needed, and reading thousands of digits costs quadratic time.
    if len(digits) > MAX_INTEGER_DIGITS:
        raise _Refused(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
    return 0


def _constant(name: str) -> float:
    raise _Refused(f"{name} is not JSON")


def _number(_digits: str) -> float:
    return 0.0


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = [item for item in inner if isinstance(item, (dict, list))]
    return depth


def _clean_escape(match: re.Match[str]) -> str:
    if match.group(1):
        return match.group()
    code = match.group(3)
    if code and (code == "0000" or 0xD800 <= int(code, 16) <= 0xDFFF):
        return "\\ufffd"
    return match.group()


def _clean(text: str) -> str:
    text = repair(text)
    lowered = text.lower() if "\\u" in text else ""
    if "\\ud" in lowered or "\\u0000" in lowered:
        text = _ESCAPE.sub(_clean_escape, text)
    return text


def oversize(size: int) -> str:
    """Why arguments of so many bytes are refused."""
    return f"the arguments are {size} bytes, more than the limit of {MAX_ARGUMENT_BYTES}"


def check_arguments(raw: str) -> tuple[str, str]:
    """Return the arguments as JSON text and, where they must not be executed, why."""
    if not raw or raw.isspace():
        return "{}", ""
    size = utf8_length(raw)
    if size > MAX_ARGUMENT_BYTES:
        return "{}", oversize(size)
    text = _clean(raw)
    try:
        value = _DECODER.decode(text)
    except _Refused as refused:
        return text, f"the arguments are refused: {refused}"
    except json.JSONDecodeError as error:
        return text, _why_not_json(text, error)
    except RecursionError:
        return text, f"the arguments are nested more than {MAX_DEPTH} levels deep"
    if not isinstance(value, dict):
        return text, "the arguments are not a JSON object"
    if _depth(value) > MAX_DEPTH:
        return text, f"the arguments are nested more than {MAX_DEPTH} levels deep"
    return text.strip(), ""


def _why_not_json(text: str, error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "the arguments hold more than one JSON value"
    # A cut shows at the end: in an open string, or in a last word, number or escape of at most six
    # characters.
    rest = text[error.pos :].strip()
    short = len(rest) <= 6 and not rest.endswith(("}", "]"))
    if short or error.msg.startswith("Unterminated string"):
        return "the arguments were cut off before their end"
    return f"the arguments are not valid JSON ({error.msg} at character {error.pos})"


def is_complete_object(raw: str) -> bool:
    """Whether `raw` is one whole JSON object already, so that anything after it belongs to another call."""
    stripped = raw.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return False
    try:
        json.loads(stripped)
    except (ValueError, RecursionError):
        return False
    return True


_MARKS = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class ObjectScan:
    """Follows braces and strings of a JSON object that arrives in pieces, each looked at once.

    `closed` says that the outermost brace has closed and nothing but space came after it: then, and only
    then, the text may be one whole object.
    """

    __slots__ = ("_depth", "_escaped", "_over", "_quoted")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False
        # None before the outermost brace has closed; then whether only space has come since.
        self._over: bool | None = None

    @property
    def closed(self) -> bool:
        """Whether an object has closed and nothing follows it."""
        return self._over is True

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        at = 0
        while at < len(piece):
            if self._over is not None:
                self._over = self._over and piece[at:].isspace()
                return
            at = self._inside(piece, at) if self._quoted else self._outside(piece, at)

    def _inside(self, piece: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        found = _IN_STRING.search(piece, at)
        if found is None:
            return len(piece)
        self._escaped = found.group() == "\\"
        self._quoted = self._escaped
        return found.end()

    def _outside(self, piece: str, at: int) -> int:
        found = _MARKS.search(piece, at)
        if found is None:
            return len(piece)
        mark = found.group()
        if mark == '"':
            self._quoted = True
        elif mark in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            if self._depth <= 0:
                self._over = True
        return found.end()
