"""Fakes for the hub: a ledger that commits when told to, a clock with movable hands, peers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from turnwire.control.domain import (
    CommandKind,
    CommandRow,
    Delivery,
    DeliveryMode,
    Key,
    NewCommand,
    Outcome,
    OutcomeKind,
    Sender,
    Target,
    thread_of,
)
from turnwire.control.hub import Hub
from turnwire.core.errors import TurnwireError, Unavailable

SCOPE = "default-org"
CALLER = frozenset({"caller"})


class FakeClock:
    """Both hands move together, and only when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> int:
        return round(self.seconds * 1e9)

    def monotonic(self) -> float:
        return self.seconds


class FakeLedger:
    """Durable rows in a dict; changes wait, in order, until `commit` or `fail`."""

    def __init__(self, rows: dict[Key, CommandRow] | None = None) -> None:
        self.rows: dict[Key, CommandRow] = rows if rows is not None else {}
        self.healthy = True
        self.queue: deque[tuple[str, CommandRow, Callable[..., None]]] = deque()

    def insert(self, row: CommandRow, done: Callable[..., None]) -> None:
        self.queue.append(("insert", row, done))

    def update(self, row: CommandRow, done: Callable[..., None]) -> None:
        self.queue.append(("update", row, done))

    def finish(self, row: CommandRow, done: Callable[..., None]) -> None:
        self.queue.append(("finish", row, done))

    def commit(self, count: int = 1_000_000) -> None:
        while self.queue and count:
            count -= 1
            what, row, done = self.queue.popleft()
            old = self.rows.get(row.key)
            if (what == "insert") == (old is not None) or (old is not None and old.outcome is not None):
                done(old, None)
                continue
            if what == "update":
                assert old is not None
                row = replace(
                    old,
                    offered=row.offered,
                    bound_turn=row.bound_turn,
                    state=row.state,
                    position=row.position,
                )
            self.rows[row.key] = row
            done(None, None)

    def fail(self) -> None:
        if self.queue:
            self.queue.popleft()[2](None, Unavailable("no", reason="STORE_UNAVAILABLE"))


@dataclass(eq=False)
class FakeListener:
    """Remembers what it heard; `client_id` makes it a follower of its own commands."""

    client_id: str = ""
    accepted_rows: list[tuple[CommandRow, bool]] = field(default_factory=list)
    refusals: list[tuple[str, TurnwireError]] = field(default_factory=list)
    ends: list[CommandRow] = field(default_factory=list)
    changes: list[CommandRow] = field(default_factory=list)

    def follows(self, row: CommandRow) -> bool:
        return bool(self.client_id) and row.client_id == self.client_id

    def accepted(self, row: CommandRow, already_known: bool) -> None:
        self.accepted_rows.append((row, already_known))

    def refused(self, command_id: str, error: TurnwireError) -> None:
        self.refusals.append((command_id, error))

    def ended(self, row: CommandRow) -> None:
        self.ends.append(row)

    def changed(self, row: CommandRow) -> None:
        self.changes.append(row)

    @property
    def outcomes(self) -> list[Outcome]:
        return [row.outcome for row in self.ends if row.outcome]


class FakeLink:
    """A runtime's stream: deliveries pile up until the test answers them."""

    def __init__(self, runtime_id: str = "rt-1") -> None:
        self.runtime_id = runtime_id
        self.deliveries: list[tuple[int, Delivery]] = []
        self.stored: list[Key] = []
        self.superseded = False
        self.full = False
        self._last = 0

    def deliver(self, delivery: Delivery) -> int:
        if self.full:
            return 0
        self._last += 1
        self.deliveries.append((self._last, delivery))
        return self._last

    def outcome_stored(self, key: Key) -> None:
        self.stored.append(key)

    def supersede(self) -> None:
        self.superseded = True

    @property
    def modes(self) -> list[DeliveryMode]:
        return [delivery.mode for _, delivery in self.deliveries]


class World:
    """A hub on a fake ledger and clock; `pass_time` moves the hands and lets the hub see it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ledger = FakeLedger()
        self.armed: float | None = None
        self.hub = self.new_hub()

    def new_hub(self) -> Hub:
        return Hub(self.ledger, self.clock, arm=self._arm)

    def _arm(self, when: float) -> None:
        self.armed = when if self.armed is None else min(when, self.armed)

    def pass_time(self, seconds: float) -> None:
        end = self.clock.seconds + seconds
        while self.armed is not None and self.armed <= end:
            self.clock.seconds, self.armed = max(self.armed, self.clock.seconds), None
            self.hub.tick()
        self.clock.seconds = end

    def submit(
        self, command: NewCommand, listener: FakeListener | None = None, roles: frozenset[str] = CALLER
    ) -> FakeListener:
        listener = listener or FakeListener()
        sender = Sender(SCOPE, "someone", roles, listener.client_id)
        self.hub.submit(command, sender, listener)
        return listener

    def restart(self) -> None:
        """Lose everything that is not durable."""
        self.ledger = FakeLedger(self.ledger.rows)
        self.armed = None
        self.hub = self.new_hub()
        rows = sorted(self.ledger.rows.values(), key=lambda row: row.entry)
        last = max((max(row.entry, row.position) for row in rows), default=0)
        self.hub.recover(
            [row for row in rows if row.outcome is None],
            last,
            [row for row in rows if row.outcome is not None],
        )


def command(
    command_id: str = "cmd-00001",
    *,
    turn: str = "",
    thread: str = "",
    graph: str = "",
    kind: CommandKind = CommandKind.CANCEL_TURN,
    ttl: float = 300.0,
    clear_queue: bool = False,
    body: str = "",
) -> NewCommand:
    """A well-formed command whose fingerprint is what it says."""
    if not (turn or thread or graph):
        turn = "threads/thread/turns/turn-1"
    target = Target(thread=thread, turn=turn, graph=graph)
    fingerprint = repr((kind, target, ttl, clear_queue, body))
    return NewCommand(command_id, kind, target, ttl, fingerprint, b"body", clear_queue)


class FakeStore:
    """What runtimes share: which commands were applied, and which turns have ended by one."""

    def __init__(self) -> None:
        self.applied: dict[Key, Outcome] = {}
        self.ended: dict[tuple[str, str], str] = {}

    def act(self, delivery: Delivery, deadline: float, now: float, live: str) -> Outcome | None:
        """Do what a runtime does with a delivery; None stands for `not_applied`."""
        row = delivery.row
        if (stored := self.applied.get(row.key)) is not None:
            return stored
        if delivery.mode is DeliveryMode.QUERY_ONLY:
            return None
        if now > deadline:
            return Outcome(OutcomeKind.EXPIRED)
        turn = row.turn or live
        if not turn:
            return Outcome(OutcomeKind.NO_ACTIVE_TURN)
        if (earlier := self.ended.get((row.scope, turn))) is not None:
            return Outcome(OutcomeKind.ALREADY_FINISHED, turn=turn, message=earlier)
        outcome = Outcome(OutcomeKind.APPLIED, turn=turn, applied_sequence=7)
        self.applied[row.key] = outcome
        self.ended[(row.scope, turn)] = row.command_id
        return outcome


__all__ = [
    "CALLER",
    "SCOPE",
    "FakeClock",
    "FakeLedger",
    "FakeLink",
    "FakeListener",
    "FakeStore",
    "World",
    "command",
    "thread_of",
]
