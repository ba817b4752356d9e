"""Cancel on disconnect: a turn that asked for it is cancelled when nobody who asked reads it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnwire.runtime.domain.turn import TurnKey

__all__ = ["DisconnectWatch", "Presence"]


class DisconnectWatch:
    """Counts the readers that asked to have their turn cancelled when they are gone.

    Args:
        cancel: cancels a turn; called when the last such reader has been gone for its grace time.
    """

    def __init__(self, cancel: Callable[[TurnKey], None]) -> None:
        self._cancel = cancel
        self._readers: dict[TurnKey, int] = {}
        self._timers: dict[TurnKey, asyncio.TimerHandle] = {}
        self._leaving = False

    def leave(self) -> None:
        """Cancel nothing from now on: that our own end cuts readers off is no disconnect of theirs."""
        self._leaving = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def presence(self, grace: float | None) -> Presence:
        """Return a caller whose turn is not known yet."""
        return Presence(self, grace)

    def attach(self, key: TurnKey, grace: float | None) -> Callable[[], None]:
        """Count a reader; the returned function is called once when it is gone."""
        if grace is None:
            return _nothing
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._readers[key] = self._readers.get(key, 0) + 1

        def detach() -> None:
            left = self._readers[key] - 1
            if left:
                self._readers[key] = left
                return
            del self._readers[key]
            if not self._leaving:
                loop = asyncio.get_running_loop()
                self._timers[key] = loop.call_later(grace, self._fire, key)

        return detach

    def _fire(self, key: TurnKey) -> None:
        del self._timers[key]
        self._cancel(key)


class Presence:
    """One caller: counted from the moment its turn is known, also when it has left by then."""

    def __init__(self, watch: DisconnectWatch, grace: float | None) -> None:
        self._watch = watch
        self._grace = grace
        self._left = False
        self._detach: Callable[[], None] | None = None

    def reads(self, key: TurnKey) -> None:
        """Note which turn the caller reads; called once at most."""
        self._detach = self._watch.attach(key, self._grace)
        if self._left:
            self._detach()

    def leave(self) -> None:
        """Note that the caller is gone; called once."""
        self._left = True
        if self._detach is not None:
            self._detach()


def _nothing() -> None:
    """Nobody asked."""
