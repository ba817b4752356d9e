"""A view shows what the events say, once, and takes voided output out again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.turn_story import TURN, Story, multiplication
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.runtime.v1.action_pb2 import Action
from turnwire.api.runtime.v1.turn_event_pb2 import (
    ActionRequired,
    ActionResolved,
    Notice,
    TurnEvent,
    TurnFinished,
    TurnSuspended,
    Waiting,
)
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire_client import TurnView


def test_a_whole_turn_folds_into_text_reasoning_and_calls() -> None:
    view = TurnView(multiplication().events)
    assert view.text == "6 times 7 is 42."
    assert view.reasoning == "I should multiply."
    assert view.state == TurnState.TURN_STATE_COMPLETED
    assert view.stop_reason == "completed"
    assert view.turn == TURN
    (call,) = view.calls.values()
    assert (call.tool_name, call.arguments_json, call.step) == ("multiply", '{"a": 6, "b": 7}', 1)
    assert call.result is not None
    assert call.result.content == "42"
    assert call.outcome == ToolOutcome.TOOL_OUTCOME_SUCCEEDED


def test_a_step_reset_takes_the_voided_text_and_calls_out() -> None:
    story = Story().accepted().started().step_started().text("Wrong ").call("call-0001", "multiply", "{}")
    story.reset(4, 5).text("Right.")
    view = TurnView(story.events)
    assert view.text == "Right."
    assert not view.calls


def test_a_step_reset_leaves_other_steps_alone() -> None:
    story = Story().accepted().started().step_started().text("First.").committed().settled()
    story.step_started().text("half an ans").reset(8, 8)
    view = TurnView(story.events)
    assert [step.text for step in view.steps.values()] == ["First.", ""]
    assert view.steps[1].committed
    assert view.text == "First."


@given(st.lists(st.integers(0, len(multiplication().events) - 1), max_size=60))
def test_events_that_come_again_change_nothing(repeats: list[int]) -> None:
    events = multiplication().events
    stream = list(events)
    for index in sorted(repeats, reverse=True):
        stream.insert(index + 1, events[index])
    assert seen(TurnView(stream)) == seen(TurnView(events))


def seen(view: TurnView) -> tuple[object, ...]:
    return (
        view.text,
        view.reasoning,
        view.state,
        [repr(call) for call in view.calls.values()],
        view.last_sequence,
    )


def test_an_event_of_a_later_version_is_skipped() -> None:
    story = Story().accepted()
    story.events.append(TurnEvent(sequence=2, turn=TURN))
    view = TurnView(story.events)
    assert view.last_sequence == 2


def test_a_cut_final_text_is_completed_from_the_deltas() -> None:
    story = Story().accepted().started().step_started().text("abc").text("def").committed()
    story.add(turn_finished=TurnFinished(text="abc", text_truncated=True))
    assert TurnView(story.events).text == "abcdef"


def test_a_cut_final_text_stays_cut_when_the_deltas_were_not_seen() -> None:
    finished = TurnEvent(sequence=9, turn_finished=TurnFinished(text="abc", text_truncated=True))
    assert TurnView([finished]).text == "abc"


def test_open_actions_waits_and_notices_are_shown_while_they_last() -> None:
    name = f"{TURN}/actions/approve-1"
    story = Story().accepted().started().step_started()
    story.add(action_required=ActionRequired(action=Action(name=name)))
    story.add(turn_suspended=TurnSuspended(actions=[name]))
    view = TurnView(story.events)
    assert list(view.actions) == [name]
    assert view.state == TurnState.TURN_STATE_WAITING
    story.add(action_resolved=ActionResolved(action=name))
    story.add(waiting=Waiting(what="model"))
    story.add(notice=Notice(text="slow"))
    view = TurnView(story.events)
    assert not view.actions
    assert view.waiting is not None
    assert [notice.text for notice in view.notices] == ["slow"]
    story.text("here")
    assert TurnView(story.events).waiting is None


def test_a_result_without_a_seen_call_still_makes_a_card() -> None:
    view = TurnView(multiplication().events[7:])
    assert view.calls["call-0001"].tool_name == "multiply"
