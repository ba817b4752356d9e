"""Events of the union as the short JSON that scripts and recordings hold.

| form | event |
|---|---|
| `{"text": "..."}`, `{"reasoning": "..."}` | a delta; `"size"` and `"every"` cut it in pieces with pauses |
| `{"tool_call": {"name", "arguments", "id"}}` | a whole call; arguments as an object, or as raw text |
| `{"usage": {"input", "output", "cache_read", "cache_creation", "reasoning"}}` | a snapshot |
| `{"finish": "stop"}` or `{"finish": {"reason", "provider_reason", "replay", "refusal"}}` | the end |
| `{"fail": {"kind", "message", "status", "retry_after", "retryable"}}` | the end in trouble |
| `{"delay": 0.5}`, `{"hang": true}` | a pause in seconds, or for ever |
"""

from __future__ import annotations

import json
from typing import Any

from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    LlmEvent,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    TokenUsage,
    ToolCallComplete,
    ToolCallFragment,
    UsageProvenance,
    UsageSnapshot,
)
from turnwire.runtime.models.arguments import check_arguments
from turnwire.runtime.models.failures import failure_of

__all__ = ["ScriptError", "event_of", "json_of"]


class ScriptError(ValueError):
    """The script says something that no event is."""


def event_of(item: dict[str, Any], provider: str) -> LlmEvent:
    """Read one event. Raises ScriptError."""
    try:
        match item:
            case {"text": str(text)}:
                return TextDelta(text)
            case {"reasoning": str(text)}:
                return ReasoningDelta(text)
            case {"tool_call": dict(call)}:
                return _call(call)
            case {"usage": dict(counts)}:
                return _usage(counts)
            case {"finish": str(reason)}:
                return Finish(FinishReason(reason), reason)
            case {"finish": dict(finish)}:
                return _finish(finish)
            case {"fail": dict(failure)}:
                return _failure(failure, provider)
    except (ValueError, TypeError, KeyError) as error:
        raise ScriptError(f"{json.dumps(item)[:200]}: {error}") from error
    forms = "text, reasoning, tool_call, usage, finish or fail"
    raise ScriptError(f"{json.dumps(item)[:200]} is no event: use {forms}")


def json_of(event: LlmEvent) -> dict[str, Any] | None:
    """Write one event; None for those that are not kept."""
    match event:
        case TextDelta(text):
            return {"text": text}
        case ReasoningDelta(text):
            return {"reasoning": text}
        case ToolCallFragment():
            return None
        case ToolCallComplete():
            return {
                "tool_call": {
                    "name": event.tool_name,
                    "arguments": event.arguments_json,
                    "id": event.provider_call_id,
                    "error": event.error,
                }
            }
        case UsageSnapshot(usage):
            return {"usage": _counts(usage)}
        case Finish():
            replay = json.loads(event.replay_json) if event.replay_json else None
            return {
                "finish": {
                    "reason": event.reason.value,
                    "provider_reason": event.provider_reason,
                    "replay": replay,
                    "refusal": event.refusal,
                }
            }
        case StreamFailure():
            return {
                "fail": {
                    "kind": event.kind.value,
                    "message": event.message,
                    "status": event.status_code,
                    "retry_after": event.retry_after_seconds,
                    "retryable": event.retryable,
                }
            }


def _call(call: dict[str, Any]) -> ToolCallComplete:
    given = call.get("arguments", {})
    raw = given if isinstance(given, str) else json.dumps(given)
    arguments, error = check_arguments(raw)
    return ToolCallComplete(
        str(call.get("id") or ""), str(call["name"]), arguments, error=str(call.get("error") or error)
    )


def _usage(counts: dict[str, Any]) -> UsageSnapshot:
    return UsageSnapshot(
        TokenUsage(
            int(counts.get("input", 0)),
            int(counts.get("cache_read", 0)),
            int(counts.get("cache_creation", 0)),
            int(counts.get("output", 0)),
            int(counts.get("reasoning", 0)),
            UsageProvenance(counts.get("provenance", "reported")),
        )
    )


def _counts(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input": usage.input_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_creation": usage.cache_creation_tokens,
        "output": usage.output_tokens,
        "reasoning": usage.reasoning_tokens,
        "provenance": usage.provenance.value,
    }


def _finish(finish: dict[str, Any]) -> Finish:
    replay = finish.get("replay")
    return Finish(
        FinishReason(finish["reason"]),
        str(finish.get("provider_reason") or ""),
        json.dumps(replay, separators=(",", ":")) if replay else "",
        str(finish.get("refusal") or ""),
    )


def _failure(failure: dict[str, Any], provider: str) -> StreamFailure:
    retry_after = failure.get("retry_after")
    return failure_of(
        FailureKind(failure["kind"]),
        str(failure.get("message") or "scripted failure"),
        provider=provider,
        status_code=int(failure.get("status") or 0),
        retry_after=None if retry_after is None else float(retry_after),
        retryable=failure.get("retryable"),
    )
