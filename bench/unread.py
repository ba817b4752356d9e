"""Turns that nobody reads: started, and asked for once when they have ended.

What such a turn costs is the way from the model's socket to the committed event. Only the runtime's process
counts. That the log holds what the model said is looked up afterwards, outside the measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from bench.contestants import Reader
from bench.measure import TURN_SECONDS, WrongWork
from bench.meter import CpuMeter
from bench.mock_client import Mock
from bench.services import Services, turn_request
from bench.workloads import Workload
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.turn_pb2 import TURN_STATE_COMPLETED
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub


@dataclass
class Unread:
    """The runtime with its peers, and turns of several workloads on it."""

    folder: Path
    model_url: str
    workloads: Sequence[Workload]

    async def start(self) -> None:
        """Start the services with an agent for each workload."""
        scripts = {agent_of(workload): workload.script for workload in self.workloads}
        self._services = Services(self.folder, self.model_url, scripts)
        await self._services.start()
        self._channel = grpc.aio.insecure_channel(self._services.runtime.target)
        self._turns = TurnServiceStub(self._channel)

    def roots(self) -> dict[str, int]:
        """The runtime alone."""
        return {"runtime": self._services.runtime.pid}

    async def turn(self, workload: Workload) -> str:
        """Run one turn to its end and return its name.

        Raises:
            WrongWork: it did not end well.
        """
        asked = turn_request(agent_of(workload))
        started = await self._turns.StartTurn(
            pb.StartTurnRequest(request_id=asked.request_id, spec=asked.spec)
        )
        wait = Duration(seconds=int(TURN_SECONDS))
        got = await self._turns.GetTurn(pb.GetTurnRequest(name=started.turn.name, wait_timeout=wait))
        if got.turn.state != TURN_STATE_COMPLETED:
            raise WrongWork(f"{workload.name}: the turn ended as {got.turn.state} ({got.turn.stop_reason})")
        return str(got.turn.name)

    async def check(self, name: str, workload: Workload) -> None:
        """Read a turn from its log.

        Raises:
            WrongWork: its text or its calls are not those of the script.
        """
        reader, calls = Reader(), 0
        async for response in self._turns.WatchTurn(pb.WatchTurnRequest(turn=name)):
            for event in response.events:
                kind = event.llm.WhichOneof("event") if event.HasField("llm") else ""
                if kind == "text_delta":
                    reader.take(event.llm.text_delta.text)
                calls += kind == "tool_call_complete"
        if not reader.is_exact(workload) or calls != workload.rounds:
            raise WrongWork(f"{workload.name}: {reader.count} deltas and {calls} calls in the log")

    async def stop(self) -> None:
        """End the processes."""
        if hasattr(self, "_channel"):
            await self._channel.close()
        if hasattr(self, "_services"):
            self._services.kill()


def agent_of(workload: Workload) -> str:
    """The name of the agent that does a workload."""
    return f"bench-{workload.name.lower()}"


async def cpu_unread(runtime: Unread, workload: Workload, mock: Mock) -> float:
    """CPU seconds of the runtime for one turn of a workload, the mean of its repeats.

    Raises:
        WrongWork: the model calls or the log are not those of the script.
        ProcessEnded: the runtime ended.
    """
    await mock.reset()
    meter = CpuMeter(runtime.roots())
    names: list[str] = []
    meter.begin()
    async with asyncio.timeout(TURN_SECONDS):
        for _ in range(workload.repeats):
            names.append(await runtime.turn(workload))
    used = meter.end()["runtime"]
    stats = await mock.stats()
    if stats["requests"] != workload.model_calls or stats["aborts"]:
        raise WrongWork(f"{workload.name}: {stats['requests']} model calls, {len(stats['aborts'])} cut")
    for name in names:
        await runtime.check(name, workload)
    return used / workload.repeats
