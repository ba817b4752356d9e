"""Peers of a control service: a runtime with a scripted engine behind the real link, and a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub
from turnwire.runtime.control_link import ControlLink
from turnwire.runtime.domain.control import ControlDelivery, ControlOutcome
from turnwire.runtime.domain.turn import TurnKey
from turnwire.wire.channel import open_channel

__all__ = ["Connection", "FakeEngine", "cancel", "connect", "runtime_link", "turn_key"]

SCOPE = "default-org"


def turn_key(turn: str, thread: str = "thread-1", scope: str = SCOPE) -> TurnKey:
    return TurnKey(scope, thread, turn)


def cancel(
    command_id: str, *, turn: str = "", thread: str = "", ttl: float | None = None, **arms: Any
) -> command_pb.Command:
    """A cancel command; `arms` are fields of CancelTurn."""
    message = command_pb.Command(command_id=command_id, cancel_turn=command_pb.CancelTurn(**arms))
    message.target.turn, message.target.thread = turn, thread
    if ttl is not None:
        message.ttl_timeout.FromNanoseconds(round(ttl * 1e9))
    return message


class FakeEngine:
    """Applies each command once, as a runtime's store would; a clear `gate` holds every answer back."""

    def __init__(self) -> None:
        self.applied: dict[tuple[str, str], ControlOutcome] = {}
        self.deliveries: list[ControlDelivery] = []
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.sequence = 0

    async def deliver(self, delivery: ControlDelivery) -> ControlOutcome:
        self.deliveries.append(delivery)
        self.arrived.set()
        await self.gate.wait()
        key = (delivery.scope, delivery.command_id)
        if key in self.applied:
            return self.applied[key]
        if delivery.mode == "query-only":
            return ControlOutcome("not-applied")
        turn = delivery.turn or delivery.bound_turn
        if not turn:
            return ControlOutcome("no-active-turn", message="nothing is live")
        self.sequence += 1
        self.applied[key] = ControlOutcome("applied", turn=turn, applied_sequence=self.sequence)
        return self.applied[key]


class LinkState:
    """Lets a test wait for the link to be up or down."""

    def __init__(self) -> None:
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self.changes: list[bool] = []

    def changed(self, up: bool) -> None:
        self.changes.append(up)
        (self.up if up else self.down).set()
        (self.down if up else self.up).clear()


@asynccontextmanager
async def runtime_link(
    target: str, engine: Any, *, runtime_id: str = "rt-1", token: str | None = None
) -> AsyncIterator[tuple[ControlLink, LinkState]]:
    """A running link that is up."""
    state = LinkState()
    async with open_channel(target, token=token) as channel:
        link = ControlLink(channel, runtime_id=runtime_id, handler=engine, on_change=state.changed)
        link.start()
        try:
            async with asyncio.timeout(20):
                await state.up.wait()
            yield link, state
        finally:
            await link.stop()


class Connection:
    """One Connect stream."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.token = ""
        self.deliveries: list[int] = []

    async def hello(self, client_id: str = "client-1", resume_token: str = "") -> Any:
        hello = service_pb.ConnectHello(client_id=client_id, resume_token=resume_token)
        await self.call.write(service_pb.ConnectRequest(hello=hello))
        welcome = await self.expect("welcome")
        self.token = welcome.resume_token
        return welcome

    async def send(self, command: command_pb.Command) -> None:
        await self.call.write(service_pb.ConnectRequest(command=command))

    async def next(self) -> Any:
        async with asyncio.timeout(20):
            message = await self.call.read()
        assert message is not grpc.aio.EOF
        self.deliveries.append(message.delivery_id)
        return message

    async def expect(self, kind: str) -> Any:
        message = await self.next()
        assert message.WhichOneof("message") == kind, message
        arm = getattr(message, kind)
        if kind == "outcome":
            self.token = arm.resume_token
        return arm


@asynccontextmanager
async def connect(
    target: str, client_id: str = "client-1", *, resume_token: str = "", token: str | None = None
) -> AsyncIterator[Connection]:
    """A Connect stream after its welcome; the call is cancelled at the end."""
    async with open_channel(target, token=token) as channel:
        call = ControlServiceStub(channel).Connect()
        connection = Connection(call)
        try:
            await connection.hello(client_id, resume_token)
            yield connection
        finally:
            call.cancel()
