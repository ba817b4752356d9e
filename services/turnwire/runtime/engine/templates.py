"""What the model reads of trouble: one place for all such texts, with everything foreign escaped."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from turnwire.extend.events import ToolOutcome
from turnwire.runtime.domain.execution import ExecutionResult

__all__ = [
    "answer_invalid",
    "interrupted_response",
    "invalid_call",
    "outcome_unknown",
    "rejected",
    "result_text",
    "unknown_tool",
]

_PARTIAL_EFFECTS = "Side effects of the tool may be partial."


def _tag(name: str, body: str, **attributes: str) -> str:
    attrs = "".join(f" {k}={quoteattr(v)}" for k, v in attributes.items())
    return f"<{name}{attrs}>\n{escape(body)}\n</{name}>"


def result_text(tool_name: str, result: ExecutionResult) -> str:
    """Return what the model reads of a result."""
    if result.outcome is ToolOutcome.TIMED_OUT:
        return _tag(
            "tool_timeout",
            f"The tool was stopped at its time limit. {_PARTIAL_EFFECTS}\nOutput so far:\n{result.content}",
            tool=tool_name,
            limit=f"{result.execution_timeout:g}s",
            elapsed=f"{result.elapsed:.1f}s",
        )
    if result.outcome is ToolOutcome.STOPPED:
        note = f"\n{result.cancel_note}" if result.cancel_note else ""
        return _tag(
            "tool_cancelled",
            f"The call was stopped on request. {_PARTIAL_EFFECTS}{note}\nOutput so far:\n{result.content}",
            tool=tool_name,
            elapsed=f"{result.elapsed:.1f}s",
        )
    if result.outcome is ToolOutcome.NOT_STARTED:
        return _tag(
            "tool_not_started",
            result.content or "The call never started: the turn was stopped before.",
            tool=tool_name,
        )
    if result.outcome is ToolOutcome.OUTCOME_UNKNOWN:
        return outcome_unknown(tool_name)
    return result.content


def outcome_unknown(tool_name: str) -> str:
    """Return what the model reads of a call whose end nobody knows."""
    return _tag(
        "tool_outcome_unknown",
        "The call may have run, in part or whole; its result is lost and it is not run again. "
        "Check what it changed before you repeat it.",
        tool=tool_name,
    )


def invalid_call(tool_name: str, cause: str) -> str:
    """Return what the model reads of a call that could not be understood."""
    return _tag("tool_error", f"The call was not executed: {cause}", tool=tool_name)


def rejected(tool_name: str, cause: str) -> str:
    """Return what the model reads of a call that a rule forbids."""
    return _tag("tool_rejected", f"The call was not executed: {cause}.", tool=tool_name)


def unknown_tool(tool_name: str, known: Sequence[str]) -> str:
    """Return what the model reads of a call to a tool that is not there."""
    names = ", ".join(sorted(known)) or "none"
    return _tag(
        "tool_error", f"There is no such tool. The call was not executed. Tools: {names}", tool=tool_name
    )


def interrupted_response(reason: str, text: str, tool_names: Sequence[str]) -> str:
    """Return what later requests show of an answer that stops short."""
    begun = f"\nTool calls begun: {', '.join(tool_names)}" if tool_names else ""
    return _tag("interrupted_response", f"{text}{begun}", reason=reason)


def answer_invalid(violations: Sequence[str]) -> str:
    """Return what the model reads of an answer that misses its schema; `violations` are bounded and few."""
    found = "\n".join(f"- {violation}" for violation in violations)
    return _tag(
        "answer_invalid",
        f"Your last answer does not fit the JSON Schema that it must fit:\n{found}\n"
        "Answer again: one JSON value that fits the schema, whole, and nothing else.",
    )
