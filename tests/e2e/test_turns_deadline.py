"""A tool that overruns its deadline ends with its whole process tree, and the turn goes on."""

from __future__ import annotations

import asyncio

import pytest

from support.executor_process import processes_with
from support.strict_provider import says
from support.turn_rig import TurnRig, arms
from support.turn_tools import SCRIPTS
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

# Seconds from the tool's start to its end, by the times of the events: the limit is 1 s. Whoever ignores TERM
# is killed 2 s later.
LIMITS = dict.fromkeys(SCRIPTS, 1.5) | {"ignores_term": 3.5}


@pytest.mark.parametrize("tool", LIMITS)
async def test_an_overrun_ends_in_time_with_its_tree_and_its_output(rig: TurnRig, tool: str) -> None:
    model = f"deadline-{tool}"
    rig.provider.queue(model, says(calls=[(tool, {})]), says("too ", "late"))
    async with asyncio.timeout(60):
        stream = rig.run(rig.request(f"openai:{model}"))
        started = await stream.until("tool_call_started")
        finished = await stream.until("tool_call_finished")
        # Every process of a call has the turn's name in its environment.
        left = processes_with(f"TURNWIRE_TURN={started.turn}")
        events = await stream.rest()
    assert left == []
    call = finished.tool_call_finished
    assert call.outcome == ToolOutcome.TOOL_OUTCOME_TIMED_OUT
    assert call.is_error
    assert "started" in call.content
    assert "<tool_timeout" in call.content
    seconds = (finished.create_time.ToNanoseconds() - started.create_time.ToNanoseconds()) / 1e9
    print(f"\n{tool}: {seconds:.3f} s from start to end")
    assert 1.0 <= seconds <= LIMITS[tool]
    assert started.tool_call_started.execution_timeout.ToMilliseconds() == 1000
    end = events[-1].turn_finished
    assert (end.state, end.text) == (TurnState.TURN_STATE_COMPLETED, "too late")
    assert arms(events).count("turn_finished") == 1
    # The model read the same text as the client.
    told = rig.provider.requests[model][1]["messages"][-1]
    assert (told["role"], told["content"]) == ("tool", call.content)
    assert rig.provider.refusals == []


async def test_a_process_of_a_running_tool_is_found_by_its_turn(rig: TurnRig) -> None:
    # Without this, the test above could look for the wrong mark and see nothing.
    rig.provider.queue("deadline-look", says(calls=[("session", {})]))
    async with asyncio.timeout(60):
        stream = rig.run(rig.request("openai:deadline-look"))
        started = await stream.until("tool_call_progress")
        assert len(processes_with(f"TURNWIRE_TURN={started.turn}")) >= 2
        await stream.rest()
        assert processes_with(f"TURNWIRE_TURN={started.turn}") == []
