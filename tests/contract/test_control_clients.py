"""Connect: greeting, answers, outcomes, what is refused and what is rejected, and coming back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.control_peers import Connection, FakeEngine, cancel, connect, runtime_link, turn_key
from support.control_rig import ControlRig, control_service
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub
from turnwire.control.servicer.stream import StreamLimits
from turnwire.wire.channel import open_channel
from turnwire.wire.rpc_errors import error_from_rpc

TURN = turn_key("turn-1").name


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ControlRig]:
    async with control_service(tmp_path) as rig:
        yield rig


async def end_of(call: Any) -> tuple[str, str]:
    """Return code and reason that a stream ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(20):
            while await call.read() is not grpc.aio.EOF:
                pass
    return caught.value.code().name, error_from_rpc(caught.value).reason


async def test_the_first_message_must_be_hello(rig: ControlRig) -> None:
    call = rig.stub.Connect()
    await call.write(service_pb.ConnectRequest(ping=service_pb.Ping(nonce=1)))
    assert await end_of(call) == ("INVALID_ARGUMENT", "HELLO_EXPECTED")


async def test_a_stream_without_any_message_is_answered(rig: ControlRig) -> None:
    call = rig.stub.Connect()
    await call.done_writing()
    assert await end_of(call) == ("INVALID_ARGUMENT", "HELLO_EXPECTED")


async def test_a_second_hello_ends_the_stream(rig: ControlRig) -> None:
    async with connect(rig.target) as client:
        await client.call.write(
            service_pb.ConnectRequest(hello=service_pb.ConnectHello(client_id="client-1"))
        )
        assert await end_of(client.call) == ("INVALID_ARGUMENT", "HELLO_REPEATED")


@pytest.mark.parametrize(
    "hello",
    [
        service_pb.ConnectHello(),
        service_pb.ConnectHello(client_id="no blanks"),
        service_pb.ConnectHello(client_id="чат"),
        service_pb.ConnectHello(client_id="client-1", resume_token="nonsense"),
        service_pb.ConnectHello(client_id="client-1", resume_token="x.-5"),
    ],
)
async def test_a_malformed_hello_ends_the_stream(rig: ControlRig, hello: Any) -> None:
    call = rig.stub.Connect()
    await call.write(service_pb.ConnectRequest(hello=hello))
    assert await end_of(call) == ("INVALID_ARGUMENT", "INVALID_REQUEST")


async def test_welcome_tells_capabilities_and_heartbeat(rig: ControlRig) -> None:
    async with open_channel(rig.target) as channel:
        client = Connection(ControlServiceStub(channel).Connect())
        welcome = await client.hello()
        assert "cancel_turn" in welcome.capabilities
        assert welcome.heartbeat_interval.ToSeconds() == 20
        assert welcome.server_id
        assert welcome.resume_token
        client.call.cancel()


async def test_a_command_is_accepted_then_has_its_outcome_and_deliveries_count_up(rig: ControlRig) -> None:
    engine = FakeEngine()
    async with runtime_link(rig.target, engine) as (link, _), connect(rig.target) as client:
        link.turn_opened(turn_key("turn-1"), 1)
        await client.send(cancel("cancel-0001", turn=TURN, cause="enough"))
        accepted = await client.expect("accepted")
        assert (accepted.command_id, accepted.already_known) == ("cancel-0001", False)
        outcome = (await client.expect("outcome")).outcome
        assert outcome.kind == command_pb.OUTCOME_KIND_APPLIED
        assert (outcome.turn, outcome.applied_sequence) == (TURN, 1)
        assert outcome.decide_time.seconds > 0
        await client.call.write(service_pb.ConnectRequest(ping=service_pb.Ping(nonce=9)))
        assert (await client.expect("pong")).nonce == 9
    assert client.deliveries == [1, 2, 3, 4]
    assert engine.deliveries[0].cause == "enough"
    assert engine.deliveries[0].subject == "local"


