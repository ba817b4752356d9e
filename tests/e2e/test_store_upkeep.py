"""What a runtime does with the store of an earlier version, and with what has outlived its retention."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from support.cluster import Process
from support.strict_provider import says
from support.turn_rig import TurnRig, arms, turn_rig
from turnwire.api.runtime.v1 import turn_event_pb2, turn_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb

pytestmark = pytest.mark.e2e

KEPT = Path(__file__).parents[1] / "data" / "runtime_schema_1.sql"
THREAD = "threads/4c54987508b1889dbd26"
ENDED = ("f25ba6fdb2d1ad947788", "a4b6fe9e13d2a5fa8db4")
RUNNING, QUEUED = "13d1957f80a0032e8a8a", "61cad4236a330046a821"
SECONDS = 60


def keep(path: Path) -> dict[str, bytes]:
    """Make a file with the store that schema 1 left, and return the log of each turn."""
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(KEPT.read_text("utf-8"))
        logs: dict[str, bytes] = {}
        for turn, body in db.execute("SELECT turn_id, body FROM pages ORDER BY turn_id, first_sequence"):
            logs[turn] = logs.get(turn, b"") + body
    return logs


async def raw_log(rig: TurnRig, turn: str) -> bytes:
    """The bytes of a turn's pages, as they came over the wire."""
    watch = rig.cluster.channel().unary_stream(
        "/turnwire.api.runtime.v1.TurnService/WatchTurn",
        request_serializer=pb.WatchTurnRequest.SerializeToString,
        response_deserializer=bytes,
    )
    bodies = [body async for body in watch(pb.WatchTurnRequest(turn=f"{THREAD}/turns/{turn}"))]
    return b"".join(body for body in bodies if not pb.WatchTurnResponse.FromString(body).HasField("header"))


def parsed(log: bytes) -> list[turn_event_pb2.TurnEvent]:
    return list(pb.WatchTurnResponse.FromString(log).events)


async def test_a_store_of_schema_1_is_taken_over_with_all_that_ran_and_waited(tmp_path: Path) -> None:
    kept = keep(tmp_path / "data" / "runtime.db")
    # The kept turns grow older with every day.
    forever = {"TURNWIRE_RUNTIME_RETENTION__EVENTS_DAYS": "36500"}
    async with asyncio.timeout(SECONDS), turn_rig(tmp_path, runtime=forever) as rig:
        rig.provider.queue("c", says("and on it goes"))
        rig.provider.queue("d", says("at last"))
        for turn in ENDED:
            assert await raw_log(rig, turn) == kept[turn]
        went_on, waited = await raw_log(rig, RUNNING), await raw_log(rig, QUEUED)
        assert went_on.startswith(kept[RUNNING])
        assert waited.startswith(kept[QUEUED])
        events = parsed(went_on)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert "turn_resumed" in arms(events)
        assert events[-1].turn_finished.state == turn_pb2.TURN_STATE_COMPLETED
        assert events[-1].turn_finished.text == "and on it goes"
        assert parsed(waited)[-1].turn_finished.text == "at last"
        said = [part.content.text.text for message in await rig.messages(THREAD) for part in message.parts]
        assert [text for text in said if text][:4] == ["remember me", "look ", "done it", "second"]
        # The step that was being said when the process died is said once.
        assert said.count("and on it goes") == 1
        # The result of the call that had ended was not asked for again.
        assert not Path("/tmp/kept").exists()
        # New turns of the thread see what was.
        rig.provider.queue("e", says("all of it"))
        assert (await rig.run(rig.request("openai:e", thread=THREAD)).rest())[
            -1
        ].turn_finished.text == "all of it"


async def test_a_store_of_a_later_version_keeps_the_runtime_from_starting(tmp_path: Path) -> None:
    store = tmp_path / "data" / "runtime.db"
    keep(store)
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("INSERT INTO schema_version VALUES (99, 'later', 0)")
    runtime = Process("runtime", tmp_path, {}, tmp_path / "data")
    async with asyncio.timeout(SECONDS):
        await runtime.launch()
        assert await runtime.wait() == 2
    assert "SCHEMA_NEWER" in runtime.told()
    assert "run the version that wrote it or a later one" in runtime.told()


async def test_events_go_when_the_settings_say(tmp_path: Path) -> None:
    soon = {
        "TURNWIRE_RUNTIME_RETENTION__EVENTS_DAYS": "0.000001",
        "TURNWIRE_RUNTIME_RETENTION__INTERVAL_SECONDS": "0.05",
    }
    async with asyncio.timeout(SECONDS), turn_rig(tmp_path, runtime=soon) as rig:
        rig.provider.queue("a", says("hello"))
        started = await rig.turns.StartTurn(
            pb.StartTurnRequest(request_id=(asked := rig.request("openai:a")).request_id, spec=asked.spec)
        )
        name = started.turn.name
        turn = (await rig.turns.GetTurn(_waiting(name))).turn
        while turn.first_kept_sequence == 1:
            turn = (await rig.turns.GetTurn(pb.GetTurnRequest(name=name))).turn
        assert turn.state == turn_pb2.TURN_STATE_COMPLETED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.watch(name).rest()
        assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE


def _waiting(name: str) -> pb.GetTurnRequest:
    request = pb.GetTurnRequest(name=name)
    request.wait_timeout.FromSeconds(30)
    return request
