"""Text and numbers that are hard to keep, from the model and from tools to every reader, on both engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support import text_tools
from support.postgres import Location, plain_connection
from support.strict_provider import Reply, says
from support.turn_rig import TurnRig, turn_rig
from turnwire.api.common.v1 import tool_pb2
from turnwire.api.runtime.v1 import turn_event_pb2, turn_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
EMOJI = "😀"
BIG = 9_007_199_254_740_993  # 2**53 + 1, which no double can hold
SECONDS = 100


@pytest_asyncio.fixture
async def rig(tmp_path: Path, store_location: Location) -> AsyncIterator[TurnRig]:
    """Three services whose runtime has its store on each engine in turn."""
    runtime = {"TURNWIRE_RUNTIME_STORE__URL": store_location} if isinstance(store_location, str) else {}
    executor = {"TURNWIRE_EXECUTOR_TOOLS": str(Path(text_tools.__file__))}
    async with asyncio.timeout(SECONDS), turn_rig(tmp_path, runtime=runtime, executor=executor) as rig:
        yield rig


@pytest.fixture
def store(tmp_path: Path, store_location: Location) -> Location:
    """Where the rig's runtime has its store."""
    return store_location if isinstance(store_location, str) else tmp_path / "data" / "runtime.db"


def said(events: list[turn_event_pb2.TurnEvent]) -> list[str]:
    return [event.llm.text_delta.text for event in events if event.llm.HasField("text_delta")]


def results(events: list[turn_event_pb2.TurnEvent]) -> list[turn_event_pb2.ToolCallFinished]:
    return [event.tool_call_finished for event in events if event.HasField("tool_call_finished")]


def rows(store: Location, sql: str) -> list[Any]:
    with closing(plain_connection(store)) as db:
        return [row[0] for row in db.execute(sql).fetchall()]


def calls(*calls: tuple[str, str]) -> Reply:
    """An answer with tool calls whose arguments are these very texts."""
    reply = says(calls=[(name, {"marker": index}) for index, (name, _) in enumerate(calls)])
    pieces = [piece for piece in reply.pieces if isinstance(piece, bytes)]
    for index, (_, arguments) in enumerate(calls):
        marker = json.dumps(json.dumps({"marker": index})).encode()
        pieces = [piece.replace(marker, json.dumps(arguments).encode()) for piece in pieces]
    return Reply(pieces)


async def test_characters_that_are_none_are_replaced_once_and_alike_everywhere(
    rig: TurnRig, store: Location
) -> None:
    rig.provider.queue("a", says("a\0b ", "\ud83d", "\ude00 ", "\ud83d", " c", calls=[("broken", {})]))
    rig.provider.queue("a", says("done\0"))
    events = await rig.whole("openai:a")
    repaired = f"a\ufffdb {EMOJI} \ufffd c"
    assert "".join(said(events)) == f"{repaired}done\ufffd"
    assert [result.content for result in results(events)] == [repaired]
    assert events[-1].turn_finished.text == "done\ufffd"
    assert await rig.watch(events[0].turn).rest() == events
    texts = rows(store, "SELECT text FROM message_parts ORDER BY message_id, part_index")
    assert sorted(texts) == sorted(["hello", repaired, "done\ufffd"])
    assert rows(store, "SELECT content FROM tool_calls") == [repaired]


async def test_four_mebibytes_of_emoji_arrive_whole(rig: TurnRig, store: Location) -> None:
    words = [EMOJI * 4096] * 256
    rig.provider.queue("a", calls(("emoji", f'{{"count": {MIB}}}')), says(*words))
    events = await rig.whole("openai:a")
    assert "".join(said(events)) == EMOJI * MIB
    assert max(len(text.encode()) for text in said(events)) <= 32 * 1024
    assert max(event.ByteSize() for event in events) <= MIB
    end = events[-1].turn_finished
    assert (end.state, end.text_truncated) == (turn_pb2.TURN_STATE_COMPLETED, True)
    assert len(end.text.encode()) <= 256 * 1024
    assert set(end.text) == {EMOJI}
    (result,) = results(events)
    assert result.outcome == tool_pb2.TOOL_OUTCOME_SUCCEEDED
    assert len(result.content) <= 51_000
    assert result.overflow.size_bytes == 4 * MIB
    read = rig.turns.ReadToolResult(pb.ReadToolResultRequest(turn=events[0].turn, call_id=result.call_id))
    assert b"".join([chunk.data async for chunk in read]) == (EMOJI * MIB).encode()
    assert EMOJI * MIB in rows(store, "SELECT text FROM message_parts")


async def test_numbers_of_any_size_reach_the_tool_as_the_model_wrote_them(
    rig: TurnRig, store: Location
) -> None:
    written = f'{{"value": {BIG}}}'
    rig.provider.queue("a", calls(("number", written), ("number", f'{{"value": -{BIG}}}')), says("done"))
    events = await rig.whole("openai:a")
    assert [result.content for result in results(events)] == [str(BIG), str(-BIG)]
    complete = [event.llm.tool_call_complete for event in events if event.llm.HasField("tool_call_complete")]
    assert complete[0].arguments_json == written
    assert written in rows(store, "SELECT arguments FROM tool_calls")


async def test_arguments_that_mean_nothing_certain_run_nothing_and_are_told_to_the_model(
    rig: TurnRig,
) -> None:
    uncertain = {
        '{"value": NaN}': "NaN",
        '{"value": 1, "value": 2}': "twice",
        '{"value": -Infinity}': "Infinity",
    }
    rig.provider.queue("a", calls(*(("number", arguments) for arguments in uncertain)), says("I see"))
    events = await rig.whole("openai:a")
    ends = sorted(results(events), key=lambda result: result.call_index)
    for result, why in zip(ends, uncertain.values(), strict=True):
        assert result.is_error
        assert result.outcome == tool_pb2.TOOL_OUTCOME_FAILED
        assert why in result.content
    assert not any(event.HasField("tool_call_started") for event in events)
    assert events[-1].turn_finished.text == "I see"
