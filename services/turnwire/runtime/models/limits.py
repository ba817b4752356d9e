"""The time limits of one model call cost one timer, however many chunks arrive.

The timer looks at timestamps when it fires and sleeps again until the earliest moment at which a limit can
have passed. While the consumer is busy and does not read, the limit between chunks stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnwire.runtime.models.settings import LimitSettings

__all__ = ["Watchdog"]


class Watchdog:
    """Watches one answer from when its request was sent.

    Args:
        limits: the limits.
        started: loop time at which the call began.
        sent: loop time at which the request was really sent.
        expire: called once, with what the limit was about, when one has passed.
    """

    __slots__ = (
        "_expire",
        "_first_at",
        "_handle",
        "_limits",
        "_loop",
        "_seen",
        "_since",
        "_whole_at",
    )

    def __init__(
        self, limits: LimitSettings, started: float, sent: float, expire: Callable[[str], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._expire = expire
        self._first_at = sent + limits.first_chunk_seconds
        self._whole_at = min(sent + limits.whole_call_seconds, started + limits.request_seconds)
        self._seen = False
        self._since: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._check()

    def reading(self) -> None:
        """The consumer waits for data from now on."""
        self._since = self._loop.time()

    def read(self) -> None:
        """Data has arrived, or the wait is over."""
        self._since = None
        if not self._seen:
            self._seen = True
            # The one time at which the next limit may pass earlier than the timer looks.
            if self._handle is not None:
                self._handle.cancel()
                self._check()

    def stop(self) -> None:
        """End the watch."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self, now: float) -> tuple[float, str]:
        whole = (self._whole_at, f"the answer took more than {self._limits.whole_call_seconds:g} s")
        if not self._seen:
            first = (self._first_at, f"no answer began within {self._limits.first_chunk_seconds:g} s")
            return min(first, whole)
        since = now if self._since is None else self._since
        silent = f"the answer fell silent for {self._limits.between_chunks_seconds:g} s"
        return min((since + self._limits.between_chunks_seconds, silent), whole)

    def _check(self) -> None:
        now = self._loop.time()
        due, what = self._due(now)
        if now < due:
            self._handle = self._loop.call_at(due, self._check)
        else:
            self._handle = None
            self._expire(what)