async def test_the_same_command_again_is_already_known_and_has_the_first_outcome(rig: ControlRig) -> None:
    engine = FakeEngine()
    async with runtime_link(rig.target, engine) as (link, _), connect(rig.target) as client:
        link.turn_opened(turn_key("turn-1"), 1)
        for known in (False, True):
            await client.send(cancel("cancel-0001", turn=TURN))
            assert (await client.expect("accepted")).already_known is known
            assert (await client.expect("outcome")).outcome.applied_sequence == 1
        async with connect(rig.target, "somebody-else") as other:
            await other.send(cancel("cancel-0001", turn=TURN))
            assert (await other.expect("accepted")).already_known
            assert (await other.expect("outcome")).outcome.applied_sequence == 1
    assert len(engine.deliveries) == 1


async def test_another_client_that_repeats_an_open_command_hears_its_end(rig: ControlRig) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with (
        runtime_link(rig.target, engine) as (link, _),
        connect(rig.target) as client,
        connect(rig.target, "somebody-else") as other,
    ):
        link.turn_opened(turn_key("turn-1"), 1)
        await client.send(cancel("cancel-0001", turn=TURN))
        await client.expect("accepted")
        await other.send(cancel("cancel-0001", turn=TURN))
        assert (await other.expect("accepted")).already_known
        engine.gate.set()
        for peer in (client, other):
            assert (await peer.expect("outcome")).outcome.applied_sequence == 1


async def test_another_body_under_a_known_id_is_refused_and_changes_nothing(rig: ControlRig) -> None:
    async with connect(rig.target) as client:
        await client.send(cancel("cancel-0001", turn=TURN))
        await client.expect("accepted")
        await client.send(cancel("cancel-0001", turn=TURN, cause="another"))
        refused = await client.expect("refused")
        assert refused.command_id == "cancel-0001"
        assert reason_in(refused.status) == ("ALREADY_EXISTS", "COMMAND_ID_REUSED")
        await client.send(cancel("cancel-0001", turn=TURN))
        assert (await client.expect("accepted")).already_known


@pytest.mark.parametrize(
    "command",
    [
        cancel("short", turn=TURN),
        cancel("cancel 0001", turn=TURN),
        cancel("cancel-0001"),
        cancel("cancel-0001", turn=TURN, thread="threads/thread-1"),
        cancel("cancel-0001", turn="turn-1"),
        cancel("cancel-0001", thread="threads/чат"),
        cancel("cancel-0001", turn=TURN, ttl=0.0),
        cancel("cancel-0001", turn=TURN, ttl=86401.0),
        cancel("cancel-0001", turn=TURN, cause="x" * 501),
        cancel("cancel-0001", turn=TURN, cause="a\0b"),
        command_pb.Command(command_id="cancel-0001", target=command_pb.CommandTarget(turn=TURN)),
        command_pb.Command(
            command_id="steer-00001",
            target=command_pb.CommandTarget(turn=TURN),
            inject_steer=command_pb.InjectSteer(text="x" * 65537),
        ),
        command_pb.Command(command_id="pause-00001", pause_graph=command_pb.PauseGraph()),
        command_pb.Command(
            command_id="deliver-001",
            target=command_pb.CommandTarget(graph="graphs/graph-1"),
            deliver_to_node=command_pb.DeliverToNode(text="hi"),
        ),
    ],
)
async def test_a_malformed_command_is_refused_without_a_row_and_the_stream_goes_on(
    rig: ControlRig, command: command_pb.Command
) -> None:
    async with connect(rig.target) as client:
        await client.send(command)
        refused = await client.expect("refused")
        assert refused.command_id == command.command_id
        assert reason_in(refused.status) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
        await client.send(cancel("cancel-0002", turn=TURN))
        await client.expect("accepted")
    assert await rig.ledger.find(("default-org", command.command_id)) is None


async def test_bytes_that_are_no_message_are_refused_and_the_stream_goes_on(rig: ControlRig) -> None:
    raw = grpc.aio.insecure_channel(rig.target)
    call = raw.stream_stream(
        "/turnwire.api.control.v1.ControlService/Connect",
        request_serializer=lambda data: data,
        response_deserializer=service_pb.ConnectResponse.FromString,
    )()
    client = Connection(call)
    hello = service_pb.ConnectHello(client_id="client-1")
    await call.write(service_pb.ConnectRequest(hello=hello).SerializeToString())
    await client.expect("welcome")
    await call.write(b"\xff\xff\xff\xff")
    refused = await client.expect("refused")
    assert refused.command_id == ""
    assert reason_in(refused.status) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
    command = cancel("cancel-0001", turn=TURN)
    await call.write(service_pb.ConnectRequest(command=command).SerializeToString())
    await client.expect("accepted")
    call.cancel()
    await raw.close()


