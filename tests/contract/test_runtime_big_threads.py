"""Threads that hold more than one answer may: every read of them stays within 4 MiB and says how to go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.postgres import Location
from support.runtime_server import Runtime, request, running
from turnwire.api.runtime.v1 import thread_service_pb2, turn_service_pb2
from turnwire.extend.events import ResultPart, ToolOutcome
from turnwire.runtime.codec import MAX_MESSAGE_BYTES, message_to_proto
from turnwire.runtime.domain.message import CallPart, ContentPart, StoredMessage
from turnwire.runtime.domain.turn import InputPart

AGENTS = {"plain": [[{"text": "hello"}]]}
MIB = 1024 * 1024


@pytest.fixture
async def runtime(tmp_path: Path, store_location: Location) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, location=store_location) as served:
        yield served


async def long_thread(runtime: Runtime) -> str:
    """A thread with six user messages of 900 KB each and their answers."""
    thread = ""
    for _ in range(6):
        messages = await runtime.run(request("plain", thread=thread, text="é" * 450_000))
        thread = messages[0].header.thread
    return thread


async def test_a_thread_with_long_messages_is_read_in_answers_that_fit(runtime: Runtime) -> None:
    thread = await long_thread(runtime)
    found = await runtime.threads.GetThread(thread_service_pb2.GetThreadRequest(name=thread))
    assert found.ByteSize() < 2 * MIB
    assert found.messages[-1].position == 12
    positions = [message.position for message in found.messages]
    assert positions == list(range(positions[0], 13))

    listed: list[int] = []
    token = ""
    while True:
        asked = thread_service_pb2.ListMessagesRequest(parent=thread, page_size=200, page_token=token)
        page = await runtime.threads.ListMessages(asked)
        assert page.ByteSize() < 2 * MIB
        listed += [message.position for message in page.messages]
        token = page.next_page_token
        if not token:
            break
    assert listed == list(range(12, 0, -1))


async def test_turns_with_much_metadata_are_listed_in_answers_that_fit(runtime: Runtime) -> None:
    names = set()
    for _ in range(70):
        asked = request("plain", metadata={"key": "v" * 16_000})
        names.add((await runtime.run(asked))[0].header.turn)
    found: list[str] = []
    token = ""
    while True:
        page = await runtime.turns.ListTurns(
            turn_service_pb2.ListTurnsRequest(parent="threads/-", page_size=200, page_token=token)
        )
        assert page.ByteSize() < MIB + 64 * 1024
        found += [turn.name for turn in page.turns]
        token = page.next_page_token
        if not token:
            break
    assert len(found) == 70
    assert set(found) == names


def answer(*parts: CallPart | ContentPart) -> StoredMessage:
    return StoredMessage("message-1", 1, "assistant", "turn-1", parts)


def call(index: int, content: str, data: bytes = b"", arguments: str = "{}") -> CallPart:
    parts = (ResultPart("image/png", data),) if data else ()
    return CallPart(
        f"call-{index}", "p", "look", arguments, index, 0, ToolOutcome.SUCCEEDED, content, parts=parts
    )


def test_a_message_of_many_long_results_is_shortened_and_says_so() -> None:
    stored = answer(*(call(i, "x" * 200_000, b"y" * 60_000) for i in range(30)))
    shown = message_to_proto(stored, "threads/thread-1")
    assert shown.ByteSize() <= MAX_MESSAGE_BYTES
    calls = [part.tool_call for part in shown.parts]
    assert [c.call_id for c in calls] == [f"call-{i}" for i in range(30)]
    assert "left out here" in calls[0].content
    assert calls[-1].content == "x" * 200_000


def test_a_message_that_is_still_too_long_loses_its_oldest_parts() -> None:
    arguments = '{"a":"' + "b" * 250_000 + '"}'
    stored = answer(*(call(i, "done", arguments=arguments) for i in range(30)))
    shown = message_to_proto(stored, "threads/thread-1")
    assert shown.ByteSize() <= MAX_MESSAGE_BYTES + 1024
    assert "left out here" in shown.parts[0].content.text.text
    assert shown.parts[-1].tool_call.call_id == "call-29"


def test_one_text_that_is_too_long_keeps_its_end() -> None:
    text = "x" * 5_000_000 + "the end"
    shown = message_to_proto(answer(ContentPart(InputPart(kind="text", text=text), 1)), "threads/thread-1")
    assert shown.ByteSize() <= MAX_MESSAGE_BYTES
    assert "left out here" in shown.parts[0].content.text.text
    assert shown.parts[1].content.text.text.endswith("xthe end")


def test_a_message_that_fits_is_shown_whole() -> None:
    text = ContentPart(InputPart(kind="text", text="x" * MIB), 1)
    shown = message_to_proto(answer(text, call(1, "y" * 200_000, b"z" * 60_000)), "threads/thread-1")
    assert shown.parts[0].content.text.text == "x" * MIB
    assert shown.parts[1].tool_call.parts[0].data == b"z" * 60_000
