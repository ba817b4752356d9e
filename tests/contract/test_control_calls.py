"""The unary calls and the watch: sending, reading, listing and following commands; and who may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from support.control_peers import FakeEngine, cancel, connect, runtime_link, turn_key
from support.control_rig import ControlRig, control_service, token_of, write_tokens
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub
from turnwire.control.hub import Limits
from turnwire.control.servicer.service import ROLES
from turnwire.control.servicer.stream import StreamLimits
from turnwire.core.errors import (
    AlreadyExists,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from turnwire.wire.channel import open_channel
from turnwire.wire.rpc_errors import error_from_rpc

TURN = turn_key("turn-1").name


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ControlRig]:
    async with control_service(tmp_path) as rig:
        yield rig


def at_once(command: command_pb.Command) -> service_pb.SendCommandRequest:
    """A request that does not wait for the outcome."""
    return service_pb.SendCommandRequest(command=command, wait_timeout=Duration())


async def fails(call: Any) -> Any:
    """Return the error that a call ends with, as clients see it."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value)


async def rejected(rig: ControlRig, count: int, kind: str = "cancel_run") -> list[str]:
    """Fill the ledger with commands that have their outcome."""
    names = [f"filler-{n:04}" for n in range(count)]
    for name in names:
        command = command_pb.Command(command_id=name)
        getattr(command, kind).SetInParent()
        await rig.stub.SendCommand(service_pb.SendCommandRequest(command=command))
    return names


async def test_send_waits_for_the_outcome_and_a_repeat_gives_the_first_one(rig: ControlRig) -> None:
    engine = FakeEngine()
    async with runtime_link(rig.target, engine) as (link, _):
        link.turn_opened(turn_key("turn-1"), 1)
        for known in (False, True):
            command = cancel("cancel-0001", turn=TURN, cause="enough", clear_queue=True)
            answer = await rig.stub.SendCommand(service_pb.SendCommandRequest(command=command))
            assert answer.already_known is known
            record = answer.command
            assert record.state == command_pb.COMMAND_STATE_DONE
            assert record.outcome.kind == command_pb.OUTCOME_KIND_APPLIED
            assert record.command.cancel_turn.cause == "", "texts are left out"
            assert record.command.cancel_turn.clear_queue
            assert record.command.ttl_timeout.ToSeconds() == 300
            assert (record.scope, record.subject) == ("default-org", "local")
            assert record.expire_time.ToNanoseconds() - record.create_time.ToNanoseconds() == 300 * 10**9
    assert len(engine.deliveries) == 1


async def test_a_second_cancel_of_the_same_turn_is_a_duplicate_that_names_the_first(rig: ControlRig) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with runtime_link(rig.target, engine) as (link, _), asyncio.TaskGroup() as group:
        link.turn_opened(turn_key("turn-1"), 1)
        first = group.create_task(send(rig, cancel("cancel-0001", turn=TURN)))
        async with asyncio.timeout(20):
            await engine.arrived.wait()
        second = group.create_task(send(rig, cancel("cancel-0002", turn=TURN)))
        await rig.stub.SendCommand(at_once(cancel("cancel-0002", turn=TURN)))
        engine.gate.set()
        assert (await first).outcome.kind == command_pb.OUTCOME_KIND_APPLIED
        third = await send(rig, cancel("cancel-0003", turn=TURN))
        for record in (await second, third):
            assert record.outcome.kind == command_pb.OUTCOME_KIND_DUPLICATE
            assert record.outcome.duplicate_of == "cancel-0001"
    assert len(engine.deliveries) == 1


async def send(rig: ControlRig, command: command_pb.Command) -> Any:
    return (await rig.stub.SendCommand(service_pb.SendCommandRequest(command=command), timeout=20)).command


async def test_without_an_outcome_in_time_the_answer_has_none_and_get_tells_it_later(rig: ControlRig) -> None:
    answer = await rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN)))
    assert answer.command.state == command_pb.COMMAND_STATE_ACCEPTED
    assert not answer.command.HasField("outcome")
    request = service_pb.SendCommandRequest(command=cancel("cancel-0001", turn=TURN))
    answer = await rig.stub.SendCommand(request, timeout=0.5)
    assert not answer.command.HasField("outcome"), "the call's deadline bounds the wait"
    engine = FakeEngine()
    async with runtime_link(rig.target, engine) as (link, _):
        link.turn_opened(turn_key("turn-1"), 1)
        assert (await send(rig, cancel("cancel-0001", turn=TURN))).HasField("outcome")
    got = await rig.stub.GetCommand(service_pb.GetCommandRequest(command_id="cancel-0001"))
    assert got.command.outcome.kind == command_pb.OUTCOME_KIND_APPLIED