@pytest.mark.parametrize(
    ("arm", "target", "reason", "words"),
    [
        ("inject_steer", "turn", "FEATURE_NOT_SERVED", "inject_steer"),
        ("pause_graph", "graph", "FEATURE_NOT_SERVED", "pause_graph"),
        ("stop_graph", "graph", "FEATURE_NOT_SERVED", "stop_graph"),
        ("resume_graph", "graph", "FEATURE_NOT_SERVED", "resume_graph"),
        ("deliver_to_node", "node", "FEATURE_NOT_SERVED", "deliver_to_node"),
        ("cancel_run", "turn", "INVALID_REQUEST", "send cancel_turn"),
        ("inject_user_message", "thread", "INVALID_REQUEST", "TurnService.RunTurn"),
        ("approval_response", "turn", "INVALID_REQUEST", "TurnService.ResolveAction"),
    ],
)
async def test_a_command_of_a_kind_that_is_not_served_is_rejected_in_the_ledger(
    rig: ControlRig, arm: str, target: str, reason: str, words: str
) -> None:
    command = command_pb.Command(command_id="command-01")
    getattr(command, arm).SetInParent()
    if arm in ("inject_steer", "deliver_to_node"):
        getattr(command, arm).text = "a text that is not kept"
    if target in ("graph", "node"):
        command.target.graph = "graphs/graph-1"
        command.target.node = "node-1" if target == "node" else ""
    else:
        setattr(command.target, target, {"turn": TURN, "thread": "threads/thread-1"}[target])
    async with connect(rig.target) as client:
        await client.send(command)
        await client.expect("accepted")
        outcome = (await client.expect("outcome")).outcome
    assert outcome.kind == command_pb.OUTCOME_KIND_REJECTED
    assert outcome.reason == reason
    assert words in outcome.message
    row = await rig.ledger.find(("default-org", "command-01"))
    assert row is not None
    assert row.body is None


async def test_resume_brings_the_outcomes_that_were_missed_each_once(rig: ControlRig) -> None:
    engine = FakeEngine()
    async with runtime_link(rig.target, engine) as (link, _):
        async with connect(rig.target) as client:
            for n in range(5):
                link.turn_opened(turn_key(f"turn-{n}"), 1)
                await client.send(cancel(f"cancel-000{n}", turn=turn_key(f"turn-{n}").name))
            seen, token = [], client.token
            while len(seen) < 2:
                message = await client.next()
                if message.WhichOneof("message") == "outcome":
                    seen.append(message.outcome.outcome.command_id)
                    token = message.outcome.resume_token
        await settled(rig, 5)
        async with connect(rig.target, resume_token=token) as client:
            rest = [(await client.expect("outcome")).outcome.command_id for _ in range(3)]
            assert sorted(seen + rest) == [f"cancel-000{n}" for n in range(5)]
            last = client.token
        async with connect(rig.target, resume_token=last) as client:
            await client.call.write(service_pb.ConnectRequest(ping=service_pb.Ping(nonce=1)))
            await client.expect("pong")
        async with connect(rig.target, "another", resume_token=token) as client:
            await client.call.write(service_pb.ConnectRequest(ping=service_pb.Ping(nonce=1)))
            await client.expect("pong")


async def test_a_token_of_another_ledger_brings_everything_again(rig: ControlRig) -> None:
    async with connect(rig.target) as client:
        command = command_pb.Command(command_id="command-01", cancel_run=command_pb.CancelRun())
        await client.send(command)
        await client.expect("accepted")
        await client.expect("outcome")
    async with connect(rig.target, resume_token="0123456789abcdef.fff") as client:
        assert (await client.expect("outcome")).outcome.command_id == "command-01"


