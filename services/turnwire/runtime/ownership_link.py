"""Which turns this runtime owns, and what of it the control service still has to hear.

Reports gather for a moment, so that hundreds of turns a second make few messages; a turn that has come and
gone before anyone was told makes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

__all__ = ["Owned", "OwnershipReports", "Report"]

# Scope and full name of a turn.
Owned: TypeAlias = tuple[str, str]


class Report(NamedTuple):
    """Turns to tell of, with their epochs."""

    opened: dict[Owned, int]
    closed: dict[Owned, int]


class OwnershipReports:
    """The turns owned now, and the changes since the last report.

    Args:
        wake: called when a report is due.
        spacing: least seconds between two reports; after a quiet time the next one is due at once.
        close_delay: seconds that the end of a turn may wait for a report that is due anyway; a command that
            comes meanwhile is answered here all the same.
    """

    def __init__(self, wake: Callable[[], None], *, spacing: float = 0.01, close_delay: float = 0.02) -> None:
        self._wake = wake
        self._spacing = spacing
        self._close_delay = close_delay
        self._owned: dict[Owned, int] = {}
        self._told: dict[Owned, int] = {}
        self._opened: dict[Owned, int] = {}
        self._closed: dict[Owned, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._last = 0.0
        self._listening = False

    def __len__(self) -> int:
        return len(self._owned)

    def opened(self, turn: Owned, epoch: int) -> None:
        """Note that a turn is owned from now on."""
        self._owned[turn] = epoch
        if self._listening:
            self._opened[turn] = epoch
            self._due(self._spacing)

    def closed(self, turn: Owned, epoch: int) -> None:
        """Note that a turn is no longer owned at `epoch`; ignored when it is owned at a higher one."""
        if self._owned.get(turn, epoch + 1) > epoch:
            return
        del self._owned[turn]
        self._opened.pop(turn, None)
        if turn in self._told:
            self._closed[turn] = epoch
            self._due(self._close_delay)

    def live_in(self, scope: str, thread: str) -> str:
        """Return the turn of a thread that is owned now, the newest if there are several, else nothing."""
        prefix = f"{thread}/turns/"
        found = [turn for (its, turn) in self._owned if its == scope and turn.startswith(prefix)]
        return found[-1] if found else ""

    def snapshot(self) -> dict[Owned, int]:
        """Return everything owned now; changes are reported from here on."""
        self.silence()
        self._listening = True
        self._told = dict(self._owned)
        self._last = asyncio.get_running_loop().time()
        return dict(self._owned)

    def silence(self) -> None:
        """Gather no reports: nobody listens."""
        self._listening = False
        self._told = {}
        self._opened, self._closed = {}, {}
        self._stop_timer()

    def take(self) -> Report | None:
        """Return what is to be told now, or None while it is not yet due."""
        if not (self._opened or self._closed) or self._timer is not None:
            return None
        report = Report(self._opened, self._closed)
        self._opened, self._closed = {}, {}
        for turn in report.closed:
            self._told.pop(turn, None)
        self._told.update(report.opened)
        self._last = asyncio.get_running_loop().time()
        return report

    def _due(self, delay: float) -> None:
        """See to it that a report goes out at the right moment: at once when the last one is long past."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        when = max(now, self._last + self._spacing) if delay <= self._spacing else now + delay
        if self._timer is not None:
            if when >= self._timer_at:
                return
            self._stop_timer()
        if when <= now:
            self._wake()
            return
        self._timer, self._timer_at = loop.call_at(when, self._fire), when

    def _fire(self) -> None:
        self._timer = None
        self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
