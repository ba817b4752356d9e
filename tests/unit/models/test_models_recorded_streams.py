"""Streams that real providers sent give the facts that were found in them without our code."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from support.model_streams import RECORDED, Said, Stream, read, recorded_streams, said, sha256
from turnwire.extend.llm import Finish, LlmEvent, StreamFailure

STREAMS = recorded_streams()
pytestmark = pytest.mark.skipif(not STREAMS, reason=f"no recorded streams in {RECORDED.name}")
each = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)

CHANGED = [stream for stream in STREAMS if stream.format in ("openai-chat", "anthropic")]
REASONS = {
    "content_filter": "content-filter",
    "other": "other",
    "stop": "stop",
    "tool_calls": "tool-calls",
    "length": "length",
    "pause": "pause",
    None: "other",
}


def cut(body: bytes, chance: random.Random, longest: int = 200) -> Iterator[bytes]:
    start = 0
    while start < len(body):
        end = start + chance.randint(1, longest)
        yield body[start:end]
        start = end


def read_whole(stream: Stream, body: bytes | None = None) -> list[LlmEvent]:
    return read(stream.normaliser(), [stream.body if body is None else body])


def check(stream: Stream, got: Said) -> None:
    expected = stream.expected
    assert sha256(got.text) == expected["text_sha256"] or got.text == (expected["text"] or "")
    assert sha256(got.reasoning) == (expected["reasoning_sha256"] or sha256(""))
    assert type(got.end).__name__ == expected["terminal"]
    check_calls(stream, got)
    check_usage(stream, got)
    if isinstance(got.end, Finish):
        normalised = expected["finish_normalised"]
        refused = bool(expected["refusal"]) or expected["finish_reason"] == "refusal"
        assert got.end.reason.value == ("refusal" if refused else REASONS[normalised])
        if expected["refusal"]:
            assert got.end.refusal == expected["refusal"]


def check_calls(stream: Stream, got: Said) -> None:
    wanted = stream.expected["tool_calls"] if isinstance(got.end, Finish) else []
    found = [
        {"id": call.provider_call_id, "name": call.tool_name, "arguments": json.loads(call.arguments_json)}
        for call in got.calls
        if not call.error
    ]
    assert found == [
        {
            "id": call.get("id") or "",
            "name": call["name"],
            # The input of a custom tool is text; ours is always an object.
            "arguments": {"input": call["arguments"]} if call.get("custom") else call["arguments"],
        }
        for call in wanted
    ]
    broken = stream.expected.get("incomplete_tool_calls") or []
    assert [call.provider_call_id for call in got.calls if call.error] == [call["id"] for call in broken]


def check_usage(stream: Stream, got: Said) -> None:
    wanted = stream.expected["usage"]
    assert (got.usage is None) == (wanted is None)
    if got.usage is None:
        return
    usage = got.usage.usage
    prompt = usage.input_tokens
    output, reasoning = wanted["output"] or 0, wanted["reasoning"] or 0
    if stream.format == "gemini":
        output += reasoning
    if stream.format != "anthropic":
        # There the cached part is counted in; ours are disjoint.
        prompt += usage.cache_read_tokens + usage.cache_creation_tokens
    assert prompt == wanted["input"]
    assert usage.output_tokens == output
    assert usage.cache_read_tokens == (wanted["cached_input"] or 0)
    assert usage.reasoning_tokens == min(reasoning, output)


@each
def test_the_whole_body_gives_the_facts(stream: Stream) -> None:
    check(stream, said(read_whole(stream)))


@each
def test_one_byte_at_a_time_gives_the_facts(stream: Stream) -> None:
    body = stream.body
    check(stream, said(read(stream.normaliser(), (body[i : i + 1] for i in range(len(body))))))


@each
def test_random_cuts_between_reads_change_nothing(stream: Stream) -> None:
    chance = random.Random(zlib.crc32(stream.name.encode()))
    whole = said(read_whole(stream))
    for _ in range(3):
        assert said(read(stream.normaliser(), cut(stream.body, chance))) == whole


@each
def test_a_body_that_ends_anywhere_ends_in_one_terminal_event(stream: Stream) -> None:
    chance = random.Random(zlib.crc32(stream.name.encode()) + 1)
    whole = said(read_whole(stream))
    for end in sorted(chance.sample(range(len(stream.body)), min(40, len(stream.body)))):
        got = said(read_whole(stream, stream.body[:end]))
        assert whole.text.startswith(got.text)
        assert whole.reasoning.startswith(got.reasoning)
        if isinstance(got.end, StreamFailure):
            assert got.end.partial_content == got.text
        elif isinstance(whole.end, Finish) and stream.format != "gemini":
            # Gemini has no end mark, and some servers name a finish reason in every chunk.
            assert got.calls == whole.calls


# --- the same stream with other words -------------------------------------------------------------------


def other(text: str) -> str:
    """Another text of the same length; cutting it anywhere gives the same letters."""
    return "".join(letter.swapcase() if len(letter.swapcase()) == 1 else letter for letter in text)


def renamed(call_id: str) -> str:
    return f"x{call_id}" if call_id and call_id != "null" else call_id


def change_chat(payload: Any) -> None:
    for choice in payload.get("choices") or []:
        delta = choice.get("delta") or {}
        if isinstance(delta.get("content"), str):
            delta["content"] = other(delta["content"])
        for call in delta.get("tool_calls") or []:
            if isinstance(call.get("id"), str):
                call["id"] = renamed(call["id"])


def change_message(payload: Any) -> None:
    delta = payload.get("delta") or {}
    if delta.get("type") == "text_delta":
        delta["text"] = other(delta["text"])
    block = payload.get("content_block") or {}
    if block.get("type") == "tool_use":
        block["id"] = renamed(block["id"])
    if block.get("type") == "text":
        block["text"] = other(block["text"])


def changed(stream: Stream, chance: random.Random) -> bytes:
    """The body with other text and ids, other spacing and other escapes."""
    lines = []
    for line in stream.body.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data: {"):
            payload = json.loads(line[6:])
            (change_chat if stream.format == "openai-chat" else change_message)(payload)
            separators = chance.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
            text = json.dumps(payload, ensure_ascii=chance.random() < 0.5, separators=separators)
            line = b"data:" + chance.choice([b"", b" "]) + text.encode()
        lines.append(line)
    return chance.choice([b"\n", b"\r\n"]).join(lines)


@pytest.mark.parametrize("stream", CHANGED, ids=lambda stream: stream.name)
def test_other_texts_ids_and_borders_give_the_same_under_that_change(stream: Stream) -> None:
    chance = random.Random(zlib.crc32(stream.name.encode()) + 2)
    whole = said(read_whole(stream))
    lists = '"content":[' in stream.body.decode().replace(" ", "")
    got = said(read(stream.normaliser(), cut(changed(stream, chance), chance, 90)))
    assert got.text == other(whole.text) or lists
    assert got.reasoning == whole.reasoning
    assert [call.provider_call_id for call in got.calls] == [
        renamed(call.provider_call_id) for call in whole.calls
    ]
    assert [call.arguments_json for call in got.calls] == [call.arguments_json for call in whole.calls]
    assert got.usage == whole.usage
    assert type(got.end) is type(whole.end)
