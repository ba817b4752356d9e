"""The command line and the client against the real services: doctor, cancel, and a restart under a reader."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from support.cli_process import environment, turnwire
from support.live_fleet import live_fleet
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire_client import AsyncClient, Patience, TurnView

pytestmark = pytest.mark.e2e


async def test_a_turn_is_started_watched_cancelled_and_listed(tmp_path: Path) -> None:
    with live_fleet(tmp_path) as fleet:
        async with asyncio.timeout(90):
            started = await turnwire("run", "--detach", "tell me a long story", target=fleet.target)
            turn = started.out.strip()
            stopped = await turnwire("cancel", turn, "--cause", "test", target=fleet.target)
            watched = await turnwire("watch", turn, target=fleet.target)
            listed = await turnwire("turns", target=fleet.target)
            again = await turnwire("cancel", turn, target=fleet.target)
    assert stopped.code == 0, stopped.err
    assert stopped.out.startswith("applied at ")
    assert watched.code == 3
    assert "the turn was cancelled" in watched.err
    assert f"{turn}\tcancelled" in listed.out
    assert (again.code, again.out.split()[0]) == (0, "duplicate")


async def test_doctor_finds_a_healthy_deployment_and_says_what_a_bad_one_needs(tmp_path: Path) -> None:
    with live_fleet(tmp_path) as fleet:
        async with asyncio.timeout(90):
            healthy = await turnwire("doctor", "--data", str(tmp_path / "data"), target=fleet.target)
            broken = environment(TURNWIRE_RUNTIME_TURNS__QUEUE_LIMIT="many", OPENAI_API_KEY=" spaced ")
            wrong = await turnwire("doctor", "--data", str(tmp_path), target=fleet.target, env=broken)
    assert healthy.code == 0, healthy.out
    assert f"server: {fleet.target} is turnwire" in healthy.out
    assert "runtime settings: fit together" in healthy.out
    assert "no provider's key is set" in healthy.out
    assert wrong.code == 8
    assert "TURNWIRE_RUNTIME_TURNS__QUEUE_LIMIT" in wrong.out
    assert "OPENAI_API_KEY has spaces around it" in wrong.out
    assert "spaced" not in wrong.out.replace("has spaces", "")


async def test_a_reader_gets_every_event_across_the_death_and_return_of_the_runtime(tmp_path: Path) -> None:
    patience = Patience(connect_time=5.0, retry_time=60.0)
    view, sequences = TurnView(), []
    fleet_scope = live_fleet(tmp_path)
    fleet = await asyncio.to_thread(fleet_scope.__enter__)
    ports = [
        word for name, at in fleet.addresses.items() for word in (f"--{name}-port", at.rsplit(":", 1)[1])
    ]
    async with asyncio.timeout(110), AsyncClient(fleet.target, patience=patience) as client:
        async with client.run_turn(agent="demo", text="tell me a long story") as stream:
            async for event in stream:
                sequences.append(event.sequence)
                view.apply(event)
                if event.sequence == 30:
                    os.kill(fleet.pids["runtime"], signal.SIGKILL)
                    await asyncio.to_thread(fleet_scope.__exit__, None, None, None)
                    fleet_scope = live_fleet(tmp_path, *ports)
                    await asyncio.to_thread(fleet_scope.__enter__)
            turn = stream.turn
        replayed = [event.sequence async for event in replay(client, turn)]
    await asyncio.to_thread(fleet_scope.__exit__, None, None, None)
    assert sequences == list(range(1, len(sequences) + 1)) == replayed
    assert view.finished is not None
    assert view.state in (TurnState.TURN_STATE_COMPLETED, TurnState.TURN_STATE_FAILED)


async def replay(client: AsyncClient, turn: str):  # type: ignore[no-untyped-def]
    async with client.watch(turn) as stream:
        async for event in stream:
            yield event


async def test_a_long_result_is_read_back_whole_by_its_call(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(
        "from turnwire.extend.tools import command_tool\n"
        'count = command_tool("count", shell="seq 1 40000", description="Count.")\n',
        encoding="utf-8",
    )
    with live_fleet(tmp_path, "--tools", str(tools)) as fleet:
        async with asyncio.timeout(60), AsyncClient(fleet.target) as client:
            result = await client.run("demo", "call count {}")
            (call,) = result.calls
            read = client.read_tool_result
            whole = b"".join([chunk async for chunk in read(result.turn, call.call_id)])
            part = b"".join([chunk async for chunk in read(result.turn, call.call_id, offset=2, length=4)])
    expected = "".join(f"{number}\n" for number in range(1, 40001)).encode()
    assert call.result is not None
    assert call.result.overflow.size_bytes == len(expected)
    assert len(call.result.content) < len(expected) / 2
    assert whole == expected
    assert part == expected[2:6]
