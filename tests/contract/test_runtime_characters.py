"""Characters that no store of ours could keep: refused in requests, replaced in what a model says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from support.postgres import Location
from support.runtime_server import Runtime, request, running
from turnwire.api.runtime.v1 import thread_service_pb2, turn_pb2
from turnwire.wire.rpc_errors import error_from_rpc

NUL, SURROGATE, SHOWN = "\0", "\ud83d", "�"
AGENTS = {
    "peculiar": [
        [
            {"reasoning": f"h{NUL}m"},
            {"text": f"a{NUL}b{SURROGATE}c"},
            {"tool_call": {"name": "echo", "arguments": {"n": f"x{NUL}y"}}},
        ],
        [{"text": "end"}],
    ],
}


@pytest.fixture
async def runtime(tmp_path: Path, store_location: Location) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, location=store_location) as served:
        yield served


async def test_what_a_model_says_is_stored_with_its_bad_characters_replaced(runtime: Runtime) -> None:
    messages = await runtime.run(request("peculiar"))
    events = [event for message in messages for event in message.events]
    assert events[-1].turn_finished.state == turn_pb2.TURN_STATE_COMPLETED
    told = "".join(event.llm.text_delta.text for event in events if event.HasField("llm"))
    assert told == f"a{SHOWN}b{SHOWN}cend"
    thread = messages[0].header.turn.partition("/turns/")[0]
    listed = await runtime.threads.ListMessages(thread_service_pb2.ListMessagesRequest(parent=thread))
    kept = str(listed)
    assert NUL not in kept
    assert f"a{SHOWN}b{SHOWN}c" in "".join(
        part.content.text.text for message in listed.messages for part in message.parts
    )


async def test_a_request_with_a_nul_is_refused(runtime: Runtime) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await runtime.run(request("peculiar", text=f"a{NUL}b"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_from_rpc(caught.value).reason == "INVALID_REQUEST"
