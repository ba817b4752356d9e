"""When a model fails before anything of it was seen, the next one of the list is asked the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

from turnwire.extend.llm import FailureKind, LlmEvent, ModelRequest, StreamFailure
from turnwire.runtime.models.base import (
    BatchedModel,
    OnSent,
    OnWait,
    Started,
    WrappedModel,
    begin,
    failure_in,
    has_visible,
)

__all__ = ["FallbackModel"]

logger = logging.getLogger(__name__)

# Another model would meet the same trouble, or should not be asked for what a filter refused.
_FINAL = frozenset({FailureKind.CONTEXT_OVERFLOW, FailureKind.CONTENT_FILTER, FailureKind.INVALID_REQUEST})
_UNKNOWN_MODEL = 404


class FallbackModel(WrappedModel):
    """The first of `models`, and the others in order when those before failed unseen.

    Each is expected to do its own repeats. `on_wait` hears `model.fallback:NAME` with no wait.
    """

    def __init__(self, models: Sequence[BatchedModel]) -> None:
        if not models:
            raise ValueError("a fallback list holds at least one model")
        super().__init__(models[0].name, models[0].provider)
        self._models = tuple(models)

    async def start(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        """Begin with the first model that shows anything, or the last one."""
        last = self._models[-1]
        for model, following in pairwise(self._models):
            begun, rest = await begin(await model.start(request, on_sent=on_sent, on_wait=on_wait))
            failure = failure_in(begun[-1]) if begun else None
            if failure is None or not _passes_on(failure, begun):
                return begun, rest
            await rest.aclose()
            self._report(model, following, failure, on_wait)
        return await last.start(request, on_sent=on_sent, on_wait=on_wait)

    def _report(
        self, model: BatchedModel, following: BatchedModel, failure: StreamFailure, on_wait: OnWait | None
    ) -> None:
        extra = {"model": model.name, "next": following.name, "kind": failure.kind.value}
        logger.warning("model.fallback", extra=extra)
        if on_wait is not None:
            on_wait(f"model.fallback:{following.name}", 0.0, failure)


def _passes_on(failure: StreamFailure, begun: list[list[LlmEvent]]) -> bool:
    if any(map(has_visible, begun)):
        return False
    return failure.kind not in _FINAL or failure.status_code == _UNKNOWN_MODEL
