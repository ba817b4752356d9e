"""The transcript as the model reads it: each call has exactly one result after it, whatever is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnwire.extend.events import ToolOutcome
from turnwire.extend.llm import (
    AssistantMessage,
    MediaPart,
    ModelMessage,
    Part,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.domain.message import (
    BegunTools,
    CallPart,
    ContentPart,
    ReasoningText,
    StoredMessage,
    StoredPart,
)
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.engine import templates

# Stands for the name of a call that had none: providers refuse an empty one.
_UNNAMED = "unnamed"

__all__ = ["assistant_messages", "model_messages", "user_message"]


def model_messages(transcript: Iterable[StoredMessage], provider: str) -> list[ModelMessage]:
    """Return the model's view of a transcript, oldest first.

    Args:
        transcript: visible messages, oldest first.
        provider: only what this provider signed or encrypted is sent back to it.
    """
    messages: list[ModelMessage] = []
    for stored in transcript:
        if stored.role == "user":
            said = user_message(p.content for p in stored.parts if isinstance(p, ContentPart))
            if said is not None:
                messages.append(said)
        else:
            messages.extend(assistant_messages(stored.parts, provider, stored.interrupted_reason))
    return messages


def user_message(parts: Iterable[InputPart]) -> UserMessage | None:
    """Return a user message, or None when there is nothing in it."""
    content: list[Part] = []
    for part in parts:
        if part.kind == "text":
            if part.text:
                content.append(TextPart(part.text))
        else:
            content.append(MediaPart(part.media_type, part.data, part.uri, part.filename))
    return UserMessage(tuple(content)) if content else None


def assistant_messages(
    parts: Sequence[StoredPart], provider: str, interrupted_reason: str = ""
) -> list[ModelMessage]:
    """Return one stored answer as the exchanges it was made of: per step an answer, then its results."""
    steps: dict[int, list[StoredPart]] = {}
    for part in parts:
        steps.setdefault(part.step, []).append(part)
    messages: list[ModelMessage] = []
    last = max(steps, default=0)
    for step in sorted(steps):
        reason = interrupted_reason if step == last else ""
        messages.extend(_exchange(steps[step], provider, reason))
    return messages


def _exchange(parts: Sequence[StoredPart], provider: str, interrupted_reason: str) -> list[ModelMessage]:
    text = "".join(p.content.text for p in parts if isinstance(p, ContentPart))
    reasoning = "".join(p.text for p in parts if isinstance(p, ReasoningText))
    replay = "".join(p.replay_json for p in parts if isinstance(p, ReasoningText) and p.provider == provider)
    calls = sorted((p for p in parts if isinstance(p, CallPart)), key=lambda c: c.call_index)
    begun = [name for p in parts if isinstance(p, BegunTools) for name in p.names]
    if begun or (interrupted_reason and not calls):
        text = templates.interrupted_response(interrupted_reason or "error", text, begun)
    if not text and not calls and not replay:
        return []
    seen: dict[str, CallPart] = {}
    for call in calls:
        seen.setdefault(call.call_id, call)
    messages: list[ModelMessage] = [
        AssistantMessage(
            text=text,
            reasoning=reasoning,
            tool_calls=tuple(
                ToolCallPart(c.call_id, c.tool_name or _UNNAMED, c.arguments_json) for c in seen.values()
            ),
            replay_json=replay,
        )
    ]
    messages.extend(_result(call) for call in seen.values())
    return messages


def _result(call: CallPart) -> ToolMessage:
    # A call without a result stands in the store only when its owner died: its end is unknown.
    name = call.tool_name or _UNNAMED
    if call.outcome is None:
        return ToolMessage(call.call_id, name, templates.outcome_unknown(name), True)
    media = tuple(MediaPart(p.media_type, p.data) for p in call.parts if p.data)
    is_error = call.is_error or call.outcome not in (ToolOutcome.SUCCEEDED, ToolOutcome.SKIPPED)
    return ToolMessage(call.call_id, name, call.content, is_error, media)
