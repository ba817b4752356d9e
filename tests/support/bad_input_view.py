"""Cases of the methods of ThreadService that follow a thread, change it, and change what waits in it."""

from __future__ import annotations

import asyncio
from typing import Any

from support.bad_input_registry import case, request_of
from support.bad_input_rig import BOB, Bad, Rig
from support.bad_input_turns import (
    MISSING_THREAD,
    MISSING_TURN,
    START,
    done_turn,
    fill,
    hung_turn,
    new_thread,
)
from support.descriptors import Method

UPDATE, WATCH = "ThreadService.UpdateThread", "ThreadService.WatchThread"
QUEUE, EDIT = "ThreadService.ListQueuedTurns", "ThreadService.UpdateQueuedTurn"


def _update(thread: str, *paths: str) -> Any:
    request = request_of(UPDATE)
    request.thread.name = thread
    request.update_mask.paths.extend(paths)
    return request


def _edit(turn: str, etag: str = "etag") -> Any:
    request = request_of(EDIT, name=turn, etag=etag)
    request.input.parts.add().text.text = "better"
    return request


@case("INVALID_REQUEST", UPDATE)
async def another_field(rig: Rig, method: Method) -> Bad:
    return Bad.of(_update(await new_thread(rig), "title", "agent"))


@case("THREAD_NOT_FOUND", UPDATE)
async def thread_of_another(rig: Rig, method: Method) -> Bad:
    return Bad.of(_update(await new_thread(rig, BOB), "title"))


@case("THREAD_CHANGED", UPDATE)
async def another_version(rig: Rig, method: Method) -> Bad:
    request = _update(await new_thread(rig), "title")
    request.expected_version = 7
    return Bad.of(request)


@case("INVALID_REQUEST", WATCH)
async def no_name_to_watch(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(WATCH, thread="turns/nothing"))


@case("THREAD_NOT_FOUND", WATCH)
async def no_thread_to_watch(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(WATCH, thread=MISSING_THREAD))


@case("THREAD_DELETED", WATCH)
async def deleted_thread(rig: Rig, method: Method) -> Bad:
    thread = await new_thread(rig)
    await rig.ask("ThreadService.DeleteThread", request_of("ThreadService.DeleteThread", name=thread))
    async with asyncio.timeout(20):
        while rig.rows()["runtime.purges"]:
            await asyncio.sleep(0.02)  # what is left of the thread goes in the background
    return Bad.of(request_of(WATCH, thread=thread))


@case("VERSION_AHEAD", WATCH)
async def version_of_tomorrow(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(WATCH, thread=await new_thread(rig), after_version=2))


@case("INVALID_REQUEST", QUEUE)
async def negative_queue(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(QUEUE, parent=await new_thread(rig), page_size=-1))


@case("PAGE_TOKEN_MISMATCH", QUEUE)
async def token_of_nothing(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(QUEUE, parent=await new_thread(rig), page_token="W10"))


@case("THREAD_NOT_FOUND", QUEUE)
async def no_thread_with_a_queue(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(QUEUE, parent=MISSING_THREAD))


@case("INVALID_REQUEST", EDIT)
async def no_input(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(EDIT, name=(await done_turn(rig)).turn, etag="etag"))


@case("TURN_NOT_FOUND", EDIT)
async def no_turn_to_edit(rig: Rig, method: Method) -> Bad:
    return Bad.of(_edit(MISSING_TURN))


@case("TURN_NOT_QUEUED", EDIT)
async def turn_that_has_ended(rig: Rig, method: Method) -> Bad:
    return Bad.of(_edit((await done_turn(rig)).turn))


@case("TURN_CHANGED", EDIT)
async def etag_of_before(rig: Rig, method: Method) -> Bad:
    live = await hung_turn(rig, "hung with an edited queue")
    (answer,) = await rig.ask(START, fill(request_of(START), thread=live.thread))
    return Bad.of(_edit(answer.turn.name))
