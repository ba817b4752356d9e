"""One tool call at the executor, driven to its one result over links and owners that may break.

A call is asked for again only while nothing says that it may have started; what may have started is joined,
or its end is told as unknown. Only a repeatable tool whose run is lost is run again, as another attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

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
    LookupAnswer,
)
from turnwire.runtime.domain.resumption import CallState
from turnwire.runtime.ports import OwnerLost, ToolExecutor

__all__ = ["Execution", "Tell"]

logger = logging.getLogger(__name__)

# How long a broken link to the executor is mended before a call is given up.
LINK_PATIENCE_SECONDS = 30.0
_LINK_DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0)
# Runs of a repeatable tool in one call; what loses its run so often is not run again.
MAX_ATTEMPTS = 3
_REFUSALS = (InvalidRequest, NotFound, WrongState, NotServed, Forbidden, Unauthenticated)


# Hears of the start of an attempt and of progress.
Tell = Callable[[ExecutionStarted | ExecutionProgress, int], None]


class Execution:
    """Runs one call to its result.

    Args:
        executor: the port.
        request: the call, with the attempt that was begun last.
        stopping: tells whether the turn is being stopped; then nothing is started any more.
        tell: hears of progress, and of the start of each attempt once.
        known: how far an earlier owner says that it came, None for a call that nobody has begun. Such a call
            is looked up before anything else: STARTED is then never started by its first key again.
    """

    def __init__(
        self,
        executor: ToolExecutor,
        request: ExecuteCall,
        stopping: Callable[[], bool],
        tell: Tell,
        known: CallState | None = None,
    ) -> None:
        self._executor = executor
        self._request = request
        self._stopping = stopping
        self._tell = tell
        # What an earlier owner began may run until the executor says that it does not.
        self._accepted = known is not None
        self._started = known is CallState.STARTED
        self._look_first = known is not None
        self._broken_at: float | None = None
        self._tries = 0

    async def run(self) -> ExecutionResult:
        """Return how the call ended, as far as anybody knows.

        Raises:
            OwnerLost: the executor has heard of a later owner of the turn.
        """
        while True:
            result = await self._once()
            if result is not None:
                return result
            if self._stopping() and not self._may_run:
                return ExecutionResult(ToolOutcome.NOT_STARTED, "", True)
            if self._broken_at is None:
                continue
            loop = asyncio.get_running_loop()
            if loop.time() - self._broken_at >= LINK_PATIENCE_SECONDS:
                return self._given_up()
            await asyncio.sleep(_LINK_DELAYS[min(self._tries, len(_LINK_DELAYS) - 1)])
            self._tries += 1
            if self._stopping() and not self._may_run:
                return ExecutionResult(ToolOutcome.NOT_STARTED, "", True)

    @property
    def _may_run(self) -> bool:
        return self._accepted or self._started

    async def _once(self) -> ExecutionResult | None:
        """Look the call up, or follow it; None when that did not bring its end."""
        if self._look_first:
            return await self._look()
        try:
            result = await self._follow()
            if result is not None and result.outcome is ToolOutcome.OUTCOME_UNKNOWN:
                return await self._unless_repeatable(result)
        except TurnwireError as error:
            result = await self._after_failure(error)
        if result is None:
            self._note_break()
        return result

    async def _unless_repeatable(self, result: ExecutionResult) -> ExecutionResult | None:
        """Return an unknown end, unless the run was lost and may be repeated."""
        try:
            answer = await self._executor.lookup(self._request)
        except TurnwireError:
            return result
        return self._lost(answer) if answer.state is ExecutionState.LOST else result

    def _note_break(self) -> None:
        if self._broken_at is None:
            self._broken_at = asyncio.get_running_loop().time()

    async def _look(self) -> ExecutionResult | None:
        """Ask what has become of a call that an earlier owner may have begun."""
        try:
            answer = await self._executor.lookup(self._request)
        except TurnwireError as error:
            logger.warning("executor.lookup_failed", extra={"reason": error.reason})
            self._note_break()
            return None
        result = self._judge(answer)
        if self._stopping() and answer.state is ExecutionState.ACCEPTED:
            # To follow it might start it: it is looked at until the stop that was asked for has its effect.
            self._note_break()
        else:
            self._look_first, self._broken_at, self._tries = False, None, 0
        return result

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
                self._tell(event, self._request.attempt)
        elif isinstance(event, ExecutionProgress):
            self._tell(event, self._request.attempt)

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
        return self._judge(answer)

    def _judge(self, answer: LookupAnswer) -> ExecutionResult | None:
        """Return the result if the executor's ledger decides it, else note what it says."""
        if answer.result is not None and answer.state is not ExecutionState.LOST:
            return answer.result
        match answer.state:
            case ExecutionState.LOST:
                return self._lost(answer)
            case ExecutionState.NOT_FOUND if self._started:
                # Its ledger has lost a start that it had told: to run it again might be the second time.
                return _unknown()
            case ExecutionState.NOT_FOUND:
                self._accepted = False
            case ExecutionState.ACCEPTED | ExecutionState.STARTED:
                self._accepted = True
        return None

    def _lost(self, answer: LookupAnswer) -> ExecutionResult | None:
        attempt = self._request.attempt
        if not answer.repeatable or attempt >= MAX_ATTEMPTS or self._stopping():
            return answer.result or _unknown()
        logger.warning("executor.run_lost", extra={"tool": self._request.tool_name, "attempt": attempt})
        self._request = replace(self._request, attempt=attempt + 1)
        self._accepted = self._started = False
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
