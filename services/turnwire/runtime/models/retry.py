"""A failed call is repeated: unseen, or, where that is allowed, with what was seen of it declared void.

Waits are plain sleeps of the consumer's task, so cancelling it ends them at once. A provider that names a
time is given that time; one that asks for more than the longest allowed wait gets no repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from turnwire.extend.llm import LlmEvent, ModelRequest, StreamFailure, TokenUsage
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
    nothing,
    usage_in,
)
from turnwire.runtime.models.breaker import Breaker
from turnwire.runtime.models.settings import RetrySettings
from turnwire.runtime.ports import RequestRefusal

__all__ = ["RetryModel"]

logger = logging.getLogger(__name__)


class _Again(Exception):
    """An attempt failed, and what it gave is void; `usage` is what nobody else has heard of it."""

    def __init__(self, failure: StreamFailure, usage: TokenUsage | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.usage = usage


class _Call:
    """One call with all its attempts."""

    __slots__ = ("made", "on_sent", "on_wait", "request")

    def __init__(self, request: ModelRequest, on_sent: OnSent | None, on_wait: OnWait | None) -> None:
        self.request = request
        self.on_sent = on_sent
        self.on_wait = on_wait
        self.made = 0


class RetryModel(WrappedModel):
    """Repeats calls of `inner` that failed in passing.

    Args:
        breaker: the circuit that refuses calls to that provider for a while.
        has_next: another model is asked when this one fails, so nobody waits for a circuit to close.
    """

    def __init__(
        self,
        inner: BatchedModel,
        settings: RetrySettings,
        breaker: Breaker | None = None,
        *,
        has_next: bool = False,
    ) -> None:
        super().__init__(inner.name, inner.provider)
        self._inner = inner
        self._settings = settings
        self._breaker = breaker
        self._has_next = has_next
        self._backoff = wait_random_exponential(
            multiplier=settings.first_delay_seconds, max=settings.longest_delay_seconds
        )

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model."""
        return self._inner.refusal(request)

    async def start(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Started:
        """Begin with the first attempt that shows anything, or the last one."""
        call = _Call(request, on_sent, on_wait)
        try:
            started = await self._attempt(call)
        except _Again as first:
            # Only a call that failed needs more than one try, and so the machinery for it.
            started = await self._repeat(first, call)
        # What has begun goes into the stream that closes the model below: one never asked for closes nothing.
        return started if not self._may_void(call) else ([], self._go_on(*started, call))

    def _may_void(self, call: _Call) -> bool:
        """Whether an attempt may be repeated of which something was given: somebody has to hear of that."""
        left = call.made < self._settings.attempts
        return left and self._settings.visible and call.on_wait is not None

    async def _attempt(self, call: _Call) -> Started:
        call.made += 1
        started = await self._inner.start(call.request, on_sent=call.on_sent, on_wait=call.on_wait)
        begun, rest = await begin(started)
        failure = failure_in(begun[-1]) if begun else None
        # What has begun was given to nobody yet.
        unseen = self._settings.visible or not any(map(has_visible, begun))
        if failure is not None and unseen and self._passing(failure, call):
            await rest.aclose()
            raise _Again(failure, usage_in(begun))
        return begun, rest

    async def _go_on(self, begun: list[list[LlmEvent]], rest: Batches, call: _Call) -> Batches:
        """Yield an answer that somebody sees, and others in its place when it breaks."""
        while True:
            broken: _Again | None = None
            async with aclosing(rest):
                for batch in begun:
                    yield batch
                async for batch in rest:
                    # Once for each read of the network: no call but for a failure.
                    last = batch[-1]
                    if type(last) is StreamFailure and self._passing(last, call):
                        broken = _Again(last, usage_in([batch]))
                        break
                    yield batch
            if broken is None:
                return
            begun, rest = await self._repeat(broken, call)

    async def _repeat(self, failed: _Again, call: _Call) -> Started:
        pending: list[_Again] = [failed]
        retrying = AsyncRetrying(
            stop=lambda _: call.made >= self._settings.attempts,
            wait=self._wait,
            retry=retry_if_exception_type(_Again),
            before_sleep=self._report(call),
            reraise=True,
        )

        async def attempt() -> Started:
            # The first attempt has been made already: tenacity waits after it.
            if pending:
                raise pending.pop()
            return await self._attempt(call)

        try:
            started: Started = await retrying(attempt)
        except _Again as last:
            return [[last.failure]], nothing()
        return started

    def _passing(self, failure: StreamFailure, call: _Call) -> bool:
        """Whether another attempt may succeed where this one failed, and is to be made."""
        if call.made >= self._settings.attempts or not failure.retryable:
            return False
        refused = self._refusing_for
        asked = max(failure.retry_after_seconds or 0.0, refused)
        return asked <= self._settings.longest_retry_after_seconds and not (self._has_next and refused)

    @property
    def _refusing_for(self) -> float:
        return self._breaker.refusing_for if self._breaker is not None else 0.0

    def _wait(self, state: RetryCallState) -> float:
        failed = _failed(state)
        asked = failed.failure.retry_after_seconds if failed is not None else None
        own = self._backoff(state)
        if (refused := self._refusing_for) > 0:
            asked = max(asked or 0.0, refused)
        # A little more than asked, so that many callers do not come back in the same moment.
        return own if asked is None else asked + min(own, 0.1 * asked)

    def _report(self, call: _Call) -> Callable[[RetryCallState], None]:
        def report(state: RetryCallState) -> None:
            failed = _failed(state)
            if failed is None:
                return
            failure = failed.failure
            what = "model.circuit" if self._refusing_for > 0 else "model.retry"
            extra = {
                "model": self.name,
                "attempt": call.made,
                "kind": failure.kind.value,
                "status": failure.status_code,
                "wait_seconds": round(state.upcoming_sleep, 3),
            }
            logger.warning("model.retry", extra=extra)
            if call.on_wait is not None:
                call.on_wait(what, state.upcoming_sleep, failure, failed.usage)

        return report


def _failed(state: RetryCallState) -> _Again | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error if isinstance(error, _Again) else None
