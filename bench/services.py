"""The three services as they are shipped, as processes of their own over a folder that is thrown away."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import grpc.aio

from bench.contestants import Reader
from bench.process import Process, script
from bench.workloads import Workload
from turnwire.api.control.v1 import command_pb2, control_service_pb2
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub
from turnwire.api.runtime.v1 import content_pb2, turn_pb2, turn_service_pb2
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

AGENT_FILE = """\
name: {name}
model: "openai:{script}"
tools: [add]
limits: {{steps: 30}}
context_window: 1000000
"""


class Services:
    """Runtime, control and executor.

    Args:
        agents: the name of each agent, and its script.
        runtime: more environment of the runtime.
    """

    def __init__(
        self,
        folder: Path,
        model_url: str,
        agents: Mapping[str, str],
        runtime: Mapping[str, str] | None = None,
    ) -> None:
        self._model_url = model_url
        self._more = dict(runtime or {})
        self._agents = agents
        self._folder = folder
        self.control = Process("control", folder)
        self.executor = Process("executor", folder)
        self.runtime = Process("runtime", folder)

    def roots(self) -> dict[str, int]:
        """The root processes by name."""
        return {process.name: process.pid for process in (self.runtime, self.control, self.executor)}

    async def start(self) -> None:
        """Write the agent files and start the three.

        Raises:
            NotReady: one of them does not serve.
        """
        agents = self._folder / "agents"
        agents.mkdir()
        for name, words in self._agents.items():
            text = AGENT_FILE.format(name=name, script=words)
            (agents / f"{name}.yaml").write_text(text, encoding="utf-8")
        for process in (self.control, self.executor):
            await process.start(self.command(process))
        await self.runtime.start(
            self.command(self.runtime),
            {
                "TURNWIRE_RUNTIME_AGENTS": str(agents),
                "OPENAI_BASE_URL": self._model_url,
                "OPENAI_API_KEY": "mock",
                "TURNWIRE_RUNTIME_CONTROL__TARGET": self.control.target,
                "TURNWIRE_RUNTIME_EXECUTOR__TARGET": self.executor.target,
                **self._more,
            },
        )

    def command(self, process: Process) -> list[str]:
        """How a service is started, but for its port and ready file."""
        data = self._folder / f"{process.name}-data"
        data.mkdir(exist_ok=True)
        return [*script(f"turnwire-{process.name}"), "--data", str(data)]

    def kill(self) -> None:
        """End them all."""
        for process in (self.runtime, self.executor, self.control):
            process.kill()


def turn_request(agent: str) -> turn_service_pb2.RunTurnRequest:
    """A turn in a thread of its own."""
    part = content_pb2.Part(text=content_pb2.TextContent(text="go"))
    return turn_service_pb2.RunTurnRequest(
        request_id=str(uuid.uuid4()),
        spec=turn_pb2.TurnSpec(
            new_thread=turn_pb2.NewThread(),
            agent=f"agents/{agent}",
            input=turn_pb2.Input(parts=[part]),
        ),
    )


def cancel_request(turn: str) -> control_service_pb2.SendCommandRequest:
    """The command that stops a turn."""
    return control_service_pb2.SendCommandRequest(
        command=command_pb2.Command(
            command_id=str(uuid.uuid4()),
            target=command_pb2.CommandTarget(turn=turn),
            cancel_turn=command_pb2.CancelTurn(cause="bench"),
        )
    )


async def follow(stub: TurnServiceStub, agent: str, reader: Reader) -> None:
    """Run one turn of an agent and read it to its end.

    Raises:
        grpc.aio.AioRpcError: the turn could not be started or followed.
    """
    async for response in stub.RunTurn(turn_request(agent)):
        for event in response.events:
            kind = event.WhichOneof("event")
            if kind == "llm":
                if event.llm.WhichOneof("event") == "text_delta":
                    reader.take(event.llm.text_delta.text)
            elif kind == "turn_finished":
                reader.finish(event.turn_finished.state)
        if response.HasField("header"):
            reader.turn = response.header.turn


class Ours:
    """The services as a contestant."""

    name = "ours"

    def __init__(self) -> None:
        self._services: Services | None = None
        self._channels: list[grpc.aio.Channel] = []

    async def start(self, folder: Path, model_url: str, workload: Workload) -> None:
        """Start the three services with one agent."""
        self._agent = f"bench-{workload.name.lower()}"
        self._services = Services(folder, model_url, {self._agent: workload.script})
        await self._services.start()
        self._channels = [
            grpc.aio.insecure_channel(process.target)
            for process in (self._services.runtime, self._services.control)
        ]
        self._turns = TurnServiceStub(self._channels[0])
        self._commands = ControlServiceStub(self._channels[1])

    def roots(self) -> dict[str, int]:
        """All three."""
        assert self._services is not None
        return self._services.roots()

    async def turn(self, reader: Reader) -> None:
        """Run one turn over the wire."""
        await follow(self._turns, self._agent, reader)

    async def cancel(self, reader: Reader) -> None:
        """Send the command through the control service."""
        await self._commands.SendCommand(cancel_request(reader.turn))

    async def stop(self) -> None:
        """End the processes."""
        for channel in self._channels:
            await channel.close()
        if self._services is not None:
            self._services.kill()
