"""A turn whose process dies at each of its commits ends as if nobody had died, and no tool runs twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.ledger_executor import LedgerExecutor
from support.postgres import Location
from support.recovery_rig import StepModel, World, check_told
from support.runtime_fakes import agent, call, tool
from support.runtime_rig import command
from turnwire.extend.actions import ActionState
from turnwire.extend.events import MessageOrigin, ToolOutcome, TurnState
from turnwire.extend.llm import Finish, FinishReason, TextDelta
from turnwire.runtime.domain.execution import RiskTier
from turnwire.runtime.domain.message import CallPart

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)
STEPS = (
    [
        *(TextDelta(w) for w in ("I ", "look ", "it ", "up.")),
        call("find", '{"q": 1}', "p1"),
        call("find", '{"q": 2}', "p2"),
        call("fly", "{}", "p3"),
        call("write", "{}", "p4"),
        CALLS,
    ],
    [
        TextDelta("Now "),
        TextDelta("I send."),
        call("send", '{"to": "bob"}', "p5"),
        call("find", "{}", "p6"),
        CALLS,
    ],
    [TextDelta("Well "), TextDelta("done."), STOP],
)
Fresh = Callable[..., Location]
TOOLS = ("find", "find", "write", "send", "find")


def world(location: Location, **fields: object) -> World:
    executor = LedgerExecutor(
        tool("find", parallel=True),
        tool("write"),
        replace(tool("send"), risk_tier=RiskTier.SENSITIVE, digest="v1"),
    )
    return World(location, StepModel(*STEPS), executor, **fields)  # type: ignore[arg-type]


async def check(made: World, send: ToolOutcome = ToolOutcome.SUCCEEDED) -> None:
    """Check that the turn is whole: every word once, every call once, every tool started once."""
    log, transcript = await made.told()
    check_told(log, transcript)
    end = log[-1].turn_finished
    assert (end.stop_reason, end.text, end.steps) == ("completed", "Well done.", 3)
    calls = [p for m in transcript if m.role == "assistant" for p in m.parts if isinstance(p, CallPart)]
    outcomes = {c.provider_call_id: c.outcome for c in calls}
    done = ToolOutcome.SUCCEEDED
    assert outcomes == {"p1": done, "p2": done, "p3": ToolOutcome.FAILED, "p4": done, "p5": send, "p6": done}
    assert set(made.executor.starts.values()) == {1}
    assert made.executor.started("send") == (send is done)
    assert (made.executor.started("find"), made.executor.started("write")) == (3, 1)
    # What was said in vain is lost with its process when no step committed it; what was committed counts.
    assert end.usage.model_calls >= 3
    assert end.usage.tool_calls == 6


async def commits_of_a_quiet_life(location: Location) -> int:
    made = world(location)
    total = 0
    while not made.states or made.states[-1] is not TurnState.COMPLETED:
        assert await made.live()
        total += made.commits
    await check(made)
    assert made.states == [TurnState.WAITING, TurnState.COMPLETED]
    return total


@pytest.mark.parametrize("lingers", [False, True], ids=["at once", "a moment later"])
async def test_a_death_at_any_commit_changes_nothing_of_what_is_told(
    fresh_location: Fresh, lingers: bool
) -> None:
    most = await commits_of_a_quiet_life(fresh_location())
    for commits in range(1, most + 1):
        made = world(fresh_location())
        await made.live(commits, lingers=lingers)
        await made.finish()
        await check(made)


async def test_a_death_at_any_commit_of_the_second_life_changes_nothing_either(fresh_location: Fresh) -> None:
    for commits in range(1, 14):
        made = world(fresh_location(), answer=ActionState.REJECTED)
        await made.live(7, lingers=True)
        await made.live(commits, lingers=bool(commits % 2))
        await made.finish()
        await check(made, ToolOutcome.REJECTED)


# --- answers that go back to the model ---

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
RETRIES = (
    [TextDelta("I look."), call("find", "{}", "p1"), CALLS],
    [TextDelta("done"), STOP],
    [TextDelta('{"n": '), TextDelta('"two"}'), STOP],
    [TextDelta('```json\n{"n": 2}\n```'), STOP],
)


def answering(location: Location, **fields: object) -> World:
    given = command(text="go", response_schema_json=SCHEMA)
    executor = LedgerExecutor(tool("find", parallel=True))
    return World(location, StepModel(*RETRIES), executor, given=given, **fields)  # type: ignore[arg-type]


async def check_answer(made: World, retries: int = 2) -> None:
    """Check that each reminder is told and stored once, and that the retries were counted through it all."""
    log, transcript = await made.told()
    check_told(log, transcript)
    end = log[-1].turn_finished
    added = [m.origin for m in transcript if m.role == "user"]
    assert added == [MessageOrigin.REQUEST, *[MessageOrigin.REMINDER] * retries]
    assert len([e for e in log if e.notice.reason == "answer-invalid"]) == retries
    if retries == 2:
        assert (end.stop_reason, end.text, end.steps) == ("completed", '{"n": 2}', 4)
    else:
        assert (end.stop_reason, end.text, end.steps) == ("answer-invalid", '{"n": "two"}', 3)
    assert end.final_message.rpartition("/")[2] == transcript[-1].message_id
    assert made.executor.started("find") == 1
    assert [e.step for e in log if e.HasField("step_settled")] == list(range(1, end.steps + 1))


@pytest.mark.parametrize("retries", [1, 2])
async def test_a_death_at_any_commit_adds_no_reminder_twice_and_forgets_no_retry(
    fresh_location: Fresh, retries: int
) -> None:
    definition = agent(limits={"max_retry_limit": retries})
    made = answering(fresh_location(), definition=definition)
    assert await made.live()
    await check_answer(made, retries)
    for commits in range(1, made.commits + 1):
        died = answering(fresh_location(), definition=definition)
        await died.live(commits, lingers=bool(commits % 2))
        await died.finish()
        await check_answer(died, retries)
