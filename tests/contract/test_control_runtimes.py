"""Attach: what a runtime says and is told, and what becomes of commands when it comes, goes or is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.control_peers import SCOPE, cancel, turn_key
from support.control_rig import ControlRig, control_service
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.control.dispatch import Timing
from turnwire.control.servicer.stream import StreamLimits
from turnwire.wire.rpc_errors import error_from_rpc

TURN = turn_key("turn-1").name
THREAD = "threads/thread-1"
FAST = Timing(unowned=0.03, again=0.03, query=0.03, answer=0.2, recovery=0.03)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ControlRig]:
    async with control_service(tmp_path, timing=FAST) as rig:
        yield rig


class Runtime:
    """A runtime's stream, message by message."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.ids: list[int] = []

    async def say(self, **arm: Any) -> None:
        await self.call.write(service_pb.AttachRequest(**arm))

    async def expect(self, kind: str) -> Any:
        async with asyncio.timeout(20):
            message = await self.call.read()
        assert message is not grpc.aio.EOF
        assert message.WhichOneof("message") == kind, message
        self.ids.append(message.delivery_id)
        return getattr(message, kind)

    async def opens(self, *turns: str, epoch: int = 1, complete: bool = False) -> None:
        await self.say(
            turns_opened=service_pb.TurnsOpened(turns=owned(*turns, epoch=epoch), snapshot_complete=complete)
        )

    async def answers(self, command_id: str, kind: int, **fields: Any) -> None:
        outcome = command_pb.CommandOutcome(command_id=command_id, kind=kind, **fields)
        await self.say(delivery_outcome=service_pb.DeliveryOutcome(scope=SCOPE, outcome=outcome))

    async def did_not_apply(self, command_id: str) -> None:
        outcome = command_pb.CommandOutcome(command_id=command_id)
        await self.say(
            delivery_outcome=service_pb.DeliveryOutcome(scope=SCOPE, outcome=outcome, not_applied=True)
        )


def owned(*turns: str, epoch: int = 1) -> list[service_pb.OwnedTurn]:
    return [service_pb.OwnedTurn(scope=SCOPE, turn=turn, epoch=epoch) for turn in turns]


@asynccontextmanager
async def attach(
    rig: ControlRig, *turns: str, runtime_id: str = "rt-1", epoch: int = 1, complete: bool = True
) -> AsyncIterator[Runtime]:
    call = rig.stub.Attach()
    runtime = Runtime(call)
    hello = service_pb.AttachHello(
        runtime_id=runtime_id, boot_id="boot", turns=owned(*turns, epoch=epoch), snapshot_complete=complete
    )
    await runtime.say(hello=hello)
    await runtime.expect("welcome")
    try:
        yield runtime
    finally:
        call.cancel()


async def send(rig: ControlRig, command: command_pb.Command, wait: int = 0) -> Any:
    request = service_pb.SendCommandRequest(command=command)
    request.wait_timeout.FromSeconds(wait)
    return (await rig.stub.SendCommand(request, timeout=30)).command


async def outcome_of(rig: ControlRig, command: command_pb.Command) -> Any:
    return (await send(rig, command, wait=20)).outcome


