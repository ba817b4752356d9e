"""The tool calls of one step: decided in the model's order, run in parallel where they may, told truthfully.

Calls that are PARALLEL share a pool; an EXCLUSIVE call waits for those before it and holds those after it.
Each call has exactly one result, whatever happens to the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from turnwire.core.errors import TurnwireError
from turnwire.extend.events import (
    Notice,
    NoticeSeverity,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
    ToolOutcome,
    Waiting,
)
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionProgress,
    ExecutionResult,
    ExecutionStarted,
    ExecutionState,
    ToolInfo,
)
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.engine import templates
from turnwire.runtime.engine.cancel import CancelToken, stop_task
from turnwire.runtime.ports import OwnerLost, ToolExecutor, TurnJournal

__all__ = ["CallRules", "PlannedCall", "ToolBatch"]

logger = logging.getLogger(__name__)

# Calls that run beside each other in one turn.
POOL_SIZE = 5
# How long the turn waits for the results of calls that it has asked to stop.
STOP_WAIT_SECONDS = 5.0
# How long a broken link to the executor is mended before a call is given up.
LINK_PATIENCE_SECONDS = 30.0
_LINK_DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0)
# A turn says that its calls wait for room in the pool after so long.
_POOL_FEEDBACK_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of the step. `refusal`, when not empty, is its error result and it is not executed."""

    part: CallPart
    tool: ToolInfo | None
    refusal: str = ""

    @property
    def parallel(self) -> bool:
        """Whether it may run beside its neighbours."""
        return self.tool is not None and self.tool.parallel


@dataclass(frozen=True, slots=True)
class CallRules:
    """What every call of the turn shares."""

    agent: str
    tool_timeout: float
    traceparent: str = ""


