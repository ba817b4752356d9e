"""Turns that wait for somebody, are let go of, or are taken up only to be ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.resumed_turns import ANSWER, SEND, going_on, left, outcomes, part, question
from support.runtime_fakes import (
    KEY,
    NOT_FOUND,
    STARTED,
    FakeModel,
    Turn,
    agent,
    call,
    hangs,
    tool,
    unreachable,
)
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.extend.errors import AgentCancelledError
from turnwire.extend.events import (
    ActionRequired,
    ActionResolved,
    EpisodeKind,
    Notice,
    ToolCallStarted,
    ToolOutcome,
    TurnState,
    TurnSuspended,
)
from turnwire.extend.llm import Finish, FinishReason, TextDelta
from turnwire.runtime.domain.action import ApprovalTerms
from turnwire.runtime.domain.execution import (
    ExecutionResult,
    ExecutionState,
    LookupAnswer,
    ToolInfo,
)
from turnwire.runtime.domain.resumption import CallState, ResumedCall
from turnwire.runtime.engine import cancel, execution, toolbox, tools
from turnwire.runtime.engine.approvals import digest_of

CALLS = Finish(FinishReason.TOOL_CALLS)
RAN = ExecutionResult(ToolOutcome.SUCCEEDED, "from the ledger")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who does not answer is waited for long."""
    monkeypatch.setattr(tools, "STOP_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(cancel, "ABANDON_SECONDS", 0.02)
    monkeypatch.setattr(execution, "_LINK_DELAYS", (0.0,))
    monkeypatch.setattr(execution, "LINK_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(toolbox, "_DELAY", 0.0)


# --- episodes that only end the turn ---


async def stopped(made: Turn) -> None:
    made.token.fire(AgentCancelledError("enough"), "command-1")
    assert await made.run() is TurnState.CANCELLED
    assert made.model.requests == []
    assert made.journal.applied[0].command_id == "command-1"


async def test_a_stop_before_the_episode_starts_nothing_and_stops_what_runs() -> None:
    made = going_on(ResumedCall(part("a", 0), CallState.READY), ResumedCall(part("b", 1), CallState.STARTED))
    made.executor.answers.update({"a": NOT_FOUND, "b": STARTED})
    made.executor.behaviours["b"] = hangs(made.executor)
    await stopped(made)
    assert dict(outcomes(made)) == {"a": ToolOutcome.NOT_STARTED, "b": ToolOutcome.STOPPED}
    assert [c.tool_name for c in made.executor.executed] == ["b"]


async def test_a_stop_before_the_episode_takes_what_the_ledger_has() -> None:
    made = going_on(ResumedCall(part("a"), CallState.READY))
    made.executor.answers["a"] = LookupAnswer(ExecutionState.FINISHED, False, RAN)
    await stopped(made)
    assert outcomes(made) == [("a", ToolOutcome.SUCCEEDED)]


@pytest.mark.parametrize("answer", [None, LookupAnswer(ExecutionState.ACCEPTED)])
async def test_a_stop_waits_for_the_truth_only_for_a_while(answer: LookupAnswer | None) -> None:
    made = going_on(ResumedCall(part("a"), CallState.READY))
    if answer is not None:
        made.executor.answers["a"] = answer
    await stopped(made)
    assert made.executor.executed == []
    assert outcomes(made) == [("a", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_a_stop_of_a_turn_that_waits_withdraws_the_question() -> None:
    asked = question()
    made = going_on(ResumedCall(part("send"), CallState.WAITING, action=asked), offered=(SEND,))
    await stopped(made)
    assert made.story() == ["ActionResolved", "ToolCallFinished", "TurnFinished"]
    assert made.journal.of(ActionResolved)[0].state is ActionState.CANCELLED
    assert outcomes(made) == [("send", ToolOutcome.NOT_STARTED)]


# --- questions ---


async def test_a_call_that_somebody_has_to_allow_waits_and_its_siblings_do_not() -> None:
    made = Turn(FakeModel([call("send", '{"to":"bob"}'), call("add"), CALLS]), SEND, tool("add"))
    assert await made.run() is TurnState.WAITING
    assert outcomes(made) == [("add", ToolOutcome.SUCCEEDED)]
    (required,) = made.journal.of(ActionRequired)
    action = required.action
    assert (action.kind, action.state, action.tool_name) == (ActionKind.APPROVAL, ActionState.OPEN, "send")
    assert (action.risk_tier, action.required_role, action.agent) == (
        "sensitive",
        "approver",
        "agents/helper",
    )
    assert action.expire_time - action.create_time == 24 * 3600 * 10**9
    assert action.create_time == made.store.terms.now
    assert made.journal.of(TurnSuspended)[0].actions == (action.name,)
    assert made.journal.left == "suspended"
    assert len(made.model.requests) == 1


async def test_a_thread_that_allows_all_asks_and_answers_at_once() -> None:
    made = Turn(FakeModel([call("send"), CALLS], ANSWER), SEND)
    made.store.terms = ApprovalTerms(5, auto=True)
    assert await made.run() is TurnState.COMPLETED
    (resolved,) = made.journal.of(ActionResolved)
    assert (resolved.state, resolved.resolver) == (ActionState.APPROVED, "auto")
    assert outcomes(made) == [("send", ToolOutcome.SUCCEEDED)]


async def test_digests_differ_with_all_that_was_shown_and_with_nothing_else() -> None:
    one = digest_of("team", SEND, '{"a":1,"b":2}')
    assert digest_of("team", SEND, '{ "b": 2, "a": 1 }') == one
    others = {
        digest_of("other", SEND, '{"a":1,"b":2}'),
        digest_of("team", replace(SEND, digest="v2"), '{"a":1,"b":2}'),
        digest_of("team", replace(SEND, name="sent"), '{"a":1,"b":2}'),
        digest_of("team", SEND, '{"a":1,"b":3}'),
        digest_of("team", SEND, "no json"),
    }
    assert one not in others
    assert len(others) == 5


async def test_an_allowed_call_runs_when_the_turn_goes_on() -> None:
    resumed = ResumedCall(part("send"), CallState.WAITING, action=question(ActionState.APPROVED))
    made = going_on(resumed, offered=(SEND,), resumption=left(resumed, kind=EpisodeKind.RESUME))
    assert await made.run() is TurnState.COMPLETED
    assert outcomes(made) == [("send", ToolOutcome.SUCCEEDED)]
    assert made.executor.looked_up == []


async def test_an_allowed_call_that_a_dead_owner_may_have_begun_is_looked_up_first() -> None:
    made = going_on(
        ResumedCall(part("send"), CallState.WAITING, action=question(ActionState.APPROVED)), offered=(SEND,)
    )
    made.executor.answers["send"] = LookupAnswer(ExecutionState.FINISHED, False, RAN)
    await made.run()
    assert made.executor.executed == []


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (question(ActionState.REJECTED, answer='{"reason":"<b>never</b>"}'), "&lt;b&gt;never"),
        (question(ActionState.REJECTED, answer="{}"), "a person rejected it."),
        (question(ActionState.EXPIRED), "nobody allowed it in time"),
        (question(ActionState.CANCELLED), "withdrawn"),
    ],
)
async def test_a_call_that_nobody_allowed_is_rejected_with_the_reason(action: Action, words: str) -> None:
    made = going_on(ResumedCall(part("send"), CallState.WAITING, action=action), offered=(SEND,))
    assert await made.run() is TurnState.COMPLETED
    assert outcomes(made) == [("send", ToolOutcome.REJECTED)]
    assert words in made.journal.outcomes[0].content
    assert made.executor.executed == []


async def test_a_partial_answer_runs_its_call_and_the_turn_waits_on_without_the_model() -> None:
    second = replace(question(), name=f"{KEY.name}/actions/action-2", call_id="c-send-1")
    made = going_on(
        ResumedCall(part("send", 0), CallState.WAITING, action=question(ActionState.APPROVED)),
        ResumedCall(part("send", 1), CallState.WAITING, action=second),
        offered=(SEND,),
    )
    made.executor.answers["send"] = NOT_FOUND
    assert await made.run() is TurnState.WAITING
    assert outcomes(made) == [("send", ToolOutcome.SUCCEEDED)]
    assert made.journal.of(TurnSuspended)[0].actions == (second.name,)
    assert made.model.requests == []


async def test_an_answer_to_another_version_of_the_tool_is_void_and_asked_again() -> None:
    made = going_on(
        ResumedCall(part("send"), CallState.WAITING, action=question(ActionState.APPROVED)),
        offered=(replace(SEND, digest="v2"),),
    )
    assert await made.run() is TurnState.WAITING
    assert made.executor.executed == []
    assert [a.name for a in made.journal.voided] == [question().name]
    assert [n.reason for n in made.journal.of(Notice)] == ["action-voided"]
    (required,) = made.journal.of(ActionRequired)
    assert required.action.name != question().name
    assert required.action.digest == digest_of(KEY.scope, replace(SEND, digest="v2"), "{}")


async def test_a_cancel_while_siblings_run_withdraws_the_question_in_the_end_of_the_turn() -> None:
    made = Turn(FakeModel([call("send"), call("long"), CALLS]), SEND, tool("long"))
    made.executor.behaviours["long"] = hangs(made.executor)

    async def act() -> None:
        await made.journal.saw(ToolCallStarted)
        made.token.cancel("enough", "one")

    assert await made.run_while(act) is TurnState.CANCELLED
    assert made.journal.left == ""
    assert dict(outcomes(made)) == {"send": ToolOutcome.NOT_STARTED, "long": ToolOutcome.STOPPED}
    assert [e.state for e in made.journal.of(ActionResolved)] == [ActionState.CANCELLED]


# --- hand-over ---


async def test_a_hand_over_closes_the_model_and_writes_no_end() -> None:
    made = Turn(FakeModel([TextDelta("so far"), asyncio.Event()]))

    async def act() -> None:
        await made.journal.saw(TextDelta)
        assert made.token.hand_over()
        assert not made.token.cancel("too late", "one")

    assert await made.run_while(act) is None
    assert made.model.closed == 1
    assert (made.journal.left, made.journal.end) == ("released", None)
    assert made.journal.committed == []


async def test_a_hand_over_leaves_tools_running() -> None:
    made = Turn(FakeModel([call("long"), CALLS]), tool("long"))
    made.executor.behaviours["long"] = hangs(made.executor)

    async def act() -> None:
        await made.journal.saw(ToolCallStarted)
        made.token.hand_over()

    assert await made.run_while(act) is None
    assert made.executor.cancelled == []
    assert outcomes(made) == []
    assert made.journal.left == "released"


async def test_a_turn_that_is_ending_is_not_handed_over() -> None:
    made = Turn(FakeModel([asyncio.Event()]))
    made.token.cancel("enough")
    assert not made.token.hand_over()
    assert await made.run() is TurnState.CANCELLED


async def test_a_hand_over_of_a_turn_that_was_lost_ends_quietly() -> None:
    made = Turn(FakeModel([TextDelta("x"), asyncio.Event()]), lost_at="release")

    async def act() -> None:
        await made.journal.saw(TextDelta)
        made.token.hand_over()

    assert await made.run_while(act) is None


async def test_a_turn_lost_while_it_begins_to_wait_ends_quietly() -> None:
    made = Turn(FakeModel([call("send"), CALLS]), SEND, lost_at="suspend")
    assert await made.run() is None


async def test_an_agent_whose_executor_starts_beside_it_is_waited_for() -> None:
    made = going_on(ResumedCall(part("add"), CallState.READY), agent=agent())
    made.executor.answers["add"] = NOT_FOUND
    tries = 0

    async def late() -> tuple[ToolInfo, ...]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise unreachable()
        return (tool("add"),)

    made.executor.list_tools = late  # type: ignore[method-assign]
    assert await made.run() is TurnState.COMPLETED
