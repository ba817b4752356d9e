"""A crash at any moment of a turn: what was seen stays, the turn ends once, and each call has one result."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from support.runtime_fakes import FakeExecutor, FakeModel, FakeModels, agent, call, tool
from support.runtime_rig import command, events, history, kinds, open_store, queued, reader
from turnwire.extend.events import ToolOutcome, TurnState
from turnwire.extend.llm import (
    AssistantMessage,
    Finish,
    FinishReason,
    LlmEvent,
    ModelRequest,
    TextDelta,
    ToolMessage,
)
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionEvent,
    ExecutionProgress,
    ExecutionResult,
    ExecutionStarted,
)
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.engine.history import model_messages
from turnwire.runtime.engine.supervisor import Supervisor
from turnwire.runtime.engine.turn import TurnContext

CALLS = Finish(FinishReason.TOOL_CALLS)
MODEL = (
    [TextDelta("let me "), TextDelta("see"), call("look"), call("look"), call("write"), CALLS],
    [TextDelta("once more"), call("write"), CALLS],
    [TextDelta("all "), TextDelta("done"), Finish(FinishReason.STOP)],
)


class Nobody:
    """Hears of turns and says nothing."""

    def turn_opened(self, key: TurnKey, epoch: int) -> None: ...

    def turn_closed(self, key: TurnKey, epoch: int) -> None: ...


class Pace:
    """Lets a turn go on when its reader has taken in what it did before."""

    def __init__(self) -> None:
        self.tick = asyncio.Event()

    async def step(self) -> None:
        """Wait for the next message to be read."""
        self.tick.clear()
        await self.tick.wait()

    async def work(self, request: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        """Run a call in three paced moves."""
        yield ExecutionStarted(request.execution_timeout)
        await self.step()
        yield ExecutionProgress("half")
        await self.step()
        yield ExecutionResult(ToolOutcome.SUCCEEDED, "done")


class PacedModel(FakeModel):
    """Gives its events one message of the reader at a time."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(*MODEL)
        self._pace = pace

    async def stream(self, request: ModelRequest, **listeners: Any) -> AsyncIterator[LlmEvent]:
        async for event in super().stream(request, **listeners):
            await self._pace.step()
            yield event


def copy(source: Path, target: Path) -> None:
    """Copy a store as a crash of this moment would leave it."""
    db, other = sqlite3.connect(source), sqlite3.connect(target)
    with other:
        db.backup(other)
    db.close()
    other.close()


async def take_copies(folder: Path) -> tuple[TurnKey, TurnKey, list[tuple[Path, list[bytes]]]]:
    """Run a turn, and copy the store after each message that a reader got."""
    path = folder / "runtime.db"
    copies: list[tuple[Path, list[bytes]]] = []
    async with open_store(path) as store:
        pace = Pace()
        executor = FakeExecutor(tool("look", parallel=True), tool("write"))
        executor.behaviours.update(look=pace.work, write=pace.work)
        context = TurnContext(store, FakeModels(PacedModel(pace)), executor, 0.0)
        agents = AgentCatalog([agent(organization_id="*")], store.thread_agent)
        supervisor = Supervisor(context, agents, Nobody())
        key = (await supervisor.start(command())).key
        waiting = await queued(store, key)
        supervisor.refuse_new()
        seen: list[bytes] = []
        reading = await reader(store, key)
        async for page in reading:
            seen.append(page)
            target = folder / f"crash-{len(copies)}.db"
            await asyncio.to_thread(copy, path, target)
            copies.append((target, list(seen)))
            pace.tick.set()
        reading.close()
        await supervisor.drain(1.0)
    return key, waiting, copies


async def check(path: Path, seen: bytes, key: TurnKey, waiting: TurnKey) -> bool:
    """Recover a copy and hold it to what must be true; tells whether the turn had ended before."""
    async with open_store(path) as store:
        before = (await store.get_turn(key)).state
        assert await store.recover() == [key.thread]
        found = await history(store, key)
        assert [e.sequence for e in found] == list(range(1, len(found) + 1))
        old = events(seen)
        assert found[: len(old)] == old
        assert kinds(found).count("turn_finished") == 1
        assert kinds(found)[-1] == "turn_finished"
        asked = sorted(c for e in found for c in e.step_committed.call_ids)
        finished = [e.tool_call_finished for e in found if e.HasField("tool_call_finished")]
        assert sorted(f.call_id for f in finished) == asked
        row = await store.get_turn(key)
        assert row.state.terminal
        assert row.last_sequence == len(found)
        messages = model_messages(await store.transcript(key.thread), "fake")
        results = [m.call_id for m in messages if isinstance(m, ToolMessage)]
        calls = [c.call_id for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
        assert results == calls
        assert sorted(results) == asked
        admitted = await store.claim_next(key.thread)
        assert admitted is not None
        assert admitted.key == waiting
        return before is TurnState.COMPLETED


async def test_a_crash_after_any_message_loses_nothing_and_ends_the_turn_once(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        key, waiting, copies = await take_copies(tmp_path)
        assert len(copies) >= 20
        ended = [await check(path, b"".join(seen), key, waiting) for path, seen in copies]
    assert ended[-1]
    assert not ended[0]
