"""One live execution: what has happened so far, its one end, and the readers that watch it.

A reader holds a position, never a queue; a slow one misses words of progress and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnwire.executor.domain import (
    Accepted,
    Event,
    ExecuteCommand,
    ExecutionState,
    Heartbeat,
    Progress,
    Result,
    Started,
    Suspension,
)
from turnwire.executor.progress import ProgressGate
from turnwire.executor.stopping import StopSwitch

__all__ = ["Run", "Watch"]


class Run:
    """Belongs to `Runs`. `settle` counts once; what comes later is refused."""

    def __init__(self, command: ExecuteCommand, arguments_sha256: str, now: Callable[[], float]) -> None:
        self.command = command
        self.arguments_sha256 = arguments_sha256
        self.stop = StopSwitch()
        self.queue_position = 0
        self.started: Started | None = None
        self.end: Result | Suspension | None = None
        self.error: Exception | None = None
        self.progress: Progress | None = None
        self.progress_number = 0
        self.gate = ProgressGate(self._say)
        self._now = now
        self._started_at = 0.0
        self._readers: set[asyncio.Event] = set()

    @property
    def settled(self) -> bool:
        """Whether there is an end, or an error in its place."""
        return self.end is not None or self.error is not None

    @property
    def state(self) -> ExecutionState:
        """State as the ledger has it or is about to."""
        if isinstance(self.end, Suspension):
            return ExecutionState.SUSPENDED
        if self.end is not None:
            return ExecutionState.FINISHED
        return ExecutionState.ACCEPTED if self.started is None else ExecutionState.STARTED

    @property
    def elapsed(self) -> float:
        """Seconds since the start; 0 before it."""
        return 0.0 if self.started is None else self._now() - self._started_at

    def start(self, started: Started) -> None:
        """Note that the start is durable."""
        self.started = started
        self._started_at = self._now()
        self._wake()

    def settle(self, end: Result | Suspension) -> bool:
        """Set the end; false when there is one already."""
        if self.settled:
            return False
        self.end = end
        self.gate.close()
        self._wake()
        return True

    def fail(self, error: Exception) -> bool:
        """Tell the readers that the end cannot be told here; false when there is an end already."""
        if self.settled:
            return False
        self.error = error
        self.gate.close()
        self._wake()
        return True

    def watch(self, *, joined: bool, heartbeat_seconds: float) -> Watch:
        """Follow from now on; progress from before is not repeated."""
        return Watch(self, joined, heartbeat_seconds)

    def add_reader(self, event: asyncio.Event) -> None:
        """Set `event` at every change from now on."""
        self._readers.add(event)

    def drop_reader(self, event: asyncio.Event) -> None:
        """Forget a reader. Idempotent."""
        self._readers.discard(event)

    def _say(self, text: str) -> None:
        self.progress = Progress(text)
        self.progress_number += 1
        self._wake()

    def _wake(self) -> None:
        for event in self._readers:
            event.set()


class Watch:
    """One reader's position in a run. Iterate it, and `close` it when done; closing never touches the run."""

    def __init__(self, run: Run, joined: bool, heartbeat_seconds: float) -> None:
        self._run = run
        self._heartbeat = heartbeat_seconds
        self._changed = asyncio.Event()
        self._seen_progress = run.progress_number
        self._accepted: Accepted | None = Accepted(joined, run.queue_position)
        self._seen_start = False
        self._ended = False
        run.add_reader(self._changed)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Event:
        while not self._ended:
            self._changed.clear()
            event = self._take()
            if event is not None:
                return event
            try:
                async with asyncio.timeout(self._heartbeat):
                    await self._changed.wait()
            except TimeoutError:
                return Heartbeat(self._run.elapsed)
        raise StopAsyncIteration

    def close(self) -> None:
        """Stop following. Idempotent."""
        self._ended = True
        self._run.drop_reader(self._changed)

    def _take(self) -> Event | None:
        run = self._run
        if self._accepted is not None:
            accepted, self._accepted = self._accepted, None
            return accepted
        if run.started is not None and not self._seen_start:
            self._seen_start = True
            return run.started
        if run.progress_number > self._seen_progress and run.progress is not None:
            self._seen_progress = run.progress_number
            return run.progress
        if run.error is not None:
            self.close()
            raise run.error
        if run.end is not None:
            self.close()
            return run.end
        return None
