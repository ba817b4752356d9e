"""What a model reads in place of messages that are left out, and what of them must stay word for word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from turnwire.extend.events import MessageOrigin
from turnwire.extend.llm import AssistantMessage, ModelMessage, TextPart, ToolMessage, UserMessage
from turnwire.runtime.domain.compaction import Compaction
from turnwire.runtime.engine.history import Exchange

__all__ = [
    "MARK",
    "clip",
    "compacted_message",
    "constraints_in",
    "open_question",
    "rendered",
    "shortened",
    "truncated_pieces",
]

# What every compacted history begins with.
MARK = "[compacted]"
MAX_QUESTION = 4000
MAX_CONSTRAINT = 300
MAX_CONSTRAINTS = 2000
# Of each message, for a summary; and where no summary could be had.
MAX_RENDERED = 4000
MAX_PIECE = 160
PIECES = 12
# Of each result, once a provider has refused longer ones.
MAX_RESULT = 2000

_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")
# Words by which people say what always holds.
_BINDING = re.compile(
    r"\b(?:must|never|always|don't|do not|under no circumstances"
    r"|muss|müssen|niemals|immer|auf keinen fall|toujours|jamais|siempre|nunca|debe)\b"
    r"|必须|务必|不要|禁止|永远|始终|总是|绝不|不得|切勿|必ず|絶対に|しないで",
    re.IGNORECASE,
)


def clip(text: str, limit: int) -> str:
    """Return at most about `limit` characters of a text: its beginning and its end, with a mark between."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[{len(text) - head - tail} characters left out]\n{text[len(text) - tail :]}"


def compacted_message(made: Compaction) -> str:
    """Return the text that stands for the messages of a summary."""
    count = f"{made.count} earlier message{'s' if made.count != 1 else ''} of this conversation"
    head = f"{MARK} {count}, as a summary. They are past: the conversation goes on below."
    return "\n\n".join([head, made.summary, *_word_for_word(made.constraints, made.question)])


def truncated_pieces(
    made: Compaction | None, found: Sequence[Exchange], count: int, constraints: Sequence[str], question: str
) -> str:
    """Return what stands for messages of which no summary could be had, for one request.

    Args:
        made: the summary that there was before, None = none.
        found: what is left out beside it, oldest first.
        count: messages that are left out, those of that summary too.
    """
    lines = [line for exchange in found for line in _pieces(exchange)]
    parts = [
        f"{MARK} {count} earlier messages of this conversation are left out and could not be summarised:"
        " these are truncated pieces of them."
    ]
    if made is not None:
        parts.append(f"Summary of the oldest of them:\n{made.summary}")
    parts.append("\n".join(lines[-PIECES:]))
    return "\n\n".join([*parts, *_word_for_word(constraints, question)])


def _word_for_word(constraints: Sequence[str], question: str) -> list[str]:
    parts = []
    if constraints:
        listed = "\n".join(f"- {text}" for text in constraints)
        parts.append(f"What the user asked to be kept to, word for word:\n{listed}")
    if question:
        parts.append(f"What the user asked and nobody has answered, word for word:\n{question}")
    return parts


def _pieces(exchange: Exchange) -> Iterator[str]:
    for line in rendered(exchange, MAX_PIECE):
        yield " ".join(line.split())


def rendered(exchange: Exchange, limit: int = MAX_RENDERED) -> Iterator[str]:
    """Yield an exchange as lines of text, each message bounded by `limit` characters."""
    for message in exchange.messages:
        yield from _rendered(message, limit)


def _rendered(message: ModelMessage, limit: int) -> Iterator[str]:
    match message:
        case UserMessage(parts):
            said = [p.text if isinstance(p, TextPart) else f"[{p.media_type} file]" for p in parts]
            yield f"user: {clip(' '.join(said), limit)}"
        case AssistantMessage():
            if message.text:
                yield f"assistant: {clip(message.text, limit)}"
            for call in message.tool_calls:
                yield f"assistant calls {call.tool_name}: {clip(call.arguments_json, limit // 4)}"
        case ToolMessage():
            word = "error" if message.is_error else "result"
            yield f"{word} of {message.tool_name}: {clip(message.content, limit)}"


def constraints_in(found: Iterable[Exchange], before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what users said that always holds, word for word, bounded: the latest stand.

    Args:
        before: what is known of still earlier messages.
    """
    said = list(before)
    for exchange in found:
        if exchange.from_user and exchange.origin not in (MessageOrigin.REMINDER, MessageOrigin.CONTINUATION):
            said += (s for s in _sentences(exchange) if _BINDING.search(s))
    kept: list[str] = []
    room = MAX_CONSTRAINTS
    for text in reversed([clip(s, MAX_CONSTRAINT) for s in said]):
        if text not in kept and len(text) <= room:
            kept.append(text)
            room -= len(text)
    return tuple(reversed(kept))


def _sentences(exchange: Exchange) -> Iterator[str]:
    for sentence in _SENTENCE.split(_user_text(exchange)):
        if sentence.strip():
            yield sentence.strip()


def _user_text(exchange: Exchange) -> str:
    (message,) = exchange.messages
    parts = message.parts if isinstance(message, UserMessage) else ()
    return "\n".join(p.text for p in parts if isinstance(p, TextPart))


def open_question(found: Iterable[Exchange], before: str = "") -> str:
    """Return what was asked last and has no whole answer, word for word, bounded; empty when all have one."""
    question = before
    for exchange in found:
        if exchange.asks:
            question = _user_text(exchange)
        elif _answers(exchange):
            question = ""
    return clip(question, MAX_QUESTION)


def _answers(exchange: Exchange) -> bool:
    answer = exchange.messages[0]
    if not isinstance(answer, AssistantMessage) or answer.tool_calls:
        return False
    return bool(answer.text) and not answer.text.startswith("<interrupted_response")


def shortened(message: ModelMessage) -> ModelMessage:
    """Return a message with a long result cut, and without the files of a result."""
    if not isinstance(message, ToolMessage):
        return message
    note = "\n[files of the result are left out]" if message.media else ""
    content = clip(message.content, MAX_RESULT) + note
    return ToolMessage(message.call_id, message.tool_name, content, message.is_error)
