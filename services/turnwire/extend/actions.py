"""What a turn waits for somebody to answer; the wire twin stands in `action.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Action", "ActionKind", "ActionState"]


class ActionKind(Enum):
    """What is asked."""

    APPROVAL = "approval"
    SUSPEND = "suspend"
    CLIENT_TOOL = "client-tool"
    CLARIFICATION = "clarification"
    CONTINUE = "continue"


class ActionState(Enum):
    """Where an action stands; every state but OPEN absorbs."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    VOIDED = "voided"


@dataclass(frozen=True, slots=True)
class Action:
    """One question. Times are nanoseconds since the epoch by the store's clock, 0 = not yet, or never.

    Args:
        name: `threads/{t}/turns/{u}/actions/{action}`.
        call_id: the call it belongs to, empty for CONTINUE.
        digest: of tool, version, arguments and scope; an answer must carry it.
        answer: JSON: `{}` for an approval, `{"reason": ...}` for a rejection, else what was given.
        resolver: who answered: a subject, `auto` or `expiry`.
    """

    name: str
    kind: ActionKind
    state: ActionState = ActionState.OPEN
    call_id: str = ""
    tool_name: str = ""
    arguments_json: str = "{}"
    digest: str = ""
    risk_tier: str = "normal"
    question: str = ""
    payload_json: str = ""
    answer_schema_json: str = ""
    required_role: str = "approver"
    agent: str = ""
    answer: str = ""
    resolver: str = ""
    create_time: int = 0
    expire_time: int = 0
    resolve_time: int = 0
