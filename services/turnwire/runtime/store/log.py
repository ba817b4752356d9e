"""The log of one turn: events gather, are committed as pages, and only then does a reader see them.

A page is encoded once, when its group forms; the stored bytes are the bytes that readers get.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from turnwire.extend.events import TurnEvent, TurnFinished
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.ports import OwnerLost
from turnwire.storage.units import (
    Connection,
    Statement,
    StoreUnavailable,
    Unit,
    UnitFenced,
    UnitRejected,
    UnitWriter,
)

__all__ = ["EncodeEvent", "Page", "Record", "TurnLog"]

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

# (sequence, time in ns since the epoch, (turn attempt, step, step attempt), event)
Record = tuple[int, int, tuple[int, int, int], TurnEvent]
# (first sequence, last sequence, encoded page)
Page = tuple[int, int, bytes]
# Encodes one event as a field of a page; a page is the concatenation of such fields.
EncodeEvent = Callable[[str, Record], bytes]
# Encodes events as a page whose first one has that sequence.
EncodePage = Callable[[int, Sequence[TurnEvent]], bytes]

MAX_PAGE_EVENTS = 256
MAX_PAGE_BYTES = 64 * 1024
MAX_EVENT_BYTES = 1024 * 1024
# Committed pages kept in memory for readers that keep up; others read them back.
MAX_KEPT_BYTES = 128 * 1024
# A page of one short event takes more room as an object than its bytes do.
MAX_KEPT_PAGES = 64
# How long an event of `emit_soon` waits alone.
_SOON_SECONDS = 0.05
# Events between two looks at how much waits uncommitted.
_ROOM_EVERY = 128
_ROOM_BYTES = 128 * 160

_ADVANCE = (
    "UPDATE turn_heads SET next_sequence = ?"
    " WHERE scope = ? AND turn_id = ? AND next_sequence = ? AND epoch = ?"
)
_INSERT_PAGE = (
    "INSERT INTO pages (scope, turn_id, first_sequence, last_sequence, flags, body) VALUES (?, ?, ?, ?, ?, ?)"
)
TERMINAL_FLAG = 1


class _Sealed(list[Record]):
    """Holds the last events of a turn and takes no more: code that was left behind may still emit some."""

    def append(self, record: Record) -> None:
        """Drop what comes after the end."""


class TurnLog:
    """Gathers the events of one turn and commits them; wakes its readers after each commit.

    A log that this process does not own has epoch 0 and is only waited on. `on_change` is told of the thread
    after each commit of more than events, `on_progress` of the others while `followed_until` is above 0.
    """

    def __init__(
        self,
        writer: UnitWriter,
        encode: EncodeEvent,
        key: TurnKey,
        epoch: int,
        next_sequence: int,
        on_change: Callable[[ThreadKey], None] | None = None,
        on_progress: Callable[[TurnLog], None] | None = None,
    ) -> None:
        self.turn = key
        self.name = key.name
        self.key = f"{key.scope}/{key.turn_id}"
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.committed = next_sequence - 1
        self.finished = False
        # Whether the turn waits for somebody: then the last committed event is all there is for now.
        self.waiting = False
        self.retired = False
        self.successor: TurnLog | None = None
        self.crowded = False
        self.pages: deque[Page] = deque()
        self.error: Exception | None = None
        self._writer = writer
        self._encode = encode
        self._on_change = on_change
        self._on_progress = on_progress
        # Loop time until which word of progress goes to a reader elsewhere, or was asked for by one here.
        self.followed_until = 0.0
        self._open: list[Record] = []
        self._statements: list[Statement] = []
        self._stamp = (0, 0, 0)
        self._marked = False
        self._kept_bytes = 0
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._waiters: set[asyncio.Future[None]] = set()

    def own(self, epoch: int, next_sequence: int) -> None:
        """Begin to write: the claim with this epoch is committed up to `next_sequence`."""
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.waiting = False

    def owned_anew(self, epoch: int, next_sequence: int) -> TurnLog:
        """Return the log of an episode that begins: this one, unless it had an owner before."""
        if not self.retired:
            self.own(epoch, next_sequence)
            return self
        self.successor = TurnLog(
            self._writer, self._encode, self.turn, epoch, next_sequence, self._on_change, self._on_progress
        )
        self.wake()
        return self.successor

    def retire(self, page: Page | None, waiting: bool) -> None:
        """Hear that the owner has let go, with its last page; code left behind writes no more."""
        self.retired = True
        self.waiting = waiting
        self.epoch = 0
        self._open, self._statements = _Sealed(), []
        if page is not None:
            self.committed_page(page)
        self.wake()
        if self._on_change is not None:
            self._on_change(self.turn.thread)

    def committed_page(self, page: Page) -> None:
        """Take in a page that a transaction of the store has committed for this turn."""
        if self.pages and self.pages[-1][1] + 1 != page[0]:
            # What other owners wrote in between is in the store alone.
            self.pages.clear()
            self._kept_bytes = 0
        self.pages.append(page)
        self._kept_bytes += len(page[2])
        self.committed = max(self.committed, page[1])
        self.next_sequence = max(self.next_sequence, page[1] + 1)
        self.wake()

    def stamp(self, turn_attempt: int, step: int, step_attempt: int) -> None:
        """Set what later events carry."""
        self._stamp = (turn_attempt, step, step_attempt)

    def emit(self, event: TurnEvent) -> int:
        """Append an event; returns its sequence."""
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        self._open.append((sequence, time.time_ns(), self._stamp, event))
        if not self._marked:
            self._marked = True
            self._writer.mark(self)
        elif not sequence % _ROOM_EVERY:
            self._writer.mark(self, False, _ROOM_BYTES)
            self.crowded = not self._writer.has_room(self.key)
        return sequence

    def weigh(self, size: int) -> None:
        """Count bytes of an event that is much larger than most, so that too much never waits in memory."""
        self._writer.mark(self, False, size)
        self.crowded = not self._writer.has_room(self.key)

    def emit_soon(self, event: TurnEvent) -> int:
        """Append an event that may wait a moment for company, then is committed with it.

        It spares a commit and a message for an event that others nearly always follow at once.
        """
        if self._marked or type(self._open) is _Sealed:
            return self.emit(event)
        self._marked = True
        sequence = self.emit(event)
        self._marked = False
        asyncio.get_running_loop().call_later(_SOON_SECONDS, self._mark_if_open)
        return sequence

    def _mark_if_open(self) -> None:
        if self._open and not self._marked and self.error is None:
            self._marked = True
            self._writer.mark(self)

    def stage(self, statements: Sequence[Statement], events: Sequence[TurnEvent]) -> None:
        """Hand in a state change with the events that report it: one transaction.

        Nothing follows TurnFinished: what is handed in after it is dropped.
        """
        if type(self._open) is _Sealed:
            return
        self._statements.extend(statements)
        for event in events:
            self.emit(event)
        if events and type(events[-1]) is TurnFinished:
            self._open = _Sealed(self._open)
        self._marked = True
        self._writer.mark(self, True)

    async def flush(self) -> None:
        """Wait until everything handed in so far is committed.

        Raises:
            OwnerLost: another owner has the turn.
            UnitRejected: something handed in could not be stored, and nothing after it was.
            StoreUnavailable: the store takes no more writes.
        """
        self._check()
        last = self.next_sequence - 1
        if last <= self.committed and not self._statements:
            return
        if not self._marked:
            self._marked = True
            self._writer.mark(self, True)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append((last, future))
        # Shielded by nature: the future is not the commit, and a cancelled waiter leaves the commit alone.
        await future

    async def room(self) -> None:
        """Wait until there is room for more uncommitted events."""
        self._check()
        await self._writer.room(self.key)
        self.crowded = False
        self._check()

    async def run(self, fn: Callable[[Connection], _T]) -> _T:
        """Run a transaction in the order of this log's units. Raises what `fn` raises, StoreUnavailable."""
        self._check()
        return await self._writer.run(fn, self.key)

    def page_encoder(self) -> EncodePage:
        """Return what encodes events as a page with a first sequence, with what `stamp` set last."""
        encode, name, stamp = self._encode, self.name, self._stamp

        def page(first: int, events: Sequence[TurnEvent]) -> bytes:
            now = time.time_ns()
            return b"".join(encode(name, (first + i, now, stamp, event)) for i, event in enumerate(events))

        return page

    def begin_anew(self) -> None:
        """Forget what could not be stored, so that the end of the turn can be."""
        self.error = None
        self.crowded = False
        self._open = []
        self._statements = []
        self.next_sequence = self.committed + 1

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def take(self) -> Unit | None:
        """Form the next unit: everything gathered so far; nothing after something could not be stored."""
        self._marked = False
        records, self._open = self._open, _Sealed() if type(self._open) is _Sealed else []
        statements, self._statements = self._statements, []
        if self.error is not None or not (records or statements):
            return None
        changed = bool(statements)
        pages = self._paginate(records)
        last = records[-1][0] if records else self.committed
        if records:
            first = records[0][0]
            scope, turn_id = self.turn.scope, self.turn.turn_id
            fence = Statement(_ADVANCE, (last + 1, scope, turn_id, first, self.epoch), 1)
            terminal = TERMINAL_FLAG if type(records[-1][3]) is TurnFinished else 0
            inserts = [
                Statement(_INSERT_PAGE, (scope, turn_id, a, b, terminal if b == last else 0, body))
                for a, b, body in pages
            ]
            statements = [fence, *statements, *inserts]
        else:
            terminal = 0
        return Unit(
            self.key,
            statements,
            False,
            lambda error: self._done(error, pages, last, bool(terminal), changed),
        )

    def _paginate(self, records: Sequence[Record]) -> list[Page]:
        pages: list[Page] = []
        encode, name = self._encode, self.name
        chunk: list[bytes] = []
        size = 0
        first = 0
        for record in records:
            body = encode(name, record)
            if len(body) > MAX_EVENT_BYTES:
                raise ValueError(f"an event of {len(body)} bytes is above {MAX_EVENT_BYTES}")
            if chunk and (size + len(body) > MAX_PAGE_BYTES or len(chunk) == MAX_PAGE_EVENTS):
                pages.append((first, record[0] - 1, b"".join(chunk)))
                chunk, size = [], 0
            if not chunk:
                first = record[0]
            chunk.append(body)
            size += len(body)
        if chunk:
            pages.append((first, records[-1][0], b"".join(chunk)))
        return pages

    def refuse(self, error: Exception) -> None:
        """Hear that nothing more is taken."""
        self._fail(error)

    def _done(
        self, error: BaseException | None, pages: list[Page], last: int, terminal: bool, changed: bool
    ) -> None:
        if error is not None:
            self._fail(error)
            return
        self.committed = max(self.committed, last)
        if terminal:
            self.finished = True
        self.pages.extend(pages)
        self._kept_bytes += sum(len(page[2]) for page in pages)
        while len(self.pages) > MAX_KEPT_PAGES or (self._kept_bytes > MAX_KEPT_BYTES and len(self.pages) > 1):
            self._kept_bytes -= len(self.pages.popleft()[2])
        self.wake()
        if changed and self._on_change is not None:
            self._on_change(self.turn.thread)
        elif self.followed_until and self._on_progress is not None:
            self._on_progress(self)
        if self._flushes:
            waiting = [f for f in self._flushes if f[0] > self.committed]
            for sequence, future in self._flushes:
                if sequence <= self.committed and not future.done():
                    future.set_result(None)
            self._flushes = waiting

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, UnitFenced):
            self.error = OwnerLost(self.name)
        elif isinstance(error, StoreUnavailable):
            self.error = error
        else:
            logger.error("log.unit_rejected", extra={"turn": self.name}, exc_info=error)
            self.error = UnitRejected("an event cannot be stored", self.key)
            self.error.__cause__ = error
        self.crowded = True
        self.wake()
        flushes, self._flushes = self._flushes, []
        for _, future in flushes:
            if not future.done():
                future.set_exception(self.error)

    def wake(self) -> None:
        """Wake every reader that waits for more."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done after the next commit or `wake`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        return future

    def unwait(self, future: asyncio.Future[None]) -> None:
        """Forget a future of `wait`: a silent turn would hold those of every reader that came and went."""
        self._waiters.discard(future)

    @property
    def waiters(self) -> int:
        """Readers that wait for more."""
        return len(self._waiters)

    async def wait_finished(self, seconds: float, leaving: Callable[[], bool]) -> None:
        """Wait until the turn has ended or waits, for so long at most; each wake also looks at `leaving`."""
        log = self
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (log.finished or leaving()):
                    if log.successor is not None:
                        log = log.successor
                        continue
                    if log.waiting:
                        return
                    change = log.wait()
                    try:
                        await change
                    finally:
                        log.unwait(change)
