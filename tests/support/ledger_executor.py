"""An executor with a ledger, as the real one keeps it: it outlives the runtimes, and counts starts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from turnwire.core.errors import NotFound, WrongState
from turnwire.extend.events import ToolOutcome
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionAccepted,
    ExecutionEvent,
    ExecutionResult,
    ExecutionStarted,
    ExecutionState,
    LookupAnswer,
    ToolInfo,
)

__all__ = ["LedgerExecutor"]

_Key = tuple[str, int]


@dataclass
class _Run:
    call: ExecuteCall
    state: ExecutionState = ExecutionState.ACCEPTED
    result: ExecutionResult | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def move(self, state: ExecutionState, result: ExecutionResult | None = None) -> None:
        self.state, self.result = state, result
        self.changed.set()
        self.changed = asyncio.Event()


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class LedgerExecutor:
    """Runs tools, whoever listens. A tool in `held` runs until its gate opens or it is stopped."""

    def __init__(self, *tools: ToolInfo) -> None:
        self.tools = tools
        self.held: dict[str, asyncio.Event] = {}
        self.starts: Counter[_Key] = Counter()
        self.cancelled: list[str] = []
        self.runs: dict[_Key, _Run] = {}
        self._epochs: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def list_tools(self) -> Sequence[ToolInfo]:
        return self.tools

    async def execute(self, call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        run = self._admit(call)
        yield ExecutionAccepted()
        told = False
        while True:
            changed = run.changed
            if run.state is not ExecutionState.ACCEPTED and not told:
                told = True
                yield ExecutionStarted(call.execution_timeout)
            if run.result is not None:
                yield run.result
                return
            await changed.wait()

    def _admit(self, call: ExecuteCall) -> _Run:
        self._fence(call)
        if not any(t.name == call.tool_name for t in self.tools):
            raise NotFound("no such tool", reason="TOOL_NOT_FOUND")
        key = (call.execution_id, call.attempt)
        run = self.runs.get(key)
        if run is not None:
            return run
        before = self.runs.get((call.execution_id, call.attempt - 1))
        if call.attempt > 1 and (before is None or before.state is not ExecutionState.LOST):
            raise WrongState("the attempt before is not lost", reason="EXECUTION_EXISTS")
        run = self.runs[key] = _Run(call)
        task = asyncio.create_task(self._body(key, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def _fence(self, call: ExecuteCall) -> None:
        if call.epoch < self._epochs.get(call.turn, 0):
            raise WrongState("another owner has the turn", reason="EPOCH_STALE")
        self._epochs[call.turn] = call.epoch

    async def _body(self, key: _Key, run: _Run) -> None:
        await asyncio.sleep(0)
        if run.stop.is_set():
            run.move(ExecutionState.FINISHED, ExecutionResult(ToolOutcome.NOT_STARTED, "", True))
            return
        self.starts[key] += 1
        run.move(ExecutionState.STARTED)
        await asyncio.sleep(0)
        gate = self.held.get(run.call.tool_name)
        if gate is not None:
            await _either(gate, run.stop)
        if run.state is ExecutionState.LOST:
            return
        content = f"{run.call.tool_name} {run.call.arguments_json}"
        stopped = run.stop.is_set()
        outcome = ToolOutcome.STOPPED if stopped else ToolOutcome.SUCCEEDED
        run.move(ExecutionState.FINISHED, ExecutionResult(outcome, content, stopped))

    async def cancel(self, call: ExecuteCall, cause: str) -> None:
        self._fence(call)
        run = self.latest(call.execution_id)
        if run is None:
            raise NotFound("no such execution", reason="EXECUTION_NOT_FOUND")
        self.cancelled.append(call.tool_name)
        run.stop.set()

    async def lookup(self, call: ExecuteCall) -> LookupAnswer:
        run = self.runs.get((call.execution_id, call.attempt))
        if run is None:
            return LookupAnswer(ExecutionState.NOT_FOUND)
        repeatable = any(t.name == call.tool_name and t.repeatable for t in self.tools)
        return LookupAnswer(run.state, repeatable, run.result)

    def latest(self, execution_id: str) -> _Run | None:
        """Return the latest attempt at a call."""
        found = [run for (name, _), run in self.runs.items() if name == execution_id]
        return max(found, key=lambda run: run.call.attempt, default=None)

    def restart(self) -> None:
        """Die and come back: what was running is lost."""
        unknown = ExecutionResult(ToolOutcome.OUTCOME_UNKNOWN, "", True)
        for run in self.runs.values():
            if run.state is ExecutionState.STARTED:
                run.move(ExecutionState.LOST, unknown)

    def started(self, tool: str) -> int:
        """Return how often a tool's body has begun."""
        return sum(n for key, n in self.starts.items() if self.runs[key].call.tool_name == tool)
