"""From command to outcome: each accepted command has one, stored before it is told, and the first stands.

Every method is one indivisible step on the event loop; whatever takes time answers by callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from turnwire.control.board import Acceptor, Active, Board, Phase
from turnwire.control.dispatch import Dispatcher, Timing
from turnwire.control.domain import (
    SERVED,
    CommandKind,
    CommandRow,
    CommandState,
    Key,
    NewCommand,
    Outcome,
    OutcomeKind,
    OwnedTurn,
    Sender,
)
from turnwire.control.followers import Followers
from turnwire.control.ports import Ledger, Listener, RuntimeLink
from turnwire.control.verdicts import Verdicts, duplicate_of
from turnwire.core.clock import Clock
from turnwire.core.errors import AlreadyExists, TurnwireError, Unavailable

__all__ = ["Hub", "Limits"]

logger = logging.getLogger(__name__)

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How many commands may be without an outcome at once, altogether and in one scope."""

    pending: int = 20_000
    pending_per_scope: int = 5_000


class Hub:
    """The state of the control service; the ledger behind it is what survives.

    Args:
        arm: told when `tick` is to be called next, in seconds of the monotonic clock.
        served: kinds that runtimes act on.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        arm: Callable[[float], None],
        timing: Timing | None = None,
        limits: Limits | None = None,
        served: frozenset[CommandKind] = SERVED,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._limits = limits or Limits()
        self._board = Board()
        self._verdicts = Verdicts(served)
        self.followers = Followers()
        self._dispatch = Dispatcher(
            self._board,
            ledger,
            clock,
            timing or Timing(),
            arm=arm,
            decide=self._decide,
            changed=self.followers.changed,
            position=self._next_position,
        )
        self._last = 0
        self._durable = 0
        self._draining = False
        self._stored = asyncio.Event()

    @property
    def position(self) -> int:
        """Position of the last durable change: whoever follows from here misses nothing."""
        return self._durable

    @property
    def pending(self) -> int:
        """Number of commands without an outcome."""
        return len(self._board)

    @property
    def runtimes(self) -> int:
        """Number of attached runtimes."""
        return len(self._dispatch.routes)

    @property
    def owned_turns(self) -> int:
        """Number of turns that some attached runtime owns."""
        return self._dispatch.routes.turns

    def recover(self, rows: Iterable[CommandRow], last: int, finished: Iterable[CommandRow] = ()) -> None:
        """Take in what the ledger holds, before anything else happens.

        Args:
            rows: every row without an outcome.
            last: the highest number that a row has.
            finished: rows with an outcome, oldest first; as many as second cancels should be told of.
        """
        self._last = self._durable = last
        self._verdicts.remember(finished)
        now, wall = self._clock.monotonic(), self._clock.now()
        for row in sorted(rows, key=lambda row: row.entry):
            active = Active(row, now + (row.expire_time - wall) / _SECOND, Phase.OPEN)
            self._board.add(active)
            self._dispatch.admit(active, recovered=True)

    def drain(self) -> None:
        """Refuse new commands from now on; what was accepted goes on."""
        self._draining = True

    async def idle(self) -> None:
        """Wait until no runtime owes an answer and every change is durable; the ledger keeps the rest."""
        while any(active.outstanding or active.phase is not Phase.OPEN for active in self._board):
            self._stored.clear()
            await self._stored.wait()

    def tick(self) -> None:
        """Do what time brings; called at the moment that `arm` was told."""
        self._dispatch.tick()

    def submit(self, command: NewCommand, sender: Sender, listener: Listener) -> None:
        """Take a command; `listener` hears `accepted` or `refused` once, and after `accepted` the end."""
        key = (sender.scope, command.command_id)
        acceptor = Acceptor(listener, command.fingerprint)
        active = self._board.get(key)
        if active is not None:
            if active.phase is Phase.STORING:
                active.acceptors.append(acceptor)
            else:
                self._tell(acceptor, active.row, known=True, active=active)
            return
        if (error := self._busy(sender.scope)) is not None:
            listener.refused(command.command_id, error)
            return
        row = self._new_row(command, sender)
        active = Active(row, self._clock.monotonic() + command.ttl_seconds, acceptors=[acceptor])
        self._board.add(active)
        self._ledger.insert(row, partial(self._inserted, active))

    def leave(self, listener: Listener, key: Key) -> None:
        """Tell a listener nothing more of a command; the command goes on."""
        active = self._board.get(key)
        if active is not None:
            active.listeners = [other for other in active.listeners if other is not listener]
            active.acceptors = [other for other in active.acceptors if other.listener is not listener]

    def find(self, key: Key) -> CommandRow | None:
        """Return a command that has no outcome yet, as it stands."""
        active = self._board.get(key)
        return active.row if active is not None and active.phase is not Phase.STORING else None

    def open_rows(self, scope: str) -> list[CommandRow]:
        """Return the commands of a scope that have no outcome yet, newest first."""
        rows = [a.row for a in self._board if a.row.scope == scope and a.phase is not Phase.STORING]
        return sorted(rows, key=lambda row: -row.entry)

    def attach(self, link: RuntimeLink, turns: Iterable[OwnedTurn], *, complete: bool) -> None:
        """Take in a runtime and the first of its turns; `complete` says that these are all."""
        self._dispatch.attach(link)
        self._dispatch.opened(link, turns, complete=complete)

    def detach(self, link: RuntimeLink) -> None:
        """Let a runtime go."""
        self._dispatch.detach(link)

    def opened(self, link: RuntimeLink, turns: Iterable[OwnedTurn], *, complete: bool = False) -> None:
        """Take in turns that a runtime owns now."""
        self._dispatch.opened(link, turns, complete=complete)

    def closed(self, link: RuntimeLink, turns: Iterable[OwnedTurn]) -> None:
        """Take in turns that a runtime no longer owns."""
        self._dispatch.closed(link, turns)

    def acked(self, link: RuntimeLink, delivery_id: int, bound_turn: str) -> None:
        """Take in that a runtime has a command."""
        self._dispatch.acked(link, delivery_id, bound_turn)

    def outcome(self, link: RuntimeLink, key: Key, outcome: Outcome) -> None:
        """Take in how a command ended at a runtime, which repeats it until it hears `outcome_stored`."""
        active = self._board.get(key)
        if active is None:
            link.outcome_stored(key)
            return
        self._dispatch.settle(active, link)
        active.answered.append(link)
        if active.phase is Phase.OPEN and active.verdict is None:
            self._decide(active, outcome)

    def not_applied(self, link: RuntimeLink, key: Key) -> None:
        """Take in that a runtime has not applied a command and will not."""
        active = self._board.get(key)
        if active is None:
            return
        self._dispatch.settle(active, link)
        if active.phase is not Phase.OPEN or active.verdict is not None or active.outstanding:
            return
        if self._clock.monotonic() >= active.expire_at:
            self._decide(
                active, Outcome(OutcomeKind.EXPIRED, message="its time passed before it took effect")
            )
        else:
            self._dispatch.postpone(active)

    def _busy(self, scope: str) -> TurnwireError | None:
        if self._draining:
            return Unavailable("this server is leaving: connect again", reason="DRAINING", retry_after=1.0)
        if not self._ledger.healthy:
            return Unavailable(
                "the ledger cannot be written now", reason="STORE_UNAVAILABLE", retry_after=1.0
            )
        limits = self._limits
        if len(self._board) >= limits.pending or self._board.in_scope(scope) >= limits.pending_per_scope:
            return Unavailable("too many commands wait for their outcome", retry_after=1.0)
        return None

    def _new_row(self, command: NewCommand, sender: Sender) -> CommandRow:
        now = self._clock.now()
        outcome = self._verdicts.of(command, sender)
        position = self._next_position()
        return CommandRow(
            scope=sender.scope,
            command_id=command.command_id,
            fingerprint=command.fingerprint,
            kind=command.kind,
            target=command.target,
            subject=sender.subject,
            client_id=sender.client_id,
            create_time=now,
            expire_time=now + round(command.ttl_seconds * _SECOND),
            entry=position,
            position=position,
            state=CommandState.DONE if outcome else CommandState.ACCEPTED,
            ttl_seconds=command.ttl_seconds,
            clear_queue=command.clear_queue,
            size=command.size,
            offered=outcome is None and len(self._dispatch.routes) > 0,
            body=None if outcome else command.body,
            outcome=replace(outcome, decide_time=now) if outcome else None,
        )

    def _next_position(self) -> int:
        self._last += 1
        return self._last

    def _inserted(self, active: Active, stored: CommandRow | None, error: TurnwireError | None) -> None:
        acceptors, active.acceptors = active.acceptors, []
        self._stored.set()
        if error is not None:
            self._board.remove(active)
            for acceptor in acceptors:
                acceptor.listener.refused(active.row.command_id, error)
            return
        row = stored or active.row
        active.phase = Phase.OPEN
        if stored is None:
            self._durable = max(self._durable, row.position)
        if row.done:
            self._board.remove(active)
        else:
            active.row = row
        for acceptor in acceptors:
            known = stored is not None or acceptor is not acceptors[0]
            self._tell(acceptor, row, known=known, active=active)
        if stored is None:
            self.followers.changed(row)
        if not row.done:
            self._dispatch.admit(active)

    def _tell(self, acceptor: Acceptor, row: CommandRow, *, known: bool, active: Active) -> None:
        """Answer someone who sent the command, and see to it that they hear its end once."""
        listener = acceptor.listener
        if acceptor.fingerprint != row.fingerprint:
            text = "the command id came before with another body: take a new one"
            error = AlreadyExists(text, reason="COMMAND_ID_REUSED", command_id=row.command_id)
            listener.refused(row.command_id, error)
            return
        listener.accepted(row, known)
        if row.done:
            # A new row is about to be told to followers; an old one is told to nobody else.
            if known or not listener.follows(row):
                listener.ended(row)
        elif not listener.follows(row):
            active.listeners.append(listener)

    def _decide(self, active: Active, outcome: Outcome) -> None:
        """Store the outcome; nobody hears of it before that has succeeded."""
        active.phase = Phase.DECIDING
        active.verdict = outcome
        old = active.row
        row = replace(
            old,
            state=CommandState.DONE,
            outcome=replace(outcome, decide_time=self._clock.now()),
            bound_turn=old.bound_turn or ("" if old.target.turn else outcome.turn),
            position=self._next_position(),
            body=None,
        )
        self._ledger.finish(row, partial(self._finished, active, row))

    def _finished(
        self, active: Active, row: CommandRow, stored: CommandRow | None, error: TurnwireError | None
    ) -> None:
        if error is not None:
            logger.error(
                "command.outcome_not_stored", extra={"command_id": row.command_id, "reason": error.reason}
            )
            active.phase = Phase.OPEN
            self._dispatch.postpone(active)
            return
        row = stored or row
        self._durable = max(self._durable, row.position)
        self._dispatch.forget(active)
        self._board.remove(active)
        self._verdicts.remember((row,))
        for link in dict.fromkeys(active.answered):
            link.outcome_stored(row.key)
        self.followers.changed(row)
        for listener in active.listeners:
            listener.ended(row)
        self._log(row)
        self._release(active, row)
        self._stored.set()

    def _release(self, leader: Active, row: CommandRow) -> None:
        """End the commands that waited for this one as duplicates, or let them try for themselves."""
        applied = row.outcome is not None and row.outcome.kind is OutcomeKind.APPLIED
        held, leader.held = leader.held, []
        for active in held:
            active.leader = None
            if active.phase is not Phase.OPEN or active.verdict is not None:
                continue
            if applied:
                self._decide(active, duplicate_of(row.command_id, active.row.turn))
            else:
                self._dispatch.admit(active)

    def _log(self, row: CommandRow) -> None:
        outcome = row.outcome
        if outcome is not None:
            fields = {"command_id": row.command_id, "type": row.kind.value, "turn": row.turn}
            took = round((outcome.decide_time - row.create_time) / 1e6, 3)
            logger.info(
                "command.finished", extra={**fields, "outcome": outcome.kind.value, "duration_ms": took}
            )
