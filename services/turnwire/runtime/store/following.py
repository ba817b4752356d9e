"""Tokens of a turn reach readers at other processes soon, and cost nothing while there are none.

Who reads a turn that another process runs asks for word of it again and again; the owner sends word of what
it has committed as long as somebody has asked lately. A lost word costs time: readers look each second too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.log import TurnLog

__all__ = ["Following"]

# A request for word is repeated so often, and holds for so long, in seconds.
_ASK_SECONDS, _LIFE_SECONDS = 1.0, 3.0
# Least time between two words: what a reader elsewhere gets later than one here, at most.
_SPACING_SECONDS = 0.025


class Following:
    """Asks other processes for word of their turns, and sends word of the turns of this one.

    Args:
        ask: sends a request for word of a turn to the other processes.
        tell: sends word of a turn to the other processes.
    """

    def __init__(self, ask: Callable[[TurnKey], None], tell: Callable[[TurnKey], None]) -> None:
        self._ask = ask
        self._tell = tell
        self._moved: dict[TurnKey, None] = {}
        self._told_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, log: TurnLog) -> None:
        """Ask for word of a turn that somebody here waits on; does nothing when that was done just now."""
        now = asyncio.get_running_loop().time()
        if not log.epoch and now >= log.followed_until:
            log.followed_until = now + _ASK_SECONDS
            self._ask(log.turn)

    def asked(self, log: TurnLog | None) -> None:
        """Hear that another process reads the turn of this log, which is ignored unless it is owned here."""
        if log is not None and log.epoch:
            log.followed_until = asyncio.get_running_loop().time() + _LIFE_SECONDS

    def progress(self, log: TurnLog) -> None:
        """Hear that events of a turn are committed of which somebody asked for word."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now > log.followed_until:
            log.followed_until = 0.0
            return
        self._moved[log.turn] = None
        if self._timer is None:
            self._timer = loop.call_later(max(0.0, self._told_at + _SPACING_SECONDS - now), self._send)

    def _send(self) -> None:
        self._timer = None
        self._told_at = asyncio.get_running_loop().time()
        moved, self._moved = self._moved, {}
        for key in moved:
            self._tell(key)
