"""A real, small model on this machine: what it says reaches readers as what any provider says.

What it says is its own affair; that it is told whole, counted, stopped and held to a shape is ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from support.local_model import FETCHED, LocalModel, local_model
from support.turn_rig import TurnRig, arms, turn_rig
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.llm.v1 import llm_event_pb2 as llm
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_pb2
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not FETCHED, reason="no local model: scripts/local_model.sh fetch brings it"),
]

AGENT = "model: local:smollm2\ntools: ['*']\n"
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string"}, "warm": {"type": "boolean"}},
    "required": ["colour", "warm"],
    "additionalProperties": False,
}


@dataclass
class Local:
    """The three services with the model behind them."""

    rig: TurnRig
    model: LocalModel

    async def whole(self, text: str, **fields: Any) -> list[event_pb.TurnEvent]:
        """Run a turn to its end."""
        return await self.rig.run(self.rig.request("", text, **fields)).rest()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Local]:
    async with local_model() as model:
        # Its server does hold answers to a schema.
        profile = {"base_url": model.url, "response_schema": "field"}
        runtime = {"TURNWIRE_RUNTIME_MODELS__PROVIDERS": json.dumps({"local": profile})}
        folder = tmp_path_factory.mktemp("local-model")
        async with turn_rig(folder, agent=AGENT, runtime=runtime) as rig:
            yield Local(rig, model)


def text_of(events: list[event_pb.TurnEvent]) -> str:
    return "".join(event.llm.text_delta.text for event in events)


async def test_an_answer_streams_and_is_counted(local: Local) -> None:
    options = turn_pb2.ModelOptions(max_output_tokens=24)
    events = await local.whole("Say hello to Ann.", model_options=options)
    end = events[-1].turn_finished
    assert end.state == TurnState.TURN_STATE_COMPLETED
    assert arms(events).count("text_delta") > 1
    assert end.text == text_of(events) != ""
    (usage,) = [event.llm.usage_snapshot.usage for event in events if event.llm.HasField("usage_snapshot")]
    assert usage.provenance == llm.USAGE_PROVENANCE_REPORTED
    assert 0 < usage.output_tokens <= 24


async def test_a_cancel_in_the_middle_keeps_the_text_and_stops_the_model(local: Local) -> None:
    before = await local.model.aborted()
    options = turn_pb2.ModelOptions(max_output_tokens=2000)
    request = local.rig.request("", "Tell me a very long story about a fox.", model_options=options)
    stream = local.rig.run(request)
    await stream.until("text_delta", 5)
    outcome = await local.rig.cancel(turn=stream.header.turn)
    assert outcome.kind == command_pb.OUTCOME_KIND_APPLIED
    events = await stream.rest()
    end = events[-1].turn_finished
    assert (end.state, end.text) == (TurnState.TURN_STATE_CANCELLED, text_of(events))
    async with asyncio.timeout(30):
        while await local.model.aborted() == before:
            continue


async def test_an_answer_fits_the_schema_that_it_is_forced_to(local: Local) -> None:
    events = await local.whole("Name a colour.", response_schema_json=json.dumps(SCHEMA))
    end = events[-1].turn_finished
    assert (end.state, end.steps) == (TurnState.TURN_STATE_COMPLETED, 1)
    assert json.loads(end.text).keys() == {"colour", "warm"}


async def test_a_forced_call_runs_and_its_result_is_answered(local: Local) -> None:
    choice = turn_pb2.ToolChoice(mode=turn_pb2.TOOL_CHOICE_MODE_TOOL, tool_name="shout")
    events = await local.whole("Shout the word hello.", tool_choice=choice)
    (call,) = [event.llm.tool_call_complete for event in events if event.llm.HasField("tool_call_complete")]
    assert call.tool_name == "shout"
    assert isinstance(json.loads(call.arguments_json)["text"], str)
    (ended,) = [event.tool_call_finished for event in events if event.HasField("tool_call_finished")]
    assert ended.outcome == ToolOutcome.TOOL_OUTCOME_SUCCEEDED
    end = events[-1].turn_finished
    assert (end.state, end.steps) == (TurnState.TURN_STATE_COMPLETED, 2)
