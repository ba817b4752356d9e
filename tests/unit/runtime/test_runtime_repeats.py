"""A call is repeated after readers saw a part of its answer: the part is void, and counted all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.runtime_fakes import FakeJournal, Turn, agent, tool
from turnwire.extend.errors import AgentCancelledError
from turnwire.extend.events import (
    EpisodeKind,
    Notice,
    StepCommitted,
    StepReset,
    StepStarted,
    ToolOutcome,
    TurnState,
    Waiting,
)
from turnwire.extend.llm import (
    Finish,
    FinishReason,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    ToolCallComplete,
    UsageProvenance,
    UsageSnapshot,
)
from turnwire.runtime.domain.message import ContentPart, ReasoningText
from turnwire.runtime.domain.resumption import Resumption
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.fallback import FallbackModel
from turnwire.runtime.models.retry import RetryModel
from turnwire.runtime.models.scripted import ScriptedModel
from turnwire.runtime.models.settings import RetrySettings

LLM = (TextDelta, ReasoningDelta, ToolCallComplete, UsageSnapshot, Finish, StreamFailure)
QUICK = RetrySettings(attempts=3, first_delay_seconds=0.0)
HIDDEN = RetrySettings(attempts=3, first_delay_seconds=0.0, visible=False)
CUT = {"fail": {"kind": "connection"}}
GOOD = [{"text": "alpha beta"}, {"usage": {"input": 7, "output": 2}}, {"finish": "stop"}]
BROKEN = [{"text": "alpha be"}, CUT]


def attempts(*lists: list[dict[str, Any]], name: str = "scripted:a") -> ScriptedModel:
    return ScriptedModel({"calls": [{"attempts": list(lists)}]}, name)


class Signed(BatchedModel):
    """A model that wants something back with its answer."""

    async def batches(self, request: Any, *, on_sent: Any, on_wait: Any) -> Any:
        yield [ReasoningDelta("hm")]
        yield [Finish(FinishReason.STOP, replay_json="[1]")]


def turn(model: BatchedModel, *tools: Any, **fields: Any) -> Turn:
    return Turn(model, *tools, **fields)  # type: ignore[arg-type]


def text_of(journal: FakeJournal) -> str:
    """What a reader holds who keeps to the resets."""
    void: set[int] = set()
    for event in journal.of(StepReset):
        void.update(range(event.from_sequence, event.to_sequence + 1))
    known = enumerate(journal.events, start=3)
    return "".join(e.text for at, e in known if at not in void and isinstance(e, TextDelta))


def check_resets(journal: FakeJournal) -> None:
    """Each reset voids exactly the model's events of the attempt before it, and a new attempt begins."""
    begun = 3
    for at, event in enumerate(journal.events, start=3):
        if isinstance(event, StepReset):
            known = [n for n in range(begun, at) if isinstance(journal.events[n - 3], LLM)]
            assert (event.from_sequence, event.to_sequence) == (known[0], known[-1])
            assert isinstance(journal.events[known[-1] - 3], StreamFailure)
            assert isinstance(journal.events[at - 2], StepStarted)
            assert journal.stamps[at - 2][2] == journal.stamps[at - 3][2] + 1
            begun = at


async def test_text_that_readers_saw_is_void_when_the_call_is_repeated() -> None:
    made = turn(RetryModel(attempts(BROKEN, GOOD), QUICK))
    assert await made.run() is TurnState.COMPLETED
    check_resets(made.journal)
    assert made.story() == [
        "StepStarted",
        "TextDelta",
        "StreamFailure",
        "Notice",
        "StepReset",
        "StepStarted",
        "TextDelta",
        "UsageSnapshot",
        "Finish",
        "StepCommitted",
        "StepSettled",
        "TurnFinished",
    ]
    assert (text_of(made.journal), made.end.text) == ("alpha beta", "alpha beta")
    assert made.journal.of(StepReset)[0].cause == "retry"
    assert [n.reason for n in made.journal.of(Notice)] == ["model-retry"]


async def test_the_message_holds_the_last_attempt_only_and_no_step_is_used_up() -> None:
    broken = [{"reasoning": "hm"}, {"text": "alpha be"}, {"tool_call": {"name": "add"}}, CUT]
    made = turn(RetryModel(attempts(broken, broken, GOOD), QUICK), tool("add"), max_steps=1)
    assert await made.run() is TurnState.COMPLETED
    check_resets(made.journal)
    (parts,) = made.journal.committed
    assert [type(p) for p in parts] == [ContentPart]
    assert made.end.steps == 1
    assert [s.step for s in made.journal.of(StepStarted)] == [1, 1, 1]
    committed = made.journal.events.index(made.journal.of(StepCommitted)[0])
    assert made.journal.stamps[committed] == (1, 1, 3)
    assert made.executor.executed == []
    progress = made.journal.progress[0]
    assert progress is not None
    assert progress.step_attempt == 3


async def test_what_voided_attempts_used_counts() -> None:
    broken = [{"usage": {"input": 50}}, {"text": "x" * 40}, CUT]
    made = turn(RetryModel(attempts(broken, GOOD), QUICK))
    await made.run()
    usage = made.end.usage
    assert (usage.tokens.input_tokens, usage.tokens.output_tokens) == (57, 12)
    assert (usage.model_calls, usage.tokens.provenance) == (2, UsageProvenance.ESTIMATED)


