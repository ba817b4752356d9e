"""Where a reader stands: whatever arrives, each event is delivered once and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.turn_story import LOG_ID, TURN, multiplication
from turnwire.api.runtime.v1.turn_event_pb2 import TurnEvent, TurnResumed, TurnSuspended
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2 import (
    Heartbeat,
    RunTurnRequest,
    RunTurnResponse,
    StreamHeader,
    WatchTurnRequest,
)
from turnwire_client.follow import Follow

STORY = multiplication().events
HEADER = RunTurnResponse(header=StreamHeader(turn=TURN, log_id=LOG_ID, state=TurnState.TURN_STATE_RUNNING))

# A connection: where its events begin relative to what was asked for, how many come, and in what portions.
Connection = tuple[int, int, int]
connections = st.lists(
    st.tuples(st.integers(-5, 3), st.integers(0, len(STORY)), st.integers(1, 7)), max_size=12
)


@given(connections)
def test_repeats_gaps_and_cuts_never_reach_the_reader(plan: list[Connection]) -> None:
    follow = Follow(RunTurnRequest(request_id="r"))
    delivered: list[int] = []
    for shift, count, portion in [*plan, (0, len(STORY), 3)]:
        request = follow.next_request()
        first = max(0, request.after_sequence + shift)
        chosen = STORY[first : first + count]
        for message in [HEADER, *portions(chosen, portion)]:
            delivered += [event.sequence for event in follow.take(message)]
            if follow.broken:
                break
        assert delivered == list(range(1, len(delivered) + 1))
        assert follow.after_sequence == len(delivered)
    assert len(delivered) == len(STORY)
    assert follow.finished
    assert follow.complete


def portions(events: list[TurnEvent], size: int) -> list[RunTurnResponse]:
    return [RunTurnResponse(events=events[at : at + size]) for at in range(0, len(events), size)]


def test_the_same_request_is_asked_until_the_turn_is_known_and_a_watch_from_then_on() -> None:
    follow = Follow(RunTurnRequest(request_id="r", after_sequence=2))
    assert follow.next_request() == RunTurnRequest(request_id="r", after_sequence=2)
    list(follow.take(HEADER))
    assert follow.next_request() == WatchTurnRequest(turn=TURN, after_sequence=2, log_id=LOG_ID)


def test_a_turn_that_went_on_after_a_wait_is_not_complete() -> None:
    follow = Follow(WatchTurnRequest(turn=TURN))
    list(follow.take(RunTurnResponse(events=[TurnEvent(sequence=1, turn_suspended=TurnSuspended())])))
    assert follow.complete
    list(follow.take(RunTurnResponse(events=[TurnEvent(sequence=2, turn_resumed=TurnResumed())])))
    assert not follow.complete


def test_a_turn_that_waits_at_the_attach_is_complete_by_its_header() -> None:
    follow = Follow(WatchTurnRequest(turn=TURN, after_sequence=5))
    waiting = StreamHeader(turn=TURN, state=TurnState.TURN_STATE_WAITING, last_sequence=5)
    list(follow.take(RunTurnResponse(header=waiting)))
    assert follow.complete


def test_a_heartbeat_moves_nothing() -> None:
    follow = Follow(WatchTurnRequest(turn=TURN, after_sequence=3))
    assert list(follow.take(RunTurnResponse(heartbeat=Heartbeat()))) == []
    assert follow.after_sequence == 3
