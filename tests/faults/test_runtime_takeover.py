"""Two runtimes on one PostgreSQL: one is killed, stopped, or told to leave in the middle of a turn."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.runtime_pair import Pair, pair
from support.strict_provider import Hold, says
from support.turn_rig import Stream, arms, serialised
from turnwire.api.control.v1.command_pb2 import OutcomeKind
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_pb2
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [pytest.mark.e2e]


async def held_turn(both: Pair, model: str, tmp_path: Path) -> tuple[Stream, Hold]:
    """Run a turn at the first up to the middle of its second step."""
    hold = Hold()
    calls = [("note", {"file": str(tmp_path / "notes"), "line": "once"})]
    both.rig.provider.queue(
        model, says("look ", calls=calls), says("half ", hold, "lost"), says("well ", "done")
    )
    stream = both.rig.run(both.rig.request(f"openai:{model}"))
    await hold.reached.wait()
    await stream.until("text_delta", 2)
    return stream, hold


def check_gone_on(whole: list[event_pb.TurnEvent], before: list[event_pb.TurnEvent], notes: Path) -> None:
    assert serialised(whole[: len(before)]) == serialised(before)
    assert [event.sequence for event in whole] == list(range(1, len(whole) + 1))
    end = whole[-1].turn_finished
    assert (end.state, end.text) == (TurnState.TURN_STATE_COMPLETED, "well done")
    assert arms(whole).count("turn_finished") == 1
    (resumed,) = [event.turn_resumed for event in whole if event.HasField("turn_resumed")]
    assert (resumed.episode, resumed.epoch) == (2, 2)
    assert "step_reset" in arms(whole)
    assert notes.read_text() == "once\n"


async def test_a_turn_of_a_killed_runtime_goes_on_in_the_other(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with asyncio.timeout(110), pair(postgres, tmp_path) as both:
        stream, _ = await held_turn(both, "take-kill", tmp_path)
        before = stream.leave()
        # A reader elsewhere is there already when the owner dies.
        reader = both.watch(before[0].turn)
        await reader.until("text_delta", 2)
        await both.rig.cluster.runtime.kill()
        whole = await reader.rest()
        check_gone_on(whole, before, tmp_path / "notes")
        # The same request at the second joins the turn, and a new one goes on in its thread.
        assert serialised(await both.watch(before[0].turn).rest()) == serialised(whole)


async def test_a_runtime_that_was_stopped_and_wakes_after_the_takeover_changes_nothing(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with asyncio.timeout(110), pair(postgres, tmp_path) as both:
        stream, hold = await held_turn(both, "take-stop", tmp_path)
        before = stream.leave()
        both.rig.cluster.runtime.signal(signal.SIGSTOP)
        whole = await both.watch(before[0].turn).rest()
        check_gone_on(whole, before, tmp_path / "notes")
        both.rig.cluster.runtime.signal(signal.SIGCONT)
        hold.set()
        # It hears that it lost the turn, and serves on.
        assert serialised(await both.rig.watch(before[0].turn).rest()) == serialised(whole)
        thread = before[0].turn.partition("/turns/")[0]
        events = await both.rig.whole("openai:take-stop-next", thread=thread)
        assert events[-1].turn_finished.text == "done"
        outcome = await both.rig.cancel(turn=before[0].turn)
        assert outcome.kind == OutcomeKind.OUTCOME_KIND_ALREADY_FINISHED
        assert both.rig.provider.refusals == []


async def test_a_runtime_that_leaves_hands_its_turns_over(postgres: PostgresServer, tmp_path: Path) -> None:
    async with asyncio.timeout(110), pair(postgres, tmp_path) as both:
        stream, _ = await held_turn(both, "take-leave", tmp_path)
        before = stream.leave()
        assert await both.rig.cluster.runtime.terminate() == 0
        whole = await both.watch(before[0].turn).rest()
        check_gone_on(whole, before, tmp_path / "notes")


async def test_a_turn_is_cancelled_and_interrupted_through_the_runtime_that_does_not_run_it(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    async with asyncio.timeout(110), pair(postgres, tmp_path) as both:
        one, _ = await held_turn(both, "take-cancel", tmp_path)
        outcome = await both.rig.cancel(turn=one.header.turn)
        assert outcome.kind == OutcomeKind.OUTCOME_KIND_APPLIED
        two, _ = await held_turn(both, "take-interrupt", tmp_path)
        request = both.rig.request(
            "openai:take-next", thread=two.header.thread, busy_policy=turn_pb2.BUSY_POLICY_INTERRUPT
        )
        new = Stream(both.elsewhere.RunTurn(request))
        assert (await new.rest())[-1].turn_finished.text == "done"
        ended = (await two.rest())[-1].turn_finished
        assert (ended.state, ended.stop_reason) == (TurnState.TURN_STATE_CANCELLED, "superseded")
