"""Two runtimes on one PostgreSQL, beside one control and one executor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.cluster import Process
from support.postgres import PostgresServer
from support.turn_rig import Stream, TurnRig, turn_rig
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.thread_service_pb2_grpc import ThreadServiceStub
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

__all__ = ["Pair", "pair"]

# Found dead soon, so that the test need not wait half a minute.
LEASES = {
    "TURNWIRE_RUNTIME_LEASES__TTL_SECONDS": "2",
    "TURNWIRE_RUNTIME_LEASES__RENEW_SECONDS": "0.5",
    "TURNWIRE_RUNTIME_LEASES__SWEEP_SECONDS": "0.5",
    "TURNWIRE_RUNTIME_LEASES__HUNG_LOOP_SECONDS": "1",
    "TURNWIRE_RUNTIME_DRAIN__STOP_GRACE_SECONDS": "12",
}


class Pair:
    """Two runtimes; `rig` calls the first."""

    def __init__(self, rig: TurnRig, second: Process, url: str) -> None:
        self.rig = rig
        self.second = second
        channel = rig.cluster.channel(second)
        self.elsewhere = TurnServiceStub(channel)
        self.threads_elsewhere = ThreadServiceStub(channel)
        # Where both have their store.
        self.url = url

    def watch(self, turn: str, after: int = 0) -> Stream:
        """Open WatchTurn at the second."""
        return Stream(self.elsewhere.WatchTurn(pb.WatchTurnRequest(turn=turn, after_sequence=after)))


@asynccontextmanager
async def pair(postgres: PostgresServer, folder: Path) -> AsyncIterator[Pair]:
    url = postgres.fresh()
    shared = {**LEASES, "TURNWIRE_RUNTIME_STORE__URL": url, "TURNWIRE_RUNTIME_RUNTIME_ID": "first"}
    async with turn_rig(folder, runtime=shared) as rig:
        (folder / "second").mkdir()
        environment = {**rig.cluster.runtime.environment, "TURNWIRE_RUNTIME_RUNTIME_ID": "second"}
        second = Process("runtime", folder / "second", environment, rig.cluster.data)
        await second.start()
        try:
            yield Pair(rig, second, url)
        finally:
            await second.kill()
    postgres.drop(url)
