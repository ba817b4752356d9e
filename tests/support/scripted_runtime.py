"""A runtime and control service that play a script: each connection is one leg, and every request is kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from support.turn_story import AGENT, LOG_ID, THREAD, TURN
from turnwire.api.control.v1 import control_service_pb2 as control
from turnwire.api.control.v1 import control_service_pb2_grpc as control_grpc
from turnwire.api.control.v1.command_pb2 import CommandOutcome, CommandRecord, CommandState, OutcomeKind
from turnwire.api.runtime.v1 import agent_service_pb2 as agents
from turnwire.api.runtime.v1 import agent_service_pb2_grpc as agents_grpc
from turnwire.api.runtime.v1 import thread_service_pb2 as threads
from turnwire.api.runtime.v1 import thread_service_pb2_grpc as threads_grpc
from turnwire.api.runtime.v1 import turn_service_pb2 as turns
from turnwire.api.runtime.v1 import turn_service_pb2_grpc as turns_grpc
from turnwire.api.runtime.v1.turn_event_pb2 import TurnEvent
from turnwire.api.runtime.v1.turn_pb2 import Turn, TurnDisposition, TurnState


@dataclass
class Failure:
    """A status that a handler ends with; without a reason it is bare, as from the transport."""

    code: grpc.StatusCode
    message: str = "scripted"
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    retry_delay: float | None = None
    violations: dict[str, str] = field(default_factory=dict)

    async def abort(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        if self.reason:
            info = error_details_pb2.ErrorInfo(
                reason=self.reason, domain="turnwire.dev", metadata=self.metadata
            )
            status.details.append(packed(info))
        if self.retry_delay is not None:
            delay = Duration()
            delay.FromNanoseconds(round(self.retry_delay * 1e9))
            status.details.append(packed(error_details_pb2.RetryInfo(retry_delay=delay)))
        if self.violations:
            bad = error_details_pb2.BadRequest()
            for name, text in self.violations.items():
                bad.field_violations.add(field=name, description=text)
            status.details.append(packed(bad))
        trailing = (("grpc-status-details-bin", status.SerializeToString()),) if status.details else ()
        await context.abort(self.code, self.message, trailing)


def packed(message: Any) -> AnyMessage:
    detail = AnyMessage()
    detail.Pack(message)
    return detail


@dataclass
class Leg:
    """One connection: events up to `until`, then OK, a failure, or silence until the reader goes.

    With `after_command` the leg waits for a command and then sends those events.
    """

    until: int | None = None
    failure: Failure | None = None
    silent: bool = False
    batch: int = 1
    skip: int = 0
    repeat: int = 0
    header: bool = True
    after_command: list[TurnEvent] | None = None


CUT = Failure(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls")


class ScriptedRuntime(
    turns_grpc.TurnServiceServicer,
    agents_grpc.AgentServiceServicer,
    threads_grpc.ThreadServiceServicer,
    control_grpc.ControlServiceServicer,
):
    """Plays `legs` in order, then whole streams.

    Attributes:
        requests: every request, in order.
        metadata: the metadata of each request.
        detached: set when a reader goes away.
        sent: set when a leg has sent all its events.
        commanded: set when a command has come.
        answers: what unary methods answer, by method: a message, a Failure, or a list played in order.
    """

    def __init__(self, events: list[TurnEvent], *legs: Leg) -> None:
        self.events = events
        self.legs = deque(legs)
        self.requests: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.detached = asyncio.Event()
        self.sent = asyncio.Event()
        self.commanded = asyncio.Event()
        self.state = TurnState.TURN_STATE_RUNNING
        self.answers: dict[str, Any] = {}
        self.target = ""

    def note(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata() or ()))

    async def RunTurn(self, request: Any, context: Any) -> AsyncIterator[turns.RunTurnResponse]:
        async for response in self.play(request, context, turns.RunTurnResponse):
            yield response

    async def WatchTurn(self, request: Any, context: Any) -> AsyncIterator[turns.WatchTurnResponse]:
        async for response in self.play(request, context, turns.WatchTurnResponse):
            yield response

    async def play(self, request: Any, context: Any, response: Any) -> AsyncIterator[Any]:
        self.note(request, context)
        leg = self.legs.popleft() if self.legs else Leg()
        over = False
        try:
            async for message in self.leg(leg, request, context, response):
                yield message
            over = True
        finally:
            if not over:
                self.detached.set()

    async def leg(self, leg: Leg, request: Any, context: Any, response: Any) -> AsyncIterator[Any]:
        if leg.failure and leg.until == 0:
            await leg.failure.abort(context)
        if leg.header:
            yield response(header=self.header(request))
        first = request.after_sequence + leg.skip - leg.repeat
        last = len(self.events) if leg.until is None else leg.until
        chosen = self.events[max(0, first) : last]
        for start in range(0, len(chosen), leg.batch):
            yield response(events=chosen[start : start + leg.batch])
        self.sent.set()
        if leg.failure:
            await leg.failure.abort(context)
        if leg.after_command is not None:
            await self.commanded.wait()
            yield response(events=leg.after_command)
        if leg.silent:
            await asyncio.sleep(3600)

    async def hold(self) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            self.detached.set()

    def header(self, request: Any) -> turns.StreamHeader:
        return turns.StreamHeader(
            turn=TURN,
            thread=THREAD,
            agent=AGENT,
            state=self.state,
            disposition=TurnDisposition.TURN_DISPOSITION_STARTED,
            first_kept_sequence=1,
            last_sequence=len(self.events),
            log_id=LOG_ID,
        )

    async def unary(self, method: str, request: Any, context: Any, otherwise: Any) -> Any:
        self.note(request, context)
        answer = self.answers.get(method, otherwise)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Failure):
            await answer.abort(context)
        return answer

    async def ListThreads(self, request: Any, context: Any) -> Any:
        return await self.unary("ListThreads", request, context, threads.ListThreadsResponse())

    async def ResolveAction(self, request: Any, context: Any) -> Any:
        return await self.unary("ResolveAction", request, context, turns.ResolveActionResponse())

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        info = agents.GetServerInfoResponse(version="0.1.0", control_target=self.target, log_id=LOG_ID)
        return await self.unary("GetServerInfo", request, context, info)

    async def ListAgents(self, request: Any, context: Any) -> Any:
        return await self.unary("ListAgents", request, context, agents.ListAgentsResponse())

    async def GetAgent(self, request: Any, context: Any) -> Any:
        return await self.unary("GetAgent", request, context, agents.GetAgentResponse())

    async def StartTurn(self, request: Any, context: Any) -> Any:
        started = turns.StartTurnResponse(turn=Turn(name=TURN), log_id=LOG_ID)
        return await self.unary("StartTurn", request, context, started)

    async def GetTurn(self, request: Any, context: Any) -> Any:
        turn = Turn(name=TURN, state=TurnState.TURN_STATE_COMPLETED)
        return await self.unary("GetTurn", request, context, turns.GetTurnResponse(turn=turn))

    async def ListTurns(self, request: Any, context: Any) -> Any:
        return await self.unary("ListTurns", request, context, turns.ListTurnsResponse())

    async def ReadToolResult(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.note(request, context)
        for start in (0, 4):
            yield turns.ReadToolResultResponse(data=b"bytes..."[start : start + 4], offset_bytes=start)
        if self.answers.get("ReadToolResult") == "silent":
            await self.hold()

    async def SendCommand(self, request: Any, context: Any) -> Any:
        outcome = CommandOutcome(
            command_id=request.command.command_id,
            kind=OutcomeKind.OUTCOME_KIND_APPLIED,
            turn=TURN,
            applied_sequence=7,
        )
        record = CommandRecord(
            command=request.command, state=CommandState.COMMAND_STATE_DONE, outcome=outcome
        )
        answer = control.SendCommandResponse(command=record)
        self.commanded.set()
        return await self.unary("SendCommand", request, context, answer)


@asynccontextmanager
async def serving(
    runtime: ScriptedRuntime, port: int = 0, options: Sequence[tuple[str, Any]] = ()
) -> AsyncIterator[str]:
    """Serve the script on a loopback port; gives `host:port`."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *options])
    turns_grpc.add_TurnServiceServicer_to_server(runtime, server)
    agents_grpc.add_AgentServiceServicer_to_server(runtime, server)
    threads_grpc.add_ThreadServiceServicer_to_server(runtime, server)
    control_grpc.add_ControlServiceServicer_to_server(runtime, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    runtime.target = f"127.0.0.1:{bound}"
    try:
        yield runtime.target
    finally:
        await server.stop(None)
