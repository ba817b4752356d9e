"""What becomes of each call of a step before any of them starts: run, or its one result without running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnwire.extend.events import Notice, NoticeSeverity, ToolOutcome
from turnwire.extend.llm import ToolCallComplete
from turnwire.runtime.domain.execution import RiskTier, ToolInfo
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.engine import templates

__all__ = ["PlannedCall", "plan_call", "refusal_notice"]


# Calls of one step that run; a model that asks for more is told so.
MAX_CALLS = 128


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of the step. With a `refusal` it is not executed: that is its result, with this outcome."""

    part: CallPart
    tool: ToolInfo | None
    refusal: str = ""
    outcome: ToolOutcome = ToolOutcome.FAILED

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
    elif tool.risk_tier is not RiskTier.NORMAL:
        # Approvals are not served by this version, so nobody can answer: it does not run.
        cause = f"a {tool.risk_tier.value} tool needs an approval, and nobody can give one here"
        refusal, outcome = templates.rejected(call.tool_name, cause), ToolOutcome.REJECTED
    part = CallPart(
        call_id=call.call_id,
        provider_call_id=call.provider_call_id,
        tool_name=call.tool_name,
        # What could not be read is never sent back to a provider: it would refuse the whole history.
        arguments_json="{}" if call.error else call.arguments_json,
        step=step,
        call_index=index,
    )
    return PlannedCall(part, tool, refusal, outcome)


def refusal_notice(call: PlannedCall) -> Notice:
    """Return the notice for a call that is not executed."""
    if call.outcome is ToolOutcome.REJECTED:
        reason = "tool-rejected"
    else:
        reason = "tool-arguments-invalid" if call.tool is not None else "tool-unknown"
    name = call.part.tool_name or "(no name)"
    return Notice(NoticeSeverity.WARNING, reason, f"The call of {name} was not executed.", call.part.call_id)
