"""A call that is repeated after it was seen, as clients read it: from stream, log and thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from support.runtime_server import Runtime, end, events, request, running
from turnwire.api.runtime.v1 import thread_service_pb2, turn_pb2, turn_service_pb2
from turnwire_client.view import TurnView

AGAIN = {"fail": {"kind": "connection", "message": "it broke", "retry_after": 0}}
AGENTS = {
    "breaks": {
        "calls": [
            {
                "attempts": [
                    [{"usage": {"input": 9}}, {"text": "alpha be"}, AGAIN],
                    [{"text": "alpha beta"}, {"usage": {"input": 9, "output": 3}}],
                ]
            }
        ]
    },
}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS) as made:
        yield made


async def test_the_stream_the_log_and_the_thread_tell_the_last_attempt(runtime: Runtime) -> None:
    header, *rest = await runtime.run(request("breaks"))
    found = events(rest)
    (reset,) = [e for e in found if e.HasField("step_reset")]
    void = range(reset.step_reset.from_sequence, reset.step_reset.to_sequence + 1)
    assert reset.step_reset.cause == "retry"
    assert [e.step_attempt for e in found if e.HasField("llm")] == [1, 1, 1, 2, 2, 2]
    assert all(e.sequence in void for e in found if e.HasField("llm") and e.step_attempt == 1)
    assert end(rest).text == "alpha beta"
    view = TurnView()
    for event in events((await runtime.watch(header.header.turn))[1:]):
        view.apply(event)
    assert [step.text for step in view.steps.values()] == ["alpha beta"]
    listed = await runtime.threads.ListMessages(
        thread_service_pb2.ListMessagesRequest(parent=header.header.thread)
    )
    texts = [p.content.text.text for m in listed.messages for p in m.parts]
    assert sorted(texts) == ["alpha beta", "hello"]


async def test_both_attempts_are_paid_for_and_only_one_step_is_taken(runtime: Runtime) -> None:
    header, *rest = await runtime.run(request("breaks"))
    usage = end(rest).usage
    assert (usage.model_calls, end(rest).steps) == (2, 1)
    assert (usage.tokens.input_tokens, usage.tokens.output_tokens) == (18, 3 + 2)
    turn = await runtime.turns.GetTurn(turn_service_pb2.GetTurnRequest(name=header.header.turn))
    assert turn.turn.usage == usage
    assert not usage.HasField("cost_micro_usd")


async def test_a_reader_that_joins_at_any_event_holds_the_same(runtime: Runtime) -> None:
    header, *rest = await runtime.run(request("breaks"))
    whole = events(rest)
    for after in range(len(whole)):
        view = TurnView()
        for event in whole[:after]:
            view.apply(event)
        for event in events((await runtime.watch(header.header.turn, after))[1:]):
            view.apply(event)
        assert [step.text for step in view.steps.values()] == ["alpha beta"]


async def test_a_limit_of_cost_without_prices_is_refused_by_name(runtime: Runtime) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await runtime.run(request("breaks", limits=turn_pb2.TurnLimits(cost_micro_usd=5)))
    assert "no price is known" in (caught.value.details() or "")
