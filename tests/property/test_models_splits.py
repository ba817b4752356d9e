"""However bytes are cut, the same stream says the same; and no bytes at all can break a normaliser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.model_streams import Stream, own_streams, read, said
from turnwire.extend.llm import ReasoningDelta, TextDelta
from turnwire.runtime.models.dialects import make_normaliser
from turnwire.runtime.models.settings import ProviderProfile, WireFormat
from turnwire.runtime.models.sse import LineSplitter
from turnwire.runtime.models.think import ThinkSplitter

# Other work may share the machine: no deadline for a single example.
quick = settings(deadline=None, max_examples=60)
FORMATS: list[WireFormat] = ["openai-chat", "anthropic", "openai-responses", "gemini"]


@st.composite
def pieces_of(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@quick
@given(st.data(), st.sampled_from(own_streams()))
def test_cuts_between_reads_change_nothing(data: st.DataObject, stream: Stream) -> None:
    pieces = data.draw(pieces_of(stream.body))
    assert said(read(stream.normaliser(), pieces)) == said(read(stream.normaliser(), [stream.body]))


LINES = st.lists(
    st.sampled_from([b"data: x", b"data: ", b": c", b"", b"\xef\xbb\xbf", b"event: e", b"data: \xc3\xa9"]),
    max_size=8,
)


@quick
@given(st.data(), LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans(), st.booleans())
def test_lines_are_the_same_however_they_arrive(
    data: st.DataObject, lines: list[bytes], end: bytes, last: bool, mark: bool
) -> None:
    body = (b"\xef\xbb\xbf" if mark else b"") + end.join(lines) + (end if last else b"")
    whole = LineSplitter()
    wanted = whole.feed(body) + whole.close()
    splitter = LineSplitter()
    got = [line for piece in data.draw(pieces_of(body)) for line in splitter.feed(piece)] + splitter.close()
    assert got == wanted
    assert b"".join(wanted) == b"".join(lines).removeprefix(b"" if mark else b"\xef\xbb\xbf") or lines


WORDS = st.lists(
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "<thinking>",
            "</thinking>",
            "<thought>",
            "<",
            "<th",
            "</",
            ">",
            "`",
            "a",
            " b ",
            "<b>",
        ]
    ),
    max_size=10,
).map("".join)


def split_whole(pieces: list[str]) -> tuple[str, str]:
    splitter = ThinkSplitter()
    found = [pair for piece in pieces for pair in splitter.feed(piece)] + splitter.flush()
    assert all(piece for _, piece in found)
    text = "".join(piece for reasoning, piece in found if not reasoning)
    return text, "".join(piece for reasoning, piece in found if reasoning)


@quick
@given(WORDS)
def test_think_tags_are_found_at_every_split(text: str) -> None:
    wanted = split_whole([text])
    assert split_whole(list(text)) == wanted
    for cut in range(len(text)):
        assert split_whole([text[:cut], text[cut:]]) == wanted


@quick
@given(WORDS, st.data())
def test_a_tail_is_held_back_only_while_it_may_become_a_tag(text: str, data: st.DataObject) -> None:
    splitter = ThinkSplitter()
    seen = 0
    for letter in text:
        seen += sum(len(piece) for _, piece in splitter.feed(letter))
    held = "".join(piece for _, piece in splitter.flush())
    assert len(held) < len("</thinking>")
    assert not held or held.startswith("<")


@quick
@given(WORDS, st.data())
def test_tags_in_a_stream_are_found_at_every_split(text: str, data: st.DataObject) -> None:
    def run(parts: list[str]) -> tuple[str, str]:
        normaliser = make_normaliser("test", ProviderProfile())
        body = [
            b"data: " + json.dumps({"choices": [{"delta": {"content": part}}]}).encode() + b"\n\n"
            for part in parts
        ]
        got = said(read(normaliser, [*body, b"data: [DONE]\n\n"]))
        return got.text, got.reasoning

    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert run(parts) == run([text])


@quick
@given(st.lists(st.binary(max_size=200), max_size=5), st.sampled_from(FORMATS))
def test_no_bytes_break_a_normaliser(pieces: list[bytes], form: WireFormat) -> None:
    said(read(make_normaliser("test", ProviderProfile(format=form)), pieces))


NAMES = """
choices delta content tool_calls index id function name arguments usage error finish_reason type
message content_block text thinking partial_json stop_reason item response output output_index
call_id status candidates parts functionCall args partialArgs jsonPath stringValue finishReason
usageMetadata thoughtSignature
"""
KEYS = st.sampled_from(NAMES.split())
ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
KINDS = st.sampled_from(
    [
        "content_block_delta",
        "content_block_start",
        "message_start",
        "message_delta",
        "message",
        "response.output_item.added",
        "response.output_item.done",
        "response.function_call_arguments.delta",
        "response.completed",
    ]
)


@quick
@given(st.lists(st.dictionaries(KEYS, ODD, max_size=5), max_size=5), KINDS, st.sampled_from(FORMATS))
def test_no_json_breaks_a_normaliser(payloads: list[dict[str, Any]], kind: str, form: WireFormat) -> None:
    body = b"".join(b"data: " + json.dumps({"type": kind, **p}).encode() + b"\n\n" for p in payloads)
    said(read(make_normaliser("test", ProviderProfile(format=form)), [body]))


TEXTS: dict[WireFormat, Callable[[str], dict[str, Any]]] = {
    "openai-chat": lambda part: {"choices": [{"delta": {"content": part}}]},
    "openai-responses": lambda part: {"type": "response.output_text.delta", "output_index": 0, "delta": part},
    "anthropic": lambda part: {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": part},
    },
    "gemini": lambda part: {"candidates": [{"content": {"parts": [{"text": part}]}}]},
}


@quick
@given(st.text(st.characters(), max_size=60), st.data(), st.sampled_from(FORMATS))
def test_any_text_arrives_as_it_was_sent(text: str, data: st.DataObject, form: WireFormat) -> None:
    text = text.replace("\x00", "").replace("<", "(")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    normaliser = make_normaliser("test", ProviderProfile(format=form))
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        part = text[start:end]
        payload = TEXTS[form](part)
        found += normaliser.feed(b"data: " + json.dumps(payload).encode() + b"\n\n")
    found += normaliser.close()
    assert "".join(event.text for event in found if isinstance(event, TextDelta)) == text.encode(
        "utf-16", "surrogatepass"
    ).decode("utf-16", "replace")
    assert not any(isinstance(event, ReasoningDelta) for event in found)


@quick
@given(st.integers(1, 3000), st.sampled_from(["[", '{"a":']), st.sampled_from(FORMATS), st.booleans())
def test_no_depth_breaks_a_normaliser(depth: int, opening: str, form: WireFormat, odd: bool) -> None:
    closing = ("]" if opening == "[" else "}") * depth
    nest = opening * depth + ('"\\ud83d"' if odd else "1") + closing
    bodies = [
        f'{{"choices":[{{"delta":{{"content":[{nest}],"reasoning_details":[{{"data":{nest}}}]}}}}]}}',
        f'{{"type":"content_block_start","index":0,"content_block":{{"type":"redacted_thinking","data":{nest}}}}}',
        f'{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","input":{nest}}}}}',
        f'{{"type":"response.output_item.done","item":{{"type":"compaction","x":{nest}}}}}',
        f'{{"candidates":[{{"content":{{"parts":[{{"inlineData":{nest},"thoughtSignature":"s"}}]}}}}]}}',
        f'{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"x","args":{nest}}}}}]}}}}]}}',
        f'{{"error":{nest}}}',
    ]
    ends = [
        '{"choices":[{"finish_reason":"stop"}]}',
        '{"type":"message_stop"}',
        '{"type":"response.completed"}',
        '{"candidates":[{"finishReason":"STOP"}]}',
    ]
    for body in bodies:
        parts = [f"data: {part}\n\n".encode() for part in (body, *ends)]
        said(read(make_normaliser("test", ProviderProfile(format=form)), parts))
