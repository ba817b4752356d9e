"""Turns that a real supervisor runs over a real store, with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from support.runtime_fakes import FakeExecutor, FakeModel, FakeModels, agent
from support.runtime_rig import open_store
from turnwire.extend.events import TurnState
from turnwire.extend.llm import Finish, FinishReason, TextDelta
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.compaction import CompactionRules
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.engine.commands import CommandDesk
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.supervisor import Supervisor
from turnwire.runtime.store.turn_store import TurnStore

STOP = Finish(FinishReason.STOP)
# A scripted model gives no summaries.
WHOLE = CompactionRules(enabled=False)


class Observer:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.open: dict[TurnKey, int] = {}
        self.closed = 0
        self.changed = asyncio.Event()

    def turn_opened(self, key: TurnKey, epoch: int) -> None:
        self.open[key] = epoch
        self.changed.set()

    def turn_closed(self, key: TurnKey, epoch: int) -> None:
        assert self.open.pop(key) == epoch
        self.closed += 1
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds after some change."""
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Rig:
    """A supervisor over a real store and a scripted model."""

    def __init__(
        self,
        store: TurnStore,
        model: FakeModel,
        *agents: AgentDefinition,
        max_live: int,
        compaction: CompactionRules = WHOLE,
    ) -> None:
        self.store = store
        self.observer = Observer()
        self.agents = AgentCatalog(agents or [agent(organization_id="*", tools=[])], store.thread_agent)
        self.executor = FakeExecutor()
        context = TurnContext(store, FakeModels(model), self.executor, 0.0, compaction=compaction)
        self.supervisor = Supervisor(context, self.agents, self.observer, max_live=max_live)
        self.desk = CommandDesk(store)
        self.desk.supervisor = self.supervisor

    async def state(self, key: TurnKey) -> TurnState:
        return (await self.store.get_turn(key)).state

    async def ended(self, key: TurnKey) -> TurnState:
        """Wait for the end of a turn and return how it ended."""
        _, log = await self.store.follow(key)
        if log is not None:
            await log.wait_finished(5, lambda: False)
        return await self.state(key)


@asynccontextmanager
async def rig(
    path: Path | str,
    model: FakeModel,
    *agents: AgentDefinition,
    max_live: int = 100,
    runtime_id: str = "runtime",
    compaction: CompactionRules = WHOLE,
) -> AsyncIterator[Rig]:
    """Open a store, in a folder or at the address of a server, and what runs its turns."""
    location = path / "runtime.db" if isinstance(path, Path) else path
    async with open_store(location, runtime_id=runtime_id) as store:
        made = Rig(store, model, *agents, max_live=max_live, compaction=compaction)
        yield made
        await made.supervisor.drain(0.0)


def answers(count: int) -> FakeModel:
    return FakeModel(*[[TextDelta("hi"), STOP]] * count)
