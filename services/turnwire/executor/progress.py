"""What a tool says on the way, made bounded: at most four words a second, 2 KiB each, 200 in all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnwire.core.text import cut

__all__ = ["MAX_PROGRESS_BYTES", "MAX_PROGRESS_COUNT", "PROGRESS_SECONDS", "ProgressGate"]

PROGRESS_SECONDS = 0.25
MAX_PROGRESS_BYTES = 2_048
MAX_PROGRESS_COUNT = 200


class ProgressGate:
    """Lets words of one execution through; of those that come too fast only the last is kept."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._next_at = 0.0
        self._count = 0
        self._held = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        """Take one word from the tool."""
        if not text or self._count >= MAX_PROGRESS_COUNT:
            return
        self._held = cut(text, MAX_PROGRESS_BYTES)
        if self._timer is not None:
            return
        wait = self._next_at - self._loop.time()
        if wait <= 0:
            self._release()
        else:
            self._timer = self._loop.call_later(wait, self._release)

    def close(self) -> None:
        """Drop what waits: the end of the execution says more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._count = MAX_PROGRESS_COUNT

    def _release(self) -> None:
        self._timer = None
        text, self._held = self._held, ""
        self._count += 1
        self._next_at = self._loop.time() + PROGRESS_SECONDS
        self._send(text)
