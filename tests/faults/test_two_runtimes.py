"""Two runtimes on one PostgreSQL: one is killed with many turns in its hands, the other goes on with them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from support.cluster import Process
from support.fault_checks import Evidence, outside_of, turn_findings
from support.fault_cluster import FaultCluster, fault_cluster
from support.fault_load import Call, Script, Step
from support.fault_rows import postgres_rows, row_findings
from support.fault_turns import FollowedTurn
from support.postgres import PostgresServer
from support.turn_rig import TurnRig
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.thread_service_pb2_grpc import ThreadServiceStub
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TURNS = 100
LEASE_SECONDS = 3.0
# What a takeover may cost beyond the lease of the dead.
PATIENCE_SECONDS = 5.0


def leases(url: str, name: str) -> dict[str, str]:
    return {
        "TURNWIRE_RUNTIME_STORE__URL": url,
        "TURNWIRE_RUNTIME_RUNTIME_ID": name,
        "TURNWIRE_RUNTIME_LEASES__TTL_SECONDS": str(LEASE_SECONDS),
        "TURNWIRE_RUNTIME_LEASES__RENEW_SECONDS": "1",
        "TURNWIRE_RUNTIME_LEASES__SWEEP_SECONDS": "1",
    }


def second(system: FaultCluster, url: str) -> Process:
    """A runtime beside the one of the cluster."""
    first = system.cluster.runtime
    process = Process(
        "second", system.folder, {**first.environment, **leases(url, "second")}, system.folder / "2"
    )
    process.module = "turnwire.runtime.main"
    return process


def client(system: FaultCluster, *processes: Process) -> TurnRig:
    """A caller who goes to the first runtime that answers."""
    rig = TurnRig(system.cluster, system.provider)
    addresses = ",".join(process.target for process in processes)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200)]
    channel = grpc.aio.insecure_channel(f"ipv4:{addresses}", options=options)
    rig.turns, rig.threads = TurnServiceStub(channel), ThreadServiceStub(channel)
    return rig


def script(number: int, rng: random.Random) -> Script:
    """A third in a tool that must not run twice, a third before an approval, a third in a model's words."""
    model = f"two-{number}"
    kind = number % 3
    seconds = round(rng.uniform(1.0, 6.0), 2)
    calls = (
        (Call(rng.choice(("once", "once_beside")), f"{model}-call", seconds),),
        (Call("careful", f"{model}-call", 0.1),),
        (),
    )[kind]
    words = tuple(f"{model}-word{n} " for n in range(60 if kind == 2 else 3))
    steps = [Step(words, 0.1 if kind == 2 else 0.0, calls)]
    if calls:
        steps.append(Step((f"{model}-done",), 0.0))
    return Script(model, number, False, 0.0, steps)


def took_over(events: Sequence[event_pb.TurnEvent]) -> list[int]:
    """When recovery episodes of the turn began, in nanoseconds since 1970."""
    return [
        e.create_time.ToNanoseconds()
        for e in events
        if e.turn_resumed.kind == event_pb.EpisodeKind.EPISODE_KIND_RECOVERY
    ]


@pytest.mark.timeout(240)
async def test_the_turns_of_a_dead_runtime_go_on_in_another_one(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.fresh()
    findings: list[str] = []
    rng = random.Random(1)
    scripts = [script(number, rng) for number in range(TURNS)]
    since = time.time_ns()
    async with fault_cluster(tmp_path, runtime=leases(url, "first")) as system:
        other = second(system, url)
        try:
            await other.start()
            system.provider.begin(scripts, tmp_path / "outside")
            rig = client(system, system.cluster.runtime, other)
            turns = [FollowedTurn(rig, s, findings.append) for s in scripts]
            async with asyncio.timeout(150), asyncio.TaskGroup() as tasks:
                for turn in turns:
                    turn.may_approve.clear()
                    tasks.create_task(turn.run(""))
                killed = await kill_when_all_are_under_way(system, turns)
                for turn in turns:
                    turn.may_approve.set()
            await check(rig, turns, killed, findings, tmp_path / "outside")
            with postgres_rows(url) as query:
                findings += row_findings(query, since)
        finally:
            await other.kill()
    assert not findings, "\n".join(findings)
    assert system.provider.refusals == []


async def kill_when_all_are_under_way(system: FaultCluster, turns: Sequence[FollowedTurn]) -> int:
    """Kill the first runtime when each turn is where it is meant to be; returns when that was."""
    for turn in turns:
        await turn.reached(("tool_call_started", "turn_suspended", "llm")[int(turn.script.thread) % 3])
    await system.kill("runtime")
    return time.time_ns()


async def check(
    rig: TurnRig, turns: Sequence[FollowedTurn], killed: int, findings: list[str], path: Path
) -> None:
    outside = outside_of(path)
    for turn in turns:
        whole = await rig.watch(turn.name).rest()
        row = await rig.turns.GetTurn(pb.GetTurnRequest(name=turn.name), timeout=10)
        messages = await rig.messages(turn.thread)
        evidence = Evidence(turn, whole, row.turn, messages, None, outside, False, True)
        findings += turn_findings(evidence)
        if whole[-1].turn_finished.state != TurnState.TURN_STATE_COMPLETED:
            findings.append(f"{turn.label}: did not complete")
        episodes = took_over(whole)
        ended_before = whole[-1].create_time.ToNanoseconds() < killed
        waited = any(e.HasField("turn_suspended") and e.create_time.ToNanoseconds() < killed for e in whole)
        if len(episodes) != int(not ended_before and not waited):
            findings.append(f"{turn.label}: {len(episodes)} recoveries")
        for began in episodes:
            if (began - killed) / 1e9 > LEASE_SECONDS + PATIENCE_SECONDS:
                findings.append(f"{turn.label}: taken over after {(began - killed) / 1e9:.1f} s")
