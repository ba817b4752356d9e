"""The runtime's store on one database: admission, claims, logs, reads. Implements the engine's `Store`."""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.runtime.domain.action import ActionAnswer, ApprovalTerms, Resolution
from turnwire.runtime.domain.admission import Admitted
from turnwire.runtime.domain.compaction import StoredHistory
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
from turnwire.runtime.store import compactions, queries, threads
from turnwire.runtime.store.actions import approval_terms, resolve
from turnwire.runtime.store.admission import AdmitInput, AdmittedKey, Raced, admit, find
from turnwire.runtime.store.claimed import ReadTail
from turnwire.runtime.store.log import EncodeEvent, TurnLog
from turnwire.runtime.store.ownership import Ownership
from turnwire.runtime.store.reader import LogReader, ReaderTicker, TrimPage
from turnwire.storage.database import Database

__all__ = ["TurnStore"]


class TurnStore(Ownership):
    """Threads, turns and logs of one runtime process.

    Args:
        database: open, with the runtime's schema.
        encode: makes the bytes of one event inside a page.
        trim: cuts a page to the events above a sequence.
        owner: `{runtime_id}/{boot id}`, stored with each claim.
        read_tail: reads from pages what of a turn is open, for a turn that is taken up again.
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
        read_tail: ReadTail,
        queue_limit: int = 50,
        heartbeat: float = 20.0,
    ) -> None:
        super().__init__(database, encode, owner, read_tail, ReaderTicker(heartbeat))
        self._trim = trim
        self._queue_limit = queue_limit

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

    async def resolve_action(self, given: ActionAnswer) -> Resolution:
        """Take an answer to an action in. Raises what `actions.resolve` does."""
        return await self.change(given.key.turn.thread, lambda db: resolve(db, given))

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
                admitted = await self._database.writer.run(lambda db: admit(db, given, self._encode_page))
                self._changed(admitted.key.thread)
                return admitted
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

    def send_away(self) -> None:
        """End every reader, and every wait for an end, that has all there is: the process leaves."""
        self.ticker.send_away()
        for log in self._logs:
            log.wake()

    async def wait_for_end(self, log: TurnLog, seconds: float) -> None:
        """Wait until a turn has ended, for so long at most, or until the process leaves."""
        await log.wait_finished(seconds, lambda: self.ticker.leaving)

    async def approval_terms(self, thread: ThreadKey) -> ApprovalTerms:
        """Return by what a thread asks for approvals now."""
        return await self.read(lambda db: approval_terms(db, thread))

    async def history(self, thread: ThreadKey) -> StoredHistory:
        """Return what of a thread a model is told: its newest summary and the messages that it leaves."""
        return await self.read(lambda db: compactions.history(db, thread))

    async def transcript(self, thread: ThreadKey) -> Sequence[StoredMessage]:
        """Return the visible messages of a thread, oldest first."""
        return await self.read(lambda db: queries.transcript(db, thread))

    async def get_turn(self, key: TurnKey) -> TurnRow:
        """Read a turn. Raises NotFound (TURN_NOT_FOUND)."""
        return await self.read(lambda db: queries.get_turn(db, key))

    async def asked_turn(self, key: TurnKey) -> TurnRow:
        """Read a turn with the task and the schema that it was given. Raises NotFound (TURN_NOT_FOUND)."""
        return await self.read(lambda db: queries.asked_turn(db, key))

    async def live_turn(self, thread: ThreadKey) -> str:
        """Return the bare id of a thread's live turn, empty when none is. Raises NotFound."""
        return await self.read(lambda db: queries.get_thread(db, thread).live_turn)

    async def queued_turns(self, thread: ThreadKey) -> Sequence[TurnKey]:
        """Return the turns that wait in a thread, in their order."""
        return await self.read(lambda db: queries.queued_turns(db, thread))

    async def cancelled_by(self, key: TurnKey) -> str:
        """Return the id of the command that cancelled a turn, empty when none did."""
        return await self.read(lambda db: queries.cancelled_by(db, key))

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
            self._logs.moved(key, row.last_sequence, row.state)
            self.wait_for(key, row.state)
        return (row, None) if row.state.terminal and not log.epoch else (row, log)

    def reader(
        self,
        key: TurnKey,
        log: TurnLog | None,
        after_sequence: int,
        until: int,
        follow_while_waiting: bool = False,
    ) -> LogReader:
        """Return a reader of a turn's pages above `after_sequence`.

        Args:
            key: the turn.
            log: its live log; None for a turn that has ended.
            after_sequence: last sequence the reader has.
            until: for a turn that has ended, its last sequence.
            follow_while_waiting: whether it goes on while the turn waits for somebody.
        """
        return LogReader(self, key, log, after_sequence, until, self._trim, follow_while_waiting)

    async def pages_after(self, key: TurnKey, after_sequence: int) -> Sequence[tuple[int, int, bytes]]:
        """Read committed pages back, about 256 KiB of them."""
        return await self.read(
            lambda db: queries.read_pages(db, key.scope, key.turn_id, after_sequence, 256 * 1024)
        )
