"""The loop side of the writer: while one group is in flight everything gathers, and the next takes it all.

Nothing here knows an engine: the thread side is a committer, and only its outcome makes a unit durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from turnwire.storage.isolation import Call, Item, Outcome
from turnwire.storage.room import Room
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import (
    Connection,
    Source,
    Statement,
    StoreUnavailable,
    Unit,
    UnitFenced,
    UnitRejected,
)
from turnwire.storage.worker import Committer, WriterThread

__all__ = ["GroupCommitWriter"]

logger = logging.getLogger(__name__)
T = TypeVar("T")
_Entry = Item | Source


class GroupCommitWriter:
    """One thread, one connection, one group at a time; implements `UnitWriter`.

    Args:
        committer: the thread side; it is opened, used and closed on the writer's thread.
        on_fatal: called once, on the loop, when the writer has ended for any reason but `stop`: then leave.
        stats: counters, shared with the committer.
        spacing: seconds between the starts of two groups that hold nothing urgent.
        key_limit, total_limit: bytes that may wait under one key and altogether before `has_room` says no.
        stuck_after: seconds after which a group in flight counts as lost and the writer as ended.
    """

    def __init__(
        self,
        committer: Committer,
        *,
        on_fatal: Callable[[BaseException], None],
        stats: WriterStats | None = None,
        on_health: Callable[[bool], None] | None = None,
        spacing: float = 0.005,
        key_limit: int = 1024 * 1024,
        total_limit: int = 64 * 1024 * 1024,
        stuck_after: float = 90.0,
    ) -> None:
        self.stats = stats or WriterStats()
        self._on_fatal = on_fatal
        self._on_health = on_health
        self._spacing = spacing
        self._stuck_after = stuck_after

        self._waiting: dict[_Entry, int] = {}
        self._urgent = False
        self._in_flight: list[Item] = []
        self._in_flight_bytes: list[tuple[str, int]] = []
        self._formed_at = float("-inf")
        self._next: asyncio.Handle | None = None
        self._next_is_now = False
        self._watch: asyncio.TimerHandle | None = None

        self._room = Room(key_limit, total_limit)
        self._quiet: asyncio.Future[None] | None = None

        self._thread = WriterThread(
            committer,
            on_opened=lambda: _settle(self._opened, None, None),
            on_finished=self._finished,
            on_ended=self._thread_ended,
        )
        self._healthy = True
        self._stopping = False
        self._ended: BaseException | None = None

    async def start(self) -> None:
        """Start the thread and wait until its connection is open.

        Raises:
            Exception: whatever opening the connection raised.
        """
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._thread.start(self._loop)
        await self._opened

    def every(self, interval: float, fn: Callable[[Connection], object], name: str) -> None:
        """Run `fn` as a transaction on the writer's thread every `interval` seconds; call before `start`."""
        self._thread.every(interval, fn, name)

    async def stop(self) -> None:
        """Commit everything that waits, then close. Stop producers first; later units are refused."""
        if not self._thread.started or self._closed.done():
            return
        while self._ended is None and (self._in_flight or self._waiting):
            self._urgent = True
            self._arm()
            if self._quiet is None or self._quiet.done():
                self._quiet = self._loop.create_future()
            await asyncio.wait((self._quiet,))
        if not self._stopping:
            self._stopping = True
            self._thread.put(None)
        await asyncio.wait((self._closed,))

    @property
    def healthy(self) -> bool:
        """False while commits fail and are retried, and after the writer has ended."""
        return self._healthy and self._ended is None

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait in memory until their units are durable."""
        return self._room.total

    def mark(self, source: Source, urgent: bool = False, size: int = 0) -> None:
        """Ask for `source.take()` at the next group; `size` more bytes wait under its key until then."""
        self._enter(source, source.key, urgent, size)

    def submit(self, unit: Unit) -> None:
        """Put one ready unit into the next group. Its `done` is always called, even after the end."""
        self._enter(unit, unit.key, unit.urgent, unit.size)

    async def commit(self, statements: Sequence[Statement], key: str = "") -> None:
        """Commit the statements as one urgent unit; a cancel during the commit waits for its result.

        Raises:
            UnitFenced: a statement met another number of rows than it expects.
            UnitRejected: the data cannot be stored.
            StoreUnavailable: the writer has ended.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        self.submit(Unit(key, list(statements), True, lambda error: _settle(future, error, None)))
        await _outlast_cancel(future)

    async def run(self, fn: Callable[[Connection], T], key: str = "") -> T:
        """Run `fn` on the writer's thread, inside the transaction of the next group, and return its result.

        It may be called again when the group is redone, so it must have no effect but on the connection, and
        must leave transactions alone. What it raises undoes its own writes only and is raised here.

        Raises:
            UnitRejected: `fn` let an error of the driver out that is the data's fault.
            StoreUnavailable: the writer has ended.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        call = Call(fn, key, lambda error: _settle(future, error, call.result))
        self._enter(call, key, True, 0)
        return await _outlast_cancel(future)

    def has_room(self, key: str) -> bool:
        """Say whether more bytes may wait under `key`; if not, stop producing until `room` returns."""
        return self._room.has(key)

    async def room(self, key: str) -> None:
        """Wait until `has_room(key)`.

        Raises:
            StoreUnavailable: the writer has ended.
        """
        while not self._room.has(key):
            await self._room.changed()
        if self._ended is not None:
            raise _unavailable(self._ended)

    def _enter(self, entry: _Entry, key: str, urgent: bool, size: int) -> None:
        if self._ended is not None or self._stopping:
            self._loop.call_soon(_refuse, entry, _unavailable(self._ended))
            return
        self._waiting[entry] = self._waiting.get(entry, 0) + size
        if size:
            self._room.take(key, size)
        if urgent:
            self._urgent = True
        if not self._in_flight:
            self._arm()

    def _arm(self) -> None:
        """See to it that a group forms: at once if something urgent waits, else at the minimum distance."""
        if self._in_flight or self._next_is_now:
            return
        delay = 0.0 if self._urgent else self._formed_at + self._spacing - self._loop.time()
        if self._next is not None:
            if delay > 0:
                return
            self._next.cancel()
        self._next_is_now = delay <= 0
        if self._next_is_now:  # not inline: what this turn of the loop still hands in belongs to the group
            self._next = self._loop.call_soon(self._form)
        else:
            self._next = self._loop.call_later(delay, self._form)

    def _form(self) -> None:
        self._next = None
        self._next_is_now = False
        if self._ended is not None or self._in_flight:
            return
        entries, self._waiting = self._waiting, {}
        self._urgent = False
        self._formed_at = self._loop.time()
        items: list[Item] = []
        held: list[tuple[str, int]] = []
        for entry, size in entries.items():
            item = entry if isinstance(entry, (Unit, Call)) else _take(entry)
            if item is not None:
                items.append(item)
                held.append((entry.key, size))
            elif size:
                self._room.give(entry.key, size)
        if not items:
            self._room.wake()
            self._settle_quiet()
            if self._waiting:
                self._arm()
            return
        self._in_flight, self._in_flight_bytes = items, held
        self._thread.put(items)
        if self._watch is None:
            self._watch = self._loop.call_later(self._stuck_after, self._look)

    def _finished(self, outcomes: list[Outcome]) -> None:
        """Take the outcome of the group in flight; runs on the loop."""
        if self._ended is not None:
            return
        items, held = self._in_flight, self._in_flight_bytes
        self._in_flight, self._in_flight_bytes = [], []
        self._count(items)
        for key, size in held:
            if size:
                self._room.give(key, size)
        for item, outcome in zip(items, outcomes, strict=True):
            if outcome is not None:
                self._count_failure(outcome)
            _tell(item, outcome)
        self._room.wake()
        self._settle_quiet()
        if self._waiting:
            self._arm()

    def _count(self, items: list[Item]) -> None:
        stats = self.stats
        stats.groups += 1
        stats.units += len(items)
        stats.largest_group = max(stats.largest_group, len(items))
        stats.latency.add(self._loop.time() - self._formed_at)

    def _count_failure(self, outcome: Exception) -> None:
        if isinstance(outcome, UnitFenced):
            self.stats.fenced += 1
        elif isinstance(outcome, UnitRejected):
            self.stats.rejected += 1

    def _settle_quiet(self) -> None:
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def report_health(self, healthy: bool) -> None:
        """Note the committer's health; called on its thread."""
        self._thread.post(self._set_health, healthy)

    def report_fatal(self, error: BaseException) -> None:
        """End the writer because a thread that belongs to it has ended; called on that thread."""
        self._thread.post(self._end, error)

    def _set_health(self, healthy: bool) -> None:
        if healthy != self._healthy:
            self._healthy = healthy
            if self._on_health is not None:
                self._on_health(healthy)

    def _look(self) -> None:
        self._watch = None
        if not self._in_flight:
            return
        left = self._formed_at + self._stuck_after - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._look)
            return
        self._end(TimeoutError(f"a commit has not ended after {self._stuck_after:g} s"))

    def _end(self, error: BaseException) -> None:
        """Fail stop: nothing that waits will be committed, all hear so, the process is told to leave."""
        if self._ended is not None:
            return
        logger.error("storage.writer_ended", exc_info=error)
        self._ended = error
        entries: list[_Entry] = [*self._in_flight, *self._waiting]
        self._in_flight, self._waiting = [], {}
        self._room.clear()
        for entry in entries:
            _refuse(entry, _unavailable(error))
        self._room.wake()
        self._settle_quiet()
        if self._on_health is not None and self._healthy:
            self._on_health(False)
        self._on_fatal(error)

    def _thread_ended(self, error: BaseException | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if not self._opened.done():
            self._opened.set_exception(error or RuntimeError("the writer's thread did not start"))
        elif error is not None or not self._stopping:
            self._end(error or RuntimeError("the writer's thread ended by itself"))
        if not self._closed.done():
            self._closed.set_result(None)


def _take(source: Source) -> Unit | None:
    try:
        return source.take()
    except Exception as error:
        logger.exception("storage.take_failed")
        _refuse(source, error)
        return None


def _tell(item: Item, outcome: BaseException | None) -> None:
    try:
        item.done(outcome)
    except Exception:
        # A defect of one listener must not keep the others from hearing.
        logger.exception("storage.done_failed")


def _refuse(entry: _Entry, error: Exception) -> None:
    if isinstance(entry, (Unit, Call)):
        _tell(entry, error)
        return
    try:
        entry.refuse(error)
    except Exception:
        logger.exception("storage.refuse_failed")


def _unavailable(cause: BaseException | None) -> StoreUnavailable:
    error = StoreUnavailable("the store takes no more writes: this server is leaving", retry_after=1.0)
    error.__cause__ = cause
    return error


def _settle(future: asyncio.Future[Any], error: BaseException | None, result: Any) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def _outlast_cancel(future: asyncio.Future[T]) -> T:
    """Wait for the result even when cancelled meanwhile; the cancel is raised after it."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as error:
        cancelled = error
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    raise cancelled from future.exception()