async def test_get_tells_that_a_runtime_has_the_command(rig: ControlRig) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with runtime_link(rig.target, engine) as (link, _):
        link.turn_opened(turn_key("turn-1"), 1)
        watch = rig.stub.WatchCommands(service_pb.WatchCommandsRequest(filter="state=delivered"))
        await rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN)))
        assert (await watch.read()).command.command.command_id == "cancel-0001"
        watch.cancel()
        got = await rig.stub.GetCommand(service_pb.GetCommandRequest(command_id="cancel-0001"))
        assert got.command.state == command_pb.COMMAND_STATE_DELIVERED
        engine.gate.set()


async def test_a_command_nobody_takes_in_its_time_expires(rig: ControlRig) -> None:
    record = await send(rig, cancel("cancel-0001", turn=TURN, ttl=0.05))
    assert record.outcome.kind == command_pb.OUTCOME_KIND_EXPIRED


async def test_another_body_under_a_known_id_is_already_exists(rig: ControlRig) -> None:
    await rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN)))
    error = await fails(rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN, ttl=7.0))))
    assert isinstance(error, AlreadyExists)
    assert error.reason == "COMMAND_ID_REUSED"
    assert error.metadata["command_id"] == "cancel-0001"


@pytest.mark.parametrize("seconds", [-1, 301])
async def test_a_wait_out_of_bounds_is_invalid(rig: ControlRig, seconds: int) -> None:
    request = at_once(cancel("cancel-0001", turn=TURN))
    request.wait_timeout.seconds = seconds
    error = await fails(rig.stub.SendCommand(request))
    assert isinstance(error, InvalidRequest)
    assert error.violations[0].field == "wait_timeout"


async def test_a_malformed_command_is_invalid_and_names_the_field(rig: ControlRig) -> None:
    error = await fails(rig.stub.SendCommand(at_once(cancel("cancel-0001", turn="turn-1"))))
    assert isinstance(error, InvalidRequest)
    assert error.reason == "INVALID_REQUEST"
    assert error.violations[0].field == "command.target.turn"


async def test_get_of_an_unknown_or_malformed_id(rig: ControlRig) -> None:
    error = await fails(rig.stub.GetCommand(service_pb.GetCommandRequest(command_id="cancel-0009")))
    assert isinstance(error, NotFound)
    assert error.reason == "COMMAND_NOT_FOUND"
    error = await fails(rig.stub.GetCommand(service_pb.GetCommandRequest(command_id="?")))
    assert error.reason == "INVALID_REQUEST"


async def test_a_listing_is_newest_first_and_pages_without_gap_or_repeat(rig: ControlRig) -> None:
    names = await rejected(rig, 7)
    await rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN)))
    found: list[str] = []
    request = service_pb.ListCommandsRequest(page_size=3)
    while True:
        page = await rig.stub.ListCommands(request)
        found += [record.command.command_id for record in page.commands]
        if not page.next_page_token:
            break
        assert len(page.commands) == 3
        request.page_token = page.next_page_token
    assert found == ["cancel-0001", *reversed(names)]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ("state=ACCEPTED", ["cancel-0001"]),
        ("state=DONE AND type=cancel_run", ["filler-0001", "filler-0000"]),
        ("outcome=REJECTED", ["filler-0001", "filler-0000"]),
        ("outcome=applied", []),
        ("thread=threads/thread-1", ["cancel-0001"]),
        (f"turn={TURN}", ["cancel-0001"]),
        ("subject=local AND type=cancel_turn", ["cancel-0001"]),
        ("subject=nobody", []),
        ("", ["cancel-0001", "filler-0001", "filler-0000"]),
    ],
)
async def test_a_filter_selects_rows(rig: ControlRig, terms: str, expected: list[str]) -> None:
    await rejected(rig, 2)
    await rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN)))
    page = await rig.stub.ListCommands(service_pb.ListCommandsRequest(filter=terms))
    assert [record.command.command_id for record in page.commands] == expected