async def end_of(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(20):
            while await call.read() is not grpc.aio.EOF:
                pass
    return caught.value.code().name, error_from_rpc(caught.value).reason


async def test_the_first_message_must_be_hello(rig: ControlRig) -> None:
    call = rig.stub.Attach()
    await call.write(service_pb.AttachRequest(ping=service_pb.Ping()))
    assert await end_of(call) == ("INVALID_ARGUMENT", "HELLO_EXPECTED")


async def test_a_second_hello_ends_the_stream(rig: ControlRig) -> None:
    async with attach(rig) as runtime:
        await runtime.say(hello=service_pb.AttachHello(runtime_id="rt-1"))
        assert await end_of(runtime.call) == ("INVALID_ARGUMENT", "HELLO_REPEATED")


@pytest.mark.parametrize(
    "message",
    [
        service_pb.AttachRequest(
            turns_opened=service_pb.TurnsOpened(turns=[service_pb.OwnedTurn(scope="s")])
        ),
        service_pb.AttachRequest(
            turns_closed=service_pb.TurnsClosed(turns=[service_pb.OwnedTurn(turn=TURN)])
        ),
        service_pb.AttachRequest(delivery_outcome=service_pb.DeliveryOutcome(scope=SCOPE)),
        service_pb.AttachRequest(
            delivery_outcome=service_pb.DeliveryOutcome(
                scope=SCOPE, outcome=command_pb.CommandOutcome(command_id="cancel-0001")
            )
        ),
    ],
)
async def test_a_malformed_message_ends_the_stream_unless_it_is_about_nothing(
    rig: ControlRig, message: service_pb.AttachRequest
) -> None:
    async with attach(rig, TURN) as runtime:
        await send(rig, cancel("cancel-0001", turn=TURN))
        await runtime.expect("delivery")
        await runtime.call.write(message)
        assert await end_of(runtime.call) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
    assert rig.hub.runtimes == 0


async def test_a_runtime_without_a_name_is_invalid(rig: ControlRig) -> None:
    call = rig.stub.Attach()
    await call.write(service_pb.AttachRequest(hello=service_pb.AttachHello()))
    assert await end_of(call) == ("INVALID_ARGUMENT", "INVALID_REQUEST")


async def test_the_owner_gets_the_command_at_once_and_its_outcome_is_confirmed(rig: ControlRig) -> None:
    async with attach(rig, TURN) as runtime:
        await send(rig, cancel("cancel-0001", turn=TURN, cause="enough", ttl=60.0))
        delivery = await runtime.expect("delivery")
        assert delivery.command == cancel("cancel-0001", turn=TURN, cause="enough", ttl=60.0)
        assert delivery.mode == service_pb.DELIVERY_MODE_OWNED
        assert (delivery.scope, delivery.subject) == (SCOPE, "local")
        assert 50 < delivery.remaining_timeout.ToMilliseconds() / 1000 <= 60
        await runtime.say(delivery_ack=service_pb.DeliveryAck(delivery_id=runtime.ids[-1]))
        await runtime.answers("cancel-0001", command_pb.OUTCOME_KIND_APPLIED, turn=TURN, applied_sequence=17)
        stored = await runtime.expect("outcome_stored")
        assert (stored.scope, stored.command_id) == (SCOPE, "cancel-0001")
        assert (
            await outcome_of(rig, cancel("cancel-0001", turn=TURN, cause="enough", ttl=60.0))
        ).applied_sequence == 17
        await runtime.say(ping=service_pb.Ping(nonce=5))
        assert (await runtime.expect("pong")).nonce == 5
    assert runtime.ids == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "kind",
    [
        command_pb.OUTCOME_KIND_STALE,
        command_pb.OUTCOME_KIND_NO_ACTIVE_TURN,
        command_pb.OUTCOME_KIND_ALREADY_FINISHED,
        command_pb.OUTCOME_KIND_EXPIRED,
        command_pb.OUTCOME_KIND_DUPLICATE,
    ],
)
async def test_every_outcome_of_a_runtime_reaches_the_sender(rig: ControlRig, kind: int) -> None:
    async with attach(rig, TURN) as runtime, asyncio.TaskGroup() as group:
        waiting = group.create_task(outcome_of(rig, cancel("cancel-0001", turn=TURN)))
        await runtime.expect("delivery")
        await runtime.answers("cancel-0001", kind, turn=TURN, message="because")
        outcome = await waiting
        assert (outcome.kind, outcome.message) == (kind, "because")


async def test_a_late_or_repeated_outcome_changes_nothing_and_is_confirmed(rig: ControlRig) -> None:
    async with attach(rig, TURN) as runtime:
        await send(rig, cancel("cancel-0001", turn=TURN))
        await runtime.expect("delivery")
        await runtime.answers("cancel-0001", command_pb.OUTCOME_KIND_APPLIED, turn=TURN, applied_sequence=3)
        await runtime.expect("outcome_stored")
        await runtime.answers("cancel-0001", command_pb.OUTCOME_KIND_STALE, turn=TURN)
        await runtime.expect("outcome_stored")
        assert (await outcome_of(rig, cancel("cancel-0001", turn=TURN))).applied_sequence == 3
        await runtime.answers("unknown-0001", command_pb.OUTCOME_KIND_APPLIED)
        assert (await runtime.expect("outcome_stored")).command_id == "unknown-0001"


