"""From how an execution ended to what transcript and log hold of it, bounded to what an event can hold."""

from __future__ import annotations

from dataclasses import replace

from turnwire.core.text import cut
from turnwire.extend.events import ToolCallFinished, ToolOutcome
from turnwire.runtime.domain.execution import ExecutionResult
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.engine import templates

__all__ = ["settled"]

# An event holds at most 1 MiB: beyond so much text, and so many bytes of parts, a result is cut.
MAX_CONTENT_BYTES = 256 * 1024
MAX_PARTS_BYTES = 640 * 1024


def settled(part: CallPart, result: ExecutionResult, order: int) -> tuple[CallPart, ToolCallFinished]:
    """Return a call with its result, and the event that tells it; `order` counts the results of the step."""
    result = _fitting(result)
    content = templates.result_text(part.tool_name, result)
    final = replace(
        part,
        outcome=result.outcome,
        content=content,
        is_error=result.is_error or result.outcome is not ToolOutcome.SUCCEEDED,
        overflow=result.overflow,
        parts=result.parts,
    )
    event = ToolCallFinished(
        call_id=part.call_id,
        tool_name=part.tool_name,
        outcome=result.outcome,
        content=content,
        is_error=final.is_error,
        elapsed=result.elapsed,
        settle_order=order,
        call_index=part.call_index,
        overflow=result.overflow,
        parts=result.parts,
        exit_code=result.exit_code,
    )
    return final, event


def _fitting(result: ExecutionResult) -> ExecutionResult:
    """Return the result without what an event cannot hold; executors bound their results far below that."""
    content = cut(result.content, MAX_CONTENT_BYTES)
    size, kept = 0, 0
    for part in result.parts:
        size += len(part.data)
        if size > MAX_PARTS_BYTES:
            break
        kept += 1
    if content == result.content and kept == len(result.parts):
        return result
    note = "\n[The rest of the result was too large to be kept.]"
    return replace(result, content=content + note, parts=result.parts[:kept])
