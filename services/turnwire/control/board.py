"""The commands without an outcome, all of them in memory: what is not here has ended or never was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from turnwire.control.domain import CommandKind, CommandRow, Key, Outcome, thread_of
from turnwire.control.ports import Listener, RuntimeLink

__all__ = ["Acceptor", "Active", "Board", "Phase"]


class Phase(Enum):
    """What the ledger is doing with a command."""

    STORING = auto()
    OPEN = auto()
    DECIDING = auto()


@dataclass(frozen=True, slots=True)
class Acceptor:
    """Someone who sent the command while its row was not yet durable, with the digest of what they sent."""

    listener: Listener
    fingerprint: str


@dataclass(slots=True, eq=False)
class Active:
    """A command on its way to its outcome; all moments are seconds of the monotonic clock.

    Args:
        outstanding: runtimes that have the command and owe an answer, with the id of the delivery.
        leader: the earlier cancel of the same turn whose end decides whether this one is a duplicate.
        held: the commands that have this one as leader, in order of arrival.
        verdict: the outcome while it is being stored, and until that has succeeded.
        marking: whether the ledger is noting that the command may reach a runtime, before it does.
    """

    row: CommandRow
    expire_at: float
    phase: Phase = Phase.STORING
    acceptors: list[Acceptor] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    outstanding: dict[RuntimeLink, int] = field(default_factory=dict)
    answered: list[RuntimeLink] = field(default_factory=list)
    leader: Active | None = None
    held: list[Active] = field(default_factory=list)
    verdict: Outcome | None = None
    marking: bool = False
    not_before: float = 0.0
    unowned_at: float = 0.0
    query_at: float = 0.0
    overdue_at: float = 0.0
    wake_at: float | None = None

    @property
    def leads(self) -> bool:
        """Whether another cancel of the same turn can be a duplicate of this command."""
        return self.row.kind is CommandKind.CANCEL_TURN and bool(self.row.turn)

    def covers(self, other: Active) -> bool:
        """Tell whether this cancel does all that `other` asks for."""
        return self.row.clear_queue or not other.row.clear_queue


class Board:
    """The commands by key, and by the turn or thread they wait for."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Active] = {}
        self._by_place: dict[Key, dict[Active, None]] = {}
        self._per_scope: dict[str, int] = {}
        self._leaders: dict[Key, Active] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Active]:
        return iter(tuple(self._by_key.values()))

    def __contains__(self, active: Active) -> bool:
        return self._by_key.get(active.row.key) is active

    def get(self, key: Key) -> Active | None:
        """Return the command with that key, if it has no outcome."""
        return self._by_key.get(key)

    def in_scope(self, scope: str) -> int:
        """Count the commands of one scope."""
        return self._per_scope.get(scope, 0)

    def add(self, active: Active) -> None:
        """Take in a command."""
        scope = active.row.scope
        self._by_key[active.row.key] = active
        self._per_scope[scope] = self._per_scope.get(scope, 0) + 1
        self._by_place.setdefault(_place(active.row), {})[active] = None

    def remove(self, active: Active) -> None:
        """Drop a command that has ended."""
        del self._by_key[active.row.key]
        scope = active.row.scope
        self._per_scope[scope] -= 1
        if not self._per_scope[scope]:
            del self._per_scope[scope]
        self._leave(active)
        turn = (scope, active.row.turn)
        if self._leaders.get(turn) is active:
            del self._leaders[turn]

    def bind(self, active: Active, row: CommandRow) -> None:
        """Give a thread-wide command the row that names its turn."""
        self._leave(active)
        active.row = row
        self._by_place.setdefault(_place(row), {})[active] = None

    def waiting_for(self, scope: str, turn: str) -> Iterable[Active]:
        """Return the commands for that turn, and the unbound ones for its thread."""
        here = self._by_place.get((scope, turn), ())
        thread_wide = self._by_place.get((scope, thread_of(turn)), ())
        return (*here, *thread_wide)

    def lead(self, active: Active) -> Active | None:
        """Return the earlier cancel that `active` must wait for; without one `active` leads from now on."""
        if not active.leads:
            return None
        turn = (active.row.scope, active.row.turn)
        leader = self._leaders.get(turn)
        if leader is None:
            self._leaders[turn] = active
            return None
        return leader if leader is not active and leader.covers(active) else None

    def _leave(self, active: Active) -> None:
        place = _place(active.row)
        here = self._by_place[place]
        del here[active]
        if not here:
            del self._by_place[place]


def _place(row: CommandRow) -> Key:
    return (row.scope, row.turn or row.target.thread or row.target.graph)
