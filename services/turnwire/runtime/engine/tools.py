"""The tool calls of one step: decided in the model's order, run in parallel where they may, told truthfully.

Calls that are PARALLEL share a pool; an EXCLUSIVE call waits for those before it and holds those after it. A
call that somebody has to allow holds nobody up. Each call has exactly one result, whatever happens to the
turn and to those who own it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwire.core.errors import TurnwireError
from turnwire.extend.events import ToolCallProgress, ToolCallStarted, ToolOutcome, Waiting
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionProgress,
    ExecutionResult,
    ExecutionStarted,
)
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.engine.cancel import CancelToken, HandOver, stop_task
from turnwire.runtime.engine.execution import Execution
from turnwire.runtime.engine.plan import PlannedCall
from turnwire.runtime.engine.results import settled
from turnwire.runtime.ports import OwnerLost, ToolExecutor, TurnJournal

__all__ = ["CallRules", "Suspended", "ToolBatch"]

logger = logging.getLogger(__name__)

# Calls that run beside each other in one turn.
POOL_SIZE = 5
# How long the turn waits for the results of calls that it has asked to stop.
STOP_WAIT_SECONDS = 5.0
# A call is never given less, so that it ends with its turn and not with an error about its limit.
_SHORTEST_SECONDS = 0.001
# A turn says that its calls wait for room in the pool after so long.
_POOL_FEEDBACK_SECONDS = 8.0


class Suspended(Exception):
    """The turn waits for somebody: that is committed, and nobody holds the turn."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """What every call of the turn shares."""

    agent: str
    tool_timeout: float
    traceparent: str = ""


class ToolBatch:
    """Runs the calls of one step and records each result as it comes.

    Args:
        calls: all of the step, in the model's order.
        results: of those that have one already, by call id.
    """

    def __init__(
        self,
        executor: ToolExecutor,
        journal: TurnJournal,
        token: CancelToken,
        rules: CallRules,
        calls: Sequence[PlannedCall],
        results: Mapping[str, CallPart] | None = None,
    ) -> None:
        self._executor = executor
        self._journal = journal
        self._token = token
        self._rules = rules
        self._calls = calls
        self._settled: dict[str, CallPart] = dict(results or {})
        # What has been begun here, or may have been by an earlier owner.
        self._begun = {
            c.part.call_id: self._request(c)
            for c in calls
            if c.known is not None and c.part.call_id not in self._settled
        }

    async def run(self) -> Sequence[CallPart]:
        """Run every call to its one result and return them in the model's order, also when the turn stops.

        Raises:
            OwnerLost: another owner has the turn.
            HandOver: the turn is to be let go of; its calls run on.
            Suspended: the calls that are left wait for somebody.
        """
        await self._run_what_can()
        if not self._token.fired and any(c.waits for c in self._open()):
            # A stop that comes before the wait is committed ends the turn instead.
            await self._journal.flush()
            if not self._token.fired:
                await self._journal.suspend()
                raise Suspended
        if isinstance(self._token.error, HandOver):
            raise self._token.error
        self.close_rest()
        return [self._settled[c.part.call_id] for c in self._calls]

    def _open(self) -> list[PlannedCall]:
        return [c for c in self._calls if c.part.call_id not in self._settled]

    async def _run_what_can(self) -> None:
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
            self.close_rest()
            raise cause

    async def _run_all(self) -> None:
        group: list[PlannedCall] = []
        for call in self._open():
            if call.refusal:
                self._settle(call.part, call.refused)
                continue
            if call.waits:
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
        if self._token.fired and call.known is None:
            return
        part = call.part
        request = self._begun[part.call_id] = self._request(call)
        execution = Execution(
            self._executor,
            request,
            lambda: self._token.fired,
            lambda event, attempt: self._tell(part, event, attempt),
            call.known,
        )
        self._settle(part, await execution.run())

    def _request(self, call: PlannedCall) -> ExecuteCall:
        part, key, limit = call.part, self._journal.key, self._rules.tool_timeout
        return ExecuteCall(
            scope=key.scope,
            execution_id=f"{key.name}/{part.call_id}",
            thread=key.thread.name,
            turn=key.name,
            call_id=part.call_id,
            agent=self._rules.agent,
            attempt=call.attempt,
            epoch=self._journal.epoch,
            tool_name=part.tool_name,
            arguments_json=part.arguments_json,
            # A tool that is no longer offered can still be looked up and heard out.
            execution_timeout=self._timeout(call, limit),
            traceparent=self._rules.traceparent,
        )

    def _timeout(self, call: PlannedCall, limit: float) -> float:
        """Return how long a call may run: no longer than its tool, its turn's calls, and its turn."""
        own = call.tool.execution_timeout if call.tool is not None else limit
        left = self._token.time_left
        return min(own, limit) if left is None else min(own, limit, max(left, _SHORTEST_SECONDS))

    def _tell(self, part: CallPart, event: ExecutionStarted | ExecutionProgress, attempt: int) -> None:
        if isinstance(event, ExecutionStarted):
            self._journal.record_start(
                part, ToolCallStarted(part.call_id, part.tool_name, attempt, event.execution_timeout)
            )
        else:
            self._journal.emit(ToolCallProgress(part.call_id, event.text))

    def _settle(self, part: CallPart, result: ExecutionResult) -> None:
        if part.call_id in self._settled:
            return
        final, event = settled(part, result, len(self._settled) + 1)
        self._settled[part.call_id] = final
        self._journal.record_outcome(final, event)

    async def _stop(self, task: asyncio.Task[None]) -> None:
        """Have running calls stopped and wait for the truth about them, for a while; or let them run on."""
        if isinstance(self._token.error, HandOver):
            await stop_task(task)
            return
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

    def close_rest(self) -> None:
        """Give every call that has no result the one that is true; what is still asked is asked no more."""
        left = self._open()
        if any(c.waits for c in left):
            self._journal.cancel_actions()
        for call in left:
            begun = call.part.call_id in self._begun
            outcome = ToolOutcome.OUTCOME_UNKNOWN if begun else ToolOutcome.NOT_STARTED
            self._settle(call.part, ExecutionResult(outcome, "", True))


def _unwrap(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
