"""A stop that meets the recovery of a turn: what the executor knows of its calls is told all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from support.ledger_executor import LedgerExecutor
from support.postgres import Location
from support.recovery_rig import StepModel, World, check_told, spin
from support.runtime_fakes import call, tool
from turnwire.extend.events import ToolOutcome
from turnwire.extend.llm import Finish, FinishReason, TextDelta
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.engine.cancel import CancelToken

STEPS = (
    [TextDelta("I "), TextDelta("write."), call("write", "{}", "p1"), Finish(FinishReason.TOOL_CALLS)],
    [TextDelta("Done."), Finish(FinishReason.STOP)],
)


class SlowToList(LedgerExecutor):
    """Keeps the second who asks for its tools waiting."""

    def __init__(self, *tools: ToolInfo) -> None:
        super().__init__(*tools)
        self.asked = 0
        self.waits = asyncio.Event()

    async def list_tools(self) -> Sequence[ToolInfo]:
        self.asked += 1
        if self.asked > 1:
            self.waits.set()
            await asyncio.Event().wait()
        return await super().list_tools()


async def test_a_stop_while_a_recovery_asks_for_the_tools_still_hears_how_its_calls_ended(
    fresh_location: Callable[..., Location],
) -> None:
    # Found by random kills.
    executor = SlowToList(tool("write"))
    gate = executor.held["write"] = asyncio.Event()
    made = World(fresh_location(), StepModel(*STEPS), executor)
    assert not await made.live(4)
    assert executor.started("write") == 1
    gate.set()
    await spin()

    async def stop(token: CancelToken) -> None:
        await executor.waits.wait()
        token.cancel("enough")

    assert await made.live(while_running=stop)
    log, transcript = await made.told()
    check_told(log, transcript)
    assert log[-1].turn_finished.stop_reason == "cancelled"
    calls = [p for m in transcript for p in m.parts if isinstance(p, CallPart)]
    assert [c.outcome for c in calls] == [ToolOutcome.SUCCEEDED]
    assert executor.started("write") == 1