@pytest.mark.parametrize(
    "request_",
    [
        service_pb.ListCommandsRequest(page_size=-1),
        service_pb.ListCommandsRequest(filter="color=red"),
        service_pb.ListCommandsRequest(filter="state"),
        service_pb.ListCommandsRequest(filter="state=asleep"),
        service_pb.ListCommandsRequest(filter="type=cancel_turn AND type=cancel_run"),
    ],
)
async def test_a_malformed_listing_is_invalid(rig: ControlRig, request_: Any) -> None:
    assert (await fails(rig.stub.ListCommands(request_))).reason == "INVALID_REQUEST"


async def test_a_page_token_is_bound_to_its_filter(rig: ControlRig) -> None:
    await rejected(rig, 3)
    page = await rig.stub.ListCommands(service_pb.ListCommandsRequest(page_size=1))
    for token, terms in ((page.next_page_token, "state=DONE"), ("nonsense", ""), ("WzEsMl0", "")):
        request = service_pb.ListCommandsRequest(page_size=1, page_token=token, filter=terms)
        assert (await fails(rig.stub.ListCommands(request))).reason == "PAGE_TOKEN_MISMATCH"


async def test_a_watch_replays_the_ledger_and_goes_on_live(rig: ControlRig) -> None:
    names = await rejected(rig, 3)
    call = rig.stub.WatchCommands(service_pb.WatchCommandsRequest())
    seen = [await call.read() for _ in range(3)]
    assert [message.command.command.command_id for message in seen] == names
    assert [message.command.position for message in seen] == sorted(m.command.position for m in seen)
    await rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN)))
    live = await call.read()
    assert live.command.state == command_pb.COMMAND_STATE_ACCEPTED
    call.cancel()
    after = service_pb.WatchCommandsRequest(after_position=seen[1].command.position)
    call = rig.stub.WatchCommands(after)
    assert (await call.read()).command.command.command_id == names[2]
    assert (await call.read()).command.command.command_id == "cancel-0001"
    call.cancel()


async def test_a_silent_watch_has_heartbeats_and_ends_when_the_server_leaves(tmp_path: Path) -> None:
    limits = StreamLimits(heartbeat=0.05)
    async with control_service(tmp_path, clients=limits) as rig:
        call = rig.stub.WatchCommands(service_pb.WatchCommandsRequest())
        assert not (await call.read()).HasField("command")
        rig.servicer.go_away(1.0)
        rig.servicer.close()
        async with asyncio.timeout(20):
            while (message := await call.read()) is not grpc.aio.EOF:
                assert not message.HasField("command")
        error = await fails(rig.stub.WatchCommands(service_pb.WatchCommandsRequest()).read())
        assert error.reason == "DRAINING"


async def test_a_malformed_watch_is_invalid(rig: ControlRig) -> None:
    call = rig.stub.WatchCommands(service_pb.WatchCommandsRequest(filter="x=y"))
    assert (await fails(call.read())).reason == "INVALID_REQUEST"


async def test_too_many_open_commands_are_refused(tmp_path: Path) -> None:
    async with control_service(tmp_path, limits=Limits(pending=2, pending_per_scope=2)) as rig:
        for n in range(2):
            await rig.stub.SendCommand(at_once(cancel(f"cancel-000{n}", turn=turn_key(f"turn-{n}").name)))
        error = await fails(rig.stub.SendCommand(at_once(cancel("cancel-0009", turn=TURN))))
        assert isinstance(error, Unavailable)
        assert error.reason == "OVERLOADED"
        assert error.retry_after == 1.0


async def test_a_ledger_that_cannot_be_written_refuses_commands(
    rig: ControlRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(rig.ledger), "healthy", property(lambda ledger: False))
    error = await fails(rig.stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN))))
    assert error.reason == "STORE_UNAVAILABLE"


async def test_a_draining_server_refuses_commands_and_answers_those_that_wait(rig: ControlRig) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(send(rig, cancel("cancel-0001", turn=TURN)))
        watch = rig.stub.WatchCommands(service_pb.WatchCommandsRequest())
        await watch.read()
        watch.cancel()
        rig.servicer.go_away(1.0)
        rig.servicer.close()
        assert not (await waiting).HasField("outcome")
    error = await fails(rig.stub.SendCommand(at_once(cancel("cancel-0002", turn=TURN))))
    assert error.reason == "DRAINING"


