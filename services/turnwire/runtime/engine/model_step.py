"""One model call: events from the model to the log, assembled on the way into the answer of the step.

This is the hot path: a text delta costs one list append and one log append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from turnwire.core.ids import mint_id
from turnwire.extend.events import Notice, NoticeSeverity, ToolCallPreparing, Waiting
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    ModelRequest,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    TokenUsage,
    ToolCallComplete,
    ToolCallFragment,
    UsageSnapshot,
)
from turnwire.runtime.ports import Model, TurnJournal

__all__ = ["Answer", "ModelCall"]

# Characters above which a delta is weighed; the log takes smaller ones for what most events are.
_LONG_DELTA = 1024
# A fragment of arguments is told at most this often.
_PREPARING_INTERVAL = 0.25


@dataclass(slots=True)
class Answer:
    """What a model call gave, whole or up to where it stopped."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallComplete] = field(default_factory=list)
    begun_tools: list[str] = field(default_factory=list)
    usage: TokenUsage | None = None
    end: Finish | StreamFailure | None = None

    @property
    def whole_text(self) -> str:
        """The text so far."""
        return "".join(self.text)

    @property
    def started(self) -> bool:
        """Whether anything came that a reader has seen."""
        return bool(self.text or self.reasoning or self.calls)


class ModelCall:
    """Streams one model call into a journal."""

    def __init__(
        self, model: Model, request: ModelRequest, journal: TurnJournal, first_feedback: float
    ) -> None:
        self._model = model
        self._request = request
        self._journal = journal
        self._first_feedback = first_feedback
        self._timer: asyncio.TimerHandle | None = None
        self._preparing_at = 0.0
        self._retries = 0
        self.answer = Answer()

    async def run(self) -> None:
        """Consume the stream to its one terminal event; `answer` holds what came, also after a cancel."""
        stream = self._model.stream(self._request, on_sent=self._sent, on_wait=self._waits)
        try:
            async with aclosing(stream) as events:  # type: ignore[type-var]
                await self._consume(events)
        finally:
            self._stop_timer()
        if self.answer.end is None:
            self._end(StreamFailure(FailureKind.INCOMPLETE, "the model stream ended without saying so"))

    async def _consume(self, events: Any) -> None:
        journal, answer = self._journal, self.answer
        emit, text = journal.emit, answer.text
        others: dict[type, Callable[[Any], None]] = {
            ReasoningDelta: self._reasoning,
            ToolCallFragment: self._fragment,
            ToolCallComplete: self._call,
            UsageSnapshot: self._usage,
            Finish: self._end,
            StreamFailure: self._end,
        }
        async for event in events:
            if self._timer is not None:
                self._stop_timer()
            if type(event) is TextDelta:
                text.append(event.text)
                emit(event)
                if len(event.text) > _LONG_DELTA:
                    journal.weigh(len(event.text))
            else:
                others[type(event)](event)
                if answer.end is not None:
                    return
            if journal.crowded:
                await journal.room()

    def _sent(self) -> None:
        if self._timer is None and self._first_feedback > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._first_feedback, self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        self._journal.emit(Waiting("model", self._first_feedback))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _waits(self, what: str, seconds: float, failure: StreamFailure) -> None:
        self._stop_timer()
        self._retries += 1
        # `model.retry`, `model.fallback:NAME` and so on: the documented word is what stands before the colon.
        reason = what.partition(":")[0].replace(".", "-").replace("_", "-")
        text = f"{failure.kind.value}: {failure.message}"[:1000]
        self._journal.emit(Notice(NoticeSeverity.WARNING, reason, text))
        if seconds > 0:
            self._journal.emit(Waiting("retry", seconds, self._retries + 1))

    def _reasoning(self, event: ReasoningDelta) -> None:
        self.answer.reasoning.append(event.text)
        self._journal.emit(event)
        if len(event.text) > _LONG_DELTA:
            self._journal.weigh(len(event.text))

    def _fragment(self, event: ToolCallFragment) -> None:
        begun = self.answer.begun_tools
        if event.tool_name and event.tool_name not in begun:
            begun.append(event.tool_name)
        now = asyncio.get_running_loop().time()
        if now - self._preparing_at >= _PREPARING_INTERVAL:
            self._preparing_at = now
            self._journal.emit(ToolCallPreparing(event.tool_name, event.argument_bytes))

    def _call(self, event: ToolCallComplete) -> None:
        minted = ToolCallComplete(
            event.provider_call_id, event.tool_name, event.arguments_json, mint_id(), event.error
        )
        self.answer.calls.append(minted)
        self._journal.emit(minted)

    def _usage(self, event: UsageSnapshot) -> None:
        self.answer.usage = event.usage
        self._journal.emit_soon(event)

    def _end(self, event: Finish | StreamFailure) -> None:
        if isinstance(event, StreamFailure) and not event.partial_content and self.answer.text:
            event = StreamFailure(
                event.kind,
                event.message,
                event.provider,
                event.status_code,
                event.retry_after_seconds,
                event.retryable,
                self.answer.whole_text[-32768:],
            )
        self.answer.end = event
        # The step is committed, or the turn ended, right after it.
        self._journal.emit_soon(event)
