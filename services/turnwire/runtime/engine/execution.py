"""One tool call at the executor, driven to its one result over a link that may break.

A call is asked for again only while nothing says that it may have started; what may have started is joined,
or its end is told as unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from turnwire.core.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    NotServed,
    TurnwireError,
    Unauthenticated,
    WrongState,
)
from turnwire.extend.events import ToolOutcome
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionAccepted,
    ExecutionEvent,
    ExecutionProgress,
    ExecutionResult,
    ExecutionStarted,
    ExecutionState,
)
from turnwire.runtime.ports import OwnerLost, ToolExecutor

__all__ = ["Execution"]

logger = logging.getLogger(__name__)

# How long a broken link to the executor is mended before a call is given up.
LINK_PATIENCE_SECONDS = 30.0
_LINK_DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0)
_REFUSALS = (InvalidRequest, NotFound, WrongState, NotServed, Forbidden, Unauthenticated)


class Execution:
    """Runs one call to its result.

    Args:
        executor: the port.
        request: the call.
        stopping: tells whether the turn is being stopped; then nothing is started any more.
        tell: hears of the start and of progress, of the start once.
    """

    def __init__(
        self,
        executor: ToolExecutor,
        request: ExecuteCall,
        stopping: Callable[[], bool],
        tell: Callable[[ExecutionStarted | ExecutionProgress], None],
    ) -> None:
        self._executor = executor
        self._request = request
        self._stopping = stopping
        self._tell = tell
        self._accepted = False
        self._started = False
        self._broken_at: float | None = None
        self._tries = 0

    async def run(self) -> ExecutionResult:
        """Return how the call ended, as far as anybody knows.

        Raises:
            OwnerLost: the executor has heard of a later owner of the turn.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                result = await self._follow()
            except TurnwireError as error:
                result = await self._after_failure(error)
            if result is not None:
                return result
            if self._broken_at is None:
                self._broken_at = loop.time()
            if loop.time() - self._broken_at >= LINK_PATIENCE_SECONDS:
                return self._given_up()
            await asyncio.sleep(_LINK_DELAYS[min(self._tries, len(_LINK_DELAYS) - 1)])
            self._tries += 1
            if self._stopping() and not self._may_run:
                return ExecutionResult(ToolOutcome.NOT_STARTED, "", True)

    @property
    def _may_run(self) -> bool:
        return self._accepted or self._started

    async def _follow(self) -> ExecutionResult | None:
        """Start or join the call and hear it out; None when the stream ends without a result."""
        async with aclosing(self._executor.execute(self._request)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, ExecutionResult):
                    return event
                self._broken_at, self._tries = None, 0
                self._take(event)
        return None

    def _take(self, event: ExecutionEvent) -> None:
        if isinstance(event, ExecutionAccepted):
            self._accepted = True
        elif isinstance(event, ExecutionStarted):
            # A call that is joined tells its start again.
            if not self._started:
                self._started = True
                self._tell(event)
        elif isinstance(event, ExecutionProgress):
            self._tell(event)

    async def _after_failure(self, error: TurnwireError) -> ExecutionResult | None:
        """Return the result if the failure decides it or the executor has it."""
        request = self._request
        if error.reason == "EPOCH_STALE":
            raise OwnerLost(request.turn) from error
        if self._refused(error):
            if self._may_run:
                return _unknown()
            return ExecutionResult(ToolOutcome.FAILED, f"The call was refused: {error.message}", True)
        logger.warning("executor.call_failed", extra={"reason": error.reason, "tool": request.tool_name})
        try:
            answer = await self._executor.lookup(request)
        except TurnwireError:
            return None
        if answer.result is not None:
            return answer.result
        match answer.state:
            case ExecutionState.LOST:
                return _unknown()
            case ExecutionState.NOT_FOUND if self._started:
                # Its ledger has lost a start that it had told: to run it again might be the second time.
                return _unknown()
            case ExecutionState.NOT_FOUND:
                self._accepted = False
            case ExecutionState.ACCEPTED:
                self._accepted = True
            case ExecutionState.STARTED:
                self._accepted = True
        return None

    def _refused(self, error: TurnwireError) -> bool:
        """Tell whether the executor will never take this call."""
        if error.reason == "MESSAGE_TOO_LARGE":
            return True
        known = error.reason == "EXECUTION_EXISTS"
        return isinstance(error, _REFUSALS) and not known and not self._may_run

    def _given_up(self) -> ExecutionResult:
        if self._may_run:
            return _unknown()
        text = "The tool executor cannot be reached; try again later."
        return ExecutionResult(ToolOutcome.NOT_STARTED, text, True)


def _unknown() -> ExecutionResult:
    return ExecutionResult(ToolOutcome.OUTCOME_UNKNOWN, "", True)
