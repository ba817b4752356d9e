"""Built-in tools: trusted coroutines that run on the service's own loop, within their limit."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from turnwire.executor.bodies import STOP_GRACE_SECONDS, Room, Seat
from turnwire.executor.domain import Call, Ending, Outcome
from turnwire.executor.limits import Capture, OutputLimits, clip
from turnwire.executor.stopping import StopSwitch
from turnwire.executor.supervisor import Supervisor
from turnwire.executor.workers.invoking import to_result
from turnwire.extend.tools import ArgumentError, Tool, ToolContext, ToolResult, ToolSpec

__all__ = ["InlineBody", "InlineHost", "ScopedContext", "ToolFailed"]

logger = logging.getLogger(__name__)

_ERROR_CHARS = 4_000


class ToolFailed(Exception):
    """A built-in tool did what it could; the text tells the model why that is not enough."""


@dataclass(frozen=True)
class ScopedContext(ToolContext):
    """What a built-in tool gets: it reads stored results of the scope, which users' tools never learn."""

    scope: str = ""


class InlineHost:
    """What built-in tools share: room, limits, a folder for long outputs, the owner of their tasks."""

    def __init__(self, limits: OutputLimits, staging: str, room: int) -> None:
        self.limits = limits
        self.staging = staging
        self.room = Room(room)
        self.tasks = Supervisor()


class InlineBody:
    """One built-in tool of the catalog."""

    inline = True

    def __init__(self, tool: Tool[..., Any], host: InlineHost) -> None:
        if not tool.is_async:
            raise TypeError(f"built-in tool {tool.name} must be async")
        self._tool = tool
        self._host = host

    @property
    def spec(self) -> ToolSpec:
        """What the tool promises."""
        return self._tool.spec

    def try_reserve(self) -> Seat | None:
        """Take room if there is some."""
        if not self._host.room.take():
            return None
        return _InlineSeat(self._tool, self._host)

    async def reserve(self) -> Seat:
        """Wait for room among the built-in calls."""
        await self._host.room.acquire()
        return _InlineSeat(self._tool, self._host)


class _InlineSeat:
    def __init__(self, tool: Tool[..., Any], host: InlineHost) -> None:
        self._tool = tool
        self._host = host
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._host.room.release()

    async def run(self, call: Call, stop: StopSwitch) -> Ending:
        task = self._host.tasks.start(self._result(call))
        waits: set[asyncio.Future[Any]] = {task, stop.future}
        await asyncio.wait(waits, timeout=call.timeout, return_when=asyncio.FIRST_COMPLETED)
        outcome: Outcome | None = None
        if not task.done():
            outcome = Outcome.STOPPED if stop.cause else Outcome.TIMED_OUT
            task.cancel()
            await asyncio.wait((task,), timeout=STOP_GRACE_SECONDS)
        if not task.done() or task.cancelled():
            result = ToolResult(is_error=True)
            outcome = outcome or Outcome.FAILED
        else:
            result = task.result()
            outcome = Outcome.FAILED if result.is_error else Outcome.SUCCEEDED
        capture = Capture(self._limits(call), self._host.staging)
        capture.feed_text(result.text)
        note = self._tool.spec.cancel_note if outcome is Outcome.STOPPED else ""
        return Ending(outcome, capture.finish(), result.is_error, result.parts, cancel_note=note)

    def _limits(self, call: Call) -> OutputLimits:
        given = self._host.limits
        return OutputLimits(call.max_result_chars, given.head_ratio, given.tail_ratio, given.max_stored_bytes)

    async def _result(self, call: Call) -> ToolResult:
        try:
            arguments = self._tool.arguments(call.arguments_json)
            if self._tool.context_parameter:
                arguments[self._tool.context_parameter] = _context(call)
            return to_result(await self._tool.function(**arguments))
        except (ArgumentError, ToolFailed) as error:
            return ToolResult(clip(str(error), _ERROR_CHARS), is_error=True)
        except Exception as error:
            # Ours, so a defect: the model gets the kind, the log gets the traceback.
            logger.exception("executor.builtin.failed", extra={"tool": self._tool.name})
            return ToolResult(f"The tool failed: {type(error).__name__}", is_error=True)


def _context(call: Call) -> ScopedContext:
    context = call.context
    return ScopedContext(
        scope=call.key.scope,
        thread=context.thread,
        turn=context.turn,
        call_id=context.call_id,
        agent=context.agent,
        workspace=context.workspace,
        traceparent=context.traceparent,
        variables=context.variables,
        timeout_seconds=call.timeout,
        deadline=datetime.now(UTC) + timedelta(seconds=call.timeout),
        resume=json.loads(call.resume.payload_json) if call.resume is not None else None,
        report=call.report,
    )
