"""The runtime's store on one database: admission, claims, logs, reads. Implements the engine's `Store`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwire.extend.events import TurnEvent, TurnFinished
from turnwire.runtime.domain.action import ActionAnswer, Resolution
from turnwire.runtime.domain.admission import Admitted, AppliedCommand, StopNote
from turnwire.runtime.domain.message import StoredMessage
from turnwire.runtime.domain.thread import NewThreadCommand, ThreadRow
from turnwire.runtime.domain.turn import (
    BusyPolicy,
    Disposition,
    StartCommand,
    ThreadKey,
    TurnKey,
    TurnRow,
    fingerprint_of,
)
from turnwire.runtime.store import claims, queries, recovery, threads
from turnwire.runtime.store.action_watch import ActionWatch
from turnwire.runtime.store.admission import AdmitInput, AdmittedKey, Raced, admit, find
from turnwire.runtime.store.claimed import Claimant, Claimed, ReadTail
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.log import EncodeEvent, TurnLog
from turnwire.runtime.store.logs import Logs, read_heads
from turnwire.runtime.store.reader import LogReader, ReaderTicker, TrimPage
from turnwire.runtime.store.thread_watch import ThreadWatch
from turnwire.storage.database import Database
from turnwire.storage.units import Connection

__all__ = ["TurnStore"]

T = TypeVar("T")


class TurnStore:
    """Threads, turns and logs of one runtime process.

    Args:
        database: open, with the runtime's schema.
        encode: makes the bytes of one event inside a page.
        trim: cuts a page to the events above a sequence.
        read_tail: reads from pages what of a turn is open, for a turn that is taken up again.
        owner: `{runtime_id}/{boot id}`, stored with each claim.
        queue_limit: most turns that wait in one thread.
        heartbeat: seconds after which a silent reader is sent a heartbeat.
        shared: whether other processes write to the store too.
    """

    def __init__(
        self,
        database: Database,
        encode: EncodeEvent,
        trim: TrimPage,
        read_tail: ReadTail,
        owner: str,
        *,
        queue_limit: int = 50,
        heartbeat: float = 20.0,
        shared: bool = False,
    ) -> None:
        self._database = database
        self._encode = encode
        self._trim = trim
        self._owner = owner
        self._claimant = Claimant(owner, self._encode_page, read_tail)
        self._queue_limit = queue_limit
        self._shared = shared
        self._logs = Logs(lambda key, epoch, sequence: TurnLog(database.writer, encode, key, epoch, sequence))
        # Threads in which turns wait, and admissions under way by thread: as long as no other process writes
        # to the store, the end of any other turn has nothing to look for.
        self._waiting: set[ThreadKey] = set()
        self._admitting: Counter[ThreadKey] = Counter()
        self.ticker = ReaderTicker(heartbeat)
        # Whoever changes a thread tells it, after the commit.
        self.watch = ThreadWatch(self.read, self.ticker)
        self.actions = ActionWatch(self.read, self.ticker)

    @property
    def log_id(self) -> str:
        """Identity of the log."""
        return self._database.info.log_id

    @property
    def healthy(self) -> bool:
        """False while nothing can be written."""
        return self._database.writer.healthy

    @property
    def owner(self) -> str:
        """`{runtime_id}/{boot id}` of this process."""
        return self._owner

    @property
    def shared(self) -> bool:
        """Whether other processes write to the store too."""
        return self._shared

    @property
    def open_logs(self) -> int:
        """Turns that are not at their end and have a log in memory."""
        return len(self._logs)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run one of `queries` in a short read transaction."""
        return await self._database.reader.read(query)

    async def change(self, thread: ThreadKey, write: Callable[[Connection], T]) -> T:
        """Run a read-modify-write transaction on one thread and wake its watchers."""
        result = await self._database.writer.run(write)
        self.watch.changed(thread)
        return result

    async def resolve_action(self, given: ActionAnswer) -> Resolution:
        """Take an answer to an action in. Raises what `actions.resolve` does."""
        thread = given.key.turn.thread
        resolution = await self.change(thread, lambda db: actions.resolve(db, given))
        self.actions.changed(thread.scope)
        return resolution

    async def admit(
        self,
        command: StartCommand,
        agent: str,
        agent_digest: str,
        max_steps: int,
        busy_policy: BusyPolicy = BusyPolicy.QUEUE,
        turn_timeout: float = 0.0,
    ) -> Admitted:
        """Admit a turn in one transaction, and claim it when its thread is idle. See `ports.Store`."""
        canonical = command.spec.canonical_json()
        given = AdmitInput(
            command,
            agent,
            agent_digest,
            max_steps,
            turn_timeout,
            self._queue_limit,
            self._owner,
            busy_policy,
            canonical,
            fingerprint_of(canonical),
        )
        thread = ThreadKey(command.scope, command.spec.thread.rpartition("/")[2])
        # Before the transaction: the live turn may end, and look for the next one, right after it.
        self._admitting[thread] += 1
        try:
            result = await self._admitted(given)
            if result.disposition is Disposition.QUEUED:
                self._waiting.add(thread)
        finally:
            self._admitting[thread] -= 1
            if not self._admitting[thread]:
                del self._admitting[thread]
        if result.claimed is not None:
            return self._taken(result.claimed)
        return Admitted(
            result.key, command.spec, result.disposition, superseded=result.superseded, idle=result.idle
        )

    async def _admitted(self, given: AdmitInput) -> AdmittedKey:
        while True:
            try:
                return await self._database.writer.run(lambda db: admit(db, given, self._encode_page))
            except Raced:
                # The other one is committed: the next look finds its turn.
                continue

    async def find(self, command: StartCommand) -> Admitted | None:
        """Return the turn that the same request made before. Raises AlreadyExists (REQUEST_ID_REUSED)."""
        key = await self.read(lambda db: find(db, command))
        return None if key is None else Admitted(key, command.spec, Disposition.ATTACHED)

    async def create_thread(self, new: NewThreadCommand) -> ThreadRow:
        """Create a thread. Raises AlreadyExists (REQUEST_ID_REUSED, THREAD_ID_USED)."""
        return await self._database.writer.run(lambda db: threads.create_thread(db, new))

    async def thread_agent(self, thread: ThreadKey) -> str:
        """Return `agents/{agent}` of a thread. Raises NotFound (THREAD_NOT_FOUND)."""
        return (await self.read(lambda db: queries.get_thread(db, thread))).agent

    async def claim_next(self, thread: ThreadKey) -> Admitted | None:
        """Claim what is next in a thread whose turn has just ended here, if there is anything."""
        if self._shared:
            # A read, on a thread of its own: most ends have nothing behind them.
            if not await self.read(lambda db: queries.queued_turns(db, thread)):
                return None
        elif thread not in self._waiting and thread not in self._admitting:
            return None
        return await self.claim(thread)

    async def claim(self, thread: ThreadKey, stop: tuple[TurnKey, StopNote] | None = None) -> Admitted | None:
        """Claim what is to be run in a thread that nobody has, or whose owner is dead. See `claims.claim`."""
        while True:
            found = await self._database.writer.run(
                lambda db: claims.claim(db, thread, self._claimant, stop)
            )
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
        """Return the seconds until the next lease of others, or wait of a turn, runs out; None without one."""
        return await self.read(lambda db: claims.next_due(db, self._owner))

    async def owned(self) -> dict[TurnKey, int]:
        """Return the turns that this process still owns, with their epochs."""
        return await self.read(lambda db: claims.owned(db, self._owner))

    async def stops(self) -> Sequence[tuple[TurnKey, StopNote]]:
        """Return the turns of this process that somebody elsewhere wants to end."""
        return await self.read(lambda db: claims.stops(db, self._owner))

    async def request_stop(self, key: TurnKey, note: StopNote) -> bool:
        """Have the owner of a live turn end it; False when it is not live, or was told before."""
        return await self._database.writer.run(lambda db: claims.request_stop(db, key, note))

    def lose(self, key: TurnKey, epoch: int) -> None:
        """Let go of a turn that is owned here at an epoch below `epoch`: it is somebody else's."""
        self._logs.lose(key, epoch)

    def _taken(self, claimed: Claimed) -> Admitted:
        log = self._logs.own(claimed)
        return Admitted(
            claimed.key,
            claimed.spec,
            Disposition.STARTED,
            Journal(log, lambda: self._logs.forget(log)),
            claimed.agent,
            claimed.max_steps,
            claimed.time_left,
            claimed.resumption,
            claimed.first,
            claimed.stop,
        )

    async def look_after_watched(self) -> None:
        """Read how far the turns have come that somebody here waits on and another process may run."""
        keys = self._logs.watched()
        if keys:
            for key, last, terminal in await self.read(lambda db: read_heads(db, keys)):
                self._logs.moved(key, last, terminal)

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

        result = await self._database.writer.run(cancel)
        if result is None:
            return None
        sequence, page = result
        self._logs.ended(key, (sequence, sequence, page))
        return sequence

    async def abandon(self, key: TurnKey, epoch: int, text: str) -> None:
        """End a turn that its runner left without an end, as failed; unless it ended, or is another owner's."""
        page = await self._database.writer.run(
            lambda db: recovery.abandon(db, key, epoch, text, self._encode_page)
        )
        if page is not None:
            self._logs.ended(key, page)
        else:
            self.lose(key, epoch + 1)

    def send_away(self) -> None:
        """End every reader, and every wait for an end, that has all there is: the process leaves."""
        self.ticker.send_away()
        for log in self._logs:
            log.wake()

    async def wait_for_end(self, log: TurnLog, seconds: float) -> None:
        """Wait until a turn has ended, for so long at most, or until the process leaves."""
        await log.wait_finished(seconds, lambda: self.ticker.leaving)

    async def transcript(self, thread: ThreadKey) -> Sequence[StoredMessage]:
        """Return the visible messages of a thread, oldest first."""
        return await self.read(lambda db: queries.transcript(db, thread))

    async def get_turn(self, key: TurnKey) -> TurnRow:
        """Read a turn. Raises NotFound (TURN_NOT_FOUND)."""
        return await self.read(lambda db: queries.get_turn(db, key))

    async def live_turn(self, thread: ThreadKey) -> str:
        """Return the bare id of a thread's live turn, empty when none is. Raises NotFound."""
        return await self.read(lambda db: queries.get_thread(db, thread).live_turn)

    async def queued_turns(self, thread: ThreadKey) -> Sequence[TurnKey]:
        """Return the turns that wait in a thread, in their order."""
        return await self.read(lambda db: queries.queued_turns(db, thread))

    async def applied_command(self, scope: str, command_id: str) -> tuple[str, str, str, int] | None:
        """Return turn, kind, duplicated command and sequence of a command that took effect."""
        return await self.read(lambda db: queries.applied_command(db, scope, command_id))

    def log_of(self, key: TurnKey) -> TurnLog | None:
        """Return the log of a turn that is not at its end and has one in memory."""
        return self._logs.get(key)

    async def follow(self, key: TurnKey) -> tuple[TurnRow, TurnLog | None]:
        """Read a turn together with the log to wait on, which is None when the turn has ended.

        Raises:
            NotFound: TURN_NOT_FOUND.
        """
        log = self._logs.get(key)
        row = await self.get_turn(key)
        # All of a turn that has ended is in the store; a log beside it may be one that will never hear of it.
        if row.state.terminal:
            return row, None
        if log is not None and log.epoch:
            return row, log
        log = self._logs.watch(row)
        # The turn may have moved on, even ended, before its log was there to hear of it.
        row = await self.get_turn(key)
        if not log.epoch:
            self._logs.moved(key, row.last_sequence, row.state.terminal)
        return (row, None) if row.state.terminal and not log.epoch else (row, log)

    def reader(self, key: TurnKey, log: TurnLog | None, after_sequence: int, until: int) -> LogReader:
        """Return a reader of a turn's pages above `after_sequence`.

        Args:
            key: the turn.
            log: its live log; None for a turn that has ended.
            after_sequence: last sequence the reader has.
            until: for a turn that has ended, its last sequence.
        """
        return LogReader(self, key, log, after_sequence, until, self._trim)

    async def pages_after(self, key: TurnKey, after_sequence: int) -> Sequence[tuple[int, int, bytes]]:
        """Read committed pages back, about 256 KiB of them."""
        return await self.read(
            lambda db: queries.read_pages(db, key.scope, key.turn_id, after_sequence, 256 * 1024)
        )
