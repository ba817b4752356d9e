"""Long answers cost what they are long: work is counted, never timed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.model_streams import Said, said
from turnwire.extend.llm import Finish
from turnwire.runtime.models import arguments as argument_rules
from turnwire.runtime.models.arguments import ObjectScan, is_complete_object
from turnwire.runtime.models.calls import ToolCalls
from turnwire.runtime.models.dialects import make_normaliser
from turnwire.runtime.models.settings import ProviderProfile, WireFormat


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def pieces(total: int) -> Iterator[str]:
    """Arguments of about `total` bytes in pieces of four, full of braces that close."""
    yield '{"a"'
    yield ": [["
    for _ in range(total // 4):
        yield "{},["
        yield "],{}"
    yield "]]}"


def repeating_chat(total: int) -> Iterator[bytes]:
    """Each fragment repeats id and name, as some servers do."""
    for piece in pieces(total):
        function = {"name": "get", "arguments": piece}
        yield chat({"tool_calls": [{"index": 0, "id": "c1", "function": function}]})
    yield chat({}, "tool_calls")
    yield b"data: [DONE]\n\n"


def nameless_chat(total: int) -> Iterator[bytes]:
    """Each fragment repeats the name and has neither id nor index."""
    for piece in pieces(total):
        yield chat({"tool_calls": [{"function": {"name": "get", "arguments": piece}}]})
    yield b"data: [DONE]\n\n"


def minting_chat(total: int) -> Iterator[bytes]:
    """Each fragment has an id of its own."""
    for number, piece in enumerate(pieces(total)):
        yield chat({"tool_calls": [{"index": 0, "id": f"c{number}", "function": {"arguments": piece}}]})
    yield b"data: [DONE]\n\n"


def many_calls(total: int) -> Iterator[bytes]:
    for number in range(total // 32):
        call = {"id": f"c{number}", "function": {"name": "get", "arguments": "{}"}}
        yield chat({"tool_calls": [call]})
    yield b"data: [DONE]\n\n"


def detailed_chat(total: int) -> Iterator[bytes]:
    for _ in range(total // 4):
        yield chat({"reasoning_details": [{"type": "reasoning.text", "text": "hm, ", "index": 0}]})
    yield chat({"content": "Yes."}, "stop")
    yield b"data: [DONE]\n\n"


def long_chat(total: int) -> Iterator[bytes]:
    for _ in range(total // 4):
        yield chat({"content": "a < "})
    yield chat({}, "stop")
    yield b"data: [DONE]\n\n"


def message(total: int) -> Iterator[bytes]:
    block = {"type": "tool_use", "id": "t", "name": "get", "input": {}}
    yield event({"type": "content_block_start", "index": 0, "content_block": block})
    for piece in pieces(total):
        delta = {"type": "input_json_delta", "partial_json": piece}
        yield event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield event({"type": "content_block_stop", "index": 0})
    yield event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    yield event({"type": "message_stop"})


def response(total: int) -> Iterator[bytes]:
    item = {"type": "function_call", "call_id": "c", "name": "get", "arguments": ""}
    yield event({"type": "response.output_item.added", "output_index": 0, "item": item})
    for piece in pieces(total):
        yield event({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": piece})
    done = item | {"arguments": "".join(pieces(total))}
    yield event({"type": "response.output_item.done", "output_index": 0, "item": done})
    yield event({"type": "response.completed", "response": {"status": "completed"}})


def gemini(total: int) -> Iterator[bytes]:
    def part(call: dict[str, Any]) -> bytes:
        return event({"candidates": [{"content": {"parts": [{"functionCall": call}]}}]})

    yield part({"name": "get", "willContinue": True})
    for _ in range(total // 4):
        yield part({"partialArgs": [{"jsonPath": "$.a", "stringValue": "abcd"}], "willContinue": True})
    yield part({})
    yield event({"candidates": [{"finishReason": "STOP"}]})


STREAMS: list[tuple[WireFormat, Callable[[int], Iterator[bytes]]]] = [
    ("openai-chat", repeating_chat),
    ("openai-chat", nameless_chat),
    ("openai-chat", minting_chat),
    ("openai-chat", many_calls),
    ("openai-chat", detailed_chat),
    ("openai-chat", long_chat),
    ("anthropic", message),
    ("openai-responses", response),
    ("gemini", gemini),
]


def read(form: WireFormat, bodies: Iterator[bytes]) -> Said:
    normaliser = make_normaliser("test", ProviderProfile(format=form))
    found = [event for body in bodies for event in normaliser.feed(body)]
    return said(found + normaliser.close())


def work(form: WireFormat, bodies: list[bytes]) -> tuple[int, int]:
    """Calls made, and characters of JSON that were read again, while an answer was put together."""
    calls = characters = 0

    def profiler(frame: Any, what: str, argument: Any) -> None:
        nonlocal calls, characters
        calls += 1
        if what == "call" and frame.f_code is is_complete_object.__code__:
            characters += len(frame.f_locals["raw"])

    normaliser = make_normaliser("test", ProviderProfile(format=form))
    sys.setprofile(profiler)
    try:
        for body in bodies:
            normaliser.feed(body)
        normaliser.close()
    finally:
        sys.setprofile(None)
    return calls, characters


@pytest.mark.parametrize(("form", "stream"), STREAMS, ids=lambda value: getattr(value, "__name__", value))
def test_twice_the_answer_is_twice_the_work(
    form: WireFormat, stream: Callable[[int], Iterator[bytes]]
) -> None:
    calls, once = work(form, list(stream(8_000)))
    twice, again = work(form, list(stream(16_000)))
    assert twice < 2.2 * calls
    assert again <= max(2.2 * once, 2 * 16_000)


@pytest.mark.parametrize(
    ("form", "stream"), STREAMS[:1] + STREAMS[6:], ids=lambda v: getattr(v, "__name__", v)
)
def test_a_megabyte_of_arguments_is_an_error_of_the_model(
    form: WireFormat, stream: Callable[[int], Iterator[bytes]]
) -> None:
    # Half of what comes: pieces are given in pairs. The others need no more than to pass the limit.
    got = read(form, stream(512 * 1024 if form == "openai-chat" else 272 * 1024))
    (call,) = got.calls
    assert isinstance(got.end, Finish)
    assert call.arguments_json == "{}"
    assert "more than the limit of 262144" in call.error


def test_forty_thousand_tokens_come_out_whole() -> None:
    got = read("openai-chat", long_chat(160_000))
    assert got.text == "a < " * 40_000


def test_a_call_whose_object_has_closed_is_read_once_however_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = ToolCalls()
    calls.fragment(0, None, "get", '{"a": "' + "b" * 1000 + '"}')
    seen = 0
    real = argument_rules.json.loads

    def counted(text: str) -> Any:
        nonlocal seen
        seen += 1
        return real(text)

    monkeypatch.setattr(argument_rules.json, "loads", counted)
    for _ in range(50):
        calls.fragment(0, None, "get", "")
    assert seen == 1
    assert len(calls) == 1


JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(st.sampled_from('a"\\{}[] '), max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(st.sampled_from('a"\\{}'), max_size=3), inner)
    ),
    max_leaves=8,
)
ALMOST = st.one_of(
    st.dictionaries(st.text(max_size=3), JSON, max_size=3).map(json.dumps),
    st.text(st.sampled_from('{}[]"\\a:, 1'), max_size=20),
)


@settings(deadline=None, max_examples=200)
@given(ALMOST, st.sampled_from(["", " ", "\n", "x", "{}"]), st.data())
def test_a_whole_object_is_never_missed_however_it_is_cut(text: str, tail: str, data: st.DataObject) -> None:
    text += tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    scan = ObjectScan()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        scan.feed(text[start:end])
    if is_complete_object(text):
        assert scan.closed
