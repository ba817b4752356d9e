"""The calls of a step that an earlier owner left: which have their result, which go on, which wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnwire.extend.actions import Action, ActionState
from turnwire.extend.events import (
    ActionResolved,
    EpisodeKind,
    Notice,
    NoticeSeverity,
    ToolOutcome,
    TurnEvent,
)
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.domain.resumption import CallState, ResumedCall, Resumption
from turnwire.runtime.engine import templates
from turnwire.runtime.engine.approvals import Asker, action_events, digest_of, rejection
from turnwire.runtime.engine.plan import PlannedCall

__all__ = ["Left", "Renewal", "calls_left", "outdated", "renew"]


@dataclass(slots=True)
class Left:
    """The calls of the step in the model's order, and the results that stand, by call id."""

    calls: list[PlannedCall] = field(default_factory=list)
    results: dict[str, CallPart] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether a call has no result yet."""
        return len(self.results) < len(self.calls)


def calls_left(resumption: Resumption, tools: Mapping[str, ToolInfo]) -> Left:
    """Tell how each call goes on; `tools` are those that the executor offers now."""
    left = Left()
    for call in resumption.calls:
        if call.state is CallState.FINISHED:
            left.results[call.part.call_id] = call.part
        left.calls.append(_planned(call, tools.get(call.part.tool_name), resumption.kind))
    return left


def _planned(call: ResumedCall, tool: ToolInfo | None, kind: EpisodeKind) -> PlannedCall:
    planned = PlannedCall(call.part, tool, attempt=call.attempt)
    if call.state is CallState.FINISHED:
        return planned
    if call.state is not CallState.WAITING:
        return replace(planned, known=call.state)
    action = call.action
    planned = replace(planned, action=action)
    if action is None or action.state is ActionState.VOIDED:
        name = call.part.tool_name
        return replace(planned, asks=True, refusal="" if tool else templates.unknown_tool(name, ()))
    if action.state is ActionState.OPEN:
        return planned
    if action.state is ActionState.APPROVED:
        # A dead owner may have begun it and died before it could say so.
        return replace(planned, known=CallState.READY if kind is EpisodeKind.RECOVERY else None)
    refusal = templates.rejected(call.part.tool_name, rejection(action))
    return replace(planned, refusal=refusal, outcome=ToolOutcome.REJECTED)


def outdated(calls: Sequence[PlannedCall], scope: str) -> list[PlannedCall]:
    """Return the calls that have to be asked about anew: what would run now is not what was allowed."""
    return [c for c in calls if c.asks or _changed(c, scope)]


def _changed(call: PlannedCall, scope: str) -> bool:
    action, tool = call.action, call.tool
    if action is None or action.state is not ActionState.APPROVED or tool is None:
        return False
    return digest_of(scope, tool, call.part.arguments_json) != action.digest


@dataclass(frozen=True, slots=True)
class Renewal:
    """Questions that take the place of others, with the events that report it."""

    calls: list[PlannedCall]
    voided: tuple[Action, ...]
    asked: tuple[Action, ...]
    events: list[TurnEvent]


def renew(calls: Sequence[PlannedCall], old: Sequence[PlannedCall], asker: Asker) -> Renewal:
    """Ask anew about the calls in `old`, which are some of `calls`."""
    ids = {c.part.call_id for c in old}
    renewed: list[PlannedCall] = []
    voided: list[Action] = []
    asked: list[Action] = []
    events: list[TurnEvent] = []
    for call in calls:
        if call.part.call_id not in ids or call.tool is None:
            renewed.append(call)
            continue
        if call.action is not None and call.action.state is ActionState.APPROVED:
            voided.append(call.action)
            events.extend(_voided(call.action))
        action = asker.ask(call.part, call.tool)
        asked.append(action)
        # What may have been begun stays so, though nothing is begun before the answer.
        renewed.append(replace(call, action=action, asks=False))
    events.extend(action_events(tuple(asked)))
    return Renewal(renewed, tuple(voided), tuple(asked), events)


def _voided(action: Action) -> list[TurnEvent]:
    text = f"What {action.tool_name} would do now is not what was allowed: it is asked again."
    return [
        ActionResolved(action.name, action.call_id, ActionState.VOIDED, ""),
        Notice(NoticeSeverity.WARNING, "action-voided", text, action.call_id),
    ]
