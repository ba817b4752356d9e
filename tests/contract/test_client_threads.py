"""Both clients follow a thread, change it and edit what waits in it, against a scripted server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from support.scripted_runtime import CUT, Failure, ScriptedRuntime, serving
from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.api.runtime.v1.content_pb2 import Part, UriContent
from turnwire.api.runtime.v1.thread_pb2 import Thread
from turnwire.api.runtime.v1.turn_pb2 import Turn
from turnwire_client import AsyncClient, Client, NotFound, Patience, Unavailable

PATIENCE = Patience(connect_time=0.5, retry_time=5.0, silence=2.0)
THREAD = "threads/thread-1"
LAST = 5


class ThreadScript(ScriptedRuntime):
    """Changes of versions 1 to LAST, the last one the deletion; each leg plays some of them, then its end."""

    def __init__(self, *legs: tuple[int, Failure | None]) -> None:
        super().__init__([])
        self.script = deque(legs)

    async def WatchThread(self, request: Any, context: Any) -> AsyncIterator[pb.WatchThreadResponse]:
        self.note(request, context)
        until, failure = self.script.popleft() if self.script else (LAST, None)
        yield pb.WatchThreadResponse()
        for version in range(request.after_version + 1, until + 1):
            change = pb.WatchThreadResponse(version=version)
            if version == LAST:
                change.deleted.SetInParent()
            else:
                change.metadata_changed.thread.title = str(version)
            yield change
        if failure is not None:
            await failure.abort(context)
        if until == 0:
            await self.hold()

    async def UpdateThread(self, request: Any, context: Any) -> Any:
        return await self.unary(
            "UpdateThread", request, context, pb.UpdateThreadResponse(thread=request.thread)
        )

    async def ListQueuedTurns(self, request: Any, context: Any) -> Any:
        token = "" if request.page_token else "more"
        page = pb.ListQueuedTurnsResponse(
            turns=[Turn(name=f"after {request.page_token}")], next_page_token=token
        )
        return await self.unary("ListQueuedTurns", request, context, page)

    async def UpdateQueuedTurn(self, request: Any, context: Any) -> Any:
        answer = pb.UpdateQueuedTurnResponse(turn=Turn(name=request.name, etag="new"))
        return await self.unary("UpdateQueuedTurn", request, context, answer)


async def versions(runtime: ThreadScript, kind: str, after: int = 0) -> list[int]:
    """Follow the thread to its end with one of the clients."""

    def plainly(target: str) -> list[int]:
        with Client(target, patience=PATIENCE) as client, client.watch_thread(THREAD, after=after) as stream:
            return [change.version for change in stream]

    async with asyncio.timeout(20), serving(runtime) as target:
        if kind == "sync":
            return await asyncio.to_thread(plainly, target)
        async with (
            AsyncClient(target, patience=PATIENCE) as client,
            client.watch_thread(THREAD, after=after) as stream,
        ):
            return [change.version async for change in stream]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_stream_of_changes_ends_with_the_thread(kind: str) -> None:
    assert await versions(ThreadScript(), kind) == [1, 2, 3, 4, 5]
    assert await versions(ThreadScript(), kind, after=3) == [4, 5]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_cut_or_an_early_end_is_gone_on_from_the_last_change(kind: str) -> None:
    runtime = ThreadScript((2, CUT), (2, CUT), (3, None), (4, CUT))
    assert await versions(runtime, kind) == [1, 2, 3, 4, 5]
    assert [request.after_version for request in runtime.requests] == [0, 2, 2, 3, 4]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_refusal_is_raised(kind: str) -> None:
    gone = Failure(grpc.StatusCode.NOT_FOUND, reason="THREAD_DELETED")
    with pytest.raises(NotFound) as caught:
        await versions(ThreadScript((1, CUT), (0, gone)), kind)
    assert caught.value.reason == "THREAD_DELETED"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_server_that_stays_away_is_given_up(kind: str) -> None:
    def plainly() -> None:
        with Client("127.0.0.1:1", patience=PATIENCE) as client, client.watch_thread(THREAD) as stream:
            next(stream)

    with pytest.raises(Unavailable):
        if kind == "sync":
            await asyncio.to_thread(plainly)
        else:
            async with (
                AsyncClient("127.0.0.1:1", patience=PATIENCE) as client,
                client.watch_thread(THREAD) as stream,
            ):
                await anext(stream)


async def test_a_closed_stream_ends_the_iteration_of_whoever_reads_it() -> None:
    runtime = ThreadScript((0, None))
    async with asyncio.timeout(20), serving(runtime) as target, AsyncClient(target) as client:
        stream = client.watch_thread(THREAD)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(anext(stream, None))
            while not runtime.requests:
                await asyncio.sleep(0)
            stream.close()
        assert reading.result() is None
        await runtime.detached.wait()


async def test_a_silent_stream_is_taken_for_dead_and_opened_anew() -> None:
    patience = Patience(connect_time=0.5, retry_time=5.0, silence=0.3)
    runtime = ThreadScript((0, None))
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target, patience=patience) as client,
        client.watch_thread(THREAD, after=3) as stream,
    ):
        assert [change.version async for change in stream] == [4, 5]
    assert len(runtime.requests) == 2


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_threads_and_queues_are_changed_with_what_was_read(kind: str) -> None:
    runtime = ThreadScript()
    picture = Part(uri=UriContent(uri="https://example.org/picture"))
    turn = Turn(name=f"{THREAD}/turns/turn-1", etag="old")

    def plainly(target: str) -> tuple[Thread, list[str], str]:
        with Client(target, patience=PATIENCE) as client:
            return (
                client.update_thread(Thread(name=THREAD, title="new"), "title", "labels", expected_version=7),
                [each.name for each in client.list_queued_turns("thread-1", page_size=3)],
                client.update_queued_turn(turn, "better", parts=[picture]).etag,
            )

    async with asyncio.timeout(20), serving(runtime) as target:
        if kind == "sync":
            thread, names, etag = await asyncio.to_thread(plainly, target)
        else:
            async with AsyncClient(target, patience=PATIENCE) as client:
                thread = await client.update_thread(
                    Thread(name=THREAD, title="new"), "title", "labels", expected_version=7
                )
                names = [each.name async for each in client.list_queued_turns("thread-1", page_size=3)]
                etag = (await client.update_queued_turn(turn, "better", parts=[picture])).etag
    update, first, second, edit = runtime.requests
    assert (thread.title, names, etag) == ("new", ["after ", "after more"], "new")
    assert (list(update.update_mask.paths), update.expected_version) == (["title", "labels"], 7)
    assert (first.parent, first.page_size, second.page_token) == (THREAD, 3, "more")
    assert (edit.name, edit.etag) == (turn.name, "old")
    assert [part.WhichOneof("content") for part in edit.input.parts] == ["text", "uri"]
