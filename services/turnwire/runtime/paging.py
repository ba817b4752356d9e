"""Page sizes, opaque page tokens bound to their request, and the small filter language of lists."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec

from turnwire.core.errors import FieldViolation, InvalidRequest
from turnwire.core.text import require_clean
from turnwire.runtime.store.queries import MAX_PAGE_BYTES, Filter

__all__ = ["FilterField", "fitting", "page_size", "parse_filter", "read_token", "write_token"]

DEFAULT_PAGE, LARGEST_PAGE = 50, 200
MAX_FILTER_CHARS = 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Integers of the store are from -2^63 to 2^63 - 1.
_INTEGERS = 2**63
_TERM = re.compile(r"(label\.[a-z0-9._/-]{1,63}|[a-z_]+)(>=|<=|=)(\"[^\"]*\"|[^\s\"]+)")

# Column of a field of the filter; the kind says how the value is read.
FilterField = tuple[str, str]


def page_size(asked: int) -> int:
    """Return the size of a page. Raises InvalidRequest for a negative one."""
    if asked < 0:
        text = "must not be negative"
        raise InvalidRequest(f"page_size {text}", violations=[FieldViolation("page_size", text)])
    return min(asked or DEFAULT_PAGE, LARGEST_PAGE)


class _Sized(Protocol):
    def ByteSize(self) -> int: ...


M = TypeVar("M", bound=_Sized)


def fitting(messages: Iterable[M], most: int = MAX_PAGE_BYTES) -> list[M]:
    """Return the messages that fit into one page of so many bytes, at least the first."""
    found: list[M] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if found and size > most:
            break
        found.append(message)
    return found


def _bind(*bound: str) -> str:
    return hashlib.sha256("\0".join(bound).encode()).hexdigest()[:16]


def write_token(position: tuple[int, str], *bound: str) -> str:
    """Return a token for going on after `position`, bound to the other fields of the request."""
    body = msgspec.json.encode([_bind(*bound), *position])
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_token(token: str, *bound: str) -> tuple[int, str] | None:
    """Return the position of a token, None for none.

    Raises:
        InvalidRequest: PAGE_TOKEN_MISMATCH, the token is not one of this request.
    """
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        tie, first, second = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=tuple[str, int, str])
    except (ValueError, msgspec.DecodeError):
        tie, first, second = "", 0, ""
    if tie != _bind(*bound) or not -_INTEGERS <= first < _INTEGERS:
        raise InvalidRequest(
            "page_token belongs to another request: begin again without it", reason="PAGE_TOKEN_MISMATCH"
        )
    return first, second


def parse_filter(text: str, fields: Mapping[str, FilterField], labels: str = "") -> Filter:
    """Read `state=RUNNING AND label.team=search` and so on.

    Args:
        text: terms joined by ` AND `; empty = everything. Times are ISO 8601, in UTC where they do not say.
        fields: column and kind (text, word, kebab, time) of each field.
        labels: column that holds the labels' JSON; empty = there are none.

    Raises:
        InvalidRequest: a term that is not understood.
    """
    if len(text) > MAX_FILTER_CHARS:
        # SQLite refuses a statement of a thousand terms and more.
        what = f"is longer than {MAX_FILTER_CHARS} characters"
        raise InvalidRequest(f"filter {what}", violations=[FieldViolation("filter", what)])
    if not require_clean(text, "filter").strip():
        return Filter()
    conditions: list[tuple[str, object]] = []
    for term in text.split(" AND "):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise _wrong(term, fields, labels)
        name, operator, value = match[1], match[2], match[3].strip('"')
        if name.startswith("label.") and operator == "=" and labels:
            # Looked for in the JSON text, as engines read JSON each in their own way: a quotation mark inside
            # a text is escaped there and the key is of a closed alphabet, so nothing else looks the same.
            pair = f'"{name[6:]}":{msgspec.json.encode(value).decode()}'
            conditions.append((f"replace({labels}, ?, '') <> {labels}", pair))
        elif name in fields and (operator == "=" or fields[name][1] == "time"):
            column, kind = fields[name]
            conditions.append((f"{column} {operator} ?", _value(value, kind, term, fields)))
        else:
            raise _wrong(term, fields, labels)
    return Filter(tuple(conditions))


def _value(value: str, kind: str, term: str, fields: Mapping[str, FilterField]) -> object:
    if kind == "time":
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise _wrong(term, fields) from None
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
        nanos = (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000
        return max(-_INTEGERS, min(nanos, _INTEGERS - 1))
    if kind == "kebab":
        return value.lower().replace("_", "-")
    return value.lower() if kind == "word" else value


def _wrong(term: str, fields: Mapping[str, FilterField], labels: str = "") -> InvalidRequest:
    known = ", ".join(sorted(fields)) + (" or label.KEY" if labels else "")
    text = f"does not understand {term.strip()[:100]!r}: use {known} with = (times also >= and <=)"
    return InvalidRequest(f"filter {text}", violations=[FieldViolation("filter", text)])
