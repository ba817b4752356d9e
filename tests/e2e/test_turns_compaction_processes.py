"""Summaries live through the death of their runtime, and are the same for every runtime on one store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.cluster import Process
from support.postgres import PostgresServer
from support.strict_provider import Hold, StrictProvider, says
from support.turn_rig import TurnRig, turn_rig
from turnwire.api.runtime.v1.thread_service_pb2_grpc import ThreadServiceStub
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

pytestmark = [pytest.mark.e2e]

AGENT = """
model: openai:usual
fallback_models: ['openai:*']
tools: ['shout']
compaction: {model: 'openai:summary', messages: 8, keep_messages: 4}
"""


def heads(provider: StrictProvider, model: str) -> list[str]:
    """The first message of each request for a model."""
    return [str(body["messages"][0]["content"]) for body in provider.requests[model]]


async def talk(rig: TurnRig, model: str, count: int, thread: str = "") -> str:
    """Run turns in one thread and return its name."""
    for number in range(count):
        events = await rig.run(rig.request(f"openai:{model}", f"question {number}", thread=thread)).rest()
        assert events[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED
        thread = events[0].turn.partition("/turns/")[0]
    return thread


async def test_a_death_between_a_summary_and_the_next_call_costs_no_second_summary(tmp_path: Path) -> None:
    async with turn_rig(tmp_path, agent=AGENT) as rig, asyncio.timeout(60):
        thread = await talk(rig, "dies", 4)
        hold = Hold()
        rig.provider.queue("summary", says("what was said"))
        rig.provider.queue("dies", says(hold, "never"))
        stream = rig.run(rig.request("openai:dies", "one more", thread=thread))
        made = await stream.until("compacted")
        await hold.reached.wait()
        await rig.cluster.runtime.kill()
        turn, taken = stream.header.turn, list(stream.events)
        await rig.cluster.runtime.start()
        rig.connect()
        rest = await rig.watch(turn, taken[-1].sequence).rest()
        assert rest[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED
        assert [e.sequence for e in (*taken, *rest)] == list(range(1, len(taken) + len(rest) + 1))
        assert not any(e.HasField("compacted") for e in rest)
        cut, again = heads(rig.provider, "dies")[-2:]
        assert "what was said" in cut
        assert again == cut
        assert len(rig.provider.requests["summary"]) == 1
        assert made.compacted.summary == "what was said"
        # The summary, the call that died with its owner, and the one that answered.
        assert rest[-1].turn_finished.usage.model_calls == 3
        assert rig.provider.refusals == []


async def test_two_runtimes_on_one_store_read_the_same_summary(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    store = {"TURNWIRE_RUNTIME_STORE__URL": postgres.fresh()}
    runtime = {**store, "TURNWIRE_RUNTIME_RUNTIME_ID": "first"}
    async with turn_rig(tmp_path, agent=AGENT, runtime=runtime) as rig, asyncio.timeout(60):
        first = rig.cluster.runtime
        environment = {**first.environment, "TURNWIRE_RUNTIME_RUNTIME_ID": "second"}
        second = Process("second", tmp_path, environment, tmp_path / "2")
        second.module = "turnwire.runtime.main"
        await second.start()
        try:
            rig.provider.queue("summary", says("what was said"))
            thread = await talk(rig, "shared", 5)
            there = TurnRig(rig.cluster, rig.provider)
            channel = rig.cluster.channel(second)
            there.turns, there.threads = TurnServiceStub(channel), ThreadServiceStub(channel)
            await talk(there, "shared", 1, thread)
        finally:
            await second.kill()
    here, elsewhere = heads(rig.provider, "shared")[-2:]
    assert here.startswith("[compacted] 4 earlier messages")
    assert "what was said" in here
    assert elsewhere == here
    assert len(rig.provider.requests["summary"]) == 1
