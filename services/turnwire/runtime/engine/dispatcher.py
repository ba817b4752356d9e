"""Finds work that nobody runs: turns of dead owners, due and answered ones, and queues without a live turn.

Whatever tells of work early is a hint; a hint that is lost costs time, for the store is asked all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from turnwire.core.errors import Unavailable
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.turn import ThreadKey, TurnKey

__all__ = ["Claimer", "Dispatcher", "WorkStore"]

logger = logging.getLogger(__name__)

# Turns that somebody here waits on and another process runs are looked after so often.
_FOLLOW_SECONDS = 1.0
# A look at the store that finds something due at once is still no busy loop.
_LEAST_SECONDS = 0.05


class WorkStore(Protocol):
    """Where the work stands."""

    @property
    def shared(self) -> bool:
        """Whether other processes write to the store too."""
        ...

    async def claimable(self, limit: int) -> Sequence[ThreadKey]:
        """Return threads in which something may be claimed."""
        ...

    async def next_due(self) -> float | None:
        """Return the seconds until something becomes due, None when nothing is known to."""
        ...

    async def stops(self) -> Sequence[tuple[TurnKey, StopNote]]:
        """Return the turns of this process that somebody elsewhere wants to end."""
        ...

    async def owned(self) -> Mapping[TurnKey, int]:
        """Return the turns that this process still owns, with their epochs."""
        ...

    async def look_after_watched(self) -> None:
        """Read how far the turns have come that somebody here waits on and another process may run."""
        ...


class Claimer(Protocol):
    """Who runs what is found; the supervisor."""

    @property
    def room(self) -> int:
        """Turns that may still be taken."""
        ...

    async def claim(self, thread: ThreadKey) -> bool:
        """Run what there is to run in a thread that nobody has."""
        ...

    def stop(self, key: TurnKey, note: StopNote) -> None:
        """End a turn that runs here."""
        ...

    def running(self) -> Mapping[TurnKey, int]:
        """Return the turns that run here, with their epochs."""
        ...

    def lose(self, lost: Mapping[TurnKey, int]) -> None:
        """Stop what runs here at these epochs: somebody else has it."""
        ...

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[Any]:
        """Run work beside everything else."""
        ...


class Dispatcher:
    """Asks the store at least every `sweep` seconds, and whenever something becomes due or is hinted at.

    Args:
        store: where the work stands.
        claimer: who runs it.
        sweep: longest time in seconds between two looks.
    """

    def __init__(self, store: WorkStore, claimer: Claimer, *, sweep: float = 2.0) -> None:
        self._store = store
        self._claimer = claimer
        self._sweep = sweep
        self._hints: dict[ThreadKey, None] = {}
        self._hinted = asyncio.Event()
        self._moved = asyncio.Event()
        self._late = False
        self._stopping = False
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self) -> None:
        """Begin with a look at everything: a former process may have left turns."""
        self._tasks = [self._claimer.spawn(self._forever(self._dispatch), "dispatcher.sweep")]
        if self._store.shared:
            self._tasks.append(self._claimer.spawn(self._forever(self._follow), "dispatcher.follow"))

    async def stop(self) -> None:
        """Take nothing more; what is being taken is taken whole."""
        self._stopping = True
        self._hinted.set()
        self._moved.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def wake(self, thread: ThreadKey) -> None:
        """Have a thread looked at soon; whoever knows of work may say so."""
        self._hints[thread] = None
        self._hinted.set()

    def moved(self) -> None:
        """Have the turns looked after soon that somebody here waits on."""
        self._moved.set()

    def look(self) -> None:
        """Have everything looked at soon: word of work may have been lost."""
        self._hinted.set()
        self._moved.set()

    def check_ownership(self) -> None:
        """Have it looked up which turns are still owned: the lease had run out for a while."""
        self._late = True
        self._hinted.set()

    async def _forever(self, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self._stopping:
            try:
                await look()
            except Unavailable as error:
                # The store says so itself when it fails; the next look may find it well.
                logger.warning("dispatcher.store_unavailable", extra={"reason": error.reason})
                await _until(self._hinted, self._sweep)
            except Exception:
                logger.exception("dispatcher.failed")
                await _until(self._hinted, self._sweep)

    async def _dispatch(self) -> None:
        self._hinted.clear()
        if self._late:
            self._late = False
            # Those that are claimed while the store is read are not in the answer, and not lost.
            running = dict(self._claimer.running())
            owned = await self._store.owned()
            self._claimer.lose({key: e for key, e in running.items() if owned.get(key) != e})
        hints, self._hints = self._hints, {}
        for thread in hints:
            await self._claim(thread)
        if self._store.shared:
            for key, note in await self._store.stops():
                self._claimer.stop(key, note)
        if (room := self._claimer.room) > 0:
            for thread in await self._store.claimable(room):
                await self._claim(thread)
        due = await self._store.next_due()
        wait = self._sweep if due is None else min(self._sweep, max(due, _LEAST_SECONDS))
        if not self._stopping:
            await _until(self._hinted, wait)

    async def _claim(self, thread: ThreadKey) -> None:
        if not self._stopping and self._claimer.room > 0:
            await self._claimer.claim(thread)

    async def _follow(self) -> None:
        self._moved.clear()
        await self._store.look_after_watched()
        if not self._stopping:
            await _until(self._moved, _FOLLOW_SECONDS)


async def _until(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, for so long at most."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
