"""The service's pool of worker processes: at most `max_workers`, async calls share, sync calls sit alone."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from turnwire.executor.supervisor import Supervisor
from turnwire.executor.workers.launcher import Launcher, ShimStream, SpawnFailed
from turnwire.executor.workers.settings import PoolSettings
from turnwire.executor.workers.tree import MARKER_VARIABLE
from turnwire.executor.workers.worker import RunningWorker

__all__ = ["WorkerPool", "WorkerStartFailed"]

logger = logging.getLogger(__name__)


class WorkerStartFailed(Exception):
    """The workers cannot load the tools; the text says why."""


class WorkerPool:
    """Owns the workers. `start` warms one and gives the tools that it found."""

    def __init__(
        self,
        launcher: Launcher,
        settings: PoolSettings,
        files: Sequence[str],
        spec: Callable[[], dict[str, Any]],
    ) -> None:
        self._files = list(files)
        self._launcher = launcher
        self._settings = settings
        self._spec = spec
        self._workers: list[RunningWorker] = []
        self._tasks = Supervisor()
        self._starting = 0
        self._changed = asyncio.Condition()
        self._digests: dict[str, str] = {}
        self._failure = ""
        self._closed = False

    async def start(self) -> list[dict[str, Any]]:
        """Start the first worker. Raises WorkerStartFailed when the tools do not load."""
        worker = await self._start_worker()
        self._digests = {item["spec"]["name"]: item["spec"]["digest"] for item in worker.tools}
        return worker.tools

    @property
    def worker_count(self) -> int:
        """Workers alive."""
        return len(self._workers)

    def try_acquire(self, *, shared: bool) -> RunningWorker | None:
        """Take a place that is free right now; see `acquire`."""
        worker = self._pick(shared)
        if worker is not None:
            worker.take(shared=shared)
        return worker

    async def acquire(self, *, shared: bool) -> RunningWorker:
        """Wait for a worker with room and take a place in it: `shared` beside other async calls, else alone.

        Raises WorkerStartFailed when no worker can be started.
        """
        self._failure = ""
        async with self._changed:
            while True:
                worker = self._pick(shared)
                if worker is not None:
                    worker.take(shared=shared)
                    return worker
                if self._failure:
                    raise WorkerStartFailed(self._failure)
                if len(self._workers) + self._starting < self._settings.max_workers:
                    self._start_in_background()
                await self._changed.wait()

    async def release(self, worker: RunningWorker, *, shared: bool) -> None:
        """Give a place back."""
        worker.give_back(shared=shared)
        await self._notify()

    async def close(self) -> None:
        """Close every worker; what still runs in them is ended by their shims."""
        self._closed = True
        await self._tasks.close()
        workers, self._workers = list(self._workers), []
        for worker in workers:
            await worker.close()

    def _pick(self, shared: bool) -> RunningWorker | None:
        usable = [worker for worker in self._workers if worker.healthy]
        if shared:
            room = self._settings.async_calls_per_worker
            fitting = [worker for worker in usable if not worker.alone and worker.load < room]
            # The fullest first, so that others stay empty for sync calls.
            return max(fitting, key=lambda worker: worker.load, default=None)
        return next((worker for worker in usable if not worker.alone and worker.load == 0), None)

    def _start_in_background(self) -> None:
        self._starting += 1
        self._tasks.start(self._start_and_tell())

    async def _start_and_tell(self) -> None:
        try:
            await self._start_worker()
        except WorkerStartFailed as error:
            logger.error("executor.worker.failed", extra={"error": str(error)})
            self._failure = str(error)
        finally:
            self._starting -= 1
            await self._notify()

    async def _start_worker(self) -> RunningWorker:
        ours, theirs = socket.socketpair()
        spec = self._spec()
        try:
            shim = await self._launcher.launch(spec, theirs)
        except (SpawnFailed, OSError) as error:
            ours.close()
            raise WorkerStartFailed(f"no worker process could be started: {error}") from error
        mark = spec["env"][MARKER_VARIABLE]
        worker = RunningWorker(shim, await ShimStream.open(ours), mark, self._gone)
        try:
            async with asyncio.timeout(self._settings.start_timeout_seconds):
                problem = await worker.greet(self._files, self._settings.entry_points)
        except TimeoutError:
            problem = f"a worker did not load its tools in {self._settings.start_timeout_seconds:g} s"
        if problem or self._closed:
            await worker.close()
            raise WorkerStartFailed(problem or "the executor is closing")
        self._workers.append(worker)
        self._compare(worker)
        return worker

    def _compare(self, worker: RunningWorker) -> None:
        digests = {item["spec"]["name"]: item["spec"]["digest"] for item in worker.tools}
        if self._digests and digests != self._digests:
            changed = sorted(name for name, _ in digests.items() ^ self._digests.items())
            logger.warning("executor.tools.changed", extra={"tools": changed})

    async def _gone(self, worker: RunningWorker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            if not self._workers and not self._starting and not self._closed:
                # One stays warm, so that the next call does not wait for imports.
                self._start_in_background()
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
