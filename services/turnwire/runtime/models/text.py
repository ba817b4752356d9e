"""What a provider sends as text becomes text that every later layer can store, log and send.

One rule: a surrogate pair is joined even when its halves arrive in two deltas; what stays alone, and NUL,
becomes U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MAX_DELTA_BYTES", "SurrogateJoiner", "clean_text", "split_delta", "utf8_length"]

MAX_DELTA_BYTES = 32 * 1024
# Four bytes a character is the most UTF-8 needs, so shorter texts need no counting.
SHORT_DELTA_CHARS = MAX_DELTA_BYTES // 4

_ODD = re.compile("[\x00\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def _join_pair(match: re.Match[str]) -> str:
    high, low = match.group()
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))


def clean_text(text: str) -> str:
    """Join surrogate pairs; replace lone surrogates and NUL by U+FFFD."""
    if text.isascii() and "\x00" not in text:
        return text
    if _ODD.search(text) is None:
        return text
    return _ODD.sub("\ufffd", _PAIR.sub(_join_pair, text))


class SurrogateJoiner:
    """Cleans the deltas of one text; holds back nothing but a high surrogate at the end of a delta."""

    __slots__ = ("_high",)

    def __init__(self) -> None:
        self._high = ""

    @property
    def pending(self) -> bool:
        """Whether half a pair is held back."""
        return bool(self._high)

    def feed(self, text: str) -> str:
        """Return the clean text of this delta, with the half that the last one left."""
        if self._high and text:
            text = self._high + text
            self._high = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._high = text[-1]
            text = text[:-1]
        return clean_text(text)

    def flush(self) -> str:
        """End of the text: a half that is still alone becomes U+FFFD."""
        if not self._high:
            return ""
        self._high = ""
        return "\ufffd"


def utf8_length(text: str) -> int:
    """Bytes of `text` in UTF-8; lone surrogates count three, like the U+FFFD they become."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def split_delta(text: str, limit: int = MAX_DELTA_BYTES) -> Iterator[str]:
    """Cut `text` into pieces of at most `limit` bytes of UTF-8, at code points."""
    if len(text) * 4 <= limit or utf8_length(text) <= limit:
        yield text
        return
    step = limit if text.isascii() else limit // 4
    for start in range(0, len(text), step):
        yield text[start : start + step]
