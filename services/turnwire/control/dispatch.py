"""Who gets which command when: the owner at once, anyone after a while, nobody after its time.

A command may end as EXPIRED only while no runtime owes an answer for it; one that may have reached a runtime
is asked after first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from turnwire.control.board import Active, Board, Phase
from turnwire.control.domain import (
    CommandRow,
    CommandState,
    Delivery,
    DeliveryMode,
    Outcome,
    OutcomeKind,
    OwnedTurn,
)
from turnwire.control.ports import Ledger, RuntimeLink
from turnwire.control.routes import Routes
from turnwire.control.timers import Timers
from turnwire.core.clock import Clock
from turnwire.core.errors import TurnwireError

__all__ = ["Dispatcher", "Timing"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """Waits of the dispatcher in seconds.

    Args:
        unowned: until a command that no runtime claims goes to any of them.
        again: until a command is offered again after a runtime did not apply it, or a store failed.
        query: from the loss of a runtime that had the command until another is asked about it.
        answer: from the end of a command's time until a runtime that still owes the answer is asked.
        recovery: after a start, for the runtimes to come back before anyone else gets their commands.
    """

    unowned: float = 0.2
    again: float = 1.0
    query: float = 2.0
    answer: float = 30.0
    recovery: float = 3.0


class Dispatcher:
    """Offers the commands of the board to the attached runtimes.

    Args:
        decide: stores an outcome that control itself may decide.
        changed: told of rows that a runtime now has.
    """

    def __init__(
        self,
        board: Board,
        ledger: Ledger,
        clock: Clock,
        timing: Timing,
        *,
        arm: Callable[[float], None],
        decide: Callable[[Active, Outcome], None],
        changed: Callable[[CommandRow], None],
        position: Callable[[], int],
    ) -> None:
        self.routes = Routes()
        self._board = board
        self._ledger = ledger
        self._clock = clock
        self._timing = timing
        self._timers = Timers(arm)
        self._decide = decide
        self._changed = changed
        self._position = position

    def admit(self, active: Active, *, recovered: bool = False) -> None:
        """Begin to offer a command whose row is durable."""
        now = self._clock.monotonic()
        wait = self._timing.recovery if recovered else self._timing.unowned
        active.unowned_at = active.query_at = now + wait
        active.leader = self._board.lead(active)
        if active.leader is not None:
            active.leader.held.append(active)
        self.consider(active)

    def consider(self, active: Active) -> None:
        """Do for a command what can be done now, and set the moment of the next look."""
        if active.phase is not Phase.OPEN or active.marking:
            return
        now = self._clock.monotonic()
        if active.verdict is not None:
            self._when(active, now, active.not_before, lambda: self._redecide(active))
        elif active.outstanding:
            self._when(active, now, active.overdue_at, lambda: self._ask_again(active, now))
        elif now >= active.expire_at:
            self._past(active, now)
        else:
            self._open(active, now)

    def tick(self) -> None:
        """Look at every command whose moment has come."""
        for active in self._timers.due(self._clock.monotonic()):
            if active in self._board:
                self.consider(active)

    def settle(self, active: Active, link: RuntimeLink) -> None:
        """Note that a runtime no longer owes an answer for a command."""
        delivery_id = active.outstanding.pop(link, None)
        attachment = self.routes.get(link)
        if attachment is not None and delivery_id is not None:
            attachment.deliveries.pop(delivery_id, None)

    def forget(self, active: Active) -> None:
        """Note that a command has ended, whoever still works on it."""
        for link in tuple(active.outstanding):
            self.settle(active, link)

    def postpone(self, active: Active) -> None:
        """Offer a command again, but not at once."""
        active.not_before = self._clock.monotonic() + self._timing.again
        self.consider(active)

    def attach(self, link: RuntimeLink) -> None:
        """Take in a runtime; an older stream of the same runtime ends."""
        for attachment in self.routes:
            if attachment.link.runtime_id == link.runtime_id:
                logger.warning("runtime.superseded", extra={"runtime_id": link.runtime_id})
                self.detach(attachment.link)
                attachment.link.supersede()
        self.routes.add(link)

    def detach(self, link: RuntimeLink) -> None:
        """Let a runtime go: what it had becomes offerable again."""
        attachment = self.routes.remove(link)
        if attachment is None:
            return
        now = self._clock.monotonic()
        for active in list(attachment.deliveries.values()):
            active.outstanding.pop(link, None)
            if not active.outstanding:
                active.unowned_at = now + self._timing.unowned
                active.query_at = now + self._timing.query
                self.consider(active)

    def opened(self, link: RuntimeLink, turns: Iterable[OwnedTurn], *, complete: bool = False) -> None:
        """Take in turns that a runtime owns now; `complete` ends its first list."""
        attachment = self.routes.get(link)
        if attachment is None:
            return
        turns = tuple(turns)
        self.routes.opened(attachment, turns)
        if len(self._board):
            for owned in turns:
                for active in self._board.waiting_for(owned.scope, owned.turn):
                    self._claimed(active, link, owned)
        if complete and not attachment.complete:
            attachment.complete = True
            for active in self._board:
                self.consider(active)

    def closed(self, link: RuntimeLink, turns: Iterable[OwnedTurn]) -> None:
        """Take in turns that a runtime no longer owns. What it was given it still answers."""
        attachment = self.routes.get(link)
        if attachment is not None:
            self.routes.closed(attachment, turns)

    def acked(self, link: RuntimeLink, delivery_id: int, bound_turn: str) -> None:
        """Take in that a runtime has a command, and for a thread-wide one the turn it is bound to."""
        attachment = self.routes.get(link)
        active = attachment.deliveries.get(delivery_id) if attachment else None
        if active is None or active.phase is not Phase.OPEN:
            return
        row = active.row
        if row.state is CommandState.ACCEPTED:
            row = active.row = replace(row, state=CommandState.DELIVERED)
        if bound_turn and not row.turn:
            row = replace(row, bound_turn=bound_turn, position=self._position())
            self._board.bind(active, row)
            self._board.lead(active)
            self._ledger.update(row, partial(self._bound, active))
        self._changed(row)

    def _open(self, active: Active, now: float) -> None:
        if active.leader is not None:
            self._timers.set(active, active.expire_at)
            return
        if now < active.not_before:
            self._timers.set(active, min(active.not_before, active.expire_at))
            return
        if (owner := self.routes.owner(active.row)) is not None:
            self._offer(active, owner, DeliveryMode.OWNED)
        elif now < active.unowned_at:
            self._timers.set(active, min(active.unowned_at, active.expire_at))
        elif (link := self.routes.any()) is not None:
            self._offer(active, link, DeliveryMode.UNOWNED)
        else:
            self._timers.set(active, active.expire_at)

    def _past(self, active: Active, now: float) -> None:
        if not active.row.offered:
            self._decide(active, Outcome(OutcomeKind.EXPIRED, message="no runtime took it in time"))
            return
        due = max(active.query_at, active.not_before)
        if now < due:
            self._timers.set(active, due)
            return
        link = self.routes.owner(active.row) or self.routes.any()
        if link is not None:
            self._offer(active, link, DeliveryMode.QUERY_ONLY)

    def _claimed(self, active: Active, link: RuntimeLink, owned: OwnedTurn) -> None:
        """A runtime has opened the turn of a command: it gets it, also when an older owner still has it."""
        if link in active.outstanding or active.phase is not Phase.OPEN or active.verdict is not None:
            return
        if not active.outstanding:
            active.not_before = 0.0
            self.consider(active)
            return
        held_at = max(self.routes.epoch(other, owned.scope, owned.turn) for other in active.outstanding)
        if owned.epoch > held_at and self._clock.monotonic() < active.expire_at:
            self._offer(active, link, DeliveryMode.OWNED)

    def _offer(self, active: Active, link: RuntimeLink, mode: DeliveryMode) -> None:
        if not active.row.offered:
            self._mark(active)
            return
        if not self._send(active, link, mode):
            self.detach(link)
            self.consider(active)
            return
        now = self._clock.monotonic()
        active.overdue_at = max(active.expire_at, now) + self._timing.answer
        self._timers.set(active, active.overdue_at)

    def _send(self, active: Active, link: RuntimeLink, mode: DeliveryMode) -> bool:
        attachment = self.routes.get(link)
        if attachment is None:
            return False
        remaining = 0.0 if mode is DeliveryMode.QUERY_ONLY else active.expire_at - self._clock.monotonic()
        delivery_id = link.deliver(Delivery(active.row, mode, remaining))
        if not delivery_id:
            return False
        self.settle(active, link)
        active.outstanding[link] = delivery_id
        attachment.deliveries[delivery_id] = active
        return True

    def _ask_again(self, active: Active, now: float) -> None:
        """The time is over and runtimes still owe the answer: they are asked for it, and keep owing it."""
        logger.warning("command.overdue", extra={"command_id": active.row.command_id})
        for link in tuple(active.outstanding):
            if not self._send(active, link, DeliveryMode.QUERY_ONLY):
                self.detach(link)
        if active.outstanding:
            active.overdue_at = now + self._timing.answer
            self._timers.set(active, active.overdue_at)

    def _mark(self, active: Active) -> None:
        """Note durably that the command may reach a runtime, before it does."""
        active.marking = True
        row = replace(active.row, offered=True)
        self._ledger.update(row, partial(self._marked, active))

    def _marked(self, active: Active, stored: CommandRow | None, error: TurnwireError | None) -> None:
        active.marking = False
        if error is not None:
            self.postpone(active)
            return
        active.row = replace(active.row, offered=True)
        self.consider(active)

    def _bound(self, active: Active, stored: CommandRow | None, error: TurnwireError | None) -> None:
        if error is not None:
            logger.warning("command.bind_failed", extra={"command_id": active.row.command_id})

    def _redecide(self, active: Active) -> None:
        if active.verdict is not None:
            self._decide(active, active.verdict)

    def _when(self, active: Active, now: float, due: float, act: Callable[[], None]) -> None:
        if now >= due:
            act()
        else:
            self._timers.set(active, due)
