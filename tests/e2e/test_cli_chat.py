"""Chat at a real terminal: what a person sees, and what Ctrl-C does."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from support.cli_process import terminal, turnwire
from support.scripted_runtime import Failure, Leg, ScriptedRuntime, serving
from support.turn_story import TURN, Story, multiplication
from turnwire.api.runtime.v1 import turn_service_pb2 as turns
from turnwire.api.runtime.v1.action_pb2 import Action, ActionKind
from turnwire.api.runtime.v1.turn_event_pb2 import ActionRequired, TurnSuspended
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = pytest.mark.e2e
STORY = multiplication().events


async def test_a_conversation_shows_thought_call_result_and_answer_and_keeps_its_thread() -> None:
    runtime = ScriptedRuntime(STORY)
    async with asyncio.timeout(60), serving(runtime) as target, terminal("chat", target=target) as screen:
        await screen.sees("> ")
        screen.types("6 times 7?\r")
        await screen.sees("I should multiply.")
        await screen.sees("multiply(a=6, b=7)")
        await screen.sees("20 ms")
        await screen.sees("42")
        await screen.sees("6 times 7 is 42.")
        await screen.sees("> ")
        screen.types("and again\r")
        await screen.sees("6 times 7 is 42.")
        await screen.sees("> ")
        screen.types("/quit\r")
        assert await screen.ends() == 0
    asked = [request for request in runtime.requests if isinstance(request, turns.RunTurnRequest)]
    assert asked[0].spec.HasField("new_thread")
    assert asked[1].spec.thread == "threads/story-thread"


async def test_ctrl_c_stops_the_turn_and_a_second_one_leaves() -> None:
    cut = Story()
    cut.events = list(STORY[:5])
    end = cut.finished("", TurnState.TURN_STATE_CANCELLED, "cancelled").events[-1]
    runtime = ScriptedRuntime(STORY, Leg(until=5, after_command=[end]))
    async with asyncio.timeout(60), serving(runtime) as target, terminal("chat", target=target) as screen:
        await screen.sees("> ")
        screen.types("6 times 7?\r")
        await screen.sees("I should multiply.")
        screen.interrupts()
        await screen.sees("the turn was cancelled")
        await screen.sees("> ")
        screen.interrupts()
        assert await screen.ends() == 0
    assert runtime.requests[-1].command.target.turn == TURN


async def test_ctrl_c_at_a_quiet_prompt_asks_once_more() -> None:
    runtime = ScriptedRuntime(STORY)
    async with asyncio.timeout(60), serving(runtime) as target, terminal("chat", target=target) as screen:
        await screen.sees("> ")
        screen.interrupts()
        await screen.sees("press Ctrl-C again to leave")
        await screen.sees("> ")
        screen.types("/thread\r")
        await screen.sees("no thread yet")
        await screen.sees("> ")
        screen.interrupts()
        await screen.sees("press Ctrl-C again to leave")
        await screen.sees("> ")
        screen.interrupts()
        assert await screen.ends() == 0


async def test_a_refusal_is_shown_and_the_conversation_goes_on() -> None:
    refusal = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", "QUEUE_FULL")
    runtime = ScriptedRuntime(STORY, Leg(until=0, failure=refusal))
    async with asyncio.timeout(60), serving(runtime) as target, terminal("chat", target=target) as screen:
        await screen.sees("> ")
        screen.types("hello\r")
        await screen.sees("RESOURCE_EXHAUSTED / QUEUE_FULL: the queue is full")
        await screen.sees("> ")
        screen.types("hello\r")
        await screen.sees("6 times 7 is 42.")


async def test_a_person_is_asked_before_a_call_that_needs_it() -> None:
    name = f"{TURN}/actions/approve-1"
    action = Action(
        name=name,
        kind=ActionKind.ACTION_KIND_APPROVAL,
        tool_name="delete",
        arguments_json='{"path": "/tmp/a"}',
        digest="d1",
        question="may delete run?",
    )
    story = Story().accepted().started().step_started()
    story.add(action_required=ActionRequired(action=action)).add(turn_suspended=TurnSuspended(actions=[name]))
    suspended = len(story.events)
    story.text("Gone.").finished("Gone.")
    runtime = ScriptedRuntime(story.events, Leg(until=suspended))
    async with asyncio.timeout(60), serving(runtime) as target, terminal("chat", target=target) as screen:
        await screen.sees("> ")
        screen.types("delete it\r")
        await screen.sees("may delete run?")
        await screen.sees("allow? [y/N]")
        screen.types("y\r")
        await screen.sees("Gone.")
    answer = next(request for request in runtime.requests if isinstance(request, turns.ResolveActionRequest))
    assert (answer.action, answer.digest, answer.WhichOneof("answer")) == (name, "d1", "approve")
    assert runtime.requests[-1].after_sequence == suspended


async def test_without_a_terminal_each_line_is_a_turn_and_the_last_one_counts() -> None:
    failed = Story().accepted().started().finished("", TurnState.TURN_STATE_FAILED, "error")
    runtime = ScriptedRuntime(failed.events)
    async with asyncio.timeout(60), serving(runtime) as target:
        done = await turnwire("chat", "--agent", "demo", target=target, stdin="one\ntwo\n")
    assert done.code == 1
    assert len([request for request in runtime.requests if isinstance(request, turns.RunTurnRequest)]) == 2
