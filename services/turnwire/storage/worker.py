"""The writer's thread: takes groups, gives outcomes back in one hand-over each, and never ends unnoticed."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from turnwire.storage.isolation import Call, Item, Outcome
from turnwire.storage.units import Connection

__all__ = ["Committer", "WriterThread"]

logger = logging.getLogger(__name__)


class Committer(Protocol):
    """What the thread runs; every method is called on it. `commit` raises only when the writer must end."""

    def open(self) -> None: ...

    def commit(self, items: Sequence[Item]) -> list[Outcome]: ...

    def between_groups(self) -> None: ...

    def close(self) -> None: ...


class _Periodic:
    __slots__ = ("due", "fn", "interval", "name")

    def __init__(self, name: str, interval: float, fn: Callable[[Connection], object]) -> None:
        self.name = name
        self.interval = interval
        self.fn = fn
        self.due = time.monotonic() + interval


class WriterThread:
    """Runs a committer; the callbacks are called on the loop.

    Args:
        committer: opened, used and closed on this thread.
        on_opened: the connection is open.
        on_finished: the outcomes of the group in flight.
        on_ended: the thread has ended, with what ended it, or None after `put(None)`.
    """

    def __init__(
        self,
        committer: Committer,
        *,
        on_opened: Callable[[], object],
        on_finished: Callable[[list[Outcome]], object],
        on_ended: Callable[[BaseException | None], object],
    ) -> None:
        self._committer = committer
        self._on_opened = on_opened
        self._on_finished = on_finished
        self._on_ended = on_ended
        self._inbox: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._periodic: list[_Periodic] = []
        self._thread = threading.Thread(target=self._main, name="storage-writer", daemon=True)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def put(self, items: list[Item] | None) -> None:
        """Hand a group over; None asks the thread to close and end."""
        self._inbox.put(items)

    def every(self, interval: float, fn: Callable[[Connection], object], name: str) -> None:
        """Repeat a transaction by the thread's own clock, which a hung loop neither delays nor stops."""
        if self.started:
            raise RuntimeError("every() comes before start()")
        self._periodic.append(_Periodic(name, interval, fn))

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Call something on the loop, from any thread."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody is left to hear it
            logger.error("storage.loop_closed")

    def _main(self) -> None:
        error: BaseException | None = None
        try:
            self._committer.open()
            self.post(self._on_opened)
            try:
                self._serve()
            finally:
                self._committer.close()
        except BaseException as caught:  # whatever it was, the loop decides: it ends the process
            error = caught
        self.post(self._on_ended, error)

    def _serve(self) -> None:
        while True:
            try:
                items = self._inbox.get(timeout=self._until_due())
            except Empty:
                self._run_due()
                continue
            if items is None:
                return
            outcomes = self._committer.commit(items)
            self.post(self._on_finished, outcomes)
            self._committer.between_groups()
            if self._periodic:
                self._run_due()

    def _until_due(self) -> float | None:
        if not self._periodic:
            return None
        return max(0.0, min(periodic.due for periodic in self._periodic) - time.monotonic())

    def _run_due(self) -> None:
        for periodic in self._periodic:
            now = time.monotonic()
            if periodic.due > now:
                continue
            periodic.due = now + periodic.interval
            (outcome,) = self._committer.commit([Call(periodic.fn, "", _ignored)])
            if outcome is not None:
                logger.error("storage.periodic_failed", extra={"periodic": periodic.name}, exc_info=outcome)


def _ignored(error: BaseException | None) -> None:
    """The outcome of a periodic transaction is logged by the thread, not told to anyone."""
