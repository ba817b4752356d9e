"""Cases of ControlService."""

from __future__ import annotations

from typing import Any

from support.bad_input_registry import case, request_of
from support.bad_input_rig import ALICE, BOB, OPERATOR, RUNTIME, Bad, Caller, Rig, new_id
from support.descriptors import Method

__all__ = ["attach_hello", "cancel", "connect_hello", "send"]

CONNECT, SEND, ATTACH = "ControlService.Connect", "ControlService.SendCommand", "ControlService.Attach"
GET, LIST, WATCH = "ControlService.GetCommand", "ControlService.ListCommands", "ControlService.WatchCommands"


def connect_hello(client_id: str = "bad-client") -> Any:
    """The first message of a client."""
    request = request_of(CONNECT)
    request.hello.client_id = client_id
    return request


def attach_hello(runtime_id: str = "bad-runtime") -> Any:
    """The first message of a runtime."""
    request = request_of(ATTACH)
    request.hello.runtime_id = runtime_id
    return request


def send(command_id: str, turn: str = "threads/no-such-thread/turns/no-such-turn") -> Any:
    """A SendCommand request that cancels a turn and does not wait."""
    request = request_of(SEND)
    request.command.MergeFrom(cancel(command_id, turn))
    request.wait_timeout.SetInParent()
    return request


def cancel(command_id: str, turn: str = "threads/no-such-thread/turns/no-such-turn") -> Any:
    """A command that cancels a turn."""
    command = request_of(SEND).command
    command.command_id = command_id
    command.target.turn = turn
    command.cancel_turn.SetInParent()
    return command


async def settled(rig: Rig, caller: Caller = ALICE) -> str:
    """Send a command and wait for its outcome; returns its id."""
    request = send(new_id())
    request.wait_timeout.seconds = 20
    (answer,) = await rig.ask(SEND, request, caller=caller)
    assert answer.command.HasField("outcome")
    return str(request.command.command_id)


@case("HELLO_EXPECTED", CONNECT)
async def command_first(rig: Rig, method: Method) -> Bad:
    request = request_of(CONNECT)
    request.command.MergeFrom(cancel(new_id()))
    return Bad.of(request)


@case("HELLO_REPEATED", CONNECT)
async def second_hello(rig: Rig, method: Method) -> Bad:
    return Bad.of(connect_hello(), connect_hello())


@case("INVALID_REQUEST", CONNECT)
async def no_client_id(rig: Rig, method: Method) -> Bad:
    return Bad.of(connect_hello("a client"))


@case("INVALID_REQUEST", SEND)
async def nothing_to_do(rig: Rig, method: Method) -> Bad:
    request = send(new_id())
    request.command.ClearField("cancel_turn")
    return Bad.of(request)


@case("COMMAND_ID_REUSED", SEND)
async def other_command(rig: Rig, method: Method) -> Bad:
    return Bad.of(send(await settled(rig), "threads/another-thread/turns/another-turn"))


@case("INVALID_REQUEST", GET)
async def no_command_id(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET, command_id="short"))


@case("COMMAND_NOT_FOUND", GET)
async def foreign_command(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET, command_id=await settled(rig, BOB)))


@case("INVALID_REQUEST", LIST)
async def negative_page(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(LIST, page_size=-1))


@case("PAGE_TOKEN_MISMATCH", LIST)
async def token_of_another_filter(rig: Rig, method: Method) -> Bad:
    await settled(rig)
    await settled(rig)
    (answer,) = await rig.ask(LIST, request_of(LIST, page_size=1))
    return Bad.of(request_of(LIST, page_token=answer.next_page_token, filter="state=DONE"))


@case("INVALID_REQUEST", WATCH)
async def strange_filter(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(WATCH, filter="colour=red"), caller=OPERATOR.within("acme"))


@case("HELLO_EXPECTED", ATTACH)
async def turns_first(rig: Rig, method: Method) -> Bad:
    request = request_of(ATTACH)
    request.turns_opened.SetInParent()
    return Bad.of(request, caller=RUNTIME)


@case("HELLO_REPEATED", ATTACH)
async def second_attach_hello(rig: Rig, method: Method) -> Bad:
    return Bad.of(attach_hello(), attach_hello(), caller=RUNTIME)


@case("INVALID_REQUEST", ATTACH)
async def no_runtime_id(rig: Rig, method: Method) -> Bad:
    return Bad.of(attach_hello(""), caller=RUNTIME)
