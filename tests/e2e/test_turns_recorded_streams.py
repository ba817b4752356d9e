"""What real providers sent, played into turns of a real runtime: the facts arrive, and stay in the log.

A small set of our own stands in for the recorded streams where there are none.
"""

from __future__ import annotations

import asyncio
import random
import uuid
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio

from support.cluster import Process
from support.model_streams import RECORDED, Stream, own_streams, read, recorded_streams, said
from support.stream_changes import Change
from support.stream_facts import Told, check
from support.strict_provider import Reply, StrictProvider, strict_provider
from support.turn_rig import QUIET, arms, serialised
from support.turn_rig import Stream as Reader
from turnwire.api.llm.v1 import llm_event_pb2 as llm
from turnwire.api.runtime.v1 import thread_service_pb2 as thread_pb
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.message_pb2 import Message
from turnwire.api.runtime.v1.thread_service_pb2_grpc import ThreadServiceStub
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub
from turnwire.extend.llm import Finish, ToolCallComplete
from turnwire.runtime.models.profiles import WireFormat
from turnwire.wire.channel import open_channel

OWN = own_streams()
STREAMS = recorded_streams()
PREFIXES: dict[WireFormat, str] = {
    "openai-chat": "openai",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
recorded = pytest.mark.skipif(not STREAMS, reason=f"no recorded streams in {RECORDED.name}")


def each(streams: Sequence[Stream]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("stream", streams, ids=lambda stream: stream.name)


def sample(seed: int, count: int, streams: Sequence[Stream]) -> list[Stream]:
    """Some streams of each format."""
    chance = random.Random(seed)
    by_format = [[s for s in streams if s.format == wire] for wire in PREFIXES]
    return [s for group in by_format for s in chance.sample(group, min(count, len(group)))]


@dataclass
class Runtime:
    """One runtime process without peers: the agent has no tools, so that each call is refused as such."""

    provider: StrictProvider
    stub: TurnServiceStub
    threads: ThreadServiceStub

    async def play(
        self, stream: Stream, pieces: Sequence[bytes], *, dropped: bool = False
    ) -> list[event_pb.TurnEvent]:
        """Run a turn whose first model call is answered by the pieces; checks that the log has the same."""
        model = f"played-{uuid.uuid4()}"
        self.provider.queue(model, Reply(pieces, dropped=dropped))
        request = pb.RunTurnRequest(request_id=str(uuid.uuid4()))
        request.spec.agent = "agents/main"
        request.spec.new_thread.SetInParent()
        request.spec.input.parts.add().text.text = "go on"
        request.spec.model_options.model = f"{PREFIXES[stream.format]}:{model}"
        async with asyncio.timeout(100):
            events = await Reader(self.stub.RunTurn(request)).rest()
            again = Reader(self.stub.WatchTurn(pb.WatchTurnRequest(turn=events[0].turn)))
            assert serialised(await again.rest()) == serialised(events)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert self.provider.refusals == []
        return events

    async def last_message(self, turn: str) -> Message:
        """The newest message of the turn's thread."""
        thread = turn.partition("/turns/")[0]
        request = thread_pb.ListMessagesRequest(parent=thread, page_size=200)
        return (await self.threads.ListMessages(request)).messages[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    folder = tmp_path_factory.mktemp("streams")
    agents = folder / "agents"
    agents.mkdir()
    others = ", ".join(f"'{prefix}:*'" for prefix in PREFIXES.values())
    agent = f"model: openai:usual\nfallback_models: [{others}]\n"
    (agents / "main.yaml").write_text(agent, encoding="utf-8")
    async with strict_provider() as provider:
        addresses = {
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "ANTHROPIC_BASE_URL": provider.url,
            "TURNWIRE_RUNTIME_MODELS__GEMINI_BASE_URL": f"{provider.url}/v1beta",
            # Connections end here more often than any provider's do.
            "TURNWIRE_RUNTIME_MODELS__BREAKER__FAILURES": "0",
        }
        environment = {**QUIET, **addresses, "TURNWIRE_RUNTIME_AGENTS": str(agents)}
        process = Process("runtime", folder, environment, folder / "data")
        await process.start()
        async with open_channel(process.target) as channel:
            yield Runtime(provider, TurnServiceStub(channel), ThreadServiceStub(channel))
        await process.kill()


async def whole(runtime: Runtime, stream: Stream) -> None:
    check(stream, await runtime.play(stream, [stream.body]))


@each(OWN)
async def test_a_stream_of_our_own_gives_its_facts(runtime: Runtime, stream: Stream) -> None:
    await whole(runtime, stream)


@recorded
@each(STREAMS)
async def test_a_recorded_stream_gives_its_facts(runtime: Runtime, stream: Stream) -> None:
    await whole(runtime, stream)


async def in_bytes(runtime: Runtime, stream: Stream) -> None:
    pieces = [stream.body[i : i + 1] for i in range(len(stream.body))]
    check(stream, await runtime.play(stream, pieces))


@each(sample(4, 2, OWN) + sample(4, 2, STREAMS))
async def test_a_sampled_stream_gives_its_facts_byte_by_byte(runtime: Runtime, stream: Stream) -> None:
    await in_bytes(runtime, stream)


@pytest.mark.slow
@each([*OWN, *STREAMS])
async def test_every_stream_gives_its_facts_byte_by_byte(runtime: Runtime, stream: Stream) -> None:
    await in_bytes(runtime, stream)


# --- other words, ids and borders ------------------------------------------------------------------------


async def changed(runtime: Runtime, stream: Stream, seed: int) -> None:
    change = Change(zlib.crc32(stream.name.encode()) + seed)
    body = change.body(stream.body, stream.format)
    chance = random.Random(seed)
    pieces, start = [], 0
    while start < len(body):
        end = start + chance.randint(1, 400)
        pieces.append(body[start:end])
        start = end
    check(stream, await runtime.play(stream, pieces), change)


@recorded
@each(STREAMS)
async def test_other_words_ids_and_borders_give_the_same_facts_under_that_change(
    runtime: Runtime, stream: Stream
) -> None:
    await changed(runtime, stream, 1)


@pytest.mark.slow
@recorded
@pytest.mark.parametrize("seed", range(2, 7))
@each(STREAMS)
async def test_many_changes_give_the_same_facts(runtime: Runtime, stream: Stream, seed: int) -> None:
    await changed(runtime, stream, seed)


# --- cut off ---------------------------------------------------------------------------------------------


async def cut(runtime: Runtime, stream: Stream, place: int, *, dropped: bool) -> None:
    """Play the start of a stream: what came is kept and marked, and nothing that is broken runs.

    `dropped` ends the connection in the middle of the body, otherwise the body ends as if it were whole.
    """
    start, complete = stream.body[:place], said(read(stream.normaliser(), [stream.body]))
    events = await runtime.play(stream, [start] if start else [], dropped=dropped)
    told, here = Told.of(events), said(read(stream.normaliser(), [start]))
    assert complete.text.startswith(without_begun_tag(told.text))
    assert complete.reasoning.startswith(without_begun_tag(told.reasoning))
    # What arrives together with the end of its connection may be lost with it.
    assert here.text.startswith(told.text) if dropped else told.text == here.text
    if told.finish is not None:
        # Only behind its end can an answer be cut without loss.
        assert isinstance(here.end, Finish)
        assert [shape(call) for call in here.calls] == [
            (call.provider_call_id, call.tool_name, call.arguments_json) for call in told.calls
        ]
        if stream.format != "gemini":
            # That format has no end mark, and some servers name a reason in every chunk.
            assert (told.text, [shape(c) for c in here.calls]) == (
                complete.text,
                [shape(c) for c in complete.calls],
            )
        return
    await check_broken_off(runtime, events, told)


def without_begun_tag(text: str) -> str:
    """The text without the beginning of a tag at its end, which is text as long as the rest is missing."""
    start, mark, end = text.rpartition("<")
    begun = mark and any(tag.startswith(end.removeprefix("/")) for tag in ("think>", "thinking>", "thought>"))
    return start if begun else text


def shape(call: ToolCallComplete) -> tuple[str, str, str]:
    return call.provider_call_id, call.tool_name, call.arguments_json


async def check_broken_off(runtime: Runtime, events: Sequence[event_pb.TurnEvent], told: Told) -> None:
    assert told.failure is not None
    assert told.failure.kind != llm.FAILURE_KIND_UNSPECIFIED
    assert told.failure.partial_content == told.text
    kinds = arms(list(events))
    assert not {"tool_call_complete", "tool_call_started", "tool_call_finished"} & {*kinds}
    end = events[-1].turn_finished
    assert (end.state, end.stop_reason, end.text) == (
        TurnState.TURN_STATE_FAILED,
        "model-error",
        told.text,
    )
    message = await runtime.last_message(events[0].turn)
    if told.text:
        assert message.interrupted_reason == "error"
        assert "".join(part.content.text.text for part in message.parts) == told.text


def places(stream: Stream, count: int, seed: int) -> list[int]:
    chance = random.Random(zlib.crc32(stream.name.encode()) + seed)
    return sorted(chance.sample(range(len(stream.body)), min(count, len(stream.body))))


@each(sample(7, 3, OWN) + sample(7, 6, STREAMS))
async def test_a_stream_cut_off_anywhere_keeps_its_text_and_runs_nothing(
    runtime: Runtime, stream: Stream
) -> None:
    for number, place in enumerate(places(stream, 4, seed=1)):
        await cut(runtime, stream, place, dropped=number % 2 == 1)


@pytest.mark.slow
@each([*OWN, *STREAMS])
async def test_every_stream_cut_off_anywhere_keeps_its_text_and_runs_nothing(
    runtime: Runtime, stream: Stream
) -> None:
    for number, place in enumerate(places(stream, 20, seed=2)):
        await cut(runtime, stream, place, dropped=number % 2 == 1)
