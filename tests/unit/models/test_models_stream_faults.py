"""Faults that other systems had with model streams, each by its smallest trigger."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from support.model_streams import Said, read, said
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    LlmEvent,
    StreamFailure,
    TextDelta,
    TokenUsage,
    UsageProvenance,
)
from turnwire.runtime.models.dialects import make_normaliser
from turnwire.runtime.models.settings import ProviderProfile

ABSENT = object()
DONE = b"data: [DONE]\n\n"


def fragment(index: Any, call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {
        key: value for key, value in (("name", name), ("arguments", arguments)) if value is not ABSENT
    }
    call: dict[str, Any] = {"function": function}
    call |= {key: value for key, value in (("index", index), ("id", call_id)) if value is not ABSENT}
    return {"tool_calls": [call]}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    payload = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def chat(*parts: bytes, **profile: Any) -> Said:
    return said(read(make_normaliser("test", ProviderProfile(**profile)), [b"".join(parts)]))


def anthropic(*events: dict[str, Any]) -> Said:
    body = b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return said(read(make_normaliser("test", ProviderProfile(format="anthropic")), [body]))


def calls_of(got: Said) -> list[tuple[str, str, str]]:
    assert not [call for call in got.calls if call.error]
    return [(call.provider_call_id, call.tool_name, call.arguments_json) for call in got.calls]


# --- 1: parallel calls that all carry one index ---------------------------------------------------------


def test_calls_that_share_an_index_are_told_apart_by_id_and_name() -> None:
    got = chat(
        chunk(fragment(0, "c1", "probe", '{"k":1}')),
        chunk(fragment(0, "c2", "probe", '{"k":2}')),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert calls_of(got) == [("c1", "probe", '{"k":1}'), ("c2", "probe", '{"k":2}')]


def test_calls_that_share_an_index_and_have_no_ids_are_told_apart_by_whole_arguments() -> None:
    got = chat(
        chunk(fragment(0, "", "probe", '{"k":1}')),
        chunk(fragment(0, "", "probe", '{"k":2}')),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert calls_of(got) == [("", "probe", '{"k":1}'), ("", "probe", '{"k":2}')]


def test_interleaved_calls_with_their_own_indexes_come_out_whole() -> None:
    got = chat(
        chunk(fragment(0, "c1", "a", "")),
        chunk(fragment(1, "c2", "b", "")),
        chunk(fragment(0, ABSENT, ABSENT, '{"x":')),
        chunk(fragment(1, ABSENT, ABSENT, '{"y":')),
        chunk(fragment(0, ABSENT, ABSENT, "1}")),
        chunk(fragment(1, ABSENT, ABSENT, "2}")),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert calls_of(got) == [("c1", "a", '{"x":1}'), ("c2", "b", '{"y":2}')]


def test_an_id_minted_per_fragment_continues_the_call() -> None:
    got = chat(
        chunk(fragment(0, "r1", "get", '{"a"')),
        chunk(fragment(0, "r2", ABSENT, ":1}")),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert calls_of(got) == [("r1", "get", '{"a":1}')]


def test_a_name_that_arrives_after_the_id_belongs_to_the_same_call() -> None:
    got = chat(
        chunk(fragment(0, "c1", ABSENT, ABSENT)),
        chunk(fragment(0, ABSENT, "get", ABSENT)),
        chunk(fragment(0, ABSENT, ABSENT, '{"a":1}')),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert calls_of(got) == [("c1", "get", '{"a":1}')]


# --- 2: continuations with a hollow identity ------------------------------------------------------------


@pytest.mark.parametrize("call_id", [ABSENT, "", None, "null"], ids=["absent", "empty", "null", "word"])
@pytest.mark.parametrize("name", [ABSENT, "", None, "null"], ids=["absent", "empty", "null", "word"])
@pytest.mark.parametrize("index", [0, None, ABSENT], ids=["zero", "null", "absent"])
def test_a_hollow_identity_continues_the_call(index: Any, call_id: Any, name: Any) -> None:
    got = chat(
        chunk(fragment(0, "c1", "get", '{"a":')),
        chunk(fragment(index, call_id, name, "1}")),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert calls_of(got) == [("c1", "get", '{"a":1}')]


@pytest.mark.parametrize("name", ["", None, "null", "None", "NULL"])
def test_a_call_that_never_gets_a_name_is_an_error_and_not_a_call(name: Any) -> None:
    got = chat(chunk(fragment(0, "c1", name, "{}")), chunk({}, "tool_calls"), DONE)
    assert [call.error for call in got.calls] == ["the call names no tool"]


# --- 3: a clean end without a finish reason -------------------------------------------------------------


def test_an_end_without_reason_or_mark_is_incomplete_and_keeps_the_text() -> None:
    got = chat(chunk({"content": "The ans"}))
    assert isinstance(got.end, StreamFailure)
    assert got.end.kind is FailureKind.INCOMPLETE
    assert got.end.partial_content == "The ans"
    assert got.end.retryable


def test_a_profile_may_accept_an_answer_without_a_reason_but_never_calls_it_stop() -> None:
    got = chat(chunk({"content": "The answer"}), null_finish_ok=True)
    assert isinstance(got.end, Finish)
    assert got.end.reason is FinishReason.OTHER


def test_even_such_a_profile_does_not_accept_silence() -> None:
    got = chat(b": nothing\n\n", null_finish_ok=True)
    assert isinstance(got.end, StreamFailure)
    assert got.end.kind is FailureKind.INCOMPLETE


# --- 5: arguments that were cut off ---------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["length", "tool_calls", "stop"])
def test_cut_off_arguments_are_never_run_whatever_the_finish_reason(finish: str) -> None:
    got = chat(chunk(fragment(0, "c1", "write_file", '{"path":"x","content":"abc')), chunk({}, finish), DONE)
    (call,) = got.calls
    assert "cut off" in call.error
    assert call.arguments_json == '{"path":"x","content":"abc'


def test_the_end_of_the_token_limit_keeps_a_whole_call_and_its_own_reason() -> None:
    got = chat(chunk(fragment(0, "c1", "get", '{"a":1}')), chunk({}, "length"), DONE)
    assert calls_of(got) == [("c1", "get", '{"a":1}')]
    assert isinstance(got.end, Finish)
    assert got.end.reason is FinishReason.LENGTH


# --- 6: what a hook may not touch -----------------------------------------------------------------------


def test_events_cannot_be_changed_in_place() -> None:
    event: LlmEvent = TextDelta("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.text = "b"  # type: ignore[misc]


# --- 7: usage that never came ---------------------------------------------------------------------------


def test_usage_that_was_not_reported_is_absent_and_unknown_is_not_zero() -> None:
    got = chat(chunk({"content": "a"}), chunk({}, "stop"), DONE)
    assert got.usage is None
    assert TokenUsage().provenance is UsageProvenance.UNKNOWN


def test_a_report_of_nothing_is_no_report() -> None:
    got = chat(
        chunk({"content": "a"}, usage={"prompt_tokens": 0, "completion_tokens": 0}), chunk({}, "stop"), DONE
    )
    assert got.usage is None


# --- 8: cumulative usage --------------------------------------------------------------------------------


def anthropic_usage(first: dict[str, int], last: dict[str, int]) -> TokenUsage:
    got = anthropic(
        {"type": "message_start", "message": {"usage": first}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    )
    assert got.usage is not None
    return got.usage.usage


def test_a_later_report_replaces_the_earlier_one_field_by_field() -> None:
    usage = anthropic_usage(
        {"input_tokens": 20, "cache_read_input_tokens": 4},
        {"input_tokens": 20, "cache_read_input_tokens": 4, "output_tokens": 7},
    )
    assert usage == TokenUsage(20, 4, 0, 7, 0, UsageProvenance.REPORTED)


def test_a_cache_split_that_comes_later_replaces_the_whole_prompt() -> None:
    usage = anthropic_usage(
        {"input_tokens": 24}, {"input_tokens": 20, "cache_read_input_tokens": 4, "output_tokens": 7}
    )
    assert usage == TokenUsage(20, 4, 0, 7, 0, UsageProvenance.REPORTED)


def test_a_later_report_of_an_empty_prompt_says_nothing_about_it() -> None:
    usage = anthropic_usage({"input_tokens": 20, "output_tokens": 1}, {"input_tokens": 0, "output_tokens": 7})
    assert usage == TokenUsage(20, 0, 0, 7, 0, UsageProvenance.REPORTED)


def test_the_cached_part_is_never_above_the_prompt() -> None:
    got = chat(
        chunk({"content": "a"}, "stop"),
        b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,'
        b'"prompt_tokens_details":{"cached_tokens":9,"cache_write_tokens":9}}}\n\n',
        DONE,
    )
    assert got.usage is not None
    assert got.usage.usage == TokenUsage(0, 5, 0, 1, 0, UsageProvenance.REPORTED)


# --- 36: characters that poison -------------------------------------------------------------------------


def content(escaped: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % escaped.encode()


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        (["\\ud83d\\ude00"], "😀"),
        (["a\\ud83d", "\\ude00b"], "a😀b"),
        (["a\\ud83d", "b"], "a\ufffdb"),
        (["a\\ud83d"], "a\ufffd"),
        (["\\ude00\\ud83d"], "\ufffd\ufffd"),
        (["a\\u0000b"], "a\ufffdb"),
        (["\\ud83d", "\\ud83d", "\\ude00"], "\ufffd😀"),
    ],
)
def test_halves_of_a_pair_are_joined_and_what_stays_alone_is_replaced(deltas: list[str], text: str) -> None:
    got = chat(*map(content, deltas), chunk({}, "stop"), DONE)
    assert got.text == text


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    got = chat(b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\n', chunk({}, "stop"), DONE)
    assert got.text == "a\ufffdb"


def test_halves_in_arguments_are_joined_across_fragments() -> None:
    body = [
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":'
        b'{"name":"get","arguments":"{\\"a\\":\\"\\ud83d"}}]}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":'
        b'{"arguments":"\\ude00\\"}"}}]}}]}\n\n',
    ]
    assert calls_of(chat(*body, chunk({}, "tool_calls"), DONE)) == [("c", "get", '{"a":"😀"}')]


def test_a_long_delta_is_split_at_32_kib() -> None:
    text = "é" * 40_000
    got = chat(chunk({"content": text}), chunk({}, "stop"), DONE)
    assert got.text == text


# --- 37: numbers ----------------------------------------------------------------------------------------


def test_large_numbers_in_arguments_stay_as_written() -> None:
    arguments = '{"id": 9007199254740993, "n": 1, "x": 1e400}'
    got = chat(chunk(fragment(0, "c1", "get", arguments)), chunk({}, "tool_calls"), DONE)
    assert calls_of(got) == [("c1", "get", arguments)]


# --- errors inside a good answer ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (b'data: {"error":{"message":"boom","type":"server_error"}}\n\n', FailureKind.SERVER),
        (b'event: error\ndata: {"message":"boom"}\n\n', FailureKind.UNKNOWN),
        (b'{"error":{"code":429,"message":"slow down"}}\n', FailureKind.RATE_LIMIT),
        (b'data: {"object":"error","message":"boom","code":400}\n\n', FailureKind.INVALID_REQUEST),
        (b'data: {"error":"boom"}\n\n', FailureKind.UNKNOWN),
        (b'data: {"choices":[],"x_groq":{"error":"boom"}}\n\n', FailureKind.UNKNOWN),
        (b'data: {"choi\n\n', FailureKind.SERVER),
    ],
)
def test_an_error_in_the_stream_is_the_end_wherever_it_stands(part: bytes, kind: FailureKind) -> None:
    got = chat(chunk({"content": "par"}), part, chunk({"content": "tial"}), chunk({}, "stop"), DONE)
    assert isinstance(got.end, StreamFailure)
    assert got.end.kind is kind
    assert got.text == "par"
    assert got.end.partial_content == "par"


def test_a_server_that_says_it_broke_off_has_not_finished() -> None:
    got = chat(chunk({"content": "par"}), chunk({}, "abort"), DONE)
    assert isinstance(got.end, StreamFailure)
    assert got.end.kind is FailureKind.SERVER


def test_nothing_follows_the_end() -> None:
    normaliser = make_normaliser("test", ProviderProfile())
    first = normaliser.feed(chunk({}, "stop") + DONE + chunk({"content": "late"}))
    assert [type(event) for event in first] == [Finish]
    assert normaliser.feed(chunk({"content": "later"})) == []
    assert normaliser.close() == []


def test_an_answer_that_was_not_streamed_reads_the_same() -> None:
    body = {
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Asking.",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}},
                        {"id": "c2", "type": "function", "function": {"name": "b", "arguments": '{"x":1}'}},
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    for indent in (None, 2):
        got = chat(json.dumps(body, indent=indent).encode())
        assert got.text == "Asking."
        assert calls_of(got) == [("c1", "a", "{}"), ("c2", "b", '{"x":1}')]


def test_a_message_that_was_not_streamed_reads_the_same() -> None:
    got = anthropic(
        {
            "type": "message",
            "content": [
                {"type": "text", "text": "Asking."},
                {"type": "tool_use", "id": "t1", "name": "a", "input": {"x": 1}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 5, "output_tokens": 2},
        }
    )
    assert got.text == "Asking."
    assert calls_of(got) == [("t1", "a", '{"x":1}')]


def test_one_json_event_over_several_data_lines_is_one_event() -> None:
    payload = json.dumps({"choices": [{"delta": {"content": "hi"}}]}, indent=1)
    lines = b"".join(b"data: " + line.encode() + b"\n" for line in payload.split("\n"))
    got = chat(lines + b"\n", chunk({}, "stop"), DONE)
    assert got.text == "hi"


def test_a_mention_of_a_tag_in_code_stays_text() -> None:
    got = chat(chunk({"content": "Use `<think>` tags"}), chunk({}, "stop"), DONE)
    assert got.text == "Use `<think>` tags"


def test_tags_stay_text_where_the_switch_is_off() -> None:
    got = chat(chunk({"content": "<think>a</think>b"}), chunk({}, "stop"), DONE, think_tags="off")
    assert got.text == "<think>a</think>b"


def test_an_answer_may_begin_inside_a_block() -> None:
    got = chat(chunk({"content": "a</think>b"}), chunk({}, "stop"), DONE, think_tags="inside")
    assert (got.reasoning, got.text) == ("a", "b")