async def test_a_turn_opened_later_brings_the_commands_that_waited_for_it(rig: ControlRig) -> None:
    async with attach(rig, complete=False) as runtime:
        await send(rig, cancel("cancel-0001", turn=TURN))
        await runtime.opens(TURN)
        assert (await runtime.expect("delivery")).mode == service_pb.DELIVERY_MODE_OWNED


async def test_a_command_no_runtime_claims_goes_to_any_of_them(rig: ControlRig) -> None:
    async with attach(rig) as runtime:
        await send(rig, cancel("cancel-0001", turn=TURN))
        assert (await runtime.expect("delivery")).mode == service_pb.DELIVERY_MODE_UNOWNED


async def test_a_runtime_that_has_not_named_all_its_turns_gets_no_unowned_commands(rig: ControlRig) -> None:
    async with attach(rig, complete=False) as runtime, attach(rig, runtime_id="rt-2") as other:
        await send(rig, cancel("cancel-0001", turn=TURN))
        assert (await other.expect("delivery")).mode == service_pb.DELIVERY_MODE_UNOWNED
        await runtime.opens(complete=True)
        await runtime.say(ping=service_pb.Ping(nonce=1))
        await runtime.expect("pong")


async def test_a_command_whose_runtime_has_gone_goes_to_the_next_one(rig: ControlRig) -> None:
    async with attach(rig, TURN) as runtime:
        await send(rig, cancel("cancel-0001", turn=TURN))
        await runtime.expect("delivery")
    async with attach(rig, TURN, runtime_id="rt-2", epoch=2) as other:
        assert (await other.expect("delivery")).mode == service_pb.DELIVERY_MODE_OWNED
        await other.answers("cancel-0001", command_pb.OUTCOME_KIND_APPLIED, turn=TURN)
        await other.expect("outcome_stored")


async def test_a_newer_owner_gets_the_command_that_an_older_one_still_has(rig: ControlRig) -> None:
    async with attach(rig, TURN) as older, attach(rig, runtime_id="rt-2") as newer:
        await send(rig, cancel("cancel-0001", turn=TURN))
        await older.expect("delivery")
        await newer.opens(TURN, epoch=2)
        assert (await newer.expect("delivery")).mode == service_pb.DELIVERY_MODE_OWNED


async def test_the_same_runtime_again_ends_its_older_stream(rig: ControlRig) -> None:
    async with attach(rig, TURN) as older, attach(rig, TURN) as newer:
        async with asyncio.timeout(20):
            assert await older.call.read() is grpc.aio.EOF
        assert rig.hub.runtimes == 1
        await send(rig, cancel("cancel-0001", turn=TURN))
        await newer.expect("delivery")


async def test_past_its_time_a_delivered_command_is_asked_after_and_expires_only_if_not_applied(
    tmp_path: Path,
) -> None:
    timing = Timing(unowned=60.0, query=0.03)
    async with control_service(tmp_path, timing=timing) as rig:
        async with attach(rig, TURN) as runtime:
            await send(rig, cancel("cancel-0001", turn=TURN, ttl=0.5))
            await runtime.expect("delivery")
        async with attach(rig, runtime_id="rt-2") as other:
            delivery = await other.expect("delivery")
            assert delivery.mode == service_pb.DELIVERY_MODE_QUERY_ONLY
            assert delivery.remaining_timeout.ToMilliseconds() == 0
            await other.did_not_apply("cancel-0001")
            outcome = await outcome_of(rig, cancel("cancel-0001", turn=TURN, ttl=0.5))
            assert outcome.kind == command_pb.OUTCOME_KIND_EXPIRED


