"""What a claim reads from the last pages of a log: the attempt that is open, and what of it is void."""

from __future__ import annotations

import pytest

from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.extend.events import (
    ActionRequired,
    ActionResolved,
    EpisodeKind,
    StepCommitted,
    StepReset,
    StepSettled,
    StepStarted,
    TurnEvent,
    TurnResumed,
    TurnSuspended,
    UsageSummary,
)
from turnwire.extend.llm import FailureKind, Finish, FinishReason, StreamFailure, TextDelta
from turnwire.runtime.domain.resumption import OpenAttempt
from turnwire.runtime.event_codec import encode_event, event_to_proto, open_attempt

WORD = TextDelta("a")
STOP = Finish(FinishReason.STOP)
FAILED = StreamFailure(FailureKind.CONNECTION, "it broke")
SETTLED = StepSettled(UsageSummary())


def begun(step: int) -> StepStarted:
    return StepStarted(step, 30, "fake:model")


def pages(*events: TurnEvent, attempt: int = 1) -> list[bytes]:
    """Pages of two events, from sequence 11 on."""
    bodies = [encode_event("t", (11 + i, 1, (1, 2, attempt), event)) for i, event in enumerate(events)]
    return [b"".join(bodies[i : i + 2]) for i in range(0, len(bodies), 2)]


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ((), OpenAttempt()),
        ((SETTLED,), OpenAttempt(settled=True)),
        ((SETTLED, begun(2)), OpenAttempt(2, 1, settled=True)),
        ((SETTLED, begun(2), WORD, WORD, STOP), OpenAttempt(2, 1, 13, 15, True)),
        ((begun(2), WORD, WORD, StepReset(12, 13, "recovery")), OpenAttempt(2, 1)),
        ((begun(2), WORD, StepReset(12, 12, "recovery"), begun(2), WORD), OpenAttempt(2, 1, 15, 15)),
        ((begun(2), WORD, FAILED, StepReset(12, 13, "retry"), begun(2), WORD), OpenAttempt(2, 1, 16, 16)),
        ((begun(2), WORD, STOP, StepCommitted("m")), OpenAttempt(2, 1)),
    ],
)
def test_what_is_open_is_what_no_step_and_no_reset_has_taken(
    events: tuple[TurnEvent, ...], found: OpenAttempt
) -> None:
    assert open_attempt(pages(*events), 10) == found


def test_what_is_in_the_transcript_is_not_looked_at() -> None:
    events = (begun(1), WORD, STOP, StepCommitted("m"), SETTLED, begun(2), WORD)
    assert open_attempt(pages(*events), 14) == OpenAttempt(2, 1, 17, 17, True)


def test_the_attempt_is_the_one_that_the_event_carries() -> None:
    assert open_attempt(pages(begun(2), attempt=3), 10).step_attempt == 3


def test_events_of_a_wait_say_on_the_wire_what_they_say() -> None:
    action = Action(
        "threads/t/turns/u/actions/a",
        ActionKind.APPROVAL,
        call_id="c",
        tool_name="send",
        digest="d",
        risk_tier="dangerous",
        question="May it?",
        create_time=1_000_000_000,
        expire_time=2_000_000_000,
        agent="agents/helper",
    )
    stamp = (1, 0, 0)
    required = event_to_proto("t", (1, 1, stamp, ActionRequired(action))).action_required.action
    assert (required.name, required.call_id, required.question) == (action.name, "c", "May it?")
    assert (required.create_time.seconds, required.expire_time.seconds) == (1, 2)
    resolved = ActionResolved(action.name, "c", ActionState.REJECTED, "ann")
    told = event_to_proto("t", (1, 1, stamp, resolved)).action_resolved
    assert (told.action, told.call_id, told.resolver) == (action.name, "c", "ann")
    suspended = event_to_proto("t", (1, 1, stamp, TurnSuspended((action.name,)))).turn_suspended
    assert list(suspended.actions) == [action.name]
    resumed = event_to_proto("t", (1, 1, stamp, TurnResumed(3, EpisodeKind.RESUME, 7))).turn_resumed
    assert (resumed.episode, resumed.epoch) == (3, 7)
