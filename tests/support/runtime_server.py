"""The runtime's servicers on a real server: real store, scripted models, a scripted executor by a link."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.executor.v1 import execution_pb2, tool_executor_service_pb2, tool_executor_service_pb2_grpc
from turnwire.api.runtime.v1 import (
    admin_service_pb2_grpc,
    agent_service_pb2_grpc,
    content_pb2,
    thread_service_pb2_grpc,
    turn_event_pb2,
    turn_pb2,
    turn_service_pb2,
    turn_service_pb2_grpc,
)
from turnwire.core.errors import NotFound, Unavailable
from turnwire.core.settings import ListenSettings
from turnwire.extend.lifecycle import Lifecycle
from turnwire.runtime.admin_servicer import AdminServicer
from turnwire.runtime.agent_servicer import AgentServicer, ServerFacts
from turnwire.runtime.disconnect import DisconnectWatch
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.engine.commands import CommandDesk
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.dispatcher import Dispatcher
from turnwire.runtime.engine.supervisor import Supervisor
from turnwire.runtime.event_codec import encode_event, open_attempt, trim_page
from turnwire.runtime.executor_link import ExecutorLink
from turnwire.runtime.history_servicer import History
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import ModelSettings
from turnwire.runtime.roles import ROLES
from turnwire.runtime.store.pruning import Pruner
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.runtime.thread_servicer import ThreadServicer
from turnwire.runtime.turn_servicer import TurnServicer
from turnwire.storage.database import database_at
from turnwire.wire.auth import Authenticator
from turnwire.wire.channel import WireChannel, open_channel
from turnwire.wire.server import build_server
from turnwire.wire.services import Service

SECONDS = 20.0
RETENTION_SECONDS = 7 * 86400.0
TERMINAL = (turn_pb2.TURN_STATE_COMPLETED, turn_pb2.TURN_STATE_FAILED, turn_pb2.TURN_STATE_CANCELLED)


class ScriptedExecutor(tool_executor_service_pb2_grpc.ToolExecutorServiceServicer):
    """Tools: `echo` answers, `wait` does when its gate opens or it is cancelled, `long` leaves a handle."""

    def __init__(self) -> None:
        self.requests: list[tool_executor_service_pb2.ExecuteRequest] = []
        self.metadata: list[Mapping[str, Any]] = []
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.stopped = asyncio.Event()
        # Threads that were removed; as long as `refuse_purges` is above 0, each try lowers it and fails.
        self.purged: list[tuple[str, str]] = []
        self.refuse_purges = 0
        self.asked_to_purge = asyncio.Event()

    async def ListTools(self, request: Any, context: Any) -> tool_executor_service_pb2.ListToolsResponse:
        names = ["echo", "long", "wait"]
        first = int(request.page_token or 0)
        return tool_executor_service_pb2.ListToolsResponse(
            tools=[
                tool_pb2.Tool(
                    name=names[first],
                    description=f"the tool {names[first]}",
                    input_schema_json='{"type":"object"}',
                    risk_tier=tool_pb2.RISK_TIER_NORMAL,
                )
            ],
            next_page_token=str(first + 1) if first + 1 < len(names) else "",
        )

    async def Execute(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        yield _executed(accepted=execution_pb2.ExecutionAccepted())
        if request.tool_name == "gone":
            raise NotFound("no such tool", reason="TOOL_NOT_FOUND")
        yield _executed(started=execution_pb2.ExecutionStarted())
        self.started.set()
        outcome, content, overflow = tool_pb2.TOOL_OUTCOME_SUCCEEDED, request.arguments_json, None
        if request.tool_name == "wait":
            yield _executed(progress=execution_pb2.ExecutionProgress(text="half"))
            await self._gate_or_stop()
            if self.stopped.is_set():
                outcome = tool_pb2.TOOL_OUTCOME_STOPPED
        elif request.tool_name == "long":
            content = "head ... tail"
            overflow = tool_pb2.ResultHandle(handle="h-1", size_bytes=12, sha256="f" * 64)
        yield _executed(
            result=execution_pb2.ExecutionResult(outcome=outcome, content=content, overflow=overflow)
        )

    async def _gate_or_stop(self) -> None:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(e.wait()) for e in (self.gate, self.stopped)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def CancelExecution(self, request: Any, context: Any) -> Any:
        self.stopped.set()
        return tool_executor_service_pb2.CancelExecutionResponse()

    async def LookupExecution(self, request: Any, context: Any) -> Any:
        state = execution_pb2.EXECUTION_STATE_NOT_FOUND
        return tool_executor_service_pb2.LookupExecutionResponse(state=state)

    async def PurgeThread(self, request: Any, context: Any) -> Any:
        if self.refuse_purges:
            self.refuse_purges -= 1
            raise Unavailable("not now", reason="STORE_UNAVAILABLE")
        self.purged.append((request.scope, request.thread))
        self.asked_to_purge.set()
        return tool_executor_service_pb2.PurgeThreadResponse()

    async def ReadResult(self, request: Any, context: Any) -> AsyncIterator[Any]:
        data = b"hello, world"
        for offset in range(request.range.offset, len(data), 5):
            yield tool_executor_service_pb2.ReadResultResponse(
                data=data[offset : offset + 5], offset_bytes=offset, size_bytes=len(data)
            )


def _executed(**event: Any) -> tool_executor_service_pb2.ExecuteResponse:
    return tool_executor_service_pb2.ExecuteResponse(**event)


class _Observer:
    def turn_opened(self, key: TurnKey, epoch: int) -> None:
        """Nobody to tell."""

    def turn_closed(self, key: TurnKey, epoch: int) -> None:
        """Nobody to tell."""


@dataclass
class Runtime:
    """A served runtime and stubs for it."""

    store: TurnStore
    supervisor: Supervisor
    desk: CommandDesk
    agents: AgentCatalog
    executor: ScriptedExecutor
    channel: WireChannel
    target: str

    def __post_init__(self) -> None:
        self.turns: Any = turn_service_pb2_grpc.TurnServiceStub(self.channel)
        self.threads: Any = thread_service_pb2_grpc.ThreadServiceStub(self.channel)
        self.admin: Any = admin_service_pb2_grpc.AdminServiceStub(self.channel)
        self.agent_service: Any = agent_service_pb2_grpc.AgentServiceStub(self.channel)

    async def run(self, request: turn_service_pb2.RunTurnRequest, **call: Any) -> list[Any]:
        """Run a turn and return the messages of its stream."""
        async with asyncio.timeout(SECONDS):
            return [m async for m in self.turns.RunTurn(request, **call)]

    async def watch(self, turn: str, after: int = 0, **call: Any) -> list[Any]:
        """Watch a turn to its end."""
        request = turn_service_pb2.WatchTurnRequest(turn=turn, after_sequence=after)
        async with asyncio.timeout(SECONDS):
            return [m async for m in self.turns.WatchTurn(request, **call)]

    async def ended(self, turn: str) -> turn_pb2.Turn:
        """Wait for the end of a turn and return it."""
        request = turn_service_pb2.GetTurnRequest(name=turn)
        request.wait_timeout.seconds = int(SECONDS)
        async with asyncio.timeout(SECONDS):
            found: turn_pb2.Turn = (await self.turns.GetTurn(request)).turn
        assert found.state in TERMINAL
        return found

    async def until_no_reader(self) -> None:
        """Wait until every reader has been let go."""
        async with asyncio.timeout(SECONDS):
            while self.store.ticker.readers:
                await asyncio.sleep(0)


@asynccontextmanager
async def running(
    folder: Path,
    agents: Mapping[str, Sequence[Any] | Mapping[str, Any]],
    *,
    location: Path | str | None = None,
    lifecycles: Sequence[Lifecycle] = (),
    heartbeat: float = 20.0,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[Runtime]:
    """Serve agents by name, each with the calls of its script, over a store in the folder or elsewhere."""
    place = location or folder / "runtime.db"
    database = database_at(place, "turnwire.runtime", on_fatal=_never, synchronous="NORMAL")
    async with AsyncExitStack() as stack:
        await database.open()
        stack.push_async_callback(database.close)
        models = ModelRegistry(ModelSettings())
        stack.push_async_callback(models.close)
        executor = ScriptedExecutor()
        executor_channel, _ = await _serve(
            stack,
            Service(tool_executor_service_pb2_grpc.add_ToolExecutorServiceServicer_to_server, executor),
        )
        store = TurnStore(
            database,
            encode_event,
            trim_page,
            "runtime/boot",
            read_tail=open_attempt,
            heartbeat=heartbeat,
        )
        link = ExecutorLink(executor_channel)
        catalog = AgentCatalog([_agent(n, c) for n, c in agents.items()], store.thread_agent)
        supervisor = Supervisor(TurnContext(store, models, link), catalog, _Observer())
        desk = CommandDesk(store)
        desk.supervisor = supervisor
        dispatcher = Dispatcher(store, supervisor)
        dispatcher.start()
        stack.push_async_callback(dispatcher.stop)
        disconnects = DisconnectWatch(
            lambda key: _spawn(supervisor, desk.cancel(key, "nobody reads the turn any more"))
        )
        history = History.of(store, supervisor, catalog, models, link, lifecycles)
        purging = supervisor.spawn(history.deleter.run(), "threads.purge")
        stack.push_async_callback(_end, purging)
        services = _services(supervisor, store, link, disconnects, catalog, heartbeat, history)
        pruner = Pruner(database.writer, database.reader, RETENTION_SECONDS, pause=0)
        services.append(
            Service(admin_service_pb2_grpc.add_AdminServiceServicer_to_server, AdminServicer(pruner))
        )
        channel, target = await _serve(stack, *services, roles=ROLES_SERVED, authenticator=authenticator)
        stack.push_async_callback(supervisor.drain, 0.0)
        yield Runtime(store, supervisor, desk, catalog, executor, channel, target)


ROLES_SERVED = {method: roles for method, roles in ROLES.items() if "GraphService" not in method}


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _spawn(supervisor: Supervisor, work: Any) -> None:
    supervisor.spawn(work, "test.cancel")


def _services(
    supervisor: Supervisor,
    store: TurnStore,
    link: ExecutorLink,
    disconnects: DisconnectWatch,
    catalog: AgentCatalog,
    heartbeat: float,
    history: History,
) -> list[Service]:
    facts = ServerFacts(
        log_id=store.log_id,
        runtime_id="runtime",
        control_target="127.0.0.1:50052",
        queue_limit=50,
        max_message_bytes=4 * 1024 * 1024,
        heartbeat=heartbeat,
        event_retention=RETENTION_SECONDS,
    )
    return [
        Service(
            turn_service_pb2_grpc.add_TurnServiceServicer_to_server,
            TurnServicer(supervisor, store, link, disconnects),
            frozenset({"RunTurn", "WatchTurn"}),
        ),
        Service(
            thread_service_pb2_grpc.add_ThreadServiceServicer_to_server,
            ThreadServicer(store, catalog, history),
        ),
        Service(
            agent_service_pb2_grpc.add_AgentServiceServicer_to_server, AgentServicer(catalog, link, facts)
        ),
    ]


async def _serve(stack: AsyncExitStack, *services: Service, **options: Any) -> tuple[WireChannel, str]:
    options.setdefault("roles", {})
    server = build_server(ListenSettings(reflection=False), services, **options)
    port = await server.start()
    stack.push_async_callback(server.stop, 0.0)
    target = f"127.0.0.1:{port}"
    return await stack.enter_async_context(open_channel(target)), target


def _agent(name: str, calls: Sequence[Any] | Mapping[str, Any]) -> AgentDefinition:
    """Return the agent of a script, which is given whole or by its calls."""
    script = json.dumps(calls if isinstance(calls, Mapping) else {"calls": calls})
    return AgentDefinition.model_validate(
        {"name": name, "model": f"scripted:{script}", "tools": ["*"], "organization_id": "*"}
    )


def _never(error: BaseException) -> None:
    raise AssertionError("the store has failed") from error


def request(
    agent: str, *, thread: str = "", request_id: str = "", text: str = "hello", after: int = 0, **spec: Any
) -> turn_service_pb2.RunTurnRequest:
    """A request for a turn of an agent, on a new thread where none is named."""
    part = content_pb2.Part(text=content_pb2.TextContent(text=text))
    place = {"thread": thread} if thread else {"new_thread": turn_pb2.NewThread()}
    return turn_service_pb2.RunTurnRequest(
        request_id=request_id or str(uuid.uuid4()),
        spec=turn_pb2.TurnSpec(
            agent=f"agents/{agent}", input=turn_pb2.Input(parts=[part]), **{**place, **spec}
        ),
        after_sequence=after,
    )


def start(given: turn_service_pb2.RunTurnRequest) -> turn_service_pb2.StartTurnRequest:
    """The same request without its reader."""
    return turn_service_pb2.StartTurnRequest(request_id=given.request_id, spec=given.spec)


def events(messages: Sequence[Any]) -> list[turn_event_pb2.TurnEvent]:
    """Return the events of a stream."""
    return [event for message in messages for event in message.events]


def end(messages: Sequence[Any]) -> turn_event_pb2.TurnFinished:
    """Return how a stream ended."""
    last = events(messages)[-1]
    assert last.HasField("turn_finished")
    return last.turn_finished
