"""Cases of the methods of ThreadService that edit what has been said."""

from __future__ import annotations

from typing import Any

from support.bad_input_registry import case, request_of
from support.bad_input_rig import BOB, Bad, Rig, new_id
from support.bad_input_turns import MISSING_THREAD, MISSING_TURN, done_turn, hung_turn, new_thread
from support.descriptors import Method
from turnwire.api.runtime.v1 import message_pb2

DELETE, FORK = "ThreadService.DeleteThread", "ThreadService.ForkThread"
REGENERATE, RETRY = "ThreadService.RegenerateTurn", "ThreadService.RetryTurn"
HIDE = "ThreadService.SetMessageVisibility"
HIDDEN = message_pb2.MESSAGE_VISIBILITY_HIDDEN


async def _thread(rig: Rig, name: str) -> Any:
    (found,) = await rig.ask("ThreadService.GetThread", request_of("ThreadService.GetThread", name=name))
    return found


async def _edit(rig: Rig, method: str, thread: str, **fields: Any) -> Any:
    """A request to edit a thread at its version: it would be taken but for what a case changes."""
    found = await _thread(rig, thread)
    request = request_of(method, thread=thread, **fields)
    if method != FORK:
        request.expected_version = found.thread.version
    if method == HIDE:
        request.visibility = HIDDEN
        request.messages.append(found.messages[-1].name)
    else:
        request.request_id = request.request_id or new_id()
    return request


async def _retry(rig: Rig, turn: str, **fields: Any) -> Any:
    found = await _thread(rig, turn.partition("/turns/")[0])
    version = found.thread.version
    return request_of(RETRY, **{"turn": turn, "request_id": new_id(), "expected_version": version, **fields})


async def _waiting_thread(rig: Rig) -> Any:
    """A thread whose last message is still open, though no turn runs: as while somebody is asked."""
    if "open message" not in rig.made:
        (fork,) = await rig.ask(FORK, await _edit(rig, FORK, (await done_turn(rig)).thread))
        (message,) = (await _thread(rig, fork.thread.name)).messages[-1:]
        _, thread, _, message_id = message.name.split("/")
        rig.change(
            "runtime",
            "UPDATE messages SET status = 'open' WHERE thread_id = ? AND message_id = ?",
            *(thread, message_id),
        )
        rig.made["open message"] = fork.thread.name
    return rig.made["open message"]


@case("INVALID_REQUEST", DELETE)
async def no_name(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(DELETE))


@case("THREAD_NOT_FOUND", DELETE)
async def foreign_thread(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(DELETE, name=await new_thread(rig, BOB)))


@case("THREAD_CHANGED", DELETE)
async def old_thread(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(DELETE, name=(await done_turn(rig)).thread, expected_version=1))


@case("INVALID_REQUEST", REGENERATE, HIDE)
async def no_version(rig: Rig, method: Method) -> Bad:
    request = await _edit(rig, method.short, (await done_turn(rig)).thread)
    request.expected_version = 0
    return Bad.of(request)


@case("MESSAGE_NOT_FOUND", REGENERATE)
async def no_answer(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _edit(rig, REGENERATE, await new_thread(rig)))


@case("REQUEST_ID_REUSED", REGENERATE)
async def id_of_a_turn(rig: Rig, method: Method) -> Bad:
    made = await done_turn(rig)
    return Bad.of(await _edit(rig, REGENERATE, made.thread, request_id=made.request.request_id))


@case("TURN_RUNNING", REGENERATE, HIDE)
async def running_turn(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _edit(rig, method.short, (await hung_turn(rig)).thread))


@case("THREAD_CHANGED", REGENERATE, HIDE)
async def old_version(rig: Rig, method: Method) -> Bad:
    request = await _edit(rig, method.short, (await done_turn(rig)).thread)
    request.expected_version -= 1
    return Bad.of(request)


@case("INVALID_REQUEST", RETRY)
async def no_request_id(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _retry(rig, (await done_turn(rig)).turn, request_id=""))


@case("TURN_NOT_FOUND", RETRY)
async def missing_turn(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(RETRY, turn=MISSING_TURN, request_id=new_id(), expected_version=1))


@case("REQUEST_ID_REUSED", RETRY)
async def id_of_another_turn(rig: Rig, method: Method) -> Bad:
    made = await done_turn(rig)
    return Bad.of(await _retry(rig, made.turn, request_id=made.request.request_id))


@case("TURN_RUNNING", RETRY)
async def running_retry(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _retry(rig, (await hung_turn(rig)).turn))


@case("TURN_NOT_RETRYABLE", RETRY)
async def completed_turn(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _retry(rig, (await done_turn(rig)).turn))


@case("THREAD_CHANGED", RETRY)
async def old_retry(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _retry(rig, (await done_turn(rig)).turn, expected_version=1))


@case("MESSAGE_NOT_FOUND", HIDE)
async def foreign_message(rig: Rig, method: Method) -> Bad:
    made = await done_turn(rig)
    request = await _edit(rig, HIDE, made.thread)
    request.messages[:] = [f"{made.thread}/messages/no-such-message"]
    return Bad.of(request)


@case("MESSAGE_OPEN", HIDE)
async def open_message(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _edit(rig, HIDE, await _waiting_thread(rig)))


@case("INVALID_REQUEST", FORK)
async def message_of_another_thread(rig: Rig, method: Method) -> Bad:
    request = await _edit(rig, FORK, (await done_turn(rig)).thread)
    request.message = f"{MISSING_THREAD}/messages/no-such-message"
    return Bad.of(request)


@case("MESSAGE_NOT_FOUND", FORK)
async def missing_thread(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(FORK, thread=MISSING_THREAD, request_id=new_id()))


@case("REQUEST_ID_REUSED", FORK)
async def other_fork(rig: Rig, method: Method) -> Bad:
    request = await _edit(rig, FORK, (await done_turn(rig)).thread)
    await rig.ask(FORK, request)
    request.thread_id = "another-fork"
    return Bad.of(request)


@case("THREAD_ID_USED", FORK)
async def id_taken(rig: Rig, method: Method) -> Bad:
    taken = (await new_thread(rig)).rpartition("/")[2]
    return Bad.of(await _edit(rig, FORK, (await done_turn(rig)).thread, thread_id=taken))


@case("MESSAGE_OPEN", FORK)
async def open_end(rig: Rig, method: Method) -> Bad:
    return Bad.of(await _edit(rig, FORK, await _waiting_thread(rig)))
