"""The token that stops a turn: fired once, seen by every wait.

The turn's own task is never cancelled. What may block runs in a task of its own, and the turn waits for that
task or the token, whichever comes first; so hooks, tools and model reads all see the same kind of stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from turnwire.extend.errors import AgentCancelledError, AgentControlError, AgentTimeoutError
from turnwire.runtime.domain.admission import AppliedCommand

__all__ = ["CancelToken", "HandOver", "StopRequest"]

_T = TypeVar("_T")

# How long code that was told to stop may take before it is left behind.
ABANDON_SECONDS = 2.0


class StopRequest(AgentControlError):
    """The turn is to end with a stop reason that the engine chose, as for a shutdown or a superseded turn."""

    def __init__(self, stop_reason: str, text: str) -> None:
        super().__init__(text)
        self.stop_reason = stop_reason  # type: ignore[misc]


class HandOver(Exception):
    """The owner is to let go of the turn at once, as it stands: it has not ended, and its tools run on."""


class CancelToken:
    """Stops one turn. The first `fire` decides the reason; later ones only add their commands."""

    __slots__ = ("_callbacks", "_timer", "commands", "error", "fired_at", "time_limit")

    def __init__(self) -> None:
        self.error: AgentControlError | HandOver | None = None
        self.commands: list[AppliedCommand] = []
        self.fired_at = 0.0
        # Seconds that the turn may take in all, None = no limit.
        self.time_limit: float | None = None
        self._callbacks: set[Callable[[], None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def fired(self) -> bool:
        """Whether the turn is to stop."""
        return self.error is not None

    def hand_over(self) -> bool:
        """Have the owner let go of the turn at once; returns False when the turn was already stopping."""
        return self.fire(HandOver())

    def fire(self, error: AgentControlError | HandOver, command_id: str = "") -> bool:
        """Stop the turn; returns False when it was already stopping."""
        first = self.error is None
        if first:
            self.error = error
            self.fired_at = asyncio.get_running_loop().time()
        if command_id and isinstance(self.error, AgentCancelledError):
            self._note(command_id)
        if first:
            for callback in tuple(self._callbacks):
                callback()
        return first

    def _note(self, command_id: str) -> None:
        """Keep a command for the end of the turn; one that comes too late for it is no part of that end."""
        if any(c.command_id == command_id for c in self.commands):
            return
        earlier = self.commands[0].command_id if self.commands else ""
        self.commands.append(AppliedCommand(command_id, "duplicate" if earlier else "applied", earlier))

    def cancel(self, cause: str, command_id: str = "") -> bool:
        """Stop the turn because somebody asked for it."""
        return self.fire(AgentCancelledError(cause or "cancelled on request"), command_id)

    def fire_at(self, seconds: float, limit: float) -> None:
        """Stop the turn with stop reason `timeout` after so many seconds, the rest of its `limit`."""
        self.time_limit = limit
        error = AgentTimeoutError(f"the turn used up its {limit:g} s")
        if seconds <= 0:
            self.fire(error)
            return
        self._timer = asyncio.get_running_loop().call_later(seconds, self.fire, error)

    @property
    def time_left(self) -> float | None:
        """Seconds until the turn's time is used up, None when it has no limit."""
        if self._timer is None:
            return None if self.time_limit is None else 0.0
        return max(0.0, self._timer.when() - asyncio.get_running_loop().time())

    def on_fire(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the token fires, at once if it has."""
        if self.error is not None:
            callback()
        self._callbacks.add(callback)

    def off_fire(self, callback: Callable[[], None]) -> None:
        """Forget a callback."""
        self._callbacks.discard(callback)

    def close(self) -> None:
        """Forget the timer and every waiter."""
        if self._timer is not None:
            self._timer.cancel()
        self._callbacks.clear()

    def check(self) -> None:
        """Raise the stop, if there is one."""
        if self.error is not None:
            raise self.error

    async def race(self, work: Coroutine[Any, Any, _T], *, name: str) -> _T:
        """Run `work` in a task of its own until it ends or the token fires; then the task is cancelled.

        Raises:
            AgentControlError, HandOver: the token fired; `work` was told to stop and given two seconds.
        """
        self.check_or_close(work)
        task = asyncio.create_task(work, name=name)
        done = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not done.done():
                done.set_result(None)

        task.add_done_callback(wake)
        self._callbacks.add(wake)
        try:
            await done
            if not task.done():
                await stop_task(task)
                # Whatever a stopped task ends with, but a result, is how it was stopped.
                if not task.done() or task.cancelled() or task.exception() is not None:
                    assert self.error is not None
                    raise self.error
            if task.cancelled():
                # A stray cancel inside the work must not end the turn's own task without an end of the turn.
                raise self.error or RuntimeError(f"{name} was cancelled from inside")
            return task.result()
        finally:
            self._callbacks.discard(wake)
            if not task.done():
                task.cancel()

    def check_or_close(self, work: Coroutine[Any, Any, Any]) -> None:
        """Raise the stop, if there is one, and close the coroutine that will not run."""
        if self.error is not None:
            work.close()
            raise self.error

    async def sleep(self, seconds: float) -> None:
        """Sleep, unless the token fires first. Raises the stop."""
        await self.race(asyncio.sleep(seconds), name="turn.sleep")


async def stop_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for it for two seconds; a task that swallows the cancel is left behind."""
    task.cancel()
    await asyncio.wait({task}, timeout=ABANDON_SECONDS)
