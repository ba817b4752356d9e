"""The tool calls of one step: decided in the model's order, run in parallel where they may, told truthfully.

Calls that are PARALLEL share a pool; an EXCLUSIVE call waits for those before it and holds those after it.
Each call has exactly one result, whatever happens to the turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnwire.core.errors import TurnwireError
from turnwire.core.text import cut
from turnwire.extend.events import (
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
)
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.engine import templates
from turnwire.runtime.engine.cancel import CancelToken, stop_task
from turnwire.runtime.engine.execution import Execution
from turnwire.runtime.engine.plan import PlannedCall
from turnwire.runtime.ports import OwnerLost, ToolExecutor, TurnJournal

__all__ = ["CallRules", "ToolBatch"]

logger = logging.getLogger(__name__)

# Calls that run beside each other in one turn.
POOL_SIZE = 5
# How long the turn waits for the results of calls that it has asked to stop.
STOP_WAIT_SECONDS = 5.0
# An event holds at most 1 MiB: beyond so much text, and so many bytes of parts, a result is cut.
MAX_CONTENT_BYTES = 256 * 1024
MAX_PARTS_BYTES = 640 * 1024
# A turn says that its calls wait for room in the pool after so long.
_POOL_FEEDBACK_SECONDS = 8.0


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
        self._begun: dict[str, ExecuteCall] = {}
        self._settled: dict[str, CallPart] = {}

    async def run(self) -> Sequence[CallPart]:
        """Run every call to its one result and return them in the model's order, also when the turn stops.

        Raises:
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
        failure = task.exception() if task.done() and not task.cancelled() else None
        if failure is not None:
            cause = _unwrap(failure)
            if isinstance(cause, OwnerLost):
                raise cause
            await self._ask_all_to_stop("a call of the same step broke the turn")
            self._close_rest()
            raise cause
        self._close_rest()
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
        self._begun[part.call_id] = request
        execution = Execution(
            self._executor, request, lambda: self._token.fired, lambda event: self._tell(part, event)
        )
        self._settle(part, await execution.run())

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
        result = _fitting(result)
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
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(self._ask_all_to_stop(str(self._token.error)), name="tools.cancel")
            await asyncio.wait({task}, timeout=STOP_WAIT_SECONDS)
            asking.cancel()
        if not task.done():
            await stop_task(task)

    async def _ask_all_to_stop(self, cause: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for call_id, request in self._begun.items():
                if call_id not in self._settled:
                    tasks.create_task(self._ask_to_stop(request, cause), name="tool.cancel")

    async def _ask_to_stop(self, request: ExecuteCall, cause: str) -> None:
        try:
            async with asyncio.timeout(STOP_WAIT_SECONDS):
                await self._executor.cancel(request, cause)
        except (TurnwireError, TimeoutError) as error:
            logger.warning("executor.cancel_failed", extra={"tool": request.tool_name, "cause": str(error)})

    def _close_rest(self) -> None:
        """Give every call that has no result the one that is true."""
        for call in self._calls:
            begun = call.part.call_id in self._begun
            outcome = ToolOutcome.OUTCOME_UNKNOWN if begun else ToolOutcome.NOT_STARTED
            self._settle(call.part, ExecutionResult(outcome, "", True))


def _unwrap(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fitting(result: ExecutionResult) -> ExecutionResult:
    """Return the result without what an event cannot hold; executors bound their results far below that."""
    content = cut(result.content, MAX_CONTENT_BYTES)
    size, kept = 0, 0
    for part in result.parts:
        size += len(part.data)
        if size > MAX_PARTS_BYTES:
            break
        kept += 1
    if content == result.content and kept == len(result.parts):
        return result
    note = "\n[The rest of the result was too large to be kept.]"
    return replace(result, content=content + note, parts=result.parts[:kept])


def _refused(call: PlannedCall) -> ExecutionResult:
    return ExecutionResult(call.outcome, call.refusal, True)
