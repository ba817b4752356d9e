"""What becomes of a request at admission, and commands whose effect is committed with a turn's end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwire.runtime.domain.resumption import Resumption
from turnwire.runtime.domain.turn import Disposition, TurnKey, TurnSpec

if TYPE_CHECKING:
    from turnwire.runtime.ports import TurnJournal

__all__ = ["Admitted", "AppliedCommand", "StopNote"]


@dataclass(frozen=True, slots=True)
class AppliedCommand:
    """A command that took effect with a turn's end; `kind` is `applied` or `duplicate`."""

    command_id: str
    kind: str
    duplicate_of: str = ""


@dataclass(frozen=True, slots=True)
class StopNote:
    """Why a turn is to end at once; stored with the turn until whoever runs it ends it.

    Args:
        stop_reason: `cancelled` or `superseded`.
        cause: free text for people.
        command_id: the control command that asked for it, empty for the runtime's own account.
    """

    stop_reason: str
    cause: str = ""
    command_id: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A turn and, when this process owns it now, the journal to write it with.

    `agent` (`agents/{agent}`) and `max_steps` are what the turn was admitted with.
    """

    key: TurnKey
    spec: TurnSpec
    disposition: Disposition
    journal: TurnJournal | None = None
    agent: str = ""
    max_steps: int = 0
    # Seconds until the turn's own time is up, None without a limit.
    time_left: float | None = None
    # Where the turn stands, for an episode that is not its first.
    resumption: Resumption | None = None
    # Whether the turn's own message is all that its thread holds, so that there is no history to read.
    first: bool = False
    # An episode that only ends the turn: no model and no tool is asked any more.
    stop: StopNote | None = None
    # The live turn that this one was to replace, for whoever runs it.
    superseded: TurnKey | None = None
    # Whether the turn waits though nothing runs in its thread, so that somebody has to look there.
    idle: bool = False
    # Id of the message that the turn answers, for a first episode.
    input_message: str = ""