async def test_a_runtime_that_does_not_act_on_a_command_leaves_it_to_others_in_its_time(
    rig: ControlRig,
) -> None:
    async with attach(rig) as one, attach(rig, runtime_id="rt-2") as two:
        await send(rig, cancel("cancel-0001", turn=TURN))
        await one.expect("delivery")
        await one.did_not_apply("cancel-0001")
        assert (await two.expect("delivery")).mode == service_pb.DELIVERY_MODE_UNOWNED


async def test_past_its_time_a_command_that_was_applied_is_told_as_applied(rig: ControlRig) -> None:
    async with attach(rig, TURN) as runtime:
        await send(rig, cancel("cancel-0001", turn=TURN, ttl=0.5))
        await runtime.expect("delivery")
        query = await runtime.expect("delivery")
        assert query.mode == service_pb.DELIVERY_MODE_QUERY_ONLY, "it still owes the answer"
        await runtime.answers("cancel-0001", command_pb.OUTCOME_KIND_APPLIED, turn=TURN, applied_sequence=4)
        assert (await outcome_of(rig, cancel("cancel-0001", turn=TURN, ttl=0.5))).applied_sequence == 4


async def test_a_thread_wide_cancel_is_bound_once_and_comes_again_with_its_turn(rig: ControlRig) -> None:
    async with attach(rig, TURN) as runtime:
        await send(rig, cancel("cancel-0001", thread=THREAD))
        delivery = await runtime.expect("delivery")
        assert (delivery.mode, delivery.bound_turn) == (service_pb.DELIVERY_MODE_OWNED, "")
        await runtime.say(delivery_ack=service_pb.DeliveryAck(delivery_id=runtime.ids[-1], bound_turn=TURN))
        await runtime.say(ping=service_pb.Ping())
        await runtime.expect("pong")
    later = turn_key("turn-2").name
    async with attach(rig, later, runtime_id="rt-2") as other:
        delivery = await other.expect("delivery")
        assert delivery.bound_turn == TURN
        await other.answers("cancel-0001", command_pb.OUTCOME_KIND_STALE, turn=TURN)
        await other.expect("outcome_stored")
    row = await rig.ledger.find((SCOPE, "cancel-0001"))
    assert row is not None
    assert row.bound_turn == TURN


async def test_a_silent_runtime_is_cut_off_and_its_turns_are_forgotten(tmp_path: Path) -> None:
    limits = StreamLimits(heartbeat=0.05)
    async with control_service(tmp_path, runtimes=limits) as rig, attach(rig, TURN) as runtime:
        assert rig.hub.owned_turns == 1
        assert await end_of(runtime.call) == ("UNAVAILABLE", "HEARTBEAT_MISSED")
        assert (rig.hub.runtimes, rig.hub.owned_turns, rig.servicer.streams) == (0, 0, 0)


async def test_a_runtime_that_lets_deliveries_pile_up_is_cut_off(tmp_path: Path) -> None:
    limits = StreamLimits(heartbeat=5.0, stall=0.2, queue=2)
    async with control_service(tmp_path, runtimes=limits, timing=FAST) as rig:
        turns = [turn_key(f"turn-{n:03}").name for n in range(40)]
        async with attach(rig, *turns) as runtime:
            text = "x" * 400
            async with asyncio.TaskGroup() as group:
                for n, turn in enumerate(turns):
                    group.create_task(send(rig, cancel(f"cancel-{n:04}", turn=turn, cause=text)))
            assert await end_of(runtime.call) == ("UNAVAILABLE", "READER_STALLED")
        assert rig.hub.pending == 40, "nothing was lost"


async def test_nothing_is_left_of_runtimes_that_come_and_go(rig: ControlRig) -> None:
    for n in range(40):
        async with attach(rig, TURN, runtime_id=f"rt-{n}") as runtime:
            if n % 2:
                await runtime.call.done_writing()
                async with asyncio.timeout(20):
                    assert await runtime.call.read() is grpc.aio.EOF
    async with asyncio.timeout(20):
        while rig.hub.runtimes or rig.servicer.streams:
            await asyncio.sleep(0)
    assert rig.hub.owned_turns == 0
