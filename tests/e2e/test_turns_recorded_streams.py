"""What real providers sent, played into turns of a real runtime: the facts arrive, and stay in the log."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from support.cluster import Process
from support.model_streams import RECORDED, Stream, recorded_streams, sha256
from support.stream_changes import Change
from support.strict_provider import Reply, StrictProvider, strict_provider
from support.turn_rig import QUIET, arms, serialised
from support.turn_rig import Stream as Reader
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.llm.v1 import llm_event_pb2 as llm
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub
from turnwire.wire.channel import open_channel

STREAMS = [s for s in recorded_streams() if s.format in ("openai-chat", "anthropic")]
SAMPLE = random.Random(4).sample(STREAMS, min(8, len(STREAMS)))
# The two longest bodies take minutes byte by byte.
BYTE_LIMIT = 100_000
REASONS = {
    "stop": llm.FINISH_REASON_STOP,
    "tool_calls": llm.FINISH_REASON_TOOL_CALLS,
    "length": llm.FINISH_REASON_LENGTH,
    "content_filter": llm.FINISH_REASON_CONTENT_FILTER,
    "pause": llm.FINISH_REASON_PAUSE,
    "other": llm.FINISH_REASON_OTHER,
    None: llm.FINISH_REASON_OTHER,
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not STREAMS, reason=f"no recorded streams in {RECORDED.name}"),
]


def each(streams: Sequence[Stream]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("stream", streams, ids=lambda stream: stream.name)


@dataclass
class Runtime:
    """One runtime process without peers: the agent has no tools, so that each call is refused as such."""

    provider: StrictProvider
    stub: TurnServiceStub

    async def play(self, stream: Stream, pieces: Sequence[bytes]) -> list[event_pb.TurnEvent]:
        """Run a turn whose first model call is answered by the pieces; checks that the log has the same."""
        model = f"played-{uuid.uuid4()}"
        self.provider.queue(model, Reply(pieces))
        request = pb.RunTurnRequest(request_id=str(uuid.uuid4()))
        request.spec.agent = "agents/main"
        request.spec.new_thread.SetInParent()
        request.spec.input.parts.add().text.text = "go on"
        prefix = "openai" if stream.format == "openai-chat" else "anthropic"
        request.spec.model_options.model = f"{prefix}:{model}"
        async with asyncio.timeout(100):
            events = await Reader(self.stub.RunTurn(request)).rest()
            again = Reader(self.stub.WatchTurn(pb.WatchTurnRequest(turn=events[0].turn)))
            assert serialised(await again.rest()) == serialised(events)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert self.provider.refusals == []
        return events


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    folder = tmp_path_factory.mktemp("streams")
    agents = folder / "agents"
    agents.mkdir()
    agent = "model: openai:usual\nfallback_models: ['openai:*', 'anthropic:*']\n"
    (agents / "main.yaml").write_text(agent, encoding="utf-8")
    async with strict_provider() as provider:
        addresses = {"OPENAI_BASE_URL": f"{provider.url}/v1", "ANTHROPIC_BASE_URL": provider.url}
        environment = {**QUIET, **addresses, "TURNWIRE_RUNTIME_AGENTS": str(agents)}
        process = Process("runtime", folder, environment, folder / "data")
        await process.start()
        async with open_channel(process.target) as channel:
            yield Runtime(provider, TurnServiceStub(channel))
        await process.kill()


@dataclass(frozen=True)
class Told:
    """What the first step of a turn told its readers."""

    text: str
    reasoning: str
    calls: list[llm.ToolCallComplete]
    usage: llm.TokenUsage | None
    finish: llm.Finish | None
    failure: llm.StreamFailure | None

    @classmethod
    def of(cls, events: Sequence[event_pb.TurnEvent]) -> Told:
        """Sum up, and check that the stream ends once, right after its calls."""
        first = [event.llm for event in events if event.step == 1 and event.HasField("llm")]
        kinds = [event.WhichOneof("event") for event in first]
        assert [k for k in kinds if k in ("finish", "stream_failure")] == kinds[-1:]
        calls = [event.tool_call_complete for event in first if event.HasField("tool_call_complete")]
        usages = [event.usage_snapshot.usage for event in first if event.HasField("usage_snapshot")]
        last = first[-1]
        return cls(
            "".join(event.text_delta.text for event in first),
            "".join(event.reasoning_delta.text for event in first),
            calls,
            usages[-1] if usages else None,
            last.finish if last.HasField("finish") else None,
            last.stream_failure if last.HasField("stream_failure") else None,
        )


def check(stream: Stream, events: Sequence[event_pb.TurnEvent], change: Change | None = None) -> None:
    """Hold the events of a turn against the index; `change` is what was done to the stream."""
    told, expected = Told.of(events), stream.expected
    check_texts(stream, told, change)
    assert (told.finish is not None) == (expected["terminal"] == "Finish")
    if told.finish is not None:
        refused = bool(expected["refusal"]) or expected["finish_reason"] == "refusal"
        wanted = llm.FINISH_REASON_REFUSAL if refused else REASONS[expected["finish_normalised"]]
        assert told.finish.reason == wanted
        assert told.finish.refusal == (expected["refusal"] or told.finish.refusal)
    check_calls(expected, told, change)
    check_usage(stream, told)
    check_end(told, events)


def check_texts(stream: Stream, told: Told, change: Change | None) -> None:
    expected = stream.expected
    if change is None:
        assert sha256(told.text) == expected["text_sha256"] or told.text == (expected["text"] or "")
    elif expected["text"] is not None:
        assert told.text == change.text(expected["text"]) or b'"content":[' in stream.body.replace(b" ", b"")
    else:
        assert len(told.text) == expected["text_len"]
    assert sha256(told.reasoning) == (expected["reasoning_sha256"] or sha256(""))


def check_calls(expected: dict[str, Any], told: Told, change: Change | None) -> None:
    def renamed(call_id: str) -> str:
        return change.id(call_id) if change is not None else call_id

    broken = [renamed(call["id"]) for call in expected.get("incomplete_tool_calls") or []]
    found = [
        (call.provider_call_id, call.tool_name, json.loads(call.arguments_json))
        for call in told.calls
        if call.provider_call_id not in broken
    ]
    wanted = expected["tool_calls"] if told.finish is not None else []
    assert found == [
        # The input of a custom tool is text; ours is always an object.
        (
            renamed(call.get("id") or ""),
            call["name"],
            {"input": call["arguments"]} if call.get("custom") else call["arguments"],
        )
        for call in wanted
    ]
    ids = [call.provider_call_id for call in told.calls]
    assert [i for i in ids if i in broken] == (broken if told.finish is not None else [])
    assert len({call.call_id for call in told.calls}) == len(told.calls)


def check_usage(stream: Stream, told: Told) -> None:
    wanted = stream.expected["usage"]
    assert (told.usage is None) == (wanted is None)
    if told.usage is None:
        return
    usage, prompt = told.usage, told.usage.input_tokens
    if stream.format == "openai-chat":
        # There the cached part is counted in; ours are disjoint.
        prompt += usage.cache_read_tokens + usage.cache_creation_tokens
    assert prompt == wanted["input"]
    assert usage.output_tokens == (wanted["output"] or 0)
    assert usage.cache_read_tokens == (wanted["cached_input"] or 0)
    assert usage.reasoning_tokens == min(wanted["reasoning"] or 0, usage.output_tokens)
    assert usage.provenance == llm.USAGE_PROVENANCE_REPORTED


def check_end(told: Told, events: Sequence[event_pb.TurnEvent]) -> None:
    """The turn ends as its model calls do: calls and pauses lead to the fixed answer, trouble is told."""
    end = events[-1].turn_finished
    kinds = arms(list(events))
    assert kinds.count("turn_finished") == 1
    if told.failure is not None or told.finish is None:
        assert (end.state, end.stop_reason) == (TurnState.TURN_STATE_FAILED, "model-error")
        assert end.text == told.text
    elif told.calls or told.finish.reason == llm.FINISH_REASON_PAUSE:
        assert (end.state, end.text, end.steps) == (TurnState.TURN_STATE_COMPLETED, "done", 2)
    elif told.finish.reason == llm.FINISH_REASON_CONTENT_FILTER:
        assert (end.state, end.stop_reason) == (TurnState.TURN_STATE_FAILED, "model-error")
    else:
        assert (end.state, end.steps) == (TurnState.TURN_STATE_COMPLETED, 1)
        assert end.text == (told.text or told.finish.refusal)
    ends = [event.tool_call_finished for event in events if event.HasField("tool_call_finished")]
    assert [call.call_id for call in ends] == [call.call_id for call in told.calls]
    assert all(call.outcome == ToolOutcome.TOOL_OUTCOME_FAILED and call.is_error for call in ends)


@each(STREAMS)
async def test_a_recorded_stream_gives_its_facts(runtime: Runtime, stream: Stream) -> None:
    check(stream, await runtime.play(stream, [stream.body]))


async def in_bytes(runtime: Runtime, stream: Stream) -> None:
    pieces = [stream.body[i : i + 1] for i in range(len(stream.body))]
    check(stream, await runtime.play(stream, pieces))


@each([stream for stream in SAMPLE if len(stream.body) < BYTE_LIMIT])
async def test_a_sampled_stream_gives_its_facts_byte_by_byte(runtime: Runtime, stream: Stream) -> None:
    await in_bytes(runtime, stream)


@pytest.mark.slow
@each(STREAMS)
async def test_every_stream_gives_its_facts_byte_by_byte(runtime: Runtime, stream: Stream) -> None:
    await in_bytes(runtime, stream)


async def changed(runtime: Runtime, stream: Stream, seed: int) -> None:
    change = Change(zlib.crc32(stream.name.encode()) + seed)
    body = change.body(stream.body, stream.format == "openai-chat")
    chance = random.Random(seed)
    pieces, start = [], 0
    while start < len(body):
        end = start + chance.randint(1, 400)
        pieces.append(body[start:end])
        start = end
    check(stream, await runtime.play(stream, pieces), change)


@each(STREAMS)
async def test_other_words_ids_and_borders_give_the_same_facts_under_that_change(
    runtime: Runtime, stream: Stream
) -> None:
    await changed(runtime, stream, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
@each(STREAMS)
async def test_many_changes_give_the_same_facts(runtime: Runtime, stream: Stream, seed: int) -> None:
    await changed(runtime, stream, seed)
