"""Actions as they are asked for and answered."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.core.errors import WrongState
from turnwire.extend.actions import Action, ActionState
from turnwire.runtime.domain.turn import TurnKey

__all__ = ["ActionAnswer", "ActionKey", "ActionPlace", "ApprovalTerms", "Resolution"]


@dataclass(frozen=True, slots=True)
class ActionKey:
    """An action within its scope."""

    turn: TurnKey
    action_id: str

    @property
    def name(self) -> str:
        """`threads/{t}/turns/{u}/actions/{action}`."""
        return f"{self.turn.name}/actions/{self.action_id}"


@dataclass(frozen=True, slots=True)
class ActionPlace:
    """Where actions are looked for: a scope, one thread of it (`-` = all), one turn of that (empty = all)."""

    scope: str
    thread_id: str = "-"
    turn_id: str = ""


@dataclass(frozen=True, slots=True)
class ActionAnswer:
    """An answer as it comes from the wire.

    Args:
        digest: the one that the answerer was shown.
        state: what the action becomes; `answer` is the JSON that goes with it, see `Action.answer`.
        resolver: the subject that answers; `roles` are its roles.
    """

    key: ActionKey
    request_id: str
    digest: str
    state: ActionState
    answer: str
    resolver: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of an answer.

    Args:
        action: as it stands now.
        changed: whether anything was stored: the turn can go on, watchers have news.
        error: why the answer was not taken, though something was stored: its time had passed.
    """

    action: Action
    changed: bool
    error: WrongState | None = None


@dataclass(frozen=True, slots=True)
class ApprovalTerms:
    """By what a thread asks: the store's clock in nanoseconds, and whether everything is allowed at once."""

    now: int
    auto: bool = False
