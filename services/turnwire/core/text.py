"""Text that reaches an event, a store or the wire holds no NUL and no lone surrogate.

Requests with such characters are refused; text that models, tools and stores send is repaired, as refusing
it would lose the turn.
"""

from __future__ import annotations

import re

from turnwire.core.errors import FieldViolation, InvalidRequest

__all__ = ["REPLACEMENT", "SurrogateJoiner", "cut", "cut_utf8", "is_clean", "repair", "require_clean"]

REPLACEMENT = "\ufffd"
_BAD = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff\0]")


def is_clean(text: str) -> bool:
    """Tell whether `text` is well-formed and free of NUL."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_clean(text: str, field: str) -> str:
    """Return `text` unchanged.

    Args:
        field: proto path of the field, for the error.

    Raises:
        InvalidRequest: it holds NUL or a lone surrogate.
    """
    if is_clean(text):
        return text
    what = "NUL" if "\0" in text else "a lone surrogate"
    raise InvalidRequest(
        f"{field} holds {what}; remove it and send the request again",
        violations=(FieldViolation(field, f"holds {what}"),),
        field=field,
    )


def repair(text: str) -> str:
    """Return `text` with NUL and lone surrogates as U+FFFD; two halves of a pair become their character."""
    if is_clean(text):
        return text
    return _BAD.sub(_mend, text)


def _mend(match: re.Match[str]) -> str:
    found = match.group()
    if len(found) == 2:
        return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return REPLACEMENT


class SurrogateJoiner:
    """Repairs a text that arrives in deltas, when a pair may be split over two of them."""

    __slots__ = ("_high",)

    def __init__(self) -> None:
        self._high = ""

    def feed(self, delta: str) -> str:
        """Return the repaired text so far unsent; a high surrogate at the end waits for the next delta."""
        if self._high:
            delta, self._high = self._high + delta, ""
        elif is_clean(delta):
            return delta
        if "\ud800" <= delta[-1] <= "\udbff":
            delta, self._high = delta[:-1], delta[-1]
        return repair(delta)

    def flush(self) -> str:
        """Return what still waits once the text has ended: nothing, or U+FFFD."""
        high, self._high = self._high, ""
        return REPLACEMENT if high else ""


def cut(text: str, limit: int) -> str:
    """Return the longest start of `text` of at most `limit` bytes of UTF-8; repairs the text on the way."""
    text = repair(text)
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    return text if len(data) <= limit else cut_utf8(data, limit).decode()


def cut_utf8(data: bytes, limit: int) -> bytes:
    """Return the longest start of UTF-8 `data` of at most `limit` bytes that ends on a code point."""
    if len(data) <= limit:
        return data
    end = max(limit, 0)
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
