"""PruneEvents over the wire, and what readers of a pruned turn are told."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from support.runtime_server import RETENTION_SECONDS, end, events, request, running
from turnwire.api.runtime.v1 import admin_service_pb2 as pb
from turnwire.api.runtime.v1 import agent_service_pb2, turn_pb2, turn_service_pb2

AGENTS = {"helper": [[{"text": "hello"}]]}
NOW = Duration()


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    found = error_details_pb2.ErrorInfo()
    assert any(any_.Unpack(found) for any_ in status_pb2.Status.FromString(details).details)
    return found


async def test_the_events_of_an_ended_turn_are_deleted_on_request_and_its_end_stays(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as runtime:
        asked = request("helper")
        told = await runtime.run(asked)
        turn = told[0].header.turn
        last = events(told)[-1].sequence
        before = await runtime.ended(turn)
        would = await runtime.admin.PruneEvents(pb.PruneEventsRequest(older_than=NOW, dry_run=True))
        assert (would.turns, would.pages > 0, would.bytes > 0) == (1, True, True)
        assert await runtime.admin.PruneEvents(pb.PruneEventsRequest(older_than=NOW)) == would
        assert await runtime.admin.PruneEvents(pb.PruneEventsRequest()) == pb.PruneEventsResponse()

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await runtime.watch(turn)
        assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
        info = error_info(caught.value)
        assert info.reason == "EVENTS_EXPIRED"
        assert dict(info.metadata) == {"oldest_sequence": str(last + 1), "last_sequence": str(last)}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await runtime.run(asked)
        assert error_info(caught.value).reason == "EVENTS_EXPIRED"

        (header,) = await runtime.watch(turn, last)
        assert header.header.first_kept_sequence == last + 1
        assert header.header.last_sequence == last
        answer = await runtime.turns.GetTurn(turn_service_pb2.GetTurnRequest(name=turn))
        assert answer.turn.state == turn_pb2.TURN_STATE_COMPLETED
        assert answer.turn.final_message == before.final_message
        assert end(told).text == "hello"
        # The thread goes on.
        assert end(await runtime.run(request("helper", thread=told[0].header.thread))).text == "hello"


async def test_a_young_turn_keeps_its_events(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as runtime:
        told = await runtime.run(request("helper"))
        assert await runtime.admin.PruneEvents(pb.PruneEventsRequest()) == pb.PruneEventsResponse()
        assert events(await runtime.watch(told[0].header.turn)) == events(told)


async def test_an_age_before_all_time_finds_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as runtime:
        await runtime.run(request("helper"))
        ages = pb.PruneEventsRequest(older_than=Duration(seconds=315_576_000_000))
        assert await runtime.admin.PruneEvents(ages) == pb.PruneEventsResponse()


async def test_the_server_says_how_long_it_keeps_events(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as runtime:
        info = await runtime.agent_service.GetServerInfo(agent_service_pb2.GetServerInfoRequest())
        assert info.limits.event_retention_duration.ToSeconds() == RETENTION_SECONDS
