"""One model call: events from the model to the log, assembled on the way into the answer of the step.

This is the hot path: a text delta costs one list append and one log append. When a call is repeated after
readers have seen something of it, that is voided for them: what is kept is of the last attempt alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from turnwire.core.ids import mint_id
from turnwire.extend.events import (
    Notice,
    NoticeSeverity,
    StepReset,
    StepStarted,
    ToolCallPreparing,
    TurnEvent,
    Waiting,
)
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
from turnwire.runtime.engine.attempts import AttemptCounter, SpentAttempt
from turnwire.runtime.engine.estimates import BYTES_PER_TOKEN
from turnwire.runtime.ports import Model

__all__ = ["Answer", "ModelCall", "StepPlace", "StreamJournal"]

# Characters above which a delta is weighed; the log takes smaller ones for what most events are.
_LONG_DELTA = 1024
# A fragment of arguments is told at most this often.
_PREPARING_INTERVAL = 0.25
# What a call may wait for when an attempt at it is over, and the cause that voids what was seen of it.
_REPEATS = {"model.retry": "retry", "model.circuit": "retry", "model.fallback": "model-fallback"}


@dataclass(slots=True)
class Answer:
    """What a model call gave, whole or up to where it stopped; `provider` is whose answer it is."""

    provider: str = ""
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

    def clear(self) -> None:
        """Forget what came: another attempt begins."""
        self.text.clear()
        self.reasoning.clear()
        self.calls.clear()
        self.begun_tools.clear()
        self.usage = self.end = None


@dataclass(slots=True)
class StepPlace:
    """Where in its turn a call is made; `attempt` grows when what readers saw is voided."""

    step: int = 1
    max_steps: int = 0
    attempt: int = 1


class StreamJournal(Protocol):
    """What of a journal a model call needs."""

    @property
    def next_sequence(self) -> int: ...

    @property
    def crowded(self) -> bool: ...

    def at(self, *, step: int, step_attempt: int = 1, turn_attempt: int = 1) -> None: ...

    def emit(self, event: TurnEvent) -> int: ...

    def emit_soon(self, event: TurnEvent) -> int: ...

    def weigh(self, size: int) -> None: ...

    async def room(self) -> None: ...


class ModelCall:
    """Streams one model call into a journal, with all its attempts.

    Args:
        bytes_per_token: how the usage of attempts is estimated that nobody reported, 0 = not at all.
    """

    def __init__(
        self,
        model: Model,
        request: ModelRequest,
        journal: StreamJournal,
        first_feedback: float,
        place: StepPlace | None = None,
        bytes_per_token: float = BYTES_PER_TOKEN,
    ) -> None:
        self._model = model
        self._request = request
        self._journal = journal
        self._first_feedback = first_feedback
        self._timer: asyncio.TimerHandle | None = None
        self._preparing_at = 0.0
        self._retries = 0
        # Until the first event of an attempt comes; then the sequence of that event.
        self._fresh = True
        self._first = 0
        # The sequence of the end of an attempt, and whether that is still to be told.
        self._last = 0
        self._untold = False
        self._attempts = AttemptCounter(model.name, request, bytes_per_token)
        self.place = place or StepPlace()
        self.answer = Answer(model.provider)

    def spent(self) -> list[SpentAttempt]:
        """Return what each attempt used, that which runs or has ended last among them."""
        return self._attempts.all(self.answer)

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
            if self._fresh:
                self._begin()
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

    def _begin(self) -> None:
        self._fresh = False
        self._first = self._journal.next_sequence
        self._stop_timer()

    def _sent(self) -> None:
        self._attempts.sent = True
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

    def _waits(
        self,
        what: str,
        seconds: float,
        failure: StreamFailure | None,
        usage: TokenUsage | None = None,
        following: Model | None = None,
    ) -> None:
        self._stop_timer()
        # `model.retry`, `model.fallback:NAME` and so on: the documented word is what stands before the colon.
        kind = what.partition(":")[0]
        if failure is None:
            self._journal.emit(Waiting(kind.replace(".", "-"), seconds))
            return
        self._retries += 1
        text = f"{failure.kind.value}: {failure.message}"[:1000]
        reason = "model-retry" if kind == "model.circuit" else kind.replace(".", "-").replace("_", "-")
        notice = Notice(NoticeSeverity.WARNING, reason, text)
        if kind in _REPEATS:
            self._attempts.close(self.answer, failure, usage, following.name if following else "")
            # An attempt that somebody has seen ends as every stream does.
            self._last = self._journal.emit_soon(self._with_partial(failure)) if self._first else 0
            self._begin_again(_REPEATS[kind], notice)
            if following is not None:
                self.answer.provider = following.provider
        else:
            self._journal.emit(notice)
        if seconds > 0:
            waits = "circuit-breaker" if kind == "model.circuit" else "retry"
            self._journal.emit(Waiting(waits, seconds, self._retries + 1))

    def _begin_again(self, cause: str, notice: Notice) -> None:
        """Void what readers have seen of the attempt that failed, if they have, and stamp what follows."""
        journal, place = self._journal, self.place
        journal.emit(notice)
        if self._first:
            journal.emit(StepReset(self._first, self._last, cause))
            place.attempt += 1
            journal.at(step=place.step, step_attempt=place.attempt)
            journal.emit_soon(StepStarted(place.step, place.max_steps, self._attempts.model))
        self.answer.clear()
        self._fresh, self._first = True, 0

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
        if isinstance(event, StreamFailure):
            event = self._with_partial(event)
            if event.kind is FailureKind.CONTEXT_OVERFLOW and self._first == self._journal.next_sequence:
                # It came alone: whoever made the call has it told, or repeated with a shorter request.
                self._first, self._untold = 0, True
                self.answer.end = event
                return
        self.answer.end = event
        # The step is committed, or the turn ended, right after it.
        self._last = self._journal.emit_soon(event)

    def tell(self) -> None:
        """Tell readers how the call ended, where they do not know it yet."""
        if self._untold and self.answer.end is not None:
            self._untold = False
            self._journal.emit_soon(self.answer.end)

    def shorten(self, request: ModelRequest, text: str) -> None:
        """Have a request that was too long for the model repeated by the next `run`, as this one.

        Args:
            text: tells readers why.
        """
        failure = self.answer.end
        assert isinstance(failure, StreamFailure)
        self._attempts.close(self.answer, failure, None, "")
        self._begin_again("context-overflow", Notice(NoticeSeverity.WARNING, "context-overflow", text))
        self._untold = False
        self._request = self._attempts.request = request

    def _with_partial(self, failure: StreamFailure) -> StreamFailure:
        if failure.partial_content or not self.answer.text:
            return failure
        return replace(failure, partial_content=self.answer.whole_text[-32768:])
