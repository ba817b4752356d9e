"""The order in which a process leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from turnwire.core.settings import DrainSettings
from turnwire.wire.drain import DrainHook, StopSignals, drain
from turnwire.wire.health import Health


class Journal:
    """Writes down what happens, as server and as hooks."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.steps: list[str] = []

    def step(
        self, name: str, wait: Callable[[], Awaitable[object]] | None = None
    ) -> Callable[[], Awaitable[None]]:
        async def action() -> None:
            self.steps.append(f"{name} draining={self.health.draining}")
            if wait is not None:
                await wait()

        return action

    async def stop(self, grace: float) -> None:
        self.steps.append(f"stop {grace:g}")


FAST = DrainSettings(drain_delay_seconds=0.0, stop_grace_seconds=0.05)


async def _never() -> None:
    await asyncio.Event().wait()


async def _fail() -> None:
    raise RuntimeError("hook broke")


async def test_readiness_goes_first_then_refusals_then_running_work_then_the_port() -> None:
    journal = Journal(Health())
    hooks = [DrainHook(name, journal.step(f"refuse {name}"), journal.step(f"finish {name}")) for name in "ab"]
    done = await drain(journal, journal.health, FAST, hooks, loopback=True, at_once=asyncio.Event())
    assert done
    assert journal.steps == [
        "refuse a draining=True",
        "refuse b draining=True",
        "finish a draining=True",
        "finish b draining=True",
        "stop 10",
    ]


async def test_a_hook_that_hangs_or_breaks_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(Health())
    hooks = [
        DrainHook("slow", None, journal.step("slow", _never)),
        DrainHook("broken", journal.step("broken", _fail), journal.step("broken", _fail)),
        DrainHook("good", None, journal.step("good")),
    ]
    assert await drain(journal, journal.health, FAST, hooks, loopback=True, at_once=asyncio.Event())
    assert journal.steps[-1] == "stop 10"
    assert "good draining=True" in journal.steps
    events = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sorted(events) == ["drain.hook_failed", "drain.hook_failed", "drain.hook_timeout"]


async def test_a_second_signal_ends_the_wait_at_once() -> None:
    signals = StopSignals()
    journal = Journal(Health())
    reached = asyncio.Event()

    async def wait() -> None:
        reached.set()
        await _never()

    hooks = [DrainHook("slow", None, journal.step("slow", wait))]
    patient = DrainSettings(drain_delay_seconds=0.0)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        signals.received()
        assert signals.first.is_set()
        leaving = group.create_task(
            drain(journal, journal.health, patient, hooks, loopback=True, at_once=signals.second)
        )
        await reached.wait()
        signals.received()
    assert leaving.result() is False
    assert journal.steps[-1] == "stop 0"


async def test_the_delay_is_zero_on_loopback_unless_asked_for() -> None:
    journal = Journal(Health())
    async with asyncio.timeout(2):
        await drain(journal, journal.health, DrainSettings(), [], loopback=True, at_once=asyncio.Event())
    assert journal.steps == ["stop 10"]