async def test_the_next_step_begins_with_its_first_attempt() -> None:
    script = {
        "calls": [
            {"attempts": [BROKEN, [{"text": "so"}, {"tool_call": {"name": "add"}}]]},
            [{"text": "done"}],
        ]
    }
    made = turn(RetryModel(ScriptedModel(script), QUICK), tool("add"))
    await made.run()
    assert made.journal.finished_calls() == [("add", ToolOutcome.SUCCEEDED)]
    assert {stamp[1:] for stamp in made.journal.stamps} == {(1, 1), (1, 2), (2, 1), (0, 0)}


async def test_when_all_attempts_break_the_last_one_is_kept_as_it_is() -> None:
    last = [{"text": "third"}, CUT]
    made = turn(RetryModel(attempts(BROKEN, BROKEN, last), QUICK))
    assert await made.run() is TurnState.FAILED
    check_resets(made.journal)
    assert (made.end.stop_reason, made.end.text, text_of(made.journal)) == ("model-error", "third", "third")
    assert len(made.journal.of(StepReset)) == 2


async def test_without_the_policy_a_cut_after_visible_text_is_the_end_and_the_text_is_kept() -> None:
    inner = attempts(BROKEN, GOOD)
    made = turn(RetryModel(inner, HIDDEN))
    assert await made.run() is TurnState.FAILED
    assert (made.end.stop_reason, made.end.text) == ("model-error", "alpha be")
    assert made.journal.of(StepReset) == []
    assert len(inner.requests) == 1


async def test_a_repeat_that_nobody_saw_voids_nothing() -> None:
    made = turn(RetryModel(attempts([CUT], GOOD), HIDDEN))
    assert await made.run() is TurnState.COMPLETED
    assert made.journal.of(StepReset) == []
    assert {stamp[2] for stamp in made.journal.stamps if stamp[1]} == {1}


async def test_a_fallback_after_visible_text_voids_it_and_names_the_model_that_answers() -> None:
    first, second = attempts(BROKEN), attempts(GOOD, name="other:b")
    made = turn(FallbackModel([first, second], visible=True))
    assert await made.run() is TurnState.COMPLETED
    check_resets(made.journal)
    assert made.journal.of(StepReset)[0].cause == "model-fallback"
    assert [s.model for s in made.journal.of(StepStarted)] == ["scripted:a", "other:b"]
    assert [n.reason for n in made.journal.of(Notice)] == ["model-fallback"]
    assert made.end.text == "alpha beta"


async def test_without_the_policy_a_model_that_was_seen_is_not_replaced() -> None:
    second = attempts(GOOD)
    made = turn(FallbackModel([attempts(BROKEN), second]))
    assert await made.run() is TurnState.FAILED
    assert not second.requests


async def test_what_a_fallback_answers_is_stored_as_of_its_own_provider() -> None:
    second = Signed("other:b", "other")
    made = turn(FallbackModel([attempts([CUT]), second]))
    await made.run()
    (part,) = [p for p in made.journal.committed[0] if isinstance(p, ReasoningText)]
    assert part.provider == "other"


async def test_a_cancel_between_two_attempts_keeps_nothing_of_what_is_void() -> None:
    wait = {"fail": {"kind": "rate-limit", "retry_after": 50}}
    made = turn(RetryModel(attempts([{"text": "void"}, wait], GOOD), QUICK))

    async def act() -> None:
        await made.journal.saw(Waiting)
        made.token.fire(AgentCancelledError("enough"))

    assert await made.run_while(act) is TurnState.CANCELLED
    assert made.journal.committed == []
    assert made.journal.of(Waiting)[0].what == "retry"


async def test_attempts_go_on_counting_where_a_dead_owner_stopped() -> None:
    resumption = Resumption(2, EpisodeKind.RECOVERY, next_attempt=4)
    made = turn(RetryModel(attempts(BROKEN, GOOD), QUICK), resumption=resumption)
    await made.run()
    check_resets(made.journal)
    assert next(s[2] for s in made.journal.stamps if s[1]) == 4
    committed = made.journal.events.index(made.journal.of(StepCommitted)[0])
    assert made.journal.stamps[committed][2] == 5


@pytest.mark.parametrize("count", [1, 2])
async def test_a_wait_for_the_model_is_told_once_for_each_attempt(count: int) -> None:
    hang = [{"delay": 0.05}, {"text": "late"}, CUT]
    made = turn(RetryModel(attempts(*[hang] * count, GOOD), QUICK), first_feedback=0.01)
    await made.run()
    assert [w.what for w in made.journal.of(Waiting)] == ["model"] * count


async def test_an_agent_may_have_a_time_of_its_own_for_the_first_sign() -> None:
    own = agent(model_call={"first_feedback_seconds": 0.01})
    made = turn(attempts([{"delay": 0.05}, *GOOD]), agent=own, first_feedback=60.0)
    await made.run()
    assert made.journal.of(Waiting) == [Waiting("model", 0.01)]


async def test_readers_who_keep_to_the_resets_hold_what_is_stored() -> None:
    for seen in range(1, 5):
        pieces = [{"text": f"{n}"} for n in range(seen)]
        made = turn(
            RetryModel(attempts([*pieces, CUT], [*pieces, CUT], [*pieces, {"finish": "stop"}]), QUICK)
        )
        async with asyncio.timeout(10):
            await made.run()
        check_resets(made.journal)
        assert text_of(made.journal) == made.end.text == "".join(str(n) for n in range(seen))