CALLS: dict[str, Callable[[ControlServiceStub], Any]] = {
    "Connect": lambda stub: stub.Connect().read(),
    "SendCommand": lambda stub: stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN))),
    "GetCommand": lambda stub: stub.GetCommand(service_pb.GetCommandRequest(command_id="cancel-0001")),
    "ListCommands": lambda stub: stub.ListCommands(service_pb.ListCommandsRequest()),
    "WatchCommands": lambda stub: stub.WatchCommands(service_pb.WatchCommandsRequest()).read(),
    "Attach": lambda stub: stub.Attach().read(),
}
PEOPLE = {
    "caller": ("acme", ["caller"]),
    "approver": ("acme", ["approver"]),
    "operator": ("acme", ["operator"]),
    "runtime": ("", ["runtime"]),
    "executor": ("", ["executor"]),
    "stranger": ("globex", ["caller", "operator"]),
}


def test_the_table_of_roles_names_every_method() -> None:
    assert {method.rpartition("/")[2] for method in ROLES} == set(CALLS)


@pytest.mark.parametrize("method", CALLS)
async def test_every_method_wants_credentials_and_one_of_its_roles(tmp_path: Path, method: str) -> None:
    async with control_service(tmp_path, tokens=write_tokens(tmp_path, PEOPLE)) as rig:
        error = await fails(CALLS[method](rig.stub))
        assert isinstance(error, Unauthenticated)
        assert error.reason == "CREDENTIALS_MISSING"
        async with open_channel(rig.target, token="an-unknown-token-123") as channel:
            error = await fails(CALLS[method](ControlServiceStub(channel)))
            assert error.reason == "CREDENTIALS_INVALID"
        allowed = ROLES[f"/turnwire.api.control.v1.ControlService/{method}"]
        for subject, (_, roles) in PEOPLE.items():
            if not allowed & set(roles):
                async with open_channel(rig.target, token=token_of(subject)) as channel:
                    error = await fails(CALLS[method](ControlServiceStub(channel)))
                    assert isinstance(error, Forbidden)
                    assert error.reason == "ROLE_MISSING"
        assert rig.servicer.streams == 0


async def test_commands_of_another_scope_do_not_exist(tmp_path: Path) -> None:
    async with control_service(tmp_path, tokens=write_tokens(tmp_path, PEOPLE)) as rig:
        async with open_channel(rig.target, token=token_of("caller")) as channel:
            await ControlServiceStub(channel).SendCommand(at_once(cancel("cancel-0001", turn=TURN)))
        async with open_channel(rig.target, token=token_of("stranger")) as channel:
            stub = ControlServiceStub(channel)
            error = await fails(stub.GetCommand(service_pb.GetCommandRequest(command_id="cancel-0001")))
            assert error.reason == "COMMAND_NOT_FOUND"
            assert not (await stub.ListCommands(service_pb.ListCommandsRequest())).commands
            # The same id in another scope is another command, and reaches no turn of the first one.
            answer = await stub.SendCommand(at_once(cancel("cancel-0001", turn=TURN, ttl=9.0)))
            assert not answer.already_known
            assert answer.command.scope == "globex"


async def test_a_foreign_cancel_never_reaches_the_owner_of_a_turn_of_the_same_name(tmp_path: Path) -> None:
    async with control_service(tmp_path, tokens=write_tokens(tmp_path, PEOPLE)) as rig:
        engine = FakeEngine()
        async with runtime_link(rig.target, engine, token=token_of("runtime")) as (link, _):
            link.turn_opened(turn_key("turn-1", scope="acme"), 1)
            async with open_channel(rig.target, token=token_of("stranger")) as channel:
                request = service_pb.SendCommandRequest(command=cancel("cancel-0001", turn=TURN))
                await ControlServiceStub(channel).SendCommand(request, timeout=20)
        assert [(d.scope, d.mode) for d in engine.deliveries] == [("globex", "unowned")]


async def test_a_cancel_without_the_role_is_rejected_and_stands_in_the_ledger(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path, PEOPLE)
    async with control_service(tmp_path, tokens=tokens) as rig:
        async with connect(rig.target, token=token_of("approver")) as client:
            await client.send(cancel("cancel-0001", turn=TURN))
            await client.expect("accepted")
            outcome = (await client.expect("outcome")).outcome
            assert outcome.kind == command_pb.OUTCOME_KIND_REJECTED
            assert outcome.reason == "ROLE_MISSING"
        async with open_channel(rig.target, token=token_of("operator")) as channel:
            listing = await ControlServiceStub(channel).ListCommands(service_pb.ListCommandsRequest())
            assert listing.commands[0].subject == "approver"
