"""Threads are edited and deleted at one runtime while another one ran, or runs, their turns."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from support.postgres import PostgresServer
from support.runtime_pair import Pair, pair
from support.strict_provider import Hold, says
from turnwire.api.runtime.v1 import thread_service_pb2 as thread_pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.wire.rpc_errors import error_from_rpc

pytestmark = pytest.mark.e2e

MARKER = "x7q-" + uuid.uuid4().hex


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, error_from_rpc(caught.value).reason


async def snapshot(threads: Any, thread: str) -> thread_pb.GetThreadResponse:
    found: thread_pb.GetThreadResponse = await threads.GetThread(thread_pb.GetThreadRequest(name=thread))
    return found


def texts(found: thread_pb.GetThreadResponse) -> list[str]:
    return ["".join(part.content.text.text for part in message.parts) for message in found.messages]


def holders(url: str, text: str) -> list[str]:
    """The tables that hold a text in any of their rows."""
    found = []
    with psycopg.connect(url) as db:
        tables = db.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
        ).fetchall()
        wanted = (f"%{text}%", f"%{text.encode().hex()}%")
        for (table,) in tables:
            query = f'SELECT 1 FROM "{table}" AS t WHERE t::text LIKE %s OR t::text LIKE %s LIMIT 1'
            if db.execute(query, wanted).fetchone():  # type: ignore[arg-type] # the names are the catalog's
                found.append(table)
    return found


async def held(both: Pair, model: str, text: str, thread: str = "") -> tuple[Any, Hold]:
    hold = Hold()
    both.rig.provider.queue(model, says(text, hold, " and more"))
    stream = both.rig.run(both.rig.request(f"openai:{model}", MARKER, thread=thread))
    await stream.until("text_delta")
    await hold.reached.wait()
    return stream, hold


async def test_an_answer_of_one_runtime_is_made_anew_by_the_other(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), pair(postgres, tmp_path) as both:
        both.rig.provider.queue("edit", says("first answer"))
        events = await both.rig.whole("openai:edit", "hello")
        thread = events[0].turn.partition("/turns/")[0]
        seen = await snapshot(both.rig.threads, thread)
        watched = both.rig.threads.WatchThread(
            thread_pb.WatchThreadRequest(thread=thread, after_version=seen.thread.version)
        )
        asked = thread_pb.RegenerateTurnRequest(
            thread=thread, request_id=str(uuid.uuid4()), expected_version=seen.thread.version
        )
        asked.model_options.model = "openai:edit"
        both.rig.provider.queue("edit", says("second answer"))
        turn = (await both.threads_elsewhere.RegenerateTurn(asked)).turn.name
        assert (await both.rig.watch(turn).rest())[-1].turn_finished.text == "second answer"
        # The runtime that had made the first answer shows the edit, and refuses one of what was before it.
        async for message in watched:
            if message.WhichOneof("change") == "messages_superseded":
                break
        watched.cancel()
        for threads in (both.rig.threads, both.threads_elsewhere):
            assert texts(await snapshot(threads, thread)) == ["hello", "second answer"]
        asked.request_id = str(uuid.uuid4())
        assert await refused(both.rig.threads.RegenerateTurn(asked)) == ("ABORTED", "THREAD_CHANGED")


async def test_a_thread_whose_turn_runs_elsewhere_is_not_edited(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), pair(postgres, tmp_path) as both:
        stream, hold = await held(both, "busy", "it begins")
        thread = stream.header.thread
        version = (await snapshot(both.threads_elsewhere, thread)).thread.version
        asked = thread_pb.RegenerateTurnRequest(
            thread=thread, request_id=str(uuid.uuid4()), expected_version=version
        )
        code, reason = await refused(both.threads_elsewhere.RegenerateTurn(asked))
        assert (code, reason) == ("FAILED_PRECONDITION", "TURN_RUNNING")
        hold.set()
        assert (await stream.rest())[-1].turn_finished.text == "it begins and more"


async def test_a_thread_is_deleted_while_its_turn_runs_elsewhere(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), pair(postgres, tmp_path) as both:
        stream, _ = await held(both, "gone", f"it says {MARKER}")
        thread = stream.header.thread
        queued = both.rig.run(both.rig.request("openai:gone", MARKER, thread=thread))
        await queued.opened()
        await both.threads_elsewhere.DeleteThread(thread_pb.DeleteThreadRequest(name=thread))
        end = (await stream.rest())[-1].turn_finished
        assert (end.state, end.stop_reason) == (TurnState.TURN_STATE_CANCELLED, "deleted")
        for threads in (both.rig.threads, both.threads_elsewhere):
            code, _ = await refused(snapshot(threads, thread))
            assert code == "NOT_FOUND"
        while holders(both.url, MARKER):
            await asyncio.sleep(0)
