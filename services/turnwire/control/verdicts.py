"""What control decides by itself when a command arrives: its form is right, and it still comes to nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from turnwire.control.domain import (
    RESERVED,
    SERVED,
    CommandKind,
    CommandRow,
    Key,
    NewCommand,
    Outcome,
    OutcomeKind,
    Sender,
)

__all__ = ["Verdicts", "duplicate_of"]

# Who may send what; reserved kinds need no role, since nobody may have them.
_ROLES: dict[CommandKind, frozenset[str]] = {
    CommandKind.CANCEL_TURN: frozenset({"caller", "operator"}),
    CommandKind.INJECT_STEER: frozenset({"caller", "operator"}),
    CommandKind.PAUSE_GRAPH: frozenset({"caller", "operator"}),
    CommandKind.STOP_GRAPH: frozenset({"caller", "operator"}),
    CommandKind.RESUME_GRAPH: frozenset({"caller", "operator"}),
    CommandKind.DELIVER_TO_NODE: frozenset({"caller", "operator"}),
}
_REMEMBERED = 4096


class Verdicts:
    """Rejects by kind and role, and knows the cancels of late, so that a second one is told which was first.

    Args:
        served: kinds that some runtime acts on.
    """

    def __init__(self, served: frozenset[CommandKind] = SERVED) -> None:
        self._served = served
        self._cancels: OrderedDict[Key, tuple[str, bool]] = OrderedDict()

    def remember(self, rows: Iterable[CommandRow]) -> None:
        """Take in commands with their outcome, oldest first."""
        for row in rows:
            outcome = row.outcome
            if row.kind is not CommandKind.CANCEL_TURN or outcome is None:
                continue
            if outcome.kind is OutcomeKind.APPLIED and (turn := outcome.turn or row.turn):
                self._cancels[(row.scope, turn)] = (row.command_id, row.clear_queue)
                if len(self._cancels) > _REMEMBERED:
                    self._cancels.popitem(last=False)

    def of(self, command: NewCommand, sender: Sender) -> Outcome | None:
        """Return the outcome that the command has at once, or None for one that goes to a runtime."""
        if (text := RESERVED.get(command.kind)) is not None:
            return Outcome(OutcomeKind.REJECTED, reason="INVALID_REQUEST", message=text)
        if not sender.roles & _ROLES[command.kind]:
            needed = " or ".join(sorted(_ROLES[command.kind]))
            text = f"{command.kind} needs the role {needed}"
            return Outcome(OutcomeKind.REJECTED, reason="ROLE_MISSING", message=text)
        if command.kind not in self._served:
            text = f"{command.kind} is not served by this server"
            return Outcome(OutcomeKind.REJECTED, reason="FEATURE_NOT_SERVED", message=text)
        return self._duplicate(command, sender)

    def _duplicate(self, command: NewCommand, sender: Sender) -> Outcome | None:
        if command.kind is not CommandKind.CANCEL_TURN:
            return None
        turn = command.target.turn
        earlier = self._cancels.get((sender.scope, turn))
        if earlier is None or (command.clear_queue and not earlier[1]):
            return None
        return duplicate_of(earlier[0], turn)


def duplicate_of(command_id: str, turn: str) -> Outcome:
    """Return the outcome of a command whose effect an earlier one has."""
    return Outcome(
        OutcomeKind.DUPLICATE,
        turn=turn,
        duplicate_of=command_id,
        message="an earlier command has cancelled the turn",
    )
