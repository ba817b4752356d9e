"""What becomes of each call of a step before any of them starts: run, ask first, or its one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwire.extend.actions import Action, ActionState
from turnwire.extend.events import Notice, NoticeSeverity, ToolCallFinished, ToolOutcome
from turnwire.extend.llm import ToolCallComplete
from turnwire.runtime.domain.execution import ExecutionResult, RiskTier, ToolInfo
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.domain.resumption import CallState
from turnwire.runtime.engine import templates
from turnwire.runtime.engine.results import settled

__all__ = ["PlannedCall", "plan_call", "refusal_notice", "refused_at_once"]


# Calls of one step that run; a model that asks for more is told so.
MAX_CALLS = 128


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of the step.

    Args:
        tool: as the executor offers it now, None when it does not.
        refusal: when set the call is not executed: that is its result, with this `outcome`.
        asks: whether somebody has to allow it first; `action` is the question, once there is one.
        known: how far an earlier owner of the turn brought it, None when no owner can have begun it.
        attempt: the attempt at it that was begun last.
    """

    part: CallPart
    tool: ToolInfo | None
    refusal: str = ""
    outcome: ToolOutcome = ToolOutcome.FAILED
    asks: bool = False
    action: Action | None = None
    known: CallState | None = None
    attempt: int = 1

    @property
    def waits(self) -> bool:
        """Whether nobody has answered yet."""
        return self.action is not None and self.action.state is ActionState.OPEN

    @property
    def refused(self) -> ExecutionResult:
        """Its result, for a call with a refusal."""
        return ExecutionResult(self.outcome, self.refusal, True)

    @property
    def parallel(self) -> bool:
        """Whether it may run beside its neighbours."""
        return self.tool is not None and self.tool.parallel


def plan_call(call: ToolCallComplete, tools: Mapping[str, ToolInfo], step: int, index: int) -> PlannedCall:
    """Decide about one call; `tools` are those of this step."""
    tool = tools.get(call.tool_name)
    refusal, outcome = "", ToolOutcome.FAILED
    if index >= MAX_CALLS:
        refusal = templates.invalid_call(call.tool_name, f"one step takes at most {MAX_CALLS} calls")
    elif call.error:
        refusal = templates.invalid_call(call.tool_name, call.error)
    elif tool is None:
        refusal = templates.unknown_tool(call.tool_name, tuple(tools))
    elif tool.risk_tier is RiskTier.HARDLINE:
        refusal, outcome = templates.rejected(call.tool_name, "the tool may never run"), ToolOutcome.REJECTED
    part = CallPart(
        call_id=call.call_id,
        provider_call_id=call.provider_call_id,
        tool_name=call.tool_name,
        # What could not be read is never sent back to a provider: it would refuse the whole history.
        arguments_json="{}" if call.error else call.arguments_json,
        step=step,
        call_index=index,
    )
    asks = tool is not None and not refusal and tool.risk_tier is not RiskTier.NORMAL
    return PlannedCall(part, tool, refusal, outcome, asks)


def refused_at_once(plan: Sequence[PlannedCall]) -> tuple[dict[str, CallPart], list[ToolCallFinished]]:
    """Return the calls that are final before any other starts, by their ids, with the events that tell so."""
    parts: dict[str, CallPart] = {}
    events: list[ToolCallFinished] = []
    for call in plan:
        if call.refusal:
            parts[call.part.call_id], event = settled(call.part, call.refused, len(events) + 1)
            events.append(event)
    return parts, events


def refusal_notice(call: PlannedCall) -> Notice:
    """Return the notice for a call that is not executed."""
    if call.outcome is ToolOutcome.REJECTED:
        reason = "tool-rejected"
    else:
        reason = "tool-arguments-invalid" if call.tool is not None else "tool-unknown"
    name = call.part.tool_name or "(no name)"
    return Notice(NoticeSeverity.WARNING, reason, f"The call of {name} was not executed.", call.part.call_id)
