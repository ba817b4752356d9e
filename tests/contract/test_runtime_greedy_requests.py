"""Requests that are well-formed and far too much: refused at once, before they cost anything."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from support.postgres import Location
from support.runtime_server import Runtime, request, running
from turnwire.api.runtime.v1 import thread_service_pb2, turn_pb2, turn_service_pb2

AGENTS = {"plain": [[{"text": "hello"}]]}


@pytest.fixture
async def runtime(tmp_path: Path, store_location: Location) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, location=store_location) as served:
        yield served


def many_parts(spec: turn_pb2.TurnSpec) -> None:
    for _ in range(200_000):
        spec.input.parts.add().text.text = "a"


def many_tools(spec: turn_pb2.TurnSpec) -> None:
    spec.allowed_tools.extend(["a"] * 500_000)


def many_labels(spec: turn_pb2.TurnSpec) -> None:
    for index in range(100_000):
        spec.labels[f"l{index}"] = "v"


def long_stop(spec: turn_pb2.TurnSpec) -> None:
    spec.model_options.stop.append("z" * 3_000_000)


def long_effort(spec: turn_pb2.TurnSpec) -> None:
    spec.model_options.reasoning_effort = "z" * 3_000_000


def long_tool_name(spec: turn_pb2.TurnSpec) -> None:
    spec.tool_choice.mode = turn_pb2.TOOL_CHOICE_MODE_TOOL
    spec.tool_choice.tool_name = "z" * 3_000_000


def long_media_type(spec: turn_pb2.TurnSpec) -> None:
    blob = spec.input.parts.add().blob
    blob.data, blob.media_type = b"x", "z" * 3_000_000


def long_file_name(spec: turn_pb2.TurnSpec) -> None:
    blob = spec.input.parts.add().blob
    blob.data, blob.media_type, blob.filename = b"x", "image/png", "z" * 257


GREEDY = [
    many_parts,
    many_tools,
    many_labels,
    long_stop,
    long_effort,
    long_tool_name,
    long_media_type,
    long_file_name,
]


@pytest.mark.parametrize("spoil", GREEDY, ids=lambda spoil: spoil.__name__)
async def test_a_spec_that_asks_for_too_much_is_refused_before_it_is_read(
    runtime: Runtime, spoil: Callable[[turn_pb2.TurnSpec], None]
) -> None:
    asked = request("plain")
    spoil(asked.spec)
    began = time.process_time()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await runtime.run(asked)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    # Both sides' share of the processor; the parts alone took eight seconds once.
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize("terms", [100, 2_000, 100_000])
async def test_a_filter_of_very_many_terms_is_refused(runtime: Runtime, terms: int) -> None:
    text = " AND ".join(["label.team=search"] * terms)
    calls = (
        runtime.turns.ListTurns(turn_service_pb2.ListTurnsRequest(parent="threads/-", filter=text)),
        runtime.threads.ListThreads(thread_service_pb2.ListThreadsRequest(filter=text)),
    )
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
