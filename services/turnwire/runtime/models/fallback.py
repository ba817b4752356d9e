"""When a model fails, the next one of the list is asked the same; what was seen of the first is void then."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import aclosing

from turnwire.extend.llm import FailureKind, LlmEvent, ModelRequest, StreamFailure
from turnwire.runtime.models.base import (
    BatchedModel,
    Batches,
    OnSent,
    OnWait,
    Started,
    WrappedModel,
    begin,
    failure_in,
    has_visible,
    usage_in,
)
from turnwire.runtime.ports import RequestRefusal

__all__ = ["FallbackModel"]

logger = logging.getLogger(__name__)

# Another model would meet the same trouble, or should not be asked for what a filter refused.
_FINAL = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.CONTENT_FILTER, FailureKind.INVALID_REQUEST})
_UNKNOWN_MODEL = 404

# What has come of an answer, the rest of it, and which model gives it.
_Chosen = tuple[list[list[LlmEvent]], Batches, int]


class FallbackModel(WrappedModel):
    """The first of `models`, and the others in order when those before failed.

    Each is expected to do its own repeats. `on_wait` hears `model.fallback:NAME` with no wait.

    Args:
        visible: also goes on to the next model when something of the answer was given; it is void then.
    """

    def __init__(self, models: Sequence[BatchedModel], *, visible: bool = False) -> None:
        if not models:
            raise ValueError("a fallback list holds at least one model")
        super().__init__(models[0].name, models[0].provider)
        self._models = tuple(models)
        self._visible = visible

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model."""
        return self._models[0].refusal(request)

    async def start(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        """Begin with the first model that shows anything, or the last one."""
        begun, rest, index = await self._start_from(0, request, on_sent, on_wait)
        if not self._visible or on_wait is None or index == len(self._models) - 1:
            return begun, rest
        # What has begun goes into the stream that closes the model below: one never asked for closes nothing.
        return [], self._go_on((begun, rest, index), request, on_sent, on_wait)

    async def _start_from(
        self, index: int, request: ModelRequest, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> _Chosen:
        """Begin with the first model from `index` on that shows anything; the last number tells which."""
        while True:
            model = self._models[index]
            started = await model.start(request, on_sent=on_sent, on_wait=on_wait)
            if index == len(self._models) - 1:
                return *started, index
            begun, rest = await begin(started)
            failure = failure_in(begun[-1]) if begun else None
            # What has begun was given to nobody yet.
            seen = not self._visible and any(map(has_visible, begun))
            if failure is None or seen or not _passes_on(failure):
                return begun, rest, index
            await rest.aclose()
            self._report(index, failure, begun, on_wait)
            index += 1

    async def _go_on(
        self, chosen: _Chosen, request: ModelRequest, on_sent: OnSent | None, on_wait: OnWait
    ) -> Batches:
        """Yield an answer that somebody sees, and that of a later model in its place when it breaks."""
        begun, rest, index = chosen
        while True:
            broken = False
            async with aclosing(rest):
                for batch in begun:
                    yield batch
                async for batch in rest:
                    last = batch[-1]
                    if type(last) is StreamFailure and index < len(self._models) - 1 and _passes_on(last):
                        broken = True
                        self._report(index, last, [batch], on_wait)
                        break
                    yield batch
            if not broken:
                return
            begun, rest, index = await self._start_from(index + 1, request, on_sent, on_wait)

    def _report(
        self, index: int, failure: StreamFailure, lost: list[list[LlmEvent]], on_wait: OnWait | None
    ) -> None:
        model, following = self._models[index], self._models[index + 1]
        extra = {"model": model.name, "next": following.name, "kind": failure.kind.value}
        logger.warning("model.fallback", extra=extra)
        if on_wait is not None:
            on_wait(f"model.fallback:{following.name}", 0.0, failure, usage_in(lost), following)


def _passes_on(failure: StreamFailure) -> bool:
    return failure.kind not in _FINAL or failure.status_code == _UNKNOWN_MODEL
