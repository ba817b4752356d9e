"""Requests that are wrong as bytes or text, thrown at every method: refused, and no row is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from support.bad_input_actions import MISSING_ACTION, answer, asked_once
from support.bad_input_control import attach_hello, cancel, connect_hello, send
from support.bad_input_executor import execute
from support.bad_input_registry import UNSERVED_METHODS, caller_of, request_of
from support.bad_input_rig import ALICE, BOB, RUNTIME, Bad, Rig, new_id, refusal_of
from support.bad_input_turns import done_turn, fill, turn_with_result
from support.descriptors import Method, contract, string_fields

pytestmark = pytest.mark.asyncio(loop_scope="session")

METHODS = contract().methods
SERVED = sorted(METHODS.keys() - UNSERVED_METHODS)
MALFORMED = b"\x0a\xff\xff\xff\xff\xff"
NUL, MARK = "a\0b", "MARKED"
ILL_FORMED = b"\xed\xa0\x80\xff\xfeA"  # a lone surrogate and two bytes that no text holds, as long as MARK
FIVE_MIB = b"\x0a" + b"\x80\x80\xc0\x02" + b"x" * (5 << 20)

INVALID = ("INVALID_ARGUMENT", "INVALID_REQUEST")
# Opaque words that are compared with what was given out, or looked up, before anything else looks at them.
COMPARED = {
    "log_id": ("ABORTED", "LOG_REPLACED"),
    "page_token": ("INVALID_ARGUMENT", "PAGE_TOKEN_MISMATCH"),
}
# Fields of a resource that a request carries and that are not read.
IGNORED = {"thread.name", "thread.live_turn", "thread.forked_from", "thread.etag", "thread.organization_id"}


@pytest.fixture(name="rig")
def _rig(bad_input_rig: Rig) -> Rig:
    return bad_input_rig


async def _good(rig: Rig, method: Method) -> Any:
    """A request that the method would take."""
    made = await turn_with_result(rig)
    match method.short:
        case "TurnService.RunTurn" | "TurnService.StartTurn":
            return fill(method.new_request())
        case "TurnService.WatchTurn":
            return request_of(method.short, turn=made.turn)
        case "TurnService.GetTurn":
            return request_of(method.short, name=made.turn)
        case "TurnService.ReadToolResult":
            return request_of(method.short, turn=made.turn, call_id=made.result)
        case "TurnService.ListTurns" | "ThreadService.ListMessages":
            return request_of(method.short, parent=made.thread)
        case "TurnService.ResolveAction":
            return answer(await asked_once(rig))
        case "TurnService.GetAction":
            return request_of(method.short, name=MISSING_ACTION)
        case "TurnService.ListActions" | "TurnService.WatchActions":
            return request_of(method.short, parent=made.thread)
        case "ThreadService.GetThread":
            return request_of(method.short, name=made.thread)
        case "AgentService.GetAgent":
            return request_of(method.short, name="agents/plain")
        case "ToolExecutorService.Execute":
            return execute(f"call-{new_id()}")
        case "ToolExecutorService.CancelExecution" | "ToolExecutorService.LookupExecution":
            return request_of(method.short, scope="acme", execution_id=f"{made.turn}/{made.result}")
        case "ToolExecutorService.ReadResult":
            return request_of(method.short, scope="acme", handle="sha256:" + "0" * 64)
        case "ToolExecutorService.PurgeThread":
            return request_of(method.short, scope="acme", thread="threads/nothing-here")
        case "ControlService.SendCommand":
            return send(new_id())
        case "ControlService.GetCommand":
            return request_of(method.short, command_id=new_id())
        case "ControlService.Connect":
            return connect_hello()
        case "ControlService.Attach":
            return attach_hello()
    return method.new_request()


def _put(message: Any, path: Sequence[FieldDescriptor], text: str) -> str:
    """Set one text field, making what is above it; returns its path as errors spell it."""
    names = []
    for field in path[:-1]:
        names.append(field.name)
        if field.message_type.GetOptions().map_entry:
            entries = getattr(message, field.name)
            if path[-1].name == "key":
                entries[text] = "value"
            else:
                entries["key"] = text
            return ".".join(names)
        value = getattr(message, field.name)
        if field.is_repeated:
            value = value[0] if len(value) else value.add()
        else:
            value.SetInParent()
        message = value
    names.append(path[-1].name)
    if path[-1].name == "filter":
        text = (
            f"agent={text}" if message.DESCRIPTOR.file.package.endswith("runtime.v1") else f"subject={text}"
        )
    if path[-1].is_repeated:
        getattr(message, path[-1].name).append(text)
    else:
        setattr(message, path[-1].name, text)
    return ".".join(names)


async def _each_text(rig: Rig, method: Method, text: str) -> AsyncIterator[tuple[str, Any]]:
    """Yield the path of each text field with a request in which it alone is wrong."""
    for path in string_fields(method.request):
        request = await _good(rig, method)
        name = _put(request, path, text)
        if name not in IGNORED and not _is_later_message(method, request):
            yield name, request


def _is_later_message(method: Method, request: Any) -> bool:
    """Whether a stream would not begin with it: those are looked at within a stream below."""
    return method.request_streaming and request.WhichOneof("message") != "hello"


def _expected(name: str) -> set[tuple[str, str]]:
    found = COMPARED.get(name.rpartition(".")[2])
    return {INVALID, ("UNIMPLEMENTED", "FEATURE_NOT_SERVED")} | ({found} if found else set())


@pytest.mark.parametrize("short", SERVED)
async def test_nul_in_any_text_is_refused(rig: Rig, short: str) -> None:
    method = METHODS[short]
    wrong = []
    async for name, request in _each_text(rig, method, NUL):
        before = rig.rows()
        try:
            refusal = await rig.answer(short, Bad.of(request, caller=caller_of(method)))
        except AssertionError:
            wrong.append(f"{name}: taken")
            continue
        refusal.check_shape(method)
        if refusal.answer not in _expected(name) or rig.rows() != before:
            wrong.append(f"{name}: {refusal.answer} {refusal.message}")
    assert wrong == []


@pytest.mark.parametrize("short", SERVED)
async def test_ill_formed_text_is_refused_as_no_message(rig: Rig, short: str) -> None:
    method = METHODS[short]
    before = None
    async for name, request in _each_text(rig, method, MARK):
        before = before or rig.rows()
        data = request.SerializeToString()
        assert data.count(MARK.encode()) == 1, name
        bad = Bad.of(data.replace(MARK.encode(), ILL_FORMED), caller=caller_of(method))
        refusal = await rig.answer(short, bad)
        refusal.check_shape(method)
        assert refusal.answer == INVALID, f"{name}: {refusal}"
    assert before in (None, rig.rows())


@pytest.mark.parametrize("short", METHODS)
async def test_bytes_that_are_no_message_are_refused(rig: Rig, short: str) -> None:
    method = METHODS[short]
    refusal = await rig.refusal(short, Bad.of(MALFORMED, caller=caller_of(method)))
    assert refusal.answer == INVALID


# The limit is the server's: one method of each shape of each service stands for all.
SHAPES = {(m.service, m.response_streaming): short for short, m in METHODS.items() if not m.request_streaming}


@pytest.mark.parametrize("short", sorted(SHAPES.values()))
async def test_a_request_of_five_mib_is_refused_by_the_transport(rig: Rig, short: str) -> None:
    before = rig.rows()
    refusal = await rig.answer(short, Bad.of(FIVE_MIB, caller=caller_of(METHODS[short])))
    assert refusal.answer == ("RESOURCE_EXHAUSTED", "")
    assert rig.rows() == before


async def test_an_unknown_method_is_refused_by_the_transport(rig: Rig) -> None:
    for process in rig.cluster.processes:
        call = rig.channel(process).unary_unary("/turnwire.api.runtime.v1.TurnService/Nothing")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", metadata=ALICE.metadata, timeout=20)
        refusal = refusal_of(caught.value)
        assert refusal.answer == ("UNIMPLEMENTED", "")


# Field 90 with one byte in it: an arm that this version does not know.
UNKNOWN_ARM = b"\xd2\x05\x01x"


def _work(method: Method) -> Any:
    request = fill(method.new_request())
    request.spec.ClearField("input")
    request.spec.MergeFromString(UNKNOWN_ARM)
    return request


def _part(method: Method) -> Any:
    request = fill(method.new_request())
    request.spec.input.parts.add().MergeFromString(UNKNOWN_ARM)
    return request


def _command(method: Method) -> Any:
    request = send(new_id())
    request.command.ClearField("cancel_turn")
    request.command.MergeFromString(UNKNOWN_ARM)
    return request


def _busy_policy(method: Method) -> Any:
    request = fill(method.new_request())
    request.spec.busy_policy = 99
    return request


def _on_waiting(method: Method) -> Any:
    request = fill(method.new_request())
    request.spec.on_waiting = 99
    return request


def _choice(method: Method) -> Any:
    request = fill(method.new_request())
    request.spec.tool_choice.mode = 99
    return request


def _unit(method: Method) -> Any:
    request = request_of(method.short, scope="acme", handle="sha256:" + "0" * 64)
    request.range.unit = 99
    return request


def _unknown() -> Iterator[tuple[str, Callable[[Method], Any]]]:
    for short in ("TurnService.RunTurn", "TurnService.StartTurn"):
        yield from ((short, make) for make in (_work, _part, _busy_policy, _on_waiting, _choice))
    yield "ControlService.SendCommand", _command
    yield "ToolExecutorService.ReadResult", _unit


@pytest.mark.parametrize(("short", "make"), list(_unknown()))
async def test_an_arm_or_value_of_a_later_version_is_refused_by_name(
    rig: Rig, short: str, make: Callable[[Method], Any]
) -> None:
    method = METHODS[short]
    refusal = await rig.refusal(short, Bad.of(make(method), caller=caller_of(method)))
    assert refusal.answer == INVALID
    assert refusal.fields


async def test_a_client_or_runtime_that_begins_with_an_unknown_arm_is_asked_for_hello(rig: Rig) -> None:
    for short, caller in (("ControlService.Connect", ALICE), ("ControlService.Attach", RUNTIME)):
        refusal = await rig.refusal(short, Bad.of(UNKNOWN_ARM, caller=caller))
        assert refusal.reason == "HELLO_EXPECTED"


# Where a name can be of another scope: method, field, and who owns the thing that it names.
Named = Callable[[Rig], Awaitable[str]]


async def _their_thread(rig: Rig) -> str:
    return (await done_turn(rig, BOB)).thread


async def _their_turn(rig: Rig) -> str:
    return (await done_turn(rig, BOB)).turn


async def _their_agent(rig: Rig) -> str:
    return "agents/theirs"


async def _their_command(rig: Rig) -> str:
    request = send(new_id())
    await rig.ask("ControlService.SendCommand", request, caller=BOB)
    return str(request.command.command_id)


FOREIGN: dict[tuple[str, str], tuple[Named, str]] = {
    ("TurnService.RunTurn", "spec.thread"): (_their_thread, "threads/no-such-thread"),
    ("TurnService.StartTurn", "spec.thread"): (_their_thread, "threads/no-such-thread"),
    ("TurnService.WatchTurn", "turn"): (_their_turn, "threads/no-such-thread/turns/no-such-turn"),
    ("TurnService.GetTurn", "name"): (_their_turn, "threads/no-such-thread/turns/no-such-turn"),
    ("TurnService.ListTurns", "parent"): (_their_thread, "threads/no-such-thread"),
    ("TurnService.ReadToolResult", "turn"): (_their_turn, "threads/no-such-thread/turns/no-such-turn"),
    ("ThreadService.GetThread", "name"): (_their_thread, "threads/no-such-thread"),
    ("ThreadService.ListMessages", "parent"): (_their_thread, "threads/no-such-thread"),
    ("AgentService.GetAgent", "name"): (_their_agent, "agents/no-such-agent"),
    ("ControlService.GetCommand", "command_id"): (_their_command, "no-such-command"),
}


@pytest.mark.parametrize(("short", "field"), FOREIGN)
async def test_what_is_foreign_is_as_if_it_were_not(rig: Rig, short: str, field: str) -> None:
    named, missing = FOREIGN[short, field]
    foreign = await named(rig)
    texts = []
    for name in (foreign, missing):
        request = await _good(rig, METHODS[short])
        target = request.spec if field == "spec.thread" else request
        if field == "spec.thread":
            target.ClearField("new_thread")
        setattr(target, field.rpartition(".")[2], name)
        refusal = await rig.refusal(short, Bad.of(request))
        assert refusal.code == "NOT_FOUND"
        shown = {key: _without(value, name) for key, value in refusal.metadata.items()}
        texts.append((refusal.reason, _without(refusal.message, name), shown))
    assert texts[0] == texts[1]


def _without(message: str, name: str) -> str:
    return message.replace(name, "NAME").replace(name.removeprefix("agents/"), "NAME")


async def test_a_command_for_a_foreign_turn_ends_as_for_none(rig: Rig) -> None:
    foreign = (await done_turn(rig, BOB)).turn
    ends = []
    for turn in (foreign, "threads/no-such-thread/turns/no-such-turn"):
        request = send(new_id(), turn)
        request.wait_timeout.seconds = 20
        (answer,) = await rig.ask("ControlService.SendCommand", request)
        outcome = answer.command.outcome
        assert outcome.kind
        ends.append((outcome.kind, outcome.reason, outcome.message.replace(turn, "TURN")))
    assert ends[0] == ends[1]


async def _frames(rig: Rig) -> list[tuple[Any, str]]:
    """Frames that a client's stream survives, each with the reason of its refusal."""
    known = send(new_id())
    await rig.ask("ControlService.SendCommand", known)
    frames: list[tuple[Any, str]] = [(MALFORMED, "INVALID_REQUEST")]
    for change, reason in (
        (lambda c: setattr(c.cancel_turn, "cause", NUL), "INVALID_REQUEST"),
        (lambda c: setattr(c.cancel_turn, "cause", "x" * 501), "INVALID_REQUEST"),
        (lambda c: setattr(c, "command_id", "short"), "INVALID_REQUEST"),
        (lambda c: setattr(c.target, "turn", "turns/none"), "INVALID_REQUEST"),
        (lambda c: (c.ClearField("cancel_turn"), c.MergeFromString(UNKNOWN_ARM)), "INVALID_REQUEST"),
        (lambda c: setattr(c.inject_steer, "text", "x" * 65537), "INVALID_REQUEST"),
        (lambda c: c.ttl_timeout.FromSeconds(90_000), "INVALID_REQUEST"),
        (lambda c: setattr(c, "command_id", known.command.command_id), "COMMAND_ID_REUSED"),
    ):
        request = request_of("ControlService.Connect")
        request.command.MergeFrom(cancel(new_id(), "threads/some-thread/turns/some-turn"))
        change(request.command)
        frames.append((request, reason))
    return frames


