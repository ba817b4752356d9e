"""Questions about calls that somebody has to allow, and what their answers mean for the calls.

An answer holds for exactly what was shown: tool, version, arguments and scope, by their digest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from turnwire.core.ids import mint_id
from turnwire.core.text import cut
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.extend.events import ActionRequired, ActionResolved, TurnEvent
from turnwire.runtime.domain.action import ApprovalTerms
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.domain.turn import TurnKey

__all__ = ["EXPIRY_SECONDS", "Asker", "action_events", "digest_of", "rejection"]

# How long a question stands before nobody's answer is a no.
EXPIRY_SECONDS = 24 * 3600
_MAX_REASON_BYTES = 2000


def digest_of(scope: str, tool: ToolInfo, arguments_json: str) -> str:
    """Return the digest of what would run: SHA-256 in hex, equal for arguments that are equal as JSON."""
    try:
        arguments = json.dumps(json.loads(arguments_json), sort_keys=True, separators=(",", ":"))
    except ValueError:
        arguments = arguments_json
    shown = json.dumps([scope, tool.name, tool.digest, arguments])
    return hashlib.sha256(shown.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks for the turn of an agent (`agents/{agent}`), by the terms of its thread.

    A question expires after `timeout` seconds.
    """

    key: TurnKey
    agent: str
    terms: ApprovalTerms
    timeout: float = EXPIRY_SECONDS

    def ask(self, part: CallPart, tool: ToolInfo) -> Action:
        """Return the question whether a call may run, answered at once where the thread allows all."""
        now, auto = self.terms.now, self.terms.auto
        return Action(
            name=f"{self.key.name}/actions/{mint_id()}",
            kind=ActionKind.APPROVAL,
            state=ActionState.APPROVED if auto else ActionState.OPEN,
            call_id=part.call_id,
            tool_name=part.tool_name,
            arguments_json=part.arguments_json,
            digest=digest_of(self.key.scope, tool, part.arguments_json),
            risk_tier=tool.risk_tier.value,
            question=f"May the {tool.risk_tier.value} tool {part.tool_name} run with these arguments?",
            agent=self.agent,
            answer="{}" if auto else "",
            resolver="auto" if auto else "",
            create_time=now,
            expire_time=now + int(self.timeout * 1e9),
            resolve_time=now if auto else 0,
        )


def action_events(actions: tuple[Action, ...]) -> list[TurnEvent]:
    """Return the events that report new actions."""
    events: list[TurnEvent] = []
    for action in actions:
        events.append(ActionRequired(action))
        if action.state is not ActionState.OPEN:
            events.append(ActionResolved(action.name, action.call_id, action.state, action.resolver))
    return events


def rejection(action: Action) -> str:
    """Return why a call does not run whose question came to this end."""
    if action.state is ActionState.EXPIRED:
        return "nobody allowed it in time"
    if action.state is ActionState.REJECTED:
        reason = _reason(action.answer)
        return f"a person rejected it: {reason}" if reason else "a person rejected it"
    return "it was withdrawn before anybody allowed it"


def _reason(answer: str) -> str:
    try:
        given = json.loads(answer or "{}")
    except ValueError:
        return ""
    reason = given.get("reason", "") if isinstance(given, dict) else ""
    return cut(reason, _MAX_REASON_BYTES) if isinstance(reason, str) else ""
