"""Answers that must fit a schema: one that fits completes the turn, one that misses goes back; how often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.resumed_turns import left, stored
from support.runtime_fakes import FakeModel, Step, Turn, agent, call, spec, tool
from turnwire.extend.events import (
    MessageOrigin,
    Notice,
    SteerApplied,
    StepCommitted,
    StepSettled,
    TurnState,
    UsageSummary,
)
from turnwire.extend.llm import (
    AssistantMessage,
    Finish,
    FinishReason,
    TextDelta,
    TextPart,
    TokenUsage,
    UsageProvenance,
    UsageSnapshot,
    UserMessage,
)
from turnwire.runtime.domain.resumption import Progress

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
)


def says(text: str, *more: Step) -> list[Step]:
    return [TextDelta(text), *more, STOP]


def asked(*answers: str | list[Step], **fields: Any) -> Turn:
    limits = fields.pop("limits", {})
    definition = agent(limits={"max_retry_limit": fields.pop("retries", 2)})
    calls = [says(a) if isinstance(a, str) else a for a in answers]
    given = spec(response_schema_json=SCHEMA, limits=limits)
    return Turn(FakeModel(*calls), tool("add"), agent=definition, spec=given, **fields)


async def test_an_answer_that_fits_completes_the_turn_at_once() -> None:
    turn = asked('{"n": 1}')
    assert await turn.run() is TurnState.COMPLETED
    assert (turn.end.text, turn.end.steps) == ('{"n": 1}', 1)
    assert turn.journal.taken_in == []
    assert turn.model.requests[0].response_schema_json == SCHEMA


async def test_the_answer_of_the_turn_is_the_json_without_its_fence_and_the_message_is_what_was_said() -> (
    None
):
    turn = asked('```json\n{"n": 1}\n```')
    assert await turn.run() is TurnState.COMPLETED
    assert turn.end.text == '{"n": 1}'
    (part,) = turn.journal.committed[0]
    assert part.content.text == '```json\n{"n": 1}\n```'  # type: ignore[union-attr]


async def test_an_answer_that_misses_goes_back_with_what_is_wrong_and_the_next_one_counts() -> None:
    turn = asked('{"n": "one"}', '{"n": 1}')
    assert await turn.run() is TurnState.COMPLETED
    assert (turn.end.text, turn.end.steps, turn.end.usage.model_calls) == ('{"n": 1}', 2, 2)
    ((message_id, origin, parts),) = turn.journal.taken_in
    assert origin is MessageOrigin.REMINDER
    assert "$.n: 'one' is not of type 'integer'" in parts[0].text
    (applied,) = turn.journal.of(SteerApplied)
    assert applied == SteerApplied(f"threads/thread-1/messages/{message_id}", MessageOrigin.REMINDER)
    (notice,) = turn.journal.of(Notice)
    assert notice.reason == "answer-invalid"
    assert "retry 1 of 2" in notice.text
    # The model sees its answer and then the reminder, as a user message.
    *_, answer, reminder = turn.model.requests[1].messages
    assert isinstance(answer, AssistantMessage)
    assert reminder == UserMessage((TextPart(parts[0].text),))


async def test_the_message_is_closed_before_the_reminder_and_the_next_answer_has_one_of_its_own() -> None:
    turn = asked("no", '{"n": 1}')
    await turn.run()
    first, second = turn.journal.messages
    assert [e.message.rpartition("/")[2] for e in turn.journal.of(StepCommitted)] == [first, second]
    assert turn.end.final_message.endswith(second)
    story = turn.story()
    at = story.index("SteerApplied")
    assert story.index("StepSettled") < at < story.index("StepStarted", story.index("StepStarted") + 1)


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_so_many_retries_and_then_the_turn_has_failed_with_its_last_text(retries: int) -> None:
    answers = [f'{{"n": "{i}"}}' for i in range(retries + 1)]
    turn = asked(*answers, retries=retries)
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_reason) == ("answer-invalid", "ANSWER_INVALID")
    assert turn.end.text == answers[-1]
    assert f"$.n: '{retries}' is not of type 'integer'" in turn.end.error_text
    assert len(turn.journal.taken_in) == retries
    assert turn.end.steps == len(turn.model.requests) == retries + 1


async def test_the_progress_of_each_step_holds_how_many_retries_there_were() -> None:
    turn = asked("a", "b", '{"n": 1}')
    await turn.run()
    known = [(p.answer_retries, p.taken_in) for p in turn.journal.progress if p is not None]
    assert known == [(0, 0), (1, 1), (1, 0), (2, 2), (2, 0)]


async def test_steps_with_tools_are_no_answers_and_are_not_checked() -> None:
    turn = asked([TextDelta("I add."), call("add"), CALLS], '{"n": 1}')
    assert await turn.run() is TurnState.COMPLETED
    assert turn.journal.taken_in == []


async def test_a_model_that_refuses_is_not_asked_again() -> None:
    refusal = Finish(FinishReason.REFUSAL, refusal="I will not.")
    turn = asked([refusal])
    assert await turn.run() is TurnState.FAILED
    assert turn.end.stop_reason == "answer-invalid"
    assert "refused" in turn.end.error_text
    assert turn.end.text == "I will not."


async def test_a_retry_needs_a_step_like_any_other() -> None:
    turn = asked("no", '{"n": 1}', max_steps=1)
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.text) == ("max-steps", "no")
    # The turn may be continued, and then the reminder comes where it belongs.
    assert turn.journal.taken_in == []


async def test_a_retry_is_not_paid_for_by_a_budget_that_is_used_up() -> None:
    spent = UsageSnapshot(TokenUsage(80, 0, 0, 30, provenance=UsageProvenance.REPORTED))
    turn = asked(says("no", spent), limits={"tokens": 100})
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.text) == ("budget", "no")
    fits = asked(says('{"n": 1}', spent), limits={"tokens": 100})
    assert await fits.run() is TurnState.COMPLETED


async def test_an_empty_answer_misses() -> None:
    turn = asked([STOP], '{"n": 1}')
    assert await turn.run() is TurnState.COMPLETED
    assert "there is no JSON" in turn.journal.taken_in[0][2][0].text


async def test_an_answer_that_the_output_limit_cut_misses_and_one_that_is_whole_counts() -> None:
    cut = Finish(FinishReason.LENGTH)
    turn = asked([TextDelta('{"n": '), cut], [TextDelta('{"n": 1}'), cut])
    assert await turn.run() is TurnState.COMPLETED
    assert turn.end.text == '{"n": 1}'


async def test_what_the_answer_says_is_escaped_and_bounded_in_the_reminder() -> None:
    turn = asked('{"n": "</answer_invalid>' + "x" * 5000 + '"}', '{"n": 1}')
    await turn.run()
    text = turn.journal.taken_in[0][2][0].text
    assert text.count("</answer_invalid>") == 1
    assert len(text) < 1000
    assert len(turn.journal.of(Notice)[0].text) < 1000


# --- a turn that goes on ---


def progress(**fields: Any) -> Progress:
    return Progress(UsageSummary(model_calls=1), FinishReason.STOP.value, **fields)


async def test_an_answer_that_missed_before_a_death_goes_back_when_the_turn_goes_on() -> None:
    turn = asked(
        '{"n": 1}',
        resumption=left(last_text="no", progress=progress(answer_retries=1), settled=True),
        transcript=stored(),
    )
    assert await turn.run() is TurnState.COMPLETED
    assert [p.answer_retries for p in turn.journal.progress if p is not None] == [2, 2]
    assert turn.journal.of(StepSettled)


async def test_a_reminder_that_is_in_the_thread_is_not_added_again() -> None:
    known = left(
        last_text="no", progress=progress(answer_retries=1, taken_in=1), message_id="", settled=False
    )
    turn = asked('{"n": "two"}', '{"n": 2}', resumption=known, transcript=stored())
    assert await turn.run() is TurnState.COMPLETED
    assert len(turn.journal.taken_in) == 1
    assert turn.story()[0] == "StepStarted"


async def test_the_retries_before_a_death_count() -> None:
    known = left(last_text="no", progress=progress(answer_retries=2, taken_in=1), message_id="")
    turn = asked('{"n": "two"}', resumption=known, transcript=stored())
    assert await turn.run() is TurnState.FAILED
    assert turn.end.stop_reason == "answer-invalid"
    assert turn.journal.taken_in == []


async def test_a_turn_that_is_stopped_after_a_reminder_names_the_answer_before_it() -> None:
    known = left(last_text="no", progress=progress(taken_in=1), message_id="", answer_id="answer-1")
    turn = asked(resumption=known, transcript=stored(), max_steps=1)
    assert await turn.run() is TurnState.FAILED
    assert turn.end.final_message == "threads/thread-1/messages/answer-1"
    assert turn.end.text == "no"
