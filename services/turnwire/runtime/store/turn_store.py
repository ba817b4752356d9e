"""The runtime's store on one database: admission, claims, logs, reads. Implements the engine's `Store`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwire.extend.events import TurnEvent, TurnFinished
from turnwire.runtime.domain.admission import Admitted, AppliedCommand
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
from turnwire.runtime.store import queries, recovery, threads
from turnwire.runtime.store.admission import AdmitInput, Claimed, admit, claim_next, find
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.log import EncodeEvent, TurnLog
from turnwire.runtime.store.reader import LogReader, ReaderTicker, TrimPage
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
        owner: `{runtime_id}/{boot id}`, stored with each claim.
        queue_limit: most turns that wait in one thread.
        heartbeat: seconds after which a silent reader is sent a heartbeat.
    """

    def __init__(
        self,
        database: Database,
        encode: EncodeEvent,
        trim: TrimPage,
        owner: str,
        *,
        queue_limit: int = 50,
        heartbeat: float = 20.0,
    ) -> None:
        self._database = database
        self._encode = encode
        self._trim = trim
        self._owner = owner
        self._queue_limit = queue_limit
        self._logs: dict[TurnKey, TurnLog] = {}
        # Threads in which turns wait, and admissions under way by thread: the file has no other process, so
        # the end of any other turn has nothing to look for.
        self._waiting: set[ThreadKey] = set()
        self._admitting: Counter[ThreadKey] = Counter()
        self.ticker = ReaderTicker(heartbeat)

    @property
    def log_id(self) -> str:
        """Identity of the log."""
        return self._database.info.log_id

    @property
    def healthy(self) -> bool:
        """False while nothing can be written."""
        return self._database.writer.healthy

    @property
    def open_logs(self) -> int:
        """Turns that are not at their end and have a log in memory."""
        return len(self._logs)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run one of `queries` in a short read transaction."""
        return await self._database.reader.read(query)

    async def admit(
        self,
        command: StartCommand,
        agent: str,
        agent_digest: str,
        max_steps: int,
        busy_policy: BusyPolicy = BusyPolicy.QUEUE,
    ) -> Admitted:
        """Admit a turn in one transaction, and claim it when its thread is idle. See `ports.Store`."""
        canonical = command.spec.canonical_json()
        given = AdmitInput(
            command,
            agent,
            agent_digest,
            max_steps,
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
            result = await self._database.writer.run(lambda db: admit(db, given, self._encode_page))
            if result.disposition is Disposition.QUEUED:
                self._waiting.add(thread)
        finally:
            self._admitting[thread] -= 1
            if not self._admitting[thread]:
                del self._admitting[thread]
        if result.claimed is not None:
            return self._owned(result.claimed)
        return Admitted(result.key, command.spec, result.disposition)

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
        """Claim the next queued turn of an idle thread, if there is one."""
        if thread not in self._waiting and thread not in self._admitting:
            return None
        claimed, more = await self._database.writer.run(
            lambda db: claim_next(db, thread.scope, thread.thread_id, self._owner, self._encode_page)
        )
        if more:
            self._waiting.add(thread)
        else:
            self._waiting.discard(thread)
        return None if claimed is None else self._owned(claimed)

    def _owned(self, claimed: Claimed) -> Admitted:
        journal = self._journal_of(claimed)
        return Admitted(
            claimed.key,
            claimed.spec,
            Disposition.STARTED,
            journal,
            claimed.agent,
            claimed.max_steps,
            claimed.first,
        )

    def _journal_of(self, claimed: Claimed) -> Journal:
        key = claimed.key
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = TurnLog(
                self._database.writer, self._encode, key, claimed.epoch, claimed.next_sequence
            )
        else:
            log.own(claimed.epoch, claimed.next_sequence)
        log.committed_page((claimed.first_sequence, claimed.next_sequence - 1, claimed.page))
        return Journal(log, lambda: self._forget(key))

    def _forget(self, key: TurnKey) -> None:
        self._logs.pop(key, None)

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
            row = db.execute(
                "SELECT h.next_sequence FROM turns t JOIN turn_heads h"
                " ON h.scope = t.scope AND h.turn_id = t.turn_id"
                " WHERE t.scope = ? AND t.thread_id = ? AND t.turn_id = ? AND t.state = 'queued'",
                (key.scope, key.thread_id, key.turn_id),
            ).fetchone()
            if row is None:
                return None
            return row[0], recovery.end_turn(db, key, row[0], [event], event, "", applied, self._encode_page)

        result = await self._database.writer.run(cancel)
        if result is None:
            return None
        sequence, page = result
        log = self._logs.pop(key, None)
        if log is not None:
            log.finished = True
            log.committed_page((sequence, sequence, page))
        return sequence

    async def abandon(self, key: TurnKey, text: str) -> None:
        """End a turn that its runner left without an end, as failed; one that has ended is left as it is."""
        page = await self._database.writer.run(lambda db: recovery.abandon(db, key, text, self._encode_page))
        log = self._logs.pop(key, None)
        if log is not None and page is not None:
            log.finished = True
            log.committed_page(page)

    def send_away(self) -> None:
        """End every reader, and every wait for an end, that has all there is: the process leaves."""
        self.ticker.send_away()
        for log in self._logs.values():
            log.wake()

    async def wait_for_end(self, log: TurnLog, seconds: float) -> None:
        """Wait until a turn has ended, for so long at most, or until the process leaves."""
        await log.wait_finished(seconds, lambda: self.ticker.leaving)

    async def recover(self) -> Sequence[ThreadKey]:
        """End turns that a dead owner left running and return the threads that have turns to claim."""
        threads = await self._database.writer.run(lambda db: recovery.recover(db, self._encode_page))
        self._waiting.update(threads)
        return threads

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
        if log is not None:
            return row, log
        log = self._logs.get(key)
        if log is None:
            log = TurnLog(self._database.writer, self._encode, key, 0, row.last_sequence + 1)
            self._logs[key] = log
        # The turn may have moved on, even ended, before its log was there to hear of it.
        row = await self.get_turn(key)
        if row.state.terminal and log.epoch == 0:
            if self._logs.get(key) is log:
                del self._logs[key]
            return row, None
        return row, log

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
