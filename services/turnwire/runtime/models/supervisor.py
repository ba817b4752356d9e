"""Small work that outlives a model call, such as emptying a connection for its next use, has an owner."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["Supervisor"]


class Supervisor:
    """Keeps the reference to each task until it is done; `close` cancels and awaits what is left."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether no more work is taken."""
        return len(self._tasks) >= self._limit

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which handles its own errors, in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel what runs and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