async def test_a_client_that_closes_its_half_is_kept_until_it_has_its_outcomes(rig: ControlRig) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with runtime_link(rig.target, engine) as (link, _), connect(rig.target) as client:
        link.turn_opened(turn_key("turn-1"), 1)
        await client.send(cancel("cancel-0001", turn=TURN))
        await client.call.done_writing()
        await client.expect("accepted")
        engine.gate.set()
        await client.expect("outcome")
        async with asyncio.timeout(20):
            assert await client.call.read() is grpc.aio.EOF
            assert await client.call.code() == grpc.StatusCode.OK


async def test_a_slow_client_holds_a_bounded_queue_and_loses_no_outcome(tmp_path: Path) -> None:
    limits = StreamLimits(queue=4, pipelined=4)
    async with control_service(tmp_path, clients=limits) as rig, connect(rig.target) as client:
        count = 60

        async def send() -> None:
            for n in range(count):
                message = command_pb.Command(command_id=f"command-{n:03}", cancel_run=command_pb.CancelRun())
                await client.send(message)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            told: list[str] = []
            while len(told) < count:
                message = await client.next()
                if message.WhichOneof("message") == "outcome":
                    told.append(message.outcome.outcome.command_id)
    assert sorted(told) == [f"command-{n:03}" for n in range(count)]
    assert client.deliveries == list(range(1, len(client.deliveries) + 1))


async def test_a_silent_client_is_cut_off(tmp_path: Path) -> None:
    limits = StreamLimits(heartbeat=0.05)
    async with control_service(tmp_path, clients=limits) as rig, connect(rig.target) as client:
        assert await end_of(client.call) == ("UNAVAILABLE", "HEARTBEAT_MISSED")
        assert rig.servicer.streams == 0


async def test_go_away_comes_before_the_server_leaves(rig: ControlRig) -> None:
    async with connect(rig.target) as client:
        rig.servicer.go_away(1.5)
        assert (await client.expect("go_away")).grace_timeout.ToMilliseconds() == 1500
        await client.send(cancel("cancel-0001", turn=TURN))
        refused = await client.expect("refused")
        assert reason_in(refused.status) == ("UNAVAILABLE", "DRAINING")
        rig.servicer.close()
        async with asyncio.timeout(20):
            assert await client.call.read() is grpc.aio.EOF
    # It is refused before it says anything: a word of the caller may come too late.
    assert await end_of(rig.stub.Connect()) == ("UNAVAILABLE", "DRAINING")


async def test_nothing_is_left_of_streams_however_they_end(rig: ControlRig) -> None:
    """A third closes cleanly, a third drops, a third is refused."""
    async with open_channel(rig.target) as channel:
        stub = ControlServiceStub(channel)

        async def one(n: int) -> None:
            call = stub.Connect()
            client = Connection(call)
            if n % 3 == 2:
                await call.write(service_pb.ConnectRequest(ping=service_pb.Ping()))
                await end_of(call)
                return
            await client.hello(f"client-{n}")
            await client.send(cancel(f"cancel-{n:04}", turn=TURN, clear_queue=bool(n % 2)))
            await client.expect("accepted")
            if n % 3:
                call.cancel()
            else:
                rig_open.append(client)

        rig_open: list[Connection] = []
        for start in range(0, 300, 50):
            async with asyncio.TaskGroup() as group:
                for n in range(start, start + 50):
                    group.create_task(one(n))
        assert rig.hub.followers
        for client in rig_open:
            client.call.cancel()
    async with asyncio.timeout(20):
        while rig.servicer.streams or len(rig.hub.followers):
            await asyncio.sleep(0)
    assert rig.servicer.waiting == 0


async def settled(rig: ControlRig, count: int) -> None:
    """Wait until so many commands have their outcome."""
    async with asyncio.timeout(20):
        call = rig.stub.WatchCommands(service_pb.WatchCommandsRequest(filter="state=done"))
        ended: set[str] = set()
        while len(ended) < count:
            ended.add((await call.read()).command.command.command_id)
        call.cancel()


def reason_in(status: Any) -> tuple[str, str]:
    """Return code and reason of a status in a message."""
    from google.rpc import error_details_pb2

    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    return code.name, info.reason
