"""What the async client promises of a stream: each event once, in order, whatever the connection does."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc
import pytest

from support.scripted_runtime import CUT, Failure, Leg, ScriptedRuntime, serving
from support.turn_story import LOG_ID, TURN, Story, multiplication
from turnwire.api.runtime.v1.turn_event_pb2 import TurnSuspended
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2 import RunTurnRequest, WatchTurnRequest
from turnwire.core.settings import ListenSettings
from turnwire.wire.server import server_options
from turnwire_client import (
    AsyncClient,
    Expired,
    NotFound,
    Patience,
    Unauthenticated,
    Unavailable,
)

QUICK = Patience(connect_time=0.3, retry_time=5.0)
STORY = multiplication().events
ALL = [event.sequence for event in STORY]


async def sequences(runtime: ScriptedRuntime, **options: int) -> list[int]:
    """Run a turn over the script and give the sequences that were delivered."""
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target, patience=QUICK) as client,
        client.run_turn(agent="demo", text="6 times 7?", **options) as stream,
    ):
        return [event.sequence async for event in stream]


async def test_a_whole_turn_is_streamed_in_order() -> None:
    assert await sequences(ScriptedRuntime(STORY)) == ALL


async def test_the_header_is_there_when_the_stream_is_entered() -> None:
    runtime = ScriptedRuntime(STORY)
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target) as client,
        client.run_turn(agent="demo", text="hello") as stream,
    ):
        assert stream.turn == TURN
        assert stream.header.log_id == LOG_ID
        assert stream.last_sequence == 0


@pytest.mark.parametrize("cut", range(len(STORY) + 1))
async def test_a_cut_at_any_place_loses_and_repeats_nothing(cut: int) -> None:
    runtime = ScriptedRuntime(
        STORY, Leg(until=cut or None, failure=CUT) if cut else Leg(until=0, failure=CUT)
    )
    assert await sequences(runtime) == ALL
    if 0 < cut < len(STORY):
        again = runtime.requests[1]
        assert isinstance(again, WatchTurnRequest)
        assert (again.turn, again.after_sequence, again.log_id) == (TURN, cut, LOG_ID)


async def test_a_turn_whose_header_was_never_seen_is_asked_for_with_the_same_request_id() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=0, failure=CUT), Leg(until=0, failure=CUT))
    assert await sequences(runtime) == ALL
    ids = {request.request_id for request in runtime.requests}
    assert len(runtime.requests) == 3
    assert len(ids) == 1
    assert all(isinstance(request, RunTurnRequest) for request in runtime.requests)


async def test_several_cuts_in_a_row_are_bridged() -> None:
    cuts = [Leg(until=n, failure=CUT, batch=3) for n in (2, 5, 5, 9, 12)]
    assert await sequences(ScriptedRuntime(STORY, *cuts)) == ALL


async def test_repeated_events_are_dropped() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=6, failure=CUT), Leg(repeat=4))
    assert await sequences(runtime) == ALL


async def test_a_gap_is_asked_for_again() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=3, failure=CUT), Leg(skip=2))
    assert await sequences(runtime) == ALL
    assert [request.after_sequence for request in runtime.requests] == [0, 3, 3]


async def test_an_ok_before_the_end_of_the_turn_is_taken_for_a_cut() -> None:
    assert await sequences(ScriptedRuntime(STORY, Leg(until=4))) == ALL


async def test_a_cut_between_the_last_event_and_the_status_is_the_end() -> None:
    runtime = ScriptedRuntime(STORY, Leg(failure=CUT))
    assert await sequences(runtime) == ALL
    assert len(runtime.requests) == 1


async def test_a_cursor_at_the_end_of_an_ended_turn_gives_nothing_and_ends() -> None:
    runtime = ScriptedRuntime(STORY)
    runtime.state = TurnState.TURN_STATE_COMPLETED
    assert await sequences(runtime, after=len(STORY)) == []
    assert len(runtime.requests) == 1


async def test_a_stream_ends_when_the_turn_waits_for_somebody() -> None:
    story = Story().accepted().started()
    story.add(turn_suspended=TurnSuspended(actions=[f"{TURN}/actions/approve-1"]))
    runtime = ScriptedRuntime(story.events)
    assert await sequences(runtime) == [1, 2, 3]
    assert len(runtime.requests) == 1


async def test_leaving_the_scope_early_cancels_the_call_at_the_server() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=5, silent=True))
    async with asyncio.timeout(20), serving(runtime) as target, AsyncClient(target) as client:
        async with client.run_turn(agent="demo", text="hello") as stream:
            async for event in stream:
                if event.sequence == 3:
                    break
        await runtime.detached.wait()


async def test_an_exception_in_the_scope_cancels_the_call_at_the_server() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=5, silent=True))
    async with asyncio.timeout(20), serving(runtime) as target, AsyncClient(target) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.run_turn(agent="demo", text="hello") as stream:
                async for event in stream:
                    _ = 1 // (3 - event.sequence)
        await runtime.detached.wait()


async def test_closing_from_another_task_ends_the_iteration() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=2, silent=True))
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target) as client,
        client.run_turn(agent="demo", text="hello") as stream,
        asyncio.TaskGroup() as group,
    ):

        async def read() -> list[int]:
            return [event.sequence async for event in stream]

        reader = group.create_task(read())
        await runtime.sent.wait()
        await asyncio.sleep(0)
        stream.close()
        assert len(await reader) <= 2


async def test_a_read_that_was_cancelled_can_be_taken_up_again() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=2, silent=True))
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target) as client,
        client.run_turn(agent="demo", text="hello") as stream,
    ):
        seen = [(await anext(stream)).sequence, (await anext(stream)).sequence]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(stream)
        seen += [event.sequence async for event in stream]
        assert seen == ALL


async def test_a_silent_stream_is_given_up_and_resumed() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=3, silent=True))
    patience = Patience(connect_time=1.0, retry_time=5.0, silence=0.2)
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target, patience=patience) as client,
        client.run_turn(agent="demo", text="hello") as stream,
    ):
        assert [event.sequence async for event in stream] == ALL
        await runtime.detached.wait()


async def test_a_server_that_comes_back_on_the_same_port_is_found_again() -> None:
    first, second = ScriptedRuntime(STORY, Leg(until=5, silent=True)), ScriptedRuntime(STORY)
    async with asyncio.timeout(30), AsyncExitStack() as client_scope:
        async with serving(first) as target:
            client = await client_scope.enter_async_context(AsyncClient(target))
            stream = await client_scope.enter_async_context(client.run_turn(agent="demo", text="hello"))
            seen = [(await anext(stream)).sequence for _ in range(5)]
        async with serving(second, int(target.rsplit(":", 1)[1])):
            seen += [event.sequence async for event in stream]
    assert seen == ALL
    assert second.requests[0].after_sequence == 5


async def test_a_server_that_stays_away_is_unreachable_after_the_retry_time() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=2, failure=CUT), *[Leg(until=0, failure=CUT)] * 50)
    patience = Patience(connect_time=0.2, retry_time=0.4)
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target, patience=patience) as client,
        client.run_turn(agent="demo", text="hello") as stream,
    ):
        with pytest.raises(Unavailable) as caught:
            async for _ in stream:
                pass
        assert caught.value.reason == "UNREACHABLE"
        assert 2 < len(runtime.requests) < 20


async def test_nobody_listening_is_unreachable_at_once_without_patience() -> None:
    async with asyncio.timeout(20), AsyncClient("127.0.0.1:1", patience=Patience(connect_time=0)) as client:
        with pytest.raises(Unavailable) as caught:
            async with client.run_turn(agent="demo", text="hello"):
                pass
        assert caught.value.reason == "UNREACHABLE"


async def test_a_header_alone_is_no_progress() -> None:
    runtime = ScriptedRuntime(STORY, *[Leg(until=-99, failure=CUT)] * 200)
    patience = Patience(connect_time=0.2, retry_time=0.5)
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target, patience=patience) as client,
    ):
        with pytest.raises(Unavailable):
            async with client.run_turn(agent="demo", text="hello") as stream:
                async for _ in stream:
                    pass


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure(grpc.StatusCode.NOT_FOUND, reason="AGENT_NOT_FOUND"), NotFound),
        (Failure(grpc.StatusCode.OUT_OF_RANGE, reason="EVENTS_EXPIRED"), Expired),
    ],
)
async def test_what_cannot_pass_is_raised_at_once(failure: Failure, error: type[Exception]) -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=0, failure=failure))
    with pytest.raises(error) as caught:
        await sequences(runtime)
    assert caught.value.reason == failure.reason  # type: ignore[attr-defined]
    assert len(runtime.requests) == 1


async def test_an_expired_token_is_replaced_where_tokens_come_from_a_function() -> None:
    expired = Failure(grpc.StatusCode.UNAUTHENTICATED, reason="TOKEN_EXPIRED")
    runtime, tokens = ScriptedRuntime(STORY, Leg(until=6, failure=expired)), iter(["old", "new"])
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target, token=lambda: next(tokens)) as client,
        client.run_turn(agent="demo", text="hello") as stream,
    ):
        assert [event.sequence async for event in stream] == ALL
    assert [pairs["authorization"] for pairs in runtime.metadata] == ["Bearer old", "Bearer new"]


async def test_a_fixed_token_that_expired_is_an_error_at_once() -> None:
    expired = Failure(grpc.StatusCode.UNAUTHENTICATED, reason="TOKEN_EXPIRED")
    runtime = ScriptedRuntime(STORY, Leg(until=6, failure=expired))
    with pytest.raises(Unauthenticated):
        await sequences(runtime)


async def test_the_servers_wish_to_wait_is_kept() -> None:
    draining = Failure(grpc.StatusCode.UNAVAILABLE, reason="DRAINING", retry_delay=0.25)
    runtime = ScriptedRuntime(STORY, Leg(until=3, failure=draining))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await sequences(runtime) == ALL
    assert loop.time() - began >= 0.25


async def test_a_reader_may_set_its_own_limit() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=3, silent=True))
    async with asyncio.timeout(20), serving(runtime) as target, AsyncClient(target) as client:
        with pytest.raises(Exception) as caught:
            async with client.run_turn(agent="demo", text="hello", timeout=0.3) as stream:
                async for _ in stream:
                    pass
        assert caught.value.reason == "DEADLINE_EXCEEDED"


async def test_reader_options_travel_with_every_request() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=3, failure=CUT))
    async with (
        asyncio.timeout(20),
        serving(runtime) as target,
        AsyncClient(target, patience=QUICK) as client,
        client.run_turn(
            agent="demo", text="hello", follow_while_waiting=True, cancel_on_disconnect=2.5
        ) as stream,
    ):
        async for _ in stream:
            pass
    for request in runtime.requests:
        assert request.follow_while_waiting
        assert request.cancel_on_disconnect.grace_timeout.ToMilliseconds() == 2500


async def test_a_connection_sent_away_by_age_is_replaced_without_a_gap() -> None:
    runtime = ScriptedRuntime(STORY, *[Leg(until=4, silent=True), Leg(until=9, silent=True)])
    aged = [("grpc.max_connection_age_ms", 300), ("grpc.max_connection_age_grace_ms", 200)]
    async with (
        asyncio.timeout(20),
        serving(runtime, options=aged) as target,
        AsyncClient(target, patience=QUICK) as client,
        client.run_turn(agent="demo", text="hello") as stream,
    ):
        assert [event.sequence async for event in stream] == ALL
    assert [request.after_sequence for request in runtime.requests] == [0, 4, 9]


@pytest.mark.slow
async def test_pings_on_a_silent_stream_are_accepted_by_the_servers_settings() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=4, silent=True))
    options = server_options(ListenSettings())
    async with (
        asyncio.timeout(60),
        serving(runtime, options=options) as target,
        AsyncClient(target, patience=Patience(silence=35.0)) as client,
        client.run_turn(agent="demo", text="hello") as stream,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert [event.sequence async for event in stream] == ALL
        # Three pings of the client were answered before it gave the silence up by itself.
        assert loop.time() - began > 34
