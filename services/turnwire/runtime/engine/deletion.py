"""Deletes threads: marks them, waits for what runs, and removes their content in the background.

The mark is the deletion; all after it is repeated by whoever finds it undone, in this process or another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.deletion import Deletion, Purge
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.engine.supervisor import LiveTurn

__all__ = ["DeletionStore", "LiveTurns", "ResultPurge", "ThreadDeleter"]

logger = logging.getLogger(__name__)

# How long a turn that runs may take to end before its thread is sealed without it.
GRACE_SECONDS = 10.0
# How often somebody looks whether a turn that another process runs has ended.
_LOOK_SECONDS = 0.2
# How often purges are looked for that nobody works on.
_SWEEP_SECONDS = 60.0
# Between two transactions of one purge.
_PAUSE_SECONDS = 0.02
_FIRST_DELAY, _LAST_DELAY = 1.0, 300.0


class DeletionStore(Protocol):
    """What deleting needs of the store."""

    async def begin_deletion(self, thread: ThreadKey, expected_version: int | None) -> Deletion:
        """Mark a thread as deleted. Raises NotFound (THREAD_NOT_FOUND), Conflict (THREAD_CHANGED)."""
        ...

    async def seal(self, thread: ThreadKey) -> int:
        """Shut out whoever still runs a turn of a deleted thread; returns its last version."""
        ...

    async def live_turn_of_deleted(self, thread: ThreadKey) -> str:
        """Return the bare id of the turn that still runs in a deleted thread, empty when none does."""
        ...

    async def purges(self) -> Sequence[Purge]:
        """Return threads whose content is still to be removed."""
        ...

    async def purge_rows(self, thread: ThreadKey) -> bool:
        """Remove some rows of a deleted thread; False when nothing is left."""
        ...

    async def end_purge(self, thread: ThreadKey) -> None:
        """Note that nothing of a thread is left anywhere."""
        ...


class LiveTurns(Protocol):
    """The turns that run in this process."""

    @property
    def live(self) -> dict[TurnKey, LiveTurn]:
        """The turns that run here now."""
        ...

    def stop(self, key: TurnKey, note: StopNote) -> None:
        """End a turn that runs here."""
        ...


class ResultPurge(Protocol):
    """Where results are kept."""

    async def purge_thread(self, scope: str, thread: str) -> None:
        """Remove everything of a thread (full name), as often as asked. Raises TurnwireError."""
        ...


class ThreadDeleter:
    """Deletes threads; `run` is the task that removes what is left of them.

    Args:
        store: marks and removes.
        turns: which turns run here.
        results: removes what the executor keeps.
        grace: seconds for a running turn to end by itself.
    """

    def __init__(
        self, store: DeletionStore, turns: LiveTurns, results: ResultPurge, *, grace: float = GRACE_SECONDS
    ) -> None:
        self._store = store
        self._turns = turns
        self._results = results
        self._grace = grace
        self._news = asyncio.Event()
        # Threads whose purge failed: when to try again, and after how many seconds the time after.
        self._later: dict[ThreadKey, tuple[float, float]] = {}

    async def _still_live(self, key: TurnKey) -> bool:
        """Look whether a turn runs anywhere; takes its time when it does."""
        if await self._store.live_turn_of_deleted(key.thread) != key.turn_id:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def run(self) -> None:
        """Remove what is left of deleted threads, until cancelled; the next start finds what is left then."""
        while True:
            self._news.clear()
            wait = _SWEEP_SECONDS
            try:
                wait = await self._sweep()
            except Exception:
                # The store is in trouble and has said so; nothing is lost.
                logger.exception("threads.purge_failed")
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def delete(self, thread: ThreadKey, expected_version: int | None) -> int:
        """Delete a thread and return its last version; again, it returns the same.

        A turn that runs is told to end and has ten seconds for it. A caller that leaves meanwhile changes
        nothing: the thread is deleted.

        Raises:
            NotFound: THREAD_NOT_FOUND.
            Conflict: THREAD_CHANGED.
        """
        marked = await self._store.begin_deletion(thread, expected_version)
        self._news.set()
        if marked.running is None:
            return marked.version
        await self._wait(marked.running)
        version = await self._store.seal(thread)
        self._news.set()
        return version

    async def _wait(self, key: TurnKey) -> None:
        """Wait until a turn has ended, here or elsewhere, but not for ever."""
        try:
            async with asyncio.timeout(self._grace):
                live = self._turns.live.get(key)
                if live is not None:
                    self._turns.stop(key, StopNote("deleted", "its thread was deleted"))
                    await asyncio.wait({live.finished})
                while await self._still_live(key):
                    pass
        except TimeoutError:
            logger.warning("thread.delete_forced", extra={"turn": key.name})

    async def _sweep(self) -> float:
        """Work on every purge that is due; returns the seconds until the next one is."""
        now = asyncio.get_running_loop().time()
        wait = _SWEEP_SECONDS
        for purge in await self._store.purges():
            due = self._later.get(purge.thread, (0.0, 0.0))[0] - now
            if purge.live_turn:
                # Whoever asked for the deletion still waits for the turn, or has died doing so.
                due = max(due, self._grace - purge.age)
            if due <= 0:
                due = await self._try(purge.thread)
            wait = min(wait, max(due, 0.0)) if due else wait
        return wait

    async def _try(self, thread: ThreadKey) -> float:
        """Remove everything of a thread; returns 0, or in how many seconds to try again."""
        try:
            await self._purge(thread)
        except Exception as error:
            _, delay = self._later.get(thread, (0.0, _FIRST_DELAY))
            self._later[thread] = (
                asyncio.get_running_loop().time() + delay,
                min(delay * 2, _LAST_DELAY),
            )
            fields = {"thread_name": thread.name, "error": type(error).__name__, "retry_seconds": delay}
            logger.warning("thread.purge_failed", extra=fields)
            return delay
        self._later.pop(thread, None)
        logger.info("thread.purged", extra={"thread_name": thread.name})
        return 0.0

    async def _purge(self, thread: ThreadKey) -> None:
        await self._store.seal(thread)
        while await self._purge_rows(thread):
            pass
        await self._results.purge_thread(thread.scope, thread.name)
        await self._store.end_purge(thread)

    async def _purge_rows(self, thread: ThreadKey) -> bool:
        """Remove some rows, and leave the writer to others for a moment; False when nothing is left."""
        if not await self._store.purge_rows(thread):
            return False
        await asyncio.sleep(_PAUSE_SECONDS)
        return True
