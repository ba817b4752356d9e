"""Bodies that do as they are told, and a supervisor over a real ledger, without any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwire.core.clock import SystemClock
from turnwire.executor.bodies import Room, Seat
from turnwire.executor.catalog import Catalog
from turnwire.executor.domain import (
    Call,
    Ending,
    Event,
    ExecuteCommand,
    ExecutionKey,
    Outcome,
    Result,
    StoredBytes,
)
from turnwire.executor.ledger import Ledger
from turnwire.executor.limits import Captured
from turnwire.executor.run import Run
from turnwire.executor.runs import Ended, RunLimits, Runs
from turnwire.executor.stopping import StopSwitch
from turnwire.extend.tools import ToolSpec
from turnwire.storage.database import Database, database_at

__all__ = ["FakeBody", "House", "command", "ended", "house", "outcome", "told"]

Act = Callable[[Call, StopSwitch], Coroutine[Any, Any, Ending]]


def told(text: str, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> Ending:
    """Make an ending with a short text."""
    return Ending(outcome, Captured(head=text, total_chars=len(text)), **fields)


class FakeBody:
    """A tool with `room` seats; counts its starts and keeps the calls it got."""

    def __init__(
        self,
        name: str,
        act: Act | None = None,
        *,
        room: int = 10,
        inline: bool = False,
        repeatable: bool = False,
    ) -> None:
        self.spec = ToolSpec(name, name, {"type": "object"}, digest=name, repeatable=repeatable)
        self.inline = inline
        self.calls: list[Call] = []
        self.started = asyncio.Event()
        self.room = Room(room)
        self._act = act

    def try_reserve(self) -> Seat | None:
        return _FakeSeat(self) if self.room.take() else None

    async def reserve(self) -> Seat:
        await self.room.acquire()
        return _FakeSeat(self)

    async def act(self, call: Call, stop: StopSwitch) -> Ending:
        self.calls.append(call)
        self.started.set()
        if self._act is not None:
            return await self._act(call, stop)
        # Without a script: run until stopped or out of time.
        await asyncio.wait((stop.future,), timeout=call.timeout)
        return told("so far", Outcome.STOPPED if stop.cause else Outcome.TIMED_OUT, is_error=True)


class _FakeSeat:
    def __init__(self, body: FakeBody) -> None:
        self._body = body
        self._held = True

    async def run(self, call: Call, stop: StopSwitch) -> Ending:
        return await self._body.act(call, stop)

    def release(self) -> None:
        assert self._held
        self._held = False
        self._body.room.release()


class _Keeper:
    async def keep_file(self, *arguments: Any) -> StoredBytes | None:
        return None

    async def keep_bytes(self, *arguments: Any) -> StoredBytes | None:
        return None


@dataclass
class House:
    """A supervisor and what stands under it."""

    runs: Runs
    ledger: Ledger
    database: Database

    async def follow(self, wanted: ExecuteCommand) -> list[Event]:
        """Execute and read to the end."""
        found = await self.runs.execute(wanted)
        if isinstance(found, Ended):
            return [found.end]
        run, joined = found
        return await ended(run, joined)


async def ended(run: Run, joined: bool = False) -> list[Event]:
    """Read a run to its end."""
    watch = run.watch(joined=joined, heartbeat_seconds=30)
    try:
        return [event async for event in watch]
    finally:
        watch.close()


@asynccontextmanager
async def house(folder: Path, *bodies: FakeBody, **limits: Any) -> AsyncIterator[House]:
    """Open a supervisor over the ledger in `folder`."""

    def fatal(error: BaseException) -> None:
        raise error

    database = database_at(folder / "executor.db", "turnwire.executor", on_fatal=fatal, synchronous="NORMAL")
    await database.open()
    ledger = Ledger(database.writer, database.reader, SystemClock())
    runs = Runs(Catalog(bodies), ledger, _Keeper(), SystemClock(), RunLimits(**limits))
    try:
        yield House(runs, ledger, database)
    finally:
        await runs.close()
        await database.close()


def command(call: str = "call-1", tool: str = "work", *, attempt: int = 1, **fields: Any) -> ExecuteCommand:
    """Make a request of one scope and turn."""
    key = ExecutionKey("default-org", f"threads/thread/turns/turn/{call}", attempt)
    return ExecuteCommand(key, tool, **fields)


def outcome(events: list[Event]) -> Outcome:
    """Give the outcome of the only result, which must come last."""
    results = [event for event in events if isinstance(event, Result)]
    assert len(results) == 1
    assert events[-1] is results[0]
    return results[0].outcome
