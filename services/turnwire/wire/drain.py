"""How a process leaves: readiness first, then new work, then running work, then the port.

`server.stop` closes the port at once, so everything that clients should still learn comes before it. A second
signal ends the wait; a third one kills, as the handlers are gone by then.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwire.core.settings import DrainSettings
from turnwire.wire.health import Health

__all__ = ["DrainHook", "StopSignals", "Stoppable", "drain"]

logger = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_REFUSE_SECONDS = 2.0


class Stoppable(Protocol):
    """What the sequence ends with: a server that stops within `grace` seconds."""

    async def stop(self, grace: float) -> None:
        """Stop; calls that are open get `grace` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class DrainHook:
    """One part of a process that has something to do before it leaves.

    Args:
        name: for the log.
        refuse: stops taking work and tells peers (`go_away`); quick, at most 2 s.
        finish: returns when running work has finished or is checkpointed; cancelled after the stop grace.
    """

    name: str
    refuse: Callable[[], Awaitable[None]] | None = None
    finish: Callable[[], Awaitable[None]] | None = None


class StopSignals:
    """SIGTERM and SIGINT as events: the first asks for a drain, the second for an end now."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def install(self) -> None:
        """Take the signals over, on the running loop."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.received)

    def remove(self) -> None:
        """Give the signals back to their defaults."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def received(self) -> None:
        """Count one request to stop."""
        if not self.first.is_set():
            self.first.set()
            return
        self.second.set()
        self.remove()


async def drain(
    server: Stoppable,
    health: Health,
    settings: DrainSettings,
    hooks: Sequence[DrainHook],
    *,
    loopback: bool,
    at_once: asyncio.Event,
) -> bool:
    """Run the whole sequence; return False if `at_once` cut it short.

    A hook that fails or takes too long is logged and does not stop the sequence.
    """
    logger.info("drain.started", extra={"delay": settings.delay(loopback=loopback)})
    health.drain()
    finished = await _unless(at_once, _leave(settings, hooks, loopback))
    health.end()
    await server.stop(settings.last_stop(loopback=loopback) if finished else 0.0)
    logger.info("drain.finished", extra={"complete": finished})
    return finished


async def _leave(settings: DrainSettings, hooks: Sequence[DrainHook], loopback: bool) -> None:
    await asyncio.sleep(settings.delay(loopback=loopback))
    for hook in hooks:
        if hook.refuse is not None:
            await _run(hook.name, "refuse", hook.refuse, _REFUSE_SECONDS)
    async with asyncio.TaskGroup() as group:
        for hook in hooks:
            if hook.finish is not None:
                group.create_task(_run(hook.name, "finish", hook.finish, settings.stop_grace_seconds))


async def _run(name: str, step: str, action: Callable[[], Awaitable[None]], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await action()
    except TimeoutError:
        logger.warning("drain.hook_timeout", extra={"hook": name, "step": step, "seconds": seconds})
    except Exception:
        logger.exception("drain.hook_failed", extra={"hook": name, "step": step})


async def _unless(event: asyncio.Event, work: Awaitable[None]) -> bool:
    """Await `work` and return True, or cancel it as soon as `event` is set and return False."""
    finished = False

    async def main() -> None:
        nonlocal finished
        await work
        finished = True
        waiter.cancel()

    async def watch() -> None:
        await event.wait()
        worker.cancel()

    async with asyncio.TaskGroup() as group:
        worker = group.create_task(main())
        waiter = group.create_task(watch())
    return finished
