"""Python tools of users, as the supervisor sees them: a place in a worker, then a call that always ends."""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

from turnwire.executor.bodies import STOP_GRACE_SECONDS, Seat
from turnwire.executor.domain import Call, Ending, Outcome, Suspension
from turnwire.executor.limits import Captured
from turnwire.executor.stopping import StopSwitch
from turnwire.executor.supervisor import Supervisor
from turnwire.executor.workers.command import said
from turnwire.executor.workers.host import ProcessHost
from turnwire.executor.workers.pool import WorkerPool, WorkerStartFailed
from turnwire.executor.workers.worker import RunningWorker
from turnwire.executor.workspace import OutsideWorkspace
from turnwire.extend.tools import ToolPart, ToolSpec

__all__ = ["PythonBody", "PythonTool"]

logger = logging.getLogger(__name__)

_ON_CANCEL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PythonTool:
    """A tool as a worker described it."""

    spec: ToolSpec
    is_async: bool
    has_on_cancel: bool


class PythonBody:
    """One Python tool of the catalog."""

    inline = False

    def __init__(self, tool: PythonTool, pool: WorkerPool, host: ProcessHost, tasks: Supervisor) -> None:
        self._tool = tool
        self._pool = pool
        self._host = host
        self._tasks = tasks

    @property
    def spec(self) -> ToolSpec:
        """What the tool promises."""
        return self._tool.spec

    def try_reserve(self) -> Seat | None:
        """Take a place in a worker that runs and has room."""
        worker = self._pool.try_acquire(shared=self._tool.is_async)
        if worker is None:
            return None
        return _PythonSeat(self._tool, self._pool, self._host, worker, self._tasks)

    async def reserve(self) -> Seat:
        """Wait for a worker with room."""
        worker = await self._pool.acquire(shared=self._tool.is_async)
        return _PythonSeat(self._tool, self._pool, self._host, worker, self._tasks)


class _PythonSeat:
    def __init__(
        self,
        tool: PythonTool,
        pool: WorkerPool,
        host: ProcessHost,
        worker: RunningWorker,
        tasks: Supervisor,
    ) -> None:
        self._tool = tool
        self._pool = pool
        self._host = host
        self._worker: RunningWorker | None = worker
        self._tasks = tasks

    def release(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._tasks.start(self._pool.release(worker, shared=self._tool.is_async))

    async def run(self, call: Call, stop: StopSwitch) -> Ending:
        worker = self._worker
        if worker is None:
            raise RuntimeError("this seat has been given back")
        call_id = self._host.environment.mark_of(call.key)
        try:
            message = self._message("call", call)
        except OutsideWorkspace as error:
            return said(Outcome.FAILED, str(error))
        except OSError as error:
            return said(Outcome.NOT_STARTED, f"The workspace cannot be used: {error.strerror}")
        pending = worker.call(call_id, message, call.report)
        waits: set[asyncio.Future[Any]] = {pending.end, stop.future}
        await asyncio.wait(waits, timeout=call.timeout, return_when=asyncio.FIRST_COMPLETED)
        outcome = Outcome.FAILED
        killed = False
        if not pending.end.done():
            outcome = Outcome.STOPPED if stop.cause else Outcome.TIMED_OUT
            killed = await self._stop(worker, call_id, pending.end)
        end = pending.end.result()
        if end is not None:
            return self._read_end(end, outcome, pending.so_far)
        if not killed:
            return _unknown(pending.so_far)
        note = await self._on_cancel(call) if self._tool.has_on_cancel else ""
        ending = said(outcome, pending.so_far)
        return replace(ending, cancel_note=note or self._tool.spec.cancel_note)

    async def _stop(
        self, worker: RunningWorker, call_id: str, end: asyncio.Future[dict[str, Any] | None]
    ) -> bool:
        """End one call, with its worker if need be; true when the worker was killed for it."""
        if self._tool.is_async:
            worker.ask_stop(call_id)
            grace = STOP_GRACE_SECONDS + (_ON_CANCEL_SECONDS if self._tool.has_on_cancel else 0.0)
            await asyncio.wait((end,), timeout=grace)
            if end.done():
                return False
            logger.warning("executor.worker.unresponsive", extra={"tool": self._tool.spec.name})
        await worker.kill()
        return True

    async def _on_cancel(self, call: Call) -> str:
        """Run the tool's cancel handler in another worker, since the one that ran the call is gone."""
        try:
            async with asyncio.timeout(2 * _ON_CANCEL_SECONDS):
                worker = await self._pool.acquire(shared=True)
                try:
                    call_id = f"{self._host.environment.mark_of(call.key)}.cancel"
                    message = self._message("on-cancel", call)
                    end = await worker.call(call_id, message, lambda text: None).end
                finally:
                    await self._pool.release(worker, shared=True)
        except (TimeoutError, WorkerStartFailed):
            return "The cancel handler could not be run."
        return str(end.get("note", "")) if end is not None else "The cancel handler could not be run."

    def _message(self, op: str, call: Call) -> dict[str, Any]:
        workspace = self._host.workspaces.folder(call.context.workspace)
        context = asdict(call.context)
        context["workspace"] = str(workspace)
        return {
            "op": op,
            "tool": self._tool.spec.name,
            "arguments_json": call.arguments_json,
            "context": context,
            "timeout": call.timeout,
            "resume": None if call.resume is None else asdict(call.resume),
            "limits": self._host.limits_for(call).to_dict(),
            "staging": str(self._host.staging),
        }

    def _read_end(self, end: dict[str, Any], outcome: Outcome, so_far: str) -> Ending:
        captured = Captured.from_dict(end["captured"])
        is_error = bool(end["is_error"])
        status = end["status"]
        if end.get("frames"):
            logger.info("executor.tool.raised", extra={"tool": self._tool.spec.name, "frames": end["frames"]})
        if status == "suspended":
            return Ending(Outcome.SUCCEEDED, suspension=Suspension(**end["suspension"]))
        if end["stop_requested"]:
            captured = captured if captured.total_chars else said(outcome, so_far).captured
            note = end.get("note") or self._tool.spec.cancel_note
            return Ending(outcome, captured, is_error=True, cancel_note=note)
        if status == "stopped":
            return said(Outcome.FAILED, "The tool cancelled itself.")
        parts = tuple(ToolPart(part["media_type"], base64.b64decode(part["data"])) for part in end["parts"])
        return Ending(Outcome.FAILED if is_error else Outcome.SUCCEEDED, captured, is_error, parts)


def _unknown(so_far: str) -> Ending:
    return replace(said(Outcome.OUTCOME_UNKNOWN, so_far), lost=True)
