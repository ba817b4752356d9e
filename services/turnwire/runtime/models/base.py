"""Every model here makes batches of events; the port's stream of single events is cut from them in one place.

A batch is what one read of the network completed, so wrappers (retry, fallback, recording) cost once per read
and not once per token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from turnwire.extend.llm import (
    Finish,
    LlmEvent,
    ModelRequest,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    TokenUsage,
    ToolCallComplete,
    ToolCallFragment,
    UsageSnapshot,
)
from turnwire.runtime.ports import RequestRefusal, WaitObserver

__all__ = [
    "BatchedModel",
    "Batches",
    "OnSent",
    "OnWait",
    "Started",
    "WrappedModel",
    "begin",
    "failure_in",
    "has_visible",
    "is_terminal",
    "nothing",
    "usage_in",
]

OnSent = Callable[[], None]
OnWait = WaitObserver
Batches = AsyncGenerator[list[LlmEvent], None]

# What has come so far, and the stream that goes on after it.
Started = tuple[list[list[LlmEvent]], Batches]

_VISIBLE = (TextDelta, ReasoningDelta, ToolCallFragment, ToolCallComplete)


class BatchedModel(ABC):
    """A model of some provider.

    Its streams end with exactly one `Finish` or `StreamFailure` and never raise for trouble of a provider.
    Closing a stream, or cancelling its consumer, closes the connection at once.
    """

    def __init__(self, name: str, provider: str) -> None:
        self._name = name
        self._provider = provider

    @property
    def name(self) -> str:
        """`provider:model`."""
        return self._name

    @property
    def provider(self) -> str:
        """Name of the provider, for what must be replayed to it later."""
        return self._provider

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model; None where it can."""
        return None

    @abstractmethod
    def batches(self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None) -> Batches:
        """Yield events in non-empty batches; the last event of the last one is the terminal one."""

    async def start(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        """Begin: the batches that have come so far, and the rest, which whoever gets it closes."""
        return [], self.batches(request, on_sent=on_sent, on_wait=on_wait)

    async def stream(
        self, request: ModelRequest, *, on_sent: OnSent | None = None, on_wait: OnWait | None = None
    ) -> AsyncGenerator[LlmEvent, None]:
        """Yield events one by one.

        Args:
            on_sent: called when the request has really been sent, once per attempt.
            on_wait: told of each wait before a repeated attempt, and of each change to another model.
        """
        begun, rest = await self.start(request, on_sent=on_sent, on_wait=on_wait)
        async with aclosing(rest):
            for batch in begun:
                for event in batch:
                    yield event
            async for batch in rest:
                for event in batch:
                    yield event


class WrappedModel(BatchedModel):
    """A model over others: it chooses whose stream is given, and then is out of its way."""

    @abstractmethod
    async def start(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        """Begin with the stream that was chosen."""

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Yield the stream that was chosen."""
        begun, rest = await self.start(request, on_sent=on_sent, on_wait=on_wait)
        async with aclosing(rest):
            for batch in begun:
                yield batch
            async for batch in rest:
                yield batch


def is_terminal(batch: list[LlmEvent]) -> bool:
    """Whether the stream ends with this batch."""
    return bool(batch) and isinstance(batch[-1], (Finish, StreamFailure))


def failure_in(batch: list[LlmEvent]) -> StreamFailure | None:
    """The failure that ends the stream with this batch, if one does."""
    last = batch[-1] if batch else None
    return last if isinstance(last, StreamFailure) else None


def has_visible(batch: list[LlmEvent]) -> bool:
    """Whether somebody may have seen something of this batch, so that it cannot be taken back silently."""
    return any(isinstance(event, _VISIBLE) for event in batch)


def usage_in(batches: list[list[LlmEvent]]) -> TokenUsage | None:
    """The last report of usage among these batches, if there is one."""
    found = [event.usage for batch in batches for event in batch if isinstance(event, UsageSnapshot)]
    return found[-1] if found else None


async def nothing() -> Batches:
    """A stream that has ended already."""
    batches: list[list[LlmEvent]] = []
    for batch in batches:
        yield batch


async def begin(started: Started) -> Started:
    """Read on until something is visible or the stream ends: what came so far can still be taken back."""
    begun, rest = started
    if not any(has_visible(batch) or is_terminal(batch) for batch in begun):
        async for batch in rest:
            begun.append(batch)
            if has_visible(batch) or is_terminal(batch):
                break
    return begun, rest
