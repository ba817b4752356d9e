"""Deltas are clean, bounded and cheap: what a provider sends as text can be stored and sent as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from turnwire.core.text import SurrogateJoiner
from turnwire.extend.llm import TextDelta

__all__ = ["MAX_DELTA_BYTES", "SHORT_DELTA_CHARS", "DeltaJoiner", "split_delta", "text_delta", "utf8_length"]

MAX_DELTA_BYTES = 32 * 1024
# Four bytes a character is the most UTF-8 needs, so shorter texts need no counting.
SHORT_DELTA_CHARS = MAX_DELTA_BYTES // 4

_new: Callable[[type[TextDelta]], TextDelta] = object.__new__
_set_text: Callable[[TextDelta, str], None] = TextDelta.__dict__["text"].__set__


def text_delta(text: str) -> TextDelta:
    """A `TextDelta` at half the cost: a frozen dataclass sets its fields the slow way, and these are many."""
    delta = _new(TextDelta)
    _set_text(delta, text)
    return delta


class DeltaJoiner(SurrogateJoiner):
    """A joiner that tells whether half a pair waits in it."""

    __slots__ = ()

    @property
    def pending(self) -> bool:
        """Whether the next delta may be joined to a half of the last one."""
        return bool(self._high)


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