class ToolBatch:
    """Runs the calls of one step and records each result as it comes."""

    def __init__(
        self,
        executor: ToolExecutor,
        journal: TurnJournal,
        token: CancelToken,
        rules: CallRules,
        calls: Sequence[PlannedCall],
    ) -> None:
        self._executor = executor
        self._journal = journal
        self._token = token
        self._rules = rules
        self._calls = calls
        self._running: dict[str, ExecuteCall] = {}
        self._settled: dict[str, CallPart] = {}
        self._lost: OwnerLost | None = None

    async def run(self) -> Sequence[CallPart]:
        """Run every call to its one result and return them in the model's order.

        Raises:
            AgentControlError: the turn was stopped; every call has its result all the same.
            OwnerLost: another owner has the turn.
        """
        task = asyncio.create_task(self._run_all(), name="turn.tools")
        stopped = asyncio.Event()
        self._token.on_fire(stopped.set)
        waiter = asyncio.create_task(stopped.wait(), name="turn.tools.stop")
        try:
            await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await self._stop(task)
        finally:
            waiter.cancel()
            task.cancel()
            self._token.off_fire(stopped.set)
        self._close_rest()
        if task.done() and not task.cancelled() and task.exception() is not None:
            raise _unwrap(task.exception())
        return [self._settled[c.part.call_id] for c in self._calls]

    async def _run_all(self) -> None:
        group: list[PlannedCall] = []
        for call in self._calls:
            if call.refusal:
                self._settle(call.part, _refused(call))
                continue
            if call.parallel:
                group.append(call)
                continue
            await self._run_group(group)
            group = []
            await self._run_group([call])
        await self._run_group(group)

    async def _run_group(self, group: Sequence[PlannedCall]) -> None:
        if len(group) == 1:
            await self._run_one(group[0])
            return
        pool = asyncio.Semaphore(POOL_SIZE)
        async with asyncio.TaskGroup() as tasks:
            for call in group:
                tasks.create_task(self._pooled(pool, call), name=f"tool.call {call.part.tool_name}")

    async def _pooled(self, pool: asyncio.Semaphore, call: PlannedCall) -> None:
        if not pool.locked():
            async with pool:
                await self._run_one(call)
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(
            _POOL_FEEDBACK_SECONDS, self._journal.emit, Waiting("tool-pool", _POOL_FEEDBACK_SECONDS)
        )
        try:
            await pool.acquire()
        finally:
            timer.cancel()
        try:
            await self._run_one(call)
        finally:
            pool.release()

    async def _run_one(self, call: PlannedCall) -> None:
        if self._token.fired:
            return
        assert call.tool is not None
        part = call.part
        request = ExecuteCall(
            scope=self._journal.key.scope,
            execution_id=f"{self._journal.key.name}/{part.call_id}",
            thread=self._journal.key.thread.name,
            turn=self._journal.key.name,
            call_id=part.call_id,
            agent=self._rules.agent,
            attempt=1,
            epoch=self._journal.epoch,
            tool_name=part.tool_name,
            arguments_json=part.arguments_json,
            execution_timeout=min(call.tool.execution_timeout, self._rules.tool_timeout),
            traceparent=self._rules.traceparent,
        )
        self._running[part.call_id] = request
        try:
            result = await self._execute(part, request)
        finally:
            self._running.pop(part.call_id, None)
        self._settle(part, result)

    async def _execute(self, part: CallPart, request: ExecuteCall) -> ExecutionResult:
        """Run or join the call until it has a result; after a broken link the executor is asked first."""
        give_up = asyncio.get_running_loop().time() + LINK_PATIENCE_SECONDS
        tries = 0
        may_have_started = False
        while True:
            try:
                async with aclosing(self._executor.execute(request)) as events:  # type: ignore[type-var]
                    async for event in events:
                        if isinstance(event, ExecutionResult):
                            return event
                        may_have_started |= isinstance(event, ExecutionStarted)
                        self._tell(part, event)
            except TurnwireError as error:
                answer = await self._after_failure(request, error)
                if isinstance(answer, ExecutionResult):
                    return answer
                may_have_started |= answer
            if asyncio.get_running_loop().time() >= give_up:
                return _given_up(may_have_started)
            await asyncio.sleep(_LINK_DELAYS[min(tries, len(_LINK_DELAYS) - 1)])
            tries += 1

    async def _after_failure(self, request: ExecuteCall, error: TurnwireError) -> ExecutionResult | bool:
        """Return the result if there is one, else whether the call may have started."""
        if error.reason in ("INVALID_REQUEST", "TOOL_NOT_FOUND", "MESSAGE_TOO_LARGE"):
            return ExecutionResult(ToolOutcome.FAILED, f"The call was refused: {error.message}", True)
        if error.reason == "EPOCH_STALE":
            raise OwnerLost(request.turn)
        logger.warning("executor.call_failed", extra={"reason": error.reason, "tool": request.tool_name})
        try:
            answer = await self._executor.lookup(request)
        except TurnwireError:
            return False
        if answer.result is not None:
            return answer.result
        if answer.state is ExecutionState.LOST:
            return ExecutionResult(ToolOutcome.OUTCOME_UNKNOWN, "", True)
        return answer.state is ExecutionState.STARTED

    def _tell(self, part: CallPart, event: ExecutionStarted | ExecutionProgress) -> None:
        if isinstance(event, ExecutionStarted):
            self._journal.record_start(
                part, ToolCallStarted(part.call_id, part.tool_name, 1, event.execution_timeout)
            )
        else:
            self._journal.emit(ToolCallProgress(part.call_id, event.text))

    def _settle(self, part: CallPart, result: ExecutionResult) -> None:
        if part.call_id in self._settled:
            return
        content = templates.result_text(part.tool_name, result)
        settled = replace(
            part,
            outcome=result.outcome,
            content=content,
            is_error=result.is_error or result.outcome is not ToolOutcome.SUCCEEDED,
            overflow=result.overflow,
            parts=result.parts,
        )
        self._settled[part.call_id] = settled
        self._journal.record_outcome(
            settled,
            ToolCallFinished(
                call_id=part.call_id,
                tool_name=part.tool_name,
                outcome=result.outcome,
                content=content,
                is_error=settled.is_error,
                elapsed=result.elapsed,
                settle_order=len(self._settled),
                call_index=part.call_index,
                overflow=result.overflow,
                parts=result.parts,
                exit_code=result.exit_code,
            ),
        )

    async def _stop(self, task: asyncio.Task[None]) -> None:
        """Have running calls stopped and wait for the truth about them, for a while."""
        error = self._token.error
        async with asyncio.TaskGroup() as tasks:
            for request in tuple(self._running.values()):
                tasks.create_task(self._ask_to_stop(request, str(error)), name="tool.cancel")
        await asyncio.wait({task}, timeout=STOP_WAIT_SECONDS)
        if not task.done():
            unknown = set(self._running)
            await stop_task(task)
            for call in self._calls:
                if call.part.call_id in unknown:
                    self._settle(call.part, ExecutionResult(ToolOutcome.OUTCOME_UNKNOWN, "", True))

    async def _ask_to_stop(self, request: ExecuteCall, cause: str) -> None:
        try:
            async with asyncio.timeout(STOP_WAIT_SECONDS):
                await self._executor.cancel(request, cause)
        except (TurnwireError, TimeoutError) as error:
            logger.warning("executor.cancel_failed", extra={"tool": request.tool_name, "cause": str(error)})

    def _close_rest(self) -> None:
        """Give every call that was never started its result."""
        for call in self._calls:
            self._settle(call.part, ExecutionResult(ToolOutcome.NOT_STARTED, "", True))


def _unwrap(error: BaseException | None) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert error is not None
    return error


def _refused(call: PlannedCall) -> ExecutionResult:
    return ExecutionResult(ToolOutcome.FAILED, call.refusal, True)


def _given_up(may_have_started: bool) -> ExecutionResult:
    if may_have_started:
        return ExecutionResult(ToolOutcome.OUTCOME_UNKNOWN, "", True)
    return ExecutionResult(
        ToolOutcome.NOT_STARTED, "The tool executor cannot be reached; try again later.", True
    )


def refusal_notice(call: PlannedCall) -> Notice:
    """Return the notice for a call that is not executed."""
    reason = "tool-arguments-invalid" if call.tool is not None else "tool-unknown"
    name = call.part.tool_name or "(no name)"
    return Notice(NoticeSeverity.WARNING, reason, f"The call of {name} was not executed.", call.part.call_id)
