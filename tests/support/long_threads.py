"""Threads with a long past, as a store holds them, and what a scripted summariser says of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from support.runtime_fakes import FakeModel, Step
from turnwire.extend.events import MessageOrigin, ToolOutcome
from turnwire.extend.llm import (
    Finish,
    FinishReason,
    LlmEvent,
    ModelRequest,
    SystemMessage,
    TextDelta,
    TextPart,
    TokenUsage,
    UsageProvenance,
    UsageSnapshot,
    UserMessage,
)
from turnwire.runtime.domain.compaction import DEFAULT_PROMPT
from turnwire.runtime.domain.message import CallPart, ContentPart, StoredMessage, StoredPart
from turnwire.runtime.domain.turn import InputPart

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)

__all__ = ["CALLS", "STOP", "TwoVoices", "head_of", "past", "says", "stored", "text_of", "usage"]


def stored(
    position: int, role: str, *parts: StoredPart, origin: MessageOrigin | None = None
) -> StoredMessage:
    """A visible message."""
    return StoredMessage(f"m{position}", position, role, f"t{position}", parts, origin=origin)


def words(text: str, step: int = 0) -> ContentPart:
    return ContentPart(InputPart(kind="text", text=text), step)


def past(turns: int, calls: int = 0, *, size: int = 10, question: str = "go on") -> list[StoredMessage]:
    """So many finished turns, each with a step of `calls` calls, and then the question of the turn to come.

    Args:
        size: characters of each text.
    """
    messages = []
    for turn in range(turns):
        answer: list[StoredPart] = [
            CallPart(
                f"call-{turn}-{i}",
                "p",
                "look",
                f'{{"n": {i}}}',
                1,
                i,
                ToolOutcome.SUCCEEDED,
                f"r{turn}" * size,
            )
            for i in range(calls)
        ]
        answer.append(words(f"answer {turn} ".ljust(size, "a"), 2))
        messages.append(stored(2 * turn + 1, "user", words(f"question {turn} ".ljust(size, "q"))))
        messages.append(stored(2 * turn + 2, "assistant", *answer))
    return [*messages, stored(2 * turns + 1, "user", words(question))]


class TwoVoices(FakeModel):
    """Plays one list for summaries and another for steps; the last summary repeats."""

    def __init__(self, summaries: Sequence[Sequence[Step]], *steps: Sequence[Step]) -> None:
        super().__init__()
        self._summaries = list(summaries)
        self._steps = list(steps)
        self.summary_requests: list[ModelRequest] = []
        self.step_requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, **told: Any) -> AsyncIterator[LlmEvent]:
        first = request.messages[0]
        if isinstance(first, SystemMessage) and first.text == DEFAULT_PROMPT:
            self.summary_requests.append(request)
            self._calls.append(self._summaries.pop(0) if len(self._summaries) > 1 else self._summaries[0])
        else:
            self.step_requests.append(request)
            self._calls.append(self._steps.pop(0))
        async for event in super().stream(request, **told):
            yield event


def says(text: str, *, tokens: int = 0) -> list[LlmEvent]:
    """A whole answer."""
    told = [usage(tokens, 1)] if tokens else []
    return [TextDelta(text), *told, STOP] if text else [STOP]


def usage(given: int, output: int) -> UsageSnapshot:
    """A report of a provider."""
    return UsageSnapshot(TokenUsage(given, 0, 0, output, 0, UsageProvenance.REPORTED))


def head_of(request: ModelRequest) -> str:
    """The compacted history of a request, empty when it has none."""
    found = [m.text for m in request.messages if isinstance(m, SystemMessage)]
    return next((text for text in found if text.startswith("[compacted]")), "")


def text_of(message: object) -> str:
    """The text of a user message."""
    assert isinstance(message, UserMessage)
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))
