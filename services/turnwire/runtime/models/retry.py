"""A failed call is repeated only while nobody has seen anything of it; after that the failure is the answer.

Waits are plain sleeps of the consumer's task, so cancelling it ends them at once. A provider that names a
time is given that time; one that asks for more than the longest allowed wait gets no repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from turnwire.extend.llm import LlmEvent, ModelRequest, StreamFailure
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
)
from turnwire.runtime.models.settings import RetrySettings

__all__ = ["RetryModel"]

logger = logging.getLogger(__name__)


class _Again(Exception):
    """The call failed before anything was visible."""

    def __init__(self, failure: StreamFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class RetryModel(WrappedModel):
    """Repeats calls of `inner` that failed in passing."""

    def __init__(self, inner: BatchedModel, settings: RetrySettings) -> None:
        super().__init__(inner.name, inner.provider)
        self._inner = inner
        self._settings = settings
        self._backoff = wait_random_exponential(
            multiplier=settings.first_delay_seconds, max=settings.longest_delay_seconds
        )

    async def start(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        """Begin with the first attempt that shows anything, or the last one."""
        try:
            return await self._attempt(request, on_sent, on_wait)
        except _Again as first:
            if self._settings.attempts == 1:
                return [[first.failure]], _nothing()
            failure = first
        # Only a call that failed needs more than one try, and so the machinery for it.
        return await self._repeat(failure, request, on_sent, on_wait)

    async def _attempt(
        self, request: ModelRequest, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        begun, rest = await begin(await self._inner.start(request, on_sent=on_sent, on_wait=on_wait))
        failure = failure_in(begun[-1]) if begun else None
        if failure is not None and self._passing(failure) and not any(map(has_visible, begun)):
            await rest.aclose()
            raise _Again(failure)
        return begun, rest

    async def _repeat(
        self, first: _Again, request: ModelRequest, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        pending: list[_Again] = [first]
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._settings.attempts),
            wait=self._wait,
            retry=retry_if_exception_type(_Again),
            before_sleep=self._report(on_wait),
            reraise=True,
        )

        async def attempt() -> Started:
            # The first attempt has been made already: tenacity counts it and waits after it.
            if pending:
                raise pending.pop()
            return await self._attempt(request, on_sent, on_wait)

        try:
            started: Started = await retrying(attempt)
        except _Again as last:
            return [[last.failure]], _nothing()
        return started

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


async def _nothing() -> Batches:
    """A stream that has ended already."""
    batches: list[list[LlmEvent]] = []
    for batch in batches:
        yield batch


def _failure_of(state: RetryCallState) -> StreamFailure | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error.failure if isinstance(error, _Again) else None
