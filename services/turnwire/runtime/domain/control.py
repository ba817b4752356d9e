"""Commands from outside as the engine sees them: what is delivered, and the one outcome it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["ControlDelivery", "ControlHandler", "ControlOutcome", "DeliveryMode", "OutcomeKind"]

# OWNED: this runtime owns the turn. UNOWNED: nobody is known to; act under a claim, or tell why not.
# QUERY_ONLY: only tell whether the command took effect.
DeliveryMode = Literal["owned", "unowned", "query-only"]

OutcomeKind = Literal[
    "applied",
    "duplicate",
    "stale",
    "no-active-turn",
    "already-finished",
    "expired",
    "rejected",
    "not-applied",
]


@dataclass(frozen=True, slots=True)
class ControlDelivery:
    """A cancel as the control service delivers it, at least once.

    Args:
        scope: scope of the turn.
        turn, thread: full names; exactly one is set, as the sender did.
        bound_turn: for a thread-wide command the turn that it was bound to, empty while it is not.
        cause: why, at most 500 characters.
        clear_queue: whether queued turns of the thread end too.
        remaining_seconds: do not begin to apply it later than this from its arrival.
        mode: how to treat it.
        subject: who sent it.
    """

    scope: str
    command_id: str
    turn: str = ""
    thread: str = ""
    cause: str = ""
    clear_queue: bool = False
    remaining_seconds: float = 0.0
    mode: DeliveryMode = "owned"
    bound_turn: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class ControlOutcome:
    """How a delivery ended, durable in the runtime's store.

    Args:
        kind: `not-applied` answers a query, or says that somebody else has to act: it is offered again.
        turn: full name of the turn it acted on, where there is one.
        applied_sequence: sequence in that turn at which the effect stands, for `applied`.
        duplicate_of: the earlier command with the same effect, for `duplicate`.
    """

    kind: OutcomeKind
    turn: str = ""
    applied_sequence: int = 0
    duplicate_of: str = ""
    message: str = ""


class ControlHandler(Protocol):
    """What acts on deliveries; the same command may come again, also while it is being acted on."""

    async def deliver(self, delivery: ControlDelivery) -> ControlOutcome:
        """Apply a command, or find what it did before, and return its durable outcome."""
        ...
