"""Turns on a real cluster: an agent, a strict provider behind it, a reader that can leave at any event."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.cluster import Cluster
from support.strict_provider import StrictProvider, strict_provider
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as control_pb
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub
from turnwire.api.runtime.v1 import thread_service_pb2 as thread_pb
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.message_pb2 import Message
from turnwire.api.runtime.v1.thread_service_pb2_grpc import ThreadServiceStub
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

__all__ = ["AGENT", "Stream", "TurnRig", "arms", "serialised", "turn_rig"]

TOOLS = Path(__file__).parent / "turn_tools.py"
AGENT = "model: openai:usual\nfallback_models: ['openai:*', 'anthropic:*']\ntools: ['*']\n"
QUIET = {"TURNWIRE_RUNTIME_MODELS__RETRIES__ATTEMPTS": "1"}


def serialised(events: list[event_pb.TurnEvent]) -> list[bytes]:
    """The events as bytes, to be compared one by one."""
    return [event.SerializeToString(deterministic=True) for event in events]


def arms(events: list[event_pb.TurnEvent]) -> list[str]:
    """The kinds of the events; those of the model by their own names."""
    kinds = [str(event.WhichOneof("event")) for event in events]
    return [str(e.llm.WhichOneof("event")) if k == "llm" else k for k, e in zip(kinds, events, strict=True)]


class Stream:
    """One reader of a turn. `events` holds what it has taken so far."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.header = pb.StreamHeader()
        self.events: list[event_pb.TurnEvent] = []
        self._rest: deque[event_pb.TurnEvent] = deque()
        self._messages = aiter(call)

    async def opened(self) -> pb.StreamHeader:
        """Wait for the header."""
        while not self.header.turn:
            await self._read()
        return self.header

    async def _read(self) -> bool:
        message = await anext(self._messages, None)
        if message is None:
            return False
        if message.HasField("header"):
            self.header.CopyFrom(message.header)
        self._rest.extend(message.events)
        return True

    async def next(self) -> event_pb.TurnEvent | None:
        """The next event, None at the end of the stream."""
        while not self._rest:
            if not await self._read():
                return None
        event = self._rest.popleft()
        self.events.append(event)
        return event

    async def until(self, arm: str, count: int = 1) -> event_pb.TurnEvent:
        """Read up to the `count`-th event of a kind, from here on."""
        while (event := await self.next()) is not None:
            count -= arms([event]) == [arm]
            if count == 0:
                return event
        raise AssertionError(f"the stream ended without {arm}: {arms(self.events)}")

    async def rest(self) -> list[event_pb.TurnEvent]:
        """Read to the end and return everything."""
        while await self.next() is not None:
            pass
        return self.events

    def leave(self) -> list[event_pb.TurnEvent]:
        """Drop the call as a client does that goes away; returns what was taken."""
        self.call.cancel()
        return self.events


class TurnRig:
    """Calls of one caller."""

    def __init__(self, cluster: Cluster, provider: StrictProvider) -> None:
        self.cluster = cluster
        self.provider = provider
        self.connect()

    def connect(self) -> None:
        """Use fresh channels, as a client does after a restart of the services."""
        channel = self.cluster.channel()
        self.turns = TurnServiceStub(channel)
        self.threads = ThreadServiceStub(channel)
        self.control = ControlServiceStub(self.cluster.channel(self.cluster.control))

    @staticmethod
    def request(model: str, text: str = "hello", *, thread: str = "", **fields: Any) -> pb.RunTurnRequest:
        """A request for a turn on a thread, by default a new one."""
        request = pb.RunTurnRequest(request_id=str(uuid.uuid4()))
        request.spec.agent = "agents/main"
        request.spec.model_options.model = model
        if thread:
            request.spec.thread = thread
        else:
            request.spec.new_thread.SetInParent()
        request.spec.input.parts.add().text.text = text
        request.spec.MergeFrom(turn_pb2.TurnSpec(**fields))
        return request

    def run(self, request: pb.RunTurnRequest, after: int = 0) -> Stream:
        """Open RunTurn."""
        again = pb.RunTurnRequest()
        again.CopyFrom(request)
        again.after_sequence = after
        return Stream(self.turns.RunTurn(again, wait_for_ready=True))

    def watch(self, turn: str, after: int = 0) -> Stream:
        """Open WatchTurn."""
        request = pb.WatchTurnRequest(turn=turn, after_sequence=after)
        return Stream(self.turns.WatchTurn(request, wait_for_ready=True))

    async def whole(self, model: str, text: str = "hello", **fields: Any) -> list[event_pb.TurnEvent]:
        """Run a turn to its end."""
        return await self.run(self.request(model, text, **fields)).rest()

    async def cancel(
        self, *, turn: str = "", thread: str = "", command_id: str = "", **arm: Any
    ) -> command_pb.CommandOutcome:
        """Send CANCEL_TURN and wait for its outcome."""
        command = command_pb.Command(
            command_id=command_id or str(uuid.uuid4()), cancel_turn=command_pb.CancelTurn(**arm)
        )
        command.target.turn, command.target.thread = turn, thread
        request = control_pb.SendCommandRequest(command=command)
        response = await self.control.SendCommand(request, timeout=30, wait_for_ready=True)
        return response.command.outcome

    async def messages(self, thread: str) -> list[Message]:
        """The transcript, oldest first."""
        response = await self.threads.ListMessages(
            thread_pb.ListMessagesRequest(parent=thread, page_size=200)
        )
        return list(reversed(response.messages))


@asynccontextmanager
async def turn_rig(folder: Path, *, agent: str = AGENT, **more: Mapping[str, str]) -> AsyncIterator[TurnRig]:
    """Three services, a strict provider and the tools of `turn_tools`.

    Args:
        more: more environment for `runtime`, `control` or `executor`.
    """
    async with strict_provider() as provider:
        runtime = {
            **QUIET,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "ANTHROPIC_BASE_URL": provider.url,
            **more.pop("runtime", {}),
        }
        executor = {"TURNWIRE_EXECUTOR_TOOLS": str(TOOLS), **more.pop("executor", {})}
        async with Cluster(folder, {"main": agent}, runtime=runtime, executor=executor, **more) as cluster:
            yield TurnRig(cluster, provider)