async def test_a_bad_frame_of_a_client_is_refused_without_a_row_and_its_stream_goes_on(rig: Rig) -> None:
    frames = await _frames(rig)
    before = rig.rows()
    call = rig.open("ControlService.Connect")
    await call.write(connect_hello("frames"))
    assert (await call.read()).HasField("welcome")
    for frame, reason in frames:
        await call.write(frame)
        answer = await call.read()
        assert answer.WhichOneof("message") == "refused", (frame, answer)
        assert reason in str(answer.refused.status)
        assert "Traceback" not in str(answer)
    assert rig.rows() == before
    ping = request_of("ControlService.Connect")
    ping.ping.nonce = 7
    await call.write(ping)
    assert (await call.read()).pong.nonce == 7
    call.cancel()


async def test_a_rejected_command_has_its_row_in_the_audit_log_and_nothing_else(rig: Rig) -> None:
    for arm, reason in (
        ("approval_response", "INVALID_REQUEST"),
        ("cancel_run", "INVALID_REQUEST"),
        ("pause_graph", "FEATURE_NOT_SERVED"),
    ):
        request = send(new_id())
        request.command.ClearField("target")
        getattr(request.command, arm).SetInParent()
        if arm == "pause_graph":
            request.command.target.graph = "graphs/some-graph"
        before = rig.rows()
        (answer,) = await rig.ask("ControlService.SendCommand", request)
        assert answer.command.outcome.reason == reason
        before["control.commands"] += 1
        assert rig.rows() == before
