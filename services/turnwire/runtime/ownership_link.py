"""Which turns this runtime owns, and what of it the control service still has to hear.

Reports gather for a moment, so that hundreds of turns a second make few messages; a turn that has come and
gone before anyone was told makes none.
"""

from __future__ import annotations

import asyncio
import math
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

    A message costs both sides far more than a turn in it, hence the spacing.

    Args:
        wake: called when a report is due.
        spacing: least seconds between two reports of beginnings; after a quiet time one is due at once.
        close_delay: seconds for which ends gather: a command that comes meanwhile is answered here anyway.
    """

    def __init__(self, wake: Callable[[], None], *, spacing: float = 0.02, close_delay: float = 0.1) -> None:
        self._owned: dict[Owned, int] = {}
        self._told: dict[Owned, int] = {}
        self._opened = _Batch(wake, spacing=spacing, delay=0.0)
        self._closed = _Batch(wake, spacing=0.0, delay=close_delay)
        self._listening = False

    def __len__(self) -> int:
        return len(self._owned)

    def opened(self, turn: Owned, epoch: int) -> None:
        """Note that a turn is owned from now on."""
        self._owned[turn] = epoch
        if self._listening:
            self._opened.add(turn, epoch)

    def closed(self, turn: Owned, epoch: int) -> None:
        """Note that a turn is no longer owned at `epoch`; ignored when it is owned at a higher one."""
        if self._owned.get(turn, epoch + 1) > epoch:
            return
        del self._owned[turn]
        self._opened.turns.pop(turn, None)
        if turn in self._told:
            self._closed.add(turn, epoch)

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
        return dict(self._owned)

    def silence(self) -> None:
        """Gather no reports: nobody listens."""
        self._listening = False
        self._told = {}
        self._opened.clear()
        self._closed.clear()

    def take(self) -> Report | None:
        """Return what is to be told now, or None while nothing is due."""
        report = Report(self._opened.take(), self._closed.take())
        if not (report.opened or report.closed):
            return None
        for turn, epoch in report.closed.items():
            if self._told.get(turn, epoch + 1) <= epoch:
                del self._told[turn]
        self._told.update(report.opened)
        return report


class _Batch:
    """Turns that gather until a moment."""

    def __init__(self, wake: Callable[[], None], *, spacing: float, delay: float) -> None:
        self.turns: dict[Owned, int] = {}
        self._wake = wake
        self._spacing = spacing
        self._delay = delay
        self._last = 0.0
        self._due_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, turn: Owned, epoch: int) -> None:
        """Add a turn, and see to it that the batch is taken at the right moment."""
        self.turns[turn] = epoch
        if self._due_at < math.inf:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._due_at = max(now + self._delay, self._last + self._spacing)
        if self._due_at <= now:
            self._wake()
        else:
            self._timer = loop.call_at(self._due_at, self._fire)

    def take(self) -> dict[Owned, int]:
        """Return the turns if their moment has come."""
        if self._due_at == math.inf:
            return {}
        now = asyncio.get_running_loop().time()
        if now < self._due_at:
            return {}
        turns, self.turns = self.turns, {}
        self.clear()
        self._last = now
        return turns

    def clear(self) -> None:
        """Forget everything."""
        self.turns = {}
        self._due_at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        # The loop may be a little early by its own clock.
        self._due_at = 0.0
        self._wake()
