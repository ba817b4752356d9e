"""A failed call is repeated only while nobody has seen anything of it; after that the failure is the answer.

Waits are plain sleeps of the consumer's task, so cancelling it ends them at once. A provider that names a
time is given that time; one that asks for more than the longest allowed wait gets no repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from turnwire.extend.llm import LlmEvent, ModelRequest, StreamFailure
from turnwire.runtime.models.base import (
    BatchedModel,
    Batches,
    OnSent,
    OnWait,
    begin,
    failure_in,
    has_visible,
)
from turnwire.runtime.models.settings import RetrySettings

__all__ = ["RetryModel"]

logger = logging.getLogger(__name__)


class _Again(Exception):
    """The call failed before anything was visible."""

    def __init__(self, failure: StreamFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class RetryModel(BatchedModel):
    """Repeats calls of `inner` that failed in passing."""

    def __init__(self, inner: BatchedModel, settings: RetrySettings) -> None:
        super().__init__(inner.name, inner.provider)
        self._inner = inner
        self._settings = settings
        self._backoff = wait_random_exponential(
            multiplier=settings.first_delay_seconds, max=settings.longest_delay_seconds
        )

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Yield what the first attempt that shows anything, or the last one, gives."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._settings.attempts),
            wait=self._wait,
            retry=retry_if_exception_type(_Again),
            before_sleep=self._report(on_wait),
            reraise=True,
        )

        def start() -> Batches:
            return self._inner.batches(request, on_sent=on_sent, on_wait=on_wait)

        try:
            found: tuple[list[list[LlmEvent]], Batches] = await retrying(_begin, start, self._passing)
        except _Again as last:
            yield [last.failure]
            return
        begun, batches = found
        async with aclosing(batches):
            for batch in begun:
                yield batch
            async for batch in batches:
                yield batch

    def _passing(self, failure: StreamFailure) -> bool:
        asked = failure.retry_after_seconds or 0.0
        return failure.retryable and asked <= self._settings.longest_retry_after_seconds

    def _wait(self, state: RetryCallState) -> float:
        failure = _failure_of(state)
        asked = failure.retry_after_seconds if failure is not None else None
        own = self._backoff(state)
        # A little more than asked, so that many callers do not come back in the same moment.
        return own if asked is None else asked + min(own, 0.1 * asked)

    def _report(self, on_wait: OnWait | None) -> Callable[[RetryCallState], None]:
        def report(state: RetryCallState) -> None:
            failure = _failure_of(state)
            if failure is None:
                return
            extra = {
                "model": self.name,
                "attempt": state.attempt_number,
                "kind": failure.kind.value,
                "status": failure.status_code,
                "wait_seconds": round(state.upcoming_sleep, 3),
            }
            logger.warning("model.retry", extra=extra)
            if on_wait is not None:
                on_wait("model.retry", state.upcoming_sleep, failure)

        return report


async def _begin(
    start: Callable[[], Batches], passing: Callable[[StreamFailure], bool]
) -> tuple[list[list[LlmEvent]], Batches]:
    """Read until something is visible or the stream ends; raise `_Again` where a repeat makes sense."""
    batches = start()
    begun = await begin(batches)
    failure = failure_in(begun[-1]) if begun else None
    if failure is not None and passing(failure) and not any(map(has_visible, begun)):
        await batches.aclose()
        raise _Again(failure)
    return begun, batches


def _failure_of(state: RetryCallState) -> StreamFailure | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error.failure if isinstance(error, _Again) else None
