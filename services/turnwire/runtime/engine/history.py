"""The transcript as the model reads it: each call has exactly one result after it, whatever is stored.

It comes in exchanges, which nothing may part: what a user said, or an answer of one step with the results of
its calls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from turnwire.extend.events import MessageOrigin, ToolOutcome
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

# Stands for the name of a call that had none: providers refuse an empty one, and one of other characters.
_UNNAMED = "unnamed"
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64
# Stand for a result without a word in it, as some providers refuse that too.
_EMPTY_RESULT = "(empty result)"
_ONLY_FILES = "(a file)"
# Checks that it is one object, and converts nothing: numbers may be of any size.
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])

__all__ = [
    "Exchange",
    "answer_exchanges",
    "assistant_messages",
    "exchanges",
    "model_messages",
    "user_message",
    "with_own_ids",
]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Messages that stand or go together.

    Args:
        message_id: the stored message it is of.
        step: the step of the turn that it is, 0 for what a user said.
        messages: one user message, or an answer and then the result of each of its calls.
        origin: where a user message came from.
    """

    message_id: str
    step: int
    messages: tuple[ModelMessage, ...]
    origin: MessageOrigin = MessageOrigin.REQUEST

    @property
    def from_user(self) -> bool:
        """Whether a user, or the runtime in their place, said it."""
        return isinstance(self.messages[0], UserMessage)

    @property
    def asks(self) -> bool:
        """Whether it is what a turn was asked, and not what was added to one on its way."""
        return self.from_user and self.origin is MessageOrigin.REQUEST


def exchanges(transcript: Iterable[StoredMessage], provider: str) -> Iterator[Exchange]:
    """Yield what a transcript holds, oldest first.

    Args:
        transcript: visible messages, oldest first.
        provider: only what this provider signed or encrypted is sent back to it.
    """
    for stored in transcript:
        if stored.role == "user":
            said = user_message(p.content for p in stored.parts if isinstance(p, ContentPart))
            if said is not None:
                yield Exchange(stored.message_id, 0, (said,), stored.origin or MessageOrigin.REQUEST)
        else:
            yield from answer_exchanges(stored.message_id, stored.parts, provider, stored.interrupted_reason)


def model_messages(transcript: Iterable[StoredMessage], provider: str) -> list[ModelMessage]:
    """Return the messages of a transcript, oldest first, with an id of its own for each call."""
    ids: set[str] = set()
    return [m for found in exchanges(transcript, provider) for m in with_own_ids(found, ids).messages]


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


def answer_exchanges(
    message_id: str, parts: Sequence[StoredPart], provider: str, interrupted_reason: str = ""
) -> Iterator[Exchange]:
    """Yield one stored answer as the exchanges it was made of, one for each step that has something in it."""
    steps: dict[int, list[StoredPart]] = {}
    for part in parts:
        steps.setdefault(part.step, []).append(part)
    last = max(steps, default=0)
    for step in sorted(steps):
        messages = _exchange(steps[step], provider, interrupted_reason if step == last else "")
        if messages:
            yield Exchange(message_id, step, tuple(messages))


def assistant_messages(
    parts: Sequence[StoredPart], provider: str, interrupted_reason: str = ""
) -> list[ModelMessage]:
    """Return one stored answer as messages: per step an answer, then its results."""
    return [m for found in answer_exchanges("", parts, provider, interrupted_reason) for m in found.messages]


def with_own_ids(exchange: Exchange, taken: set[str]) -> Exchange:
    """Return the exchange with call ids that are not `taken` yet, and take them."""
    renamed: dict[str, str] = {}
    for message in exchange.messages:
        if isinstance(message, AssistantMessage):
            renamed = _free_ids([c.call_id for c in message.tool_calls], taken)
    taken.update(renamed.values())
    if all(old == new for old, new in renamed.items()):
        return exchange
    return replace(exchange, messages=tuple(_renamed(m, renamed) for m in exchange.messages))


def _free_ids(ids: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for call_id in ids:
        free, number = call_id, 1
        while free in taken or free in found.values() or not free:
            number += 1
            free = f"{call_id or 'call'}-{number}"
        found[call_id] = free
    return found


def _renamed(message: ModelMessage, ids: dict[str, str]) -> ModelMessage:
    if isinstance(message, ToolMessage):
        return replace(message, call_id=ids[message.call_id])
    if isinstance(message, AssistantMessage):
        calls = tuple(replace(c, call_id=ids[c.call_id]) for c in message.tool_calls)
        return replace(message, tool_calls=calls)
    return message


def _exchange(parts: Sequence[StoredPart], provider: str, interrupted_reason: str) -> list[ModelMessage]:
    text = "".join(p.content.text for p in parts if isinstance(p, ContentPart))
    # What one provider reasoned, signed or not, is nothing to another.
    thoughts = [p for p in parts if isinstance(p, ReasoningText) and p.provider == provider]
    reasoning, replay = "".join(p.text for p in thoughts), "".join(p.replay_json for p in thoughts)
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
                ToolCallPart(c.call_id, _name(c), _arguments(c.arguments_json)) for c in seen.values()
            ),
            replay_json=replay,
        )
    ]
    messages.extend(_result(call) for call in seen.values())
    return messages


def _name(call: CallPart) -> str:
    """Return a name that every provider takes back: a model may have called a tool by any."""
    return _NO_NAME.sub("_", call.tool_name)[:_MAX_NAME] or _UNNAMED


def _arguments(arguments_json: str) -> str:
    """Return arguments that every provider takes back; what is wrong with them stands in the result."""
    try:
        _object.decode(arguments_json)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return "{}"
    return arguments_json


def _result(call: CallPart) -> ToolMessage:
    # A call without a result stands in the store only when its owner died: its end is unknown.
    name = _name(call)
    if call.outcome is None:
        return ToolMessage(call.call_id, name, templates.outcome_unknown(name), True)
    media = tuple(MediaPart(p.media_type, p.data) for p in call.parts if p.data)
    is_error = call.is_error or call.outcome not in (ToolOutcome.SUCCEEDED, ToolOutcome.SKIPPED)
    content = call.content if call.content.strip() else _ONLY_FILES if media else _EMPTY_RESULT
    return ToolMessage(call.call_id, name, content, is_error, media)
