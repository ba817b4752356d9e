"""Commands, their rows in the ledger and their outcomes, as plain values without wire or database.

Times with the suffix `_time` are nanoseconds of the wall clock since the epoch; everything else that counts
seconds is monotonic and never leaves the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

__all__ = [
    "GRAPH_KINDS",
    "RESERVED",
    "SERVED",
    "CommandKind",
    "CommandRow",
    "CommandState",
    "Delivery",
    "DeliveryMode",
    "Key",
    "NewCommand",
    "Outcome",
    "OutcomeKind",
    "OwnedTurn",
    "Sender",
    "Target",
    "thread_of",
]

# Scope and command id.
Key: TypeAlias = tuple[str, str]


class CommandKind(StrEnum):
    """What a command asks for; the value is the name of its arm on the wire."""

    CANCEL_TURN = "cancel_turn"
    INJECT_STEER = "inject_steer"
    PAUSE_GRAPH = "pause_graph"
    STOP_GRAPH = "stop_graph"
    RESUME_GRAPH = "resume_graph"
    DELIVER_TO_NODE = "deliver_to_node"
    CANCEL_RUN = "cancel_run"
    INJECT_USER_MESSAGE = "inject_user_message"
    APPROVAL_RESPONSE = "approval_response"


SERVED = frozenset({CommandKind.CANCEL_TURN})
GRAPH_KINDS = frozenset(
    {
        CommandKind.PAUSE_GRAPH,
        CommandKind.STOP_GRAPH,
        CommandKind.RESUME_GRAPH,
        CommandKind.DELIVER_TO_NODE,
    }
)
# Kinds that are never served, with the path that is.
RESERVED: Mapping[CommandKind, str] = MappingProxyType(
    {
        CommandKind.CANCEL_RUN: "cancel_run is reserved: send cancel_turn",
        CommandKind.INJECT_USER_MESSAGE: (
            "inject_user_message is reserved: call TurnService.RunTurn, or send inject_steer"
        ),
        CommandKind.APPROVAL_RESPONSE: "approval_response is reserved: call TurnService.ResolveAction",
    }
)


class CommandState(StrEnum):
    """What a command is doing."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    DONE = "done"


class OutcomeKind(StrEnum):
    """How a command ended."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    NO_ACTIVE_TURN = "no_active_turn"
    ALREADY_FINISHED = "already_finished"
    EXPIRED = "expired"
    REJECTED = "rejected"


class DeliveryMode(StrEnum):
    """How a runtime is to treat a delivery."""

    OWNED = "owned"
    UNOWNED = "unowned"
    QUERY_ONLY = "query_only"


@dataclass(frozen=True, slots=True)
class Target:
    """What a command is for; every field is a full resource name or empty."""

    thread: str = ""
    turn: str = ""
    graph: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a command; `roles` are those of the credentials, `client_id` is empty for unary calls."""

    scope: str
    subject: str
    roles: frozenset[str]
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class NewCommand:
    """A well-formed command as it comes from the wire.

    Args:
        fingerprint: digest of everything but the id; the same command sent again has the same one.
        body: the encoded command, for runtimes.
        size: bytes of the text that the command carries, which the ledger does not keep.
    """

    command_id: str
    kind: CommandKind
    target: Target
    ttl_seconds: float
    fingerprint: str
    body: bytes
    clear_queue: bool = False
    size: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The one and only end of a command; `applied_sequence` is 0 where nothing was applied."""

    kind: OutcomeKind
    turn: str = ""
    applied_sequence: int = 0
    duplicate_of: str = ""
    message: str = ""
    reason: str = ""
    decide_time: int = 0


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A row of the ledger.

    Args:
        entry: number of the row; grows with each accepted command and orders listings.
        position: number of the row's last durable change; grows over all rows and orders what followers see.
        offered: whether a runtime may have the command, so that only a runtime may say it was not applied.
        body: the encoded command; None once there is an outcome, and for commands that are never delivered.
    """

    scope: str
    command_id: str
    fingerprint: str
    kind: CommandKind
    target: Target
    subject: str
    client_id: str
    create_time: int
    expire_time: int
    entry: int
    position: int
    state: CommandState
    ttl_seconds: float
    clear_queue: bool = False
    size: int = 0
    offered: bool = False
    bound_turn: str = ""
    body: bytes | None = None
    outcome: Outcome | None = None

    @property
    def key(self) -> Key:
        """Scope and command id."""
        return (self.scope, self.command_id)

    @property
    def turn(self) -> str:
        """The turn that the command is for, as far as it is known."""
        return self.target.turn or self.bound_turn

    @property
    def done(self) -> bool:
        """Whether the command has its outcome."""
        return self.outcome is not None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A command on its way to a runtime; `remaining_seconds` is 0 for a query."""

    row: CommandRow
    mode: DeliveryMode
    remaining_seconds: float


@dataclass(frozen=True, slots=True)
class OwnedTurn:
    """A turn that a runtime owns, with the fencing number of the ownership."""

    scope: str
    turn: str
    epoch: int


def thread_of(turn: str) -> str:
    """Return the name of the thread of a turn: `threads/T/turns/U` gives `threads/T`."""
    return turn.rpartition("/turns/")[0]
