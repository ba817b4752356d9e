"""Long threads over the wire, against a provider that refuses every history in bad order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.strict_provider import Hold, Reply, StrictProvider, says
from support.turn_rig import TurnRig, arms, turn_rig
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

AGENT = """
model: openai:usual
fallback_models: ['openai:*', 'anthropic:*']
tools: ['shout']
instructions: Be brief.
compaction: {model: 'openai:summary', messages: 8, keep_messages: 4, timeout: 1.0}
"""
OVERFLOW = {
    "message": "This model's maximum context length is 8192 tokens",
    "code": "context_length_exceeded",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnRig]:
    async with turn_rig(tmp_path_factory.mktemp("compaction"), agent=AGENT) as rig:
        yield rig


def heads(provider: StrictProvider, model: str) -> list[str]:
    """The compacted history of each request for a model, empty where there was none."""
    found = []
    for body in provider.requests[model]:
        texts = [m["content"] for m in body["messages"] if m["role"] == "system"]
        found.append(next((t for t in texts if t.startswith("[compacted]")), ""))
    return found


async def talk(
    rig: TurnRig, model: str, count: int, thread: str = ""
) -> tuple[str, list[event_pb.TurnEvent]]:
    """Run turns in one thread; returns the thread and the events of the last turn."""
    events: list[event_pb.TurnEvent] = []
    for number in range(count):
        events = await rig.run(rig.request(f"openai:{model}", f"question {number}", thread=thread)).rest()
        assert events[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED, events[-1]
        thread = events[0].turn.partition("/turns/")[0]
    return thread, events


def compactions(events: list[event_pb.TurnEvent]) -> list[event_pb.Compacted]:
    return [e.compacted for e in events if e.HasField("compacted")]


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
async def test_wherever_a_thread_is_cut_the_provider_takes_it(rig: TurnRig, batch: int) -> None:
    """Turns with a round of calls behind turns without any: the cut comes to lie at each place of a round."""
    calls = [("shout", {"text": f"text {i}"}) for i in range(batch)]

    async def story(pad: int) -> None:
        model = f"cut-{batch}-{pad}"
        rig.provider.queue(model, *[says("plain")] * pad)
        for _ in range(3):
            rig.provider.queue(model, says("I look.", calls=calls), says("seen"))
        await talk(rig, model, pad + 3)
        assert any(heads(rig.provider, model)), model

    async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
        for pad in range(batch + 4):
            tasks.create_task(story(pad))
    assert rig.provider.refusals == []


async def test_other_wire_formats_say_the_compacted_history_in_their_way(rig: TurnRig) -> None:
    thread = ""
    for number in range(6):
        events = await rig.run(rig.request("anthropic:blocks", f"question {number}", thread=thread)).rest()
        thread = events[0].turn.partition("/turns/")[0]
    body = rig.provider.requests["blocks"][-1]
    told = body["system"] if isinstance(body["system"], str) else body["system"][0]["text"]
    assert told.startswith("Be brief.")
    assert "[compacted]" in told
    assert rig.provider.refusals == []


async def test_a_summary_holds_for_the_turns_that_follow(rig: TurnRig) -> None:
    before = len(rig.provider.requests["summary"])
    thread, events = await talk(rig, "holds", 5)
    (made,) = compactions(events)
    assert (made.trigger, made.fallback, made.summary) == ("messages", False, "done")
    await talk(rig, "holds", 1, thread)
    first, second = heads(rig.provider, "holds")[-2:]
    assert first.startswith("[compacted] 4 earlier messages")
    assert second == first
    assert len(rig.provider.requests["summary"]) - before == 1
    # The transcript is whole.
    assert len(await rig.messages(thread)) == 12


async def test_what_a_summary_used_is_in_the_usage_of_its_turn(rig: TurnRig) -> None:
    _, events = await talk(rig, "usage", 5)
    assert events[-1].turn_finished.usage.model_calls == 2
    assert events[-1].turn_finished.usage.tokens.input_tokens == 20


BAD: dict[str, Reply | Hold] = {
    "fails": Reply([b'data: {"error": {"message": "the summariser is down", "code": 500}}\n\n']),
    "hangs": Hold(),
    "is empty": says(""),
    "calls a tool": says("I", calls=[("shout", {"text": "no"})]),
    "lies": says("z" * 3000),
    "never ends": says(*["z" * 1000] * 50),
}


@pytest.mark.parametrize("how", BAD)
async def test_a_bad_summariser_costs_no_turn_and_leaves_nothing_behind(rig: TurnRig, how: str) -> None:
    model = f"bad-{how.replace(' ', '-')}"
    bad = BAD[how]
    thread, _ = await talk(rig, model, 4)
    # Three tries: none of them is taken, and the thread stays as it is.
    for _ in range(2):
        rig.provider.queue("summary", says("half ", bad) if isinstance(bad, Hold) else bad)
        _, events = await talk(rig, model, 1, thread)
        (made,) = compactions(events)
        assert made.fallback
        assert "could not be summarised" in heads(rig.provider, model)[-1]
        assert "question 0" in heads(rig.provider, model)[-1]
        assert [e.notice.reason for e in events if e.HasField("notice")] == ["summary-failed"]
        if isinstance(bad, Hold):
            bad.reached.clear()
    rig.provider.queue("summary", says("a good one"))
    _, events = await talk(rig, model, 1, thread)
    assert [m.fallback for m in compactions(events)] == [False]
    assert "a good one" in heads(rig.provider, model)[-1]
    assert rig.provider.refusals == []


async def test_a_cancel_ends_a_turn_that_waits_for_its_summary(rig: TurnRig) -> None:
    thread, _ = await talk(rig, "cancelled", 4)
    hold = Hold()
    reply = says(hold, "never")
    rig.provider.queue("summary", reply)
    stream = rig.run(rig.request("openai:cancelled", "one more", thread=thread))
    async with asyncio.timeout(30):
        await hold.reached.wait()
        await rig.cancel(turn=(await stream.opened()).turn)
        events = await stream.rest()
        await reply.closed.wait()
    assert events[-1].turn_finished.state == TurnState.TURN_STATE_CANCELLED
    assert not compactions(events)


async def test_a_request_that_is_too_long_is_shortened_in_the_same_step(rig: TurnRig) -> None:
    error = b"data: %b\n\n" % json.dumps({"error": OVERFLOW}).encode()
    shown = says("I have be")
    rig.provider.queue(
        "long", says("one " * 200), says("two " * 200), Reply([*shown.pieces[:1], error]), says("three")
    )
    thread, _ = await talk(rig, "long", 2)
    _, events = await talk(rig, "long", 1, thread)
    finished = events[-1].turn_finished
    assert (finished.text, finished.steps) == ("three", 1)
    (made,) = compactions(events)
    assert made.trigger == "overflow"
    kinds = arms(events)
    assert kinds.index("stream_failure") < kinds.index("compacted") < kinds.index("step_reset")
    (reset,) = (e.step_reset for e in events if e.HasField("step_reset"))
    assert reset.cause == "context-overflow"
    assert "have be" not in str(await rig.messages(thread))


async def test_a_request_that_stays_too_long_fails_the_turn_and_says_why(rig: TurnRig) -> None:
    error = Reply([b"data: %b\n\n" % json.dumps({"error": OVERFLOW}).encode()])
    rig.provider.queue("endless", error)
    events = await rig.whole("openai:endless")
    finished = events[-1].turn_finished
    assert (finished.state, finished.stop_reason) == (TurnState.TURN_STATE_FAILED, "model-error")
    assert "does not fit the model's context window" in finished.error.message
    assert finished.steps == 1
