"""Reasoning that a model writes into its text between think tags becomes reasoning.

Look-ahead is bounded by the longest tag: only a tail that may still become a tag is held back, so a `<`
waits for the next character at most. Tags are `<think>`, `<thinking>` and `<thought>` in any case; a block
ends at the closing tag of its own name. A tag right after a backtick is a mention, and a closing tag
without a block is text.
"""

from __future__ import annotations

import re

__all__ = ["ThinkSplitter"]

_NAMES = ("think", "thinking", "thought")
_OPEN = re.compile(r"<(think|thinking|thought)>", re.I)
_OPENERS = tuple(f"<{name}>" for name in _NAMES)
_CLOSE = {name: re.compile(f"</{name}>", re.I) for name in _NAMES}


class ThinkSplitter:
    """Splits the text of one answer into (is_reasoning, piece) pairs; no piece is empty.

    With `inside=True` the answer begins in a block that the server's prompt opened: it ends at `</think>`.
    """

    __slots__ = ("_before", "_held", "_name")

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""
        self._name = "think" if inside else ""
        self._before = ""

    @property
    def idle(self) -> bool:
        """Whether text without a `<` passes unchanged."""
        return not self._held and not self._name

    def feed(self, text: str, before: str = "") -> list[tuple[bool, str]]:
        """Take the next piece of text; `before` is the character before it, if it went past while idle."""
        self._before = before or self._before
        text, self._held = self._held + text, ""
        out: list[tuple[bool, str]] = []
        start = 0
        while start < len(text):
            start = self._take(text, start, out)
        return out

    def flush(self) -> list[tuple[bool, str]]:
        """End of the text: what was held back is what it looks like."""
        held, self._held = self._held, ""
        return [(bool(self._name), held)] if held else []

    def _take(self, text: str, start: int, out: list[tuple[bool, str]]) -> int:
        inside = bool(self._name)
        found = (_CLOSE[self._name] if inside else _OPEN).search(text, start)
        if found is None:
            end = len(text) - self._tail(text, start)
            self._held = text[end:]
            self._emit(inside, text[start:end], out)
            return len(text)
        self._emit(inside, text[start : found.start()], out)
        if not inside and self._before == "`":
            self._emit(False, found.group(), out)
        else:
            self._name = "" if inside else found.group(1).lower()
            self._before = ">"
        return found.end()

    def _emit(self, reasoning: bool, piece: str, out: list[tuple[bool, str]]) -> None:
        if piece:
            out.append((reasoning, piece))
            self._before = piece[-1]

    def _tail(self, text: str, start: int) -> int:
        """How many characters at the end may still become a tag."""
        tags = (f"</{self._name}>",) if self._name else _OPENERS
        longest = max(map(len, tags)) - 1
        at = text.rfind("<", max(start, len(text) - longest))
        if at < 0:
            return 0
        tail = text[at:].lower()
        return len(tail) if any(tag.startswith(tail) for tag in tags) else 0
