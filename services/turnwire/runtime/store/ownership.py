"""What this process owns of a store: it claims threads, lets go of turns, and hears of other processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from turnwire.extend.events import TurnEvent, TurnFinished, TurnState
from turnwire.runtime.domain.admission import Admitted, AppliedCommand, StopNote
from turnwire.runtime.domain.turn import Disposition, ThreadKey, TurnKey
from turnwire.runtime.store import claims, queries, recovery
from turnwire.runtime.store.action_watch import ActionWatch
from turnwire.runtime.store.claimed import Claimant, Claimed, EncodePage, ReadTail
from turnwire.runtime.store.following import Following
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.log import EncodeEvent, Page, TurnLog
from turnwire.runtime.store.logs import Logs, read_heads
from turnwire.runtime.store.reader import ReaderTicker
from turnwire.runtime.store.thread_watch import ThreadWatch
from turnwire.storage.database import Database
from turnwire.storage.units import Connection

__all__ = ["Hints", "Ownership"]

T = TypeVar("T")

# What processes on one store tell each other: that there may be work in a thread, that it has changed, that
# somebody reads a turn, and that one has come further.
_WORK, _CHANGE, _READ, _PROGRESS = "w", "c", "r", "p"


class Hints(Protocol):
    """Who is told what other processes say; the dispatcher."""

    def wake(self, thread: ThreadKey) -> None:
        """There may be something to do in a thread."""
        ...

    def moved(self) -> None:
        """Some turn went on."""
        ...

    def look(self) -> None:
        """Word may have been lost."""
        ...


class Ownership:
    """The claims of one process and the logs of the turns that it runs or waits on. See `TurnStore`."""

    def __init__(
        self, database: Database, encode: EncodeEvent, owner: str, read_tail: ReadTail, ticker: ReaderTicker
    ) -> None:
        self._database = database
        self._encode = encode
        self._owner = owner
        self._claimant = Claimant(owner, self._encode_page, read_tail)
        self._logs = Logs(self._new_log)
        self._following = Following(partial(self._say, _READ), partial(self._say, _PROGRESS))
        # Threads in which turns wait, and admissions under way by thread: as long as no other process writes
        # to the store, the end of any other turn has nothing to look for.
        self._waiting: set[ThreadKey] = set()
        self._admitting: Counter[ThreadKey] = Counter()
        self.ticker = ticker
        # Whoever changes a thread tells it, after the commit.
        self.watch = ThreadWatch(self.read, self.ticker)
        self.actions = ActionWatch(self.read, self.ticker)

    @property
    def owner(self) -> str:
        """`{runtime_id}/{boot id}` of this process."""
        return self._owner

    @property
    def encode_page(self) -> EncodePage:
        """Encodes the events that a transaction of the store writes itself."""
        return self._encode_page

    @property
    def shared(self) -> bool:
        """Whether other processes write to the store too."""
        return self._database.shared

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run one of `queries` in a short read transaction."""
        return await self._database.reader.read(query)

    async def change(self, thread: ThreadKey, write: Callable[[Connection], T]) -> T:
        """Run a read-modify-write transaction on one thread and wake its watchers."""
        result = await self._database.writer.run(write)
        self._changed(thread)
        return result

    async def claim_next(self, thread: ThreadKey) -> Admitted | None:
        """Claim what is next in a thread whose turn has just ended here, if there is anything."""
        if self._database.shared:
            # A read, on a thread of its own: most ends have nothing behind them.
            if not await self.read(lambda db: queries.queued_turns(db, thread)):
                return None
        elif thread not in self._waiting and thread not in self._admitting:
            return None
        return await self.claim(thread)

    async def claim(self, thread: ThreadKey, stop: tuple[TurnKey, StopNote] | None = None) -> Admitted | None:
        """Claim what is to be run in a thread that nobody has, or whose owner is dead. See `claims.claim`."""
        while True:
            found = await self.change(thread, lambda db: claims.claim(db, thread, self._claimant, stop))
            if found.more:
                self._waiting.add(thread)
            elif found is not claims.NOTHING:
                self._waiting.discard(thread)
            if found.claimed is not None:
                return self._taken(found.claimed)
            if found.ended is None:
                return None
            self._logs.ended(*found.ended)

    async def claimable(self, limit: int) -> Sequence[ThreadKey]:
        """Return threads in which something may be claimed."""
        return await self.read(lambda db: claims.claimable(db, limit, self._owner))

    async def next_due(self) -> float | None:
        """Return the seconds until a lease of others, or a wait of a turn, runs out; None without one."""
        return await self.read(lambda db: claims.next_due(db, self._owner))

    async def owned(self) -> dict[TurnKey, int]:
        """Return the turns that this process still owns, with their epochs."""
        return await self.read(lambda db: claims.owned(db, self._owner))

    async def stops(self) -> Sequence[tuple[TurnKey, StopNote]]:
        """Return the turns of this process that somebody elsewhere wants to end."""
        return await self.read(lambda db: claims.stops(db, self._owner))

    async def request_stop(self, key: TurnKey, note: StopNote) -> bool:
        """Have the owner of a live turn end it; False when it is not live, or was told before."""
        told = await self._database.writer.run(lambda db: claims.request_stop(db, key, note))
        self.hint(key.thread)
        return told

    def hint(self, thread: ThreadKey) -> None:
        """Have other processes look soon whether there is something for them to do in a thread."""
        self._database.notify(f"{_WORK}{thread.thread_id} {thread.scope}")

    def listen(self, hints: Hints) -> None:
        """Hear of what other processes do to the same store."""

        def hear(payload: str) -> None:
            kind, (first, _, rest) = payload[:1], payload[1:].partition(" ")
            if kind in (_WORK, _CHANGE):
                self._hear_of(hints, kind, ThreadKey(rest, first))
            elif kind in (_READ, _PROGRESS):
                turn_id, _, scope = rest.partition(" ")
                log = self._logs.get(TurnKey(scope, first, turn_id))
                if kind == _READ:
                    self._following.asked(log)
                elif log is not None:
                    hints.moved()
            else:
                hints.look()

        self._database.listen(hear)

    def _hear_of(self, hints: Hints, kind: str, thread: ThreadKey) -> None:
        if kind == _WORK:
            hints.wake(thread)
        else:
            self._heard_of(thread)
            hints.moved()

    def _say(self, kind: str, key: TurnKey) -> None:
        self._database.notify(f"{kind}{key.thread_id} {key.turn_id} {key.scope}")

    def _changed(self, thread: ThreadKey) -> None:
        self._heard_of(thread)
        if self._database.shared:
            self._database.notify(f"{_CHANGE}{thread.thread_id} {thread.scope}")

    def _heard_of(self, thread: ThreadKey) -> None:
        self.watch.changed(thread)
        self.actions.changed(thread.scope)

    def ended(self, key: TurnKey, page: Page) -> None:
        """Hear that a turn was ended by a transaction on its thread; `page` is its last one."""
        self._logs.ended(key, page)

    def lose(self, key: TurnKey, epoch: int) -> None:
        """Shut out the writer of a turn that was owned here at this epoch: it is somebody else's."""
        self._logs.lose(key, epoch + 1)

    def let_go(self, key: TurnKey, epoch: int) -> None:
        """Hear that a turn owned at this epoch does not run here any more; it may go on somewhere."""
        self._logs.let_go(key, epoch)

    def _taken(self, claimed: Claimed) -> Admitted:
        log = self._logs.own(claimed)
        return Admitted(
            claimed.key,
            claimed.spec,
            Disposition.STARTED,
            Journal(log, lambda: self._logs.rest(log)),
            claimed.agent,
            claimed.max_steps,
            claimed.time_left,
            claimed.resumption,
            claimed.first,
            claimed.stop,
            input_message=claimed.input_message,
        )

    def _new_log(self, key: TurnKey, epoch: int, next_sequence: int) -> TurnLog:
        writer = self._database.writer
        return TurnLog(
            writer, self._encode, key, epoch, next_sequence, self._changed, self._following.progress
        )

    async def look_after_watched(self) -> None:
        """Read how far the turns have come that somebody here waits on and another process may run."""
        keys = self._logs.watched()
        if keys:
            for key, last, state in await self.read(lambda db: read_heads(db, keys)):
                self._logs.moved(key, last, state)
                self.wait_for(key, state)

    def wait_for(self, key: TurnKey, state: TurnState) -> None:
        """Have whoever runs a turn tell how it goes on: somebody here reads it."""
        log = self._logs.get(key)
        if log is not None and state is TurnState.RUNNING and self._database.shared:
            self._following.ask(log)

    def _encode_page(self, key: TurnKey, first: int, events: Sequence[TurnEvent]) -> bytes:
        now = self.ticker.wall_time()
        return b"".join(
            self._encode(key.name, (first + i, now, (1, 0, 0), event)) for i, event in enumerate(events)
        )

    async def cancel_queued(
        self, key: TurnKey, event: TurnFinished, applied: Sequence[AppliedCommand]
    ) -> int | None:
        """End a turn that still waits in the queue; returns the last sequence, None when it waits no more."""

        def cancel(db: Connection) -> tuple[int, bytes] | None:
            sequence = claims.leave_queue(db, key)
            if sequence is None:
                return None
            return sequence, recovery.end_turn(
                db, key, sequence, [event], event, "", applied, self._encode_page
            )

        result = await self.change(key.thread, cancel)
        if result is None:
            return None
        sequence, page = result
        self._logs.ended(key, (sequence, sequence, page))
        return sequence

    async def abandon(self, key: TurnKey, epoch: int, text: str, reason: str = "INTERNAL") -> None:
        """End a turn that its runner left without an end, as failed; unless it is another owner's by now."""
        loss = recovery.Loss("error", reason, text)
        page = await self.change(
            key.thread, lambda db: recovery.abandon(db, key, epoch, loss, self._encode_page)
        )
        if page is None:
            self.lose(key, epoch)
        else:
            self._logs.ended(key, page)

    async def holder(self, thread: ThreadKey) -> str:
        """Return the owner in a thread's row, empty when it is free or there is no such thread."""
        return await self.read(lambda db: claims.holder(db, thread))
