"""The service's view of one worker process: its calls, its health, its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from turnwire.executor.supervisor import Supervisor
from turnwire.executor.workers.launcher import ShimStream
from turnwire.executor.workers.tree import kill_marked

__all__ = ["RunningWorker"]

logger = logging.getLogger(__name__)

_PING_SECONDS = 1.0
_OUTPUT_SO_FAR_CHARS = 8_000


class _Pending:
    """One call in flight; `end` is None when the worker went away."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.end: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self.report = report
        self.so_far = ""


class RunningWorker:
    """Owned by the pool. A call that goes down with its worker ends with None, not with a made-up result."""

    def __init__(
        self,
        shim: ShimStream,
        stream: ShimStream,
        mark: str,
        gone: Callable[[RunningWorker], Awaitable[None]],
    ) -> None:
        self._shim = shim
        self._stream = stream
        self._mark = mark
        self._gone = gone
        self._pending: dict[str, _Pending] = {}
        self._tasks = Supervisor()
        self._killing: asyncio.Task[None] | None = None
        self._pings_open = 0
        self._dead = False
        self.tools: list[dict[str, Any]] = []
        self.load = 0
        self.alone = False

    @property
    def healthy(self) -> bool:
        """Whether it takes more calls: alive, not being killed, and answering its last ping."""
        return not self._dead and self._pings_open < 2

    async def greet(self, files: list[str], entry_points: bool) -> str:
        """Send the configuration and wait for the tools; gives the problem, or empty."""
        self._stream.send({"op": "load", "files": files, "entry_points": entry_points})
        hello = await self._stream.receive()
        if hello is None:
            return await self._last_words()
        if hello.get("problem"):
            return str(hello["problem"])
        self.tools = list(hello["tools"])
        self._tasks.start(self._read())
        self._tasks.start(self._ping())
        return ""

    def take(self, *, shared: bool) -> None:
        """Take a place."""
        self.load += 1
        self.alone = self.alone or not shared

    def give_back(self, *, shared: bool) -> None:
        """Give a place back."""
        self.load -= 1
        if not shared:
            self.alone = False

    def call(self, call_id: str, message: dict[str, Any], report: Callable[[str], None]) -> _Pending:
        """Send a call; its `end` is set when the worker answers or goes away."""
        pending = _Pending(report)
        if self._dead:
            pending.end.set_result(None)
            return pending
        self._pending[call_id] = pending
        self._stream.send({**message, "id": call_id})
        return pending

    def ask_stop(self, call_id: str) -> None:
        """Ask the worker to cancel one call."""
        self._stream.send({"op": "stop", "id": call_id})

    async def kill(self) -> None:
        """End the process and its whole tree, and wait until it has gone; its calls end with None."""
        self._dead = True
        if self._killing is None:
            self._killing = self._tasks.start(self._end_process())
        await asyncio.wait((self._killing,))

    async def _end_process(self) -> None:
        self._shim.send({"op": "stop", "cause": "cancel"})
        while (message := await self._shim.receive()) is not None:
            if message.get("kind") == "end":
                break
        else:
            # The shim died first, so nobody has ended what the worker's tools had started.
            await asyncio.to_thread(kill_marked, self._mark)
        await self.close()

    async def close(self) -> None:
        """Drop the connection; the shim then ends whatever is left. Idempotent."""
        self._dead = True
        self._stream.close()
        self._shim.close()
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.end.done():
                call.end.set_result(None)
        await self._gone(self)
        await self._tasks.close()

    async def _read(self) -> None:
        while (message := await self._stream.receive()) is not None:
            self._pings_open = 0
            pending = self._pending.get(str(message.get("id", "")))
            if pending is None:
                continue
            if message["kind"] == "progress":
                text = str(message["text"])
                pending.so_far = (pending.so_far + text)[-_OUTPUT_SO_FAR_CHARS:]
                pending.report(text)
            elif message["kind"] == "end":
                del self._pending[message["id"]]
                if not pending.end.done():
                    pending.end.set_result(message)
        if not self._dead:
            logger.warning("executor.worker.died", extra={"calls": len(self._pending)})
            await self.kill()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_SECONDS)
            if self._pending:
                self._pings_open += 1
                self._stream.send({"op": "ping"})

    async def _last_words(self) -> str:
        while (message := await self._shim.receive()) is not None:
            if message.get("kind") == "end":
                said = message.get("captured", {})
                text = (said.get("head", "") + said.get("tail", "")).strip() or message.get("error", "")
                return f"a worker ended before it had loaded its tools: {text[-1_000:]}"
        return "a worker ended before it had loaded its tools"
