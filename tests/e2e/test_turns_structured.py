"""Answers that fit a schema, through three processes and a provider that is strict about histories."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.strict_provider import Hold, says
from support.turn_rig import TurnRig, arms, turn_rig
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
TEXT = json.dumps(SCHEMA)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnRig]:
    async with turn_rig(tmp_path_factory.mktemp("structured")) as rig:
        yield rig


async def origins(rig: TurnRig, thread: str) -> list[int]:
    return [m.origin for m in await rig.messages(thread) if m.origin]


async def test_an_answer_that_misses_is_asked_for_once_more_and_the_schema_goes_along(rig: TurnRig) -> None:
    rig.provider.queue("mends", says('{"n": ', '"one"}'), says("```json\n", '{"n": 1}', "\n```"))
    stream = rig.run(rig.request("openai:mends", response_schema_json=TEXT))
    *_, last = await stream.rest()
    assert (last.turn_finished.stop_reason, last.turn_finished.text) == ("completed", '{"n": 1}')
    first, second = rig.provider.requests["mends"]
    assert first["response_format"] == second["response_format"]
    assert first["response_format"]["json_schema"] == {"name": "response", "schema": SCHEMA, "strict": True}
    assert [m["role"] for m in second["messages"][-2:]] == ["assistant", "user"]
    assert "$.n: 'one' is not of type 'integer'" in second["messages"][-1]["content"]
    assert rig.provider.refusals == []


async def test_a_provider_without_a_field_for_it_is_told_in_the_instructions(rig: TurnRig) -> None:
    stream = rig.run(rig.request("anthropic:told", response_schema_json=TEXT))
    *_, last = await stream.rest()
    assert (last.turn_finished.stop_reason, last.turn_finished.text) == ("answer-invalid", "done")
    bodies = rig.provider.requests["told"]
    assert len(bodies) == 3
    for body in bodies:
        assert "output_config" not in body
        assert TEXT in json.dumps(body["system"][-1]["text"]).replace('\\"', '"')


async def test_a_killed_runtime_forgets_no_retry_and_adds_no_reminder_twice(rig: TurnRig) -> None:
    hold = Hold()
    rig.provider.queue("dies", says("no"), says("half ", hold), says("still no"), says("never"))
    stream = rig.run(rig.request("openai:dies", response_schema_json=TEXT))
    turn = (await stream.opened()).turn
    await stream.until("steer_applied")
    await hold.reached.wait()
    await rig.cluster.runtime.restart()
    rig.connect()
    events = await rig.watch(turn).rest()
    finished = events[-1].turn_finished
    assert (finished.state, finished.stop_reason) == (TurnState.TURN_STATE_FAILED, "answer-invalid")
    assert (finished.text, finished.steps) == ("never", 3)
    assert arms(events).count("steer_applied") == 2
    assert await origins(rig, turn.partition("/turns/")[0]) == [
        event_pb.MESSAGE_ORIGIN_REQUEST,
        event_pb.MESSAGE_ORIGIN_REMINDER,
        event_pb.MESSAGE_ORIGIN_REMINDER,
    ]
    # The second answer was asked for again, with the same history.
    before, again = rig.provider.requests["dies"][1:3]
    assert before["messages"] == again["messages"]
