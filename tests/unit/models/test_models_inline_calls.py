"""Tool calls in plain text: explicit markup at the end, of tools of the step, and only where asked for."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.model_streams import Said, read, said
from turnwire.extend.llm import Finish, FinishReason, StreamFailure, ToolDefinition
from turnwire.runtime.models.dialects import make_normaliser
from turnwire.runtime.models.inline_calls import MAX_HELD_CHARS, InlineCalls
from turnwire.runtime.models.settings import ProviderProfile

SCHEMA = json.dumps(
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "more": {}}}
)
TOOLS = {"weather": SCHEMA, "now": "{}"}
HERMES = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 9007199254740993}}\n</tool_call>'
)
GLM = (
    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>42</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
)
QWEN = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\nNorway\n</parameter>\n"
    '<parameter=more>\n{"a": [1, 2]}\n</parameter>\n</function>\n</tool_call>'
)
BARE = "<function=now>\n</function>"


def split(*pieces: str) -> tuple[str, list[tuple[str, str]]]:
    reader = InlineCalls(TOOLS)
    text = "".join(map(reader.feed, pieces))
    rest, calls = reader.finish()
    return text + rest, calls


@pytest.mark.parametrize(
    ("block", "call"),
    [
        (HERMES, ("weather", '{"city": "Oslo", "days": 9007199254740993}')),
        (GLM, ("weather", '{"city": "42", "days": 3}')),
        (QWEN, ("weather", '{"city": "Oslo\\nNorway", "more": {"a": [1, 2]}}')),
        (BARE, ("now", "{}")),
        ('<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>', ("now", '{"a": 1}')),
        ('<tool_call>{"name": "now", "parameters": {"a": 1}}</tool_call>', ("now", '{"a": 1}')),
        ('<tool_call>{"name": "now"}</tool_call>', ("now", "")),
        ("<tool_call>now</tool_call>", ("now", "")),
    ],
)
def test_each_known_markup_is_a_call(block: str, call: tuple[str, str]) -> None:
    text, calls = split(f"Let me see.\n{block}\n")
    assert text == "Let me see.\n"
    assert [(name, arguments.replace("{}", "")) for name, arguments in calls] == [
        (call[0], call[1].replace("{}", ""))
    ]


def test_several_blocks_are_several_calls() -> None:
    text, calls = split(HERMES + "\n" + GLM + BARE)
    assert text == ""
    assert [name for name, _ in calls] == ["weather", "weather", "now"]


@pytest.mark.parametrize(
    "text",
    [
        f"A call looks like this:\n{HERMES}\nNow you know.",
        f"Write `{BARE}` to call it.",
        f"In a line: {HERMES}",
        f"```\n{HERMES}\n```",
        f"~~~xml\n{BARE}",
        '<tool_call>\n{"name": "delete_all", "arguments": {}}\n</tool_call>',
        "<function=delete_all>\n</function>",
        f'{HERMES}\n<tool_call>{{"name": "delete_all", "arguments": {{}}}}</tool_call>',
        "<tool_call>\nno call at all\n</tool_call>",
        '<tool_call>\n{"name": "now", "arguments": {',
        f"{HERMES}\n<tool_call>",
        f"{HERMES}\n<too",
        "<tool_call>weather\n<arg_key>city</arg_key>\nOslo</tool_call>",
        "<function=now>\n<parameter=a>1</parameter> and so on</function>",
        "a < b\n<b>bold</b>\n<",
        '<tool_call>{"name": "now", "arguments": {"a": "\ud83d"}}</tool_call>',
    ],
)
def test_everything_else_stays_the_text_that_it_is(text: str) -> None:
    assert split(text) == (text, [])
    assert split(*text) == (text, [])


WORDS = (
    HERMES,
    GLM,
    QWEN,
    BARE,
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "</function>",
    "<",
    "```",
    "\n",
)
PARTS = st.lists(st.sampled_from([*WORDS, " ", "text", "`", "now", "{", "}"]), max_size=7).map("".join)


@settings(deadline=None, max_examples=200)
@given(PARTS, st.data())
def test_calls_are_found_at_every_split_and_text_is_never_lost(text: str, data: st.DataObject) -> None:
    wanted = split(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    assert split(*(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))) == wanted
    assert split(*text) == wanted
    if not wanted[1]:
        assert wanted[0] == text
    else:
        assert text.startswith(wanted[0])
        assert text[len(wanted[0]) :].strip().endswith(("</tool_call>", "</function>"))


def test_what_is_held_back_is_bounded() -> None:
    reader = InlineCalls(TOOLS)
    given = "<tool_call>" + "x" * (MAX_HELD_CHARS + 1)
    assert reader.feed(given) == given


def test_a_long_block_costs_what_it_is_long() -> None:
    def calls(size: int) -> int:
        count = 0

        def profiler(*_: Any) -> None:
            nonlocal count
            count += 1

        reader = InlineCalls(TOOLS)
        sys.setprofile(profiler)
        try:
            for piece in ["<tool_call>", *["</to"] * size]:
                reader.feed(piece)
        finally:
            sys.setprofile(None)
        return count

    assert calls(20_000) < 2.2 * calls(10_000)


# --- in a stream ---


def stream(*pieces: str, finish: str = "stop", model: str = "qwen3-coder", **profile: Any) -> Said:
    profile = {"inline_tool_calls": ["qwen3-*"], **profile}
    tools = [ToolDefinition(name, "", schema) for name, schema in TOOLS.items()]
    normaliser = make_normaliser("test", ProviderProfile(**profile), model, tools)
    body = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    body.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    return said(read(normaliser, [f"data: {json.dumps(item)}\n\n".encode() for item in body]))


def test_a_call_in_the_text_ends_the_answer_as_a_call() -> None:
    got = stream("<think>Hm.\n<tool_call></think>Let me", " see.\n", *QWEN)
    assert (got.text, got.reasoning) == ("Let me see.\n", "Hm.\n<tool_call>")
    assert [(call.tool_name, call.error) for call in got.calls] == [("weather", "")]
    assert isinstance(got.end, Finish)
    assert got.end.reason is FinishReason.TOOL_CALLS


def test_it_is_off_unless_the_model_is_named() -> None:
    for got in (stream(HERMES, inline_tool_calls=[]), stream(HERMES, model="llama")):
        assert (got.text, got.calls) == (HERMES, ())
    assert ProviderProfile().inline_tool_calls == []


def test_a_broken_off_answer_calls_nothing_and_keeps_its_text() -> None:
    got = stream(HERMES, finish="error")
    assert isinstance(got.end, StreamFailure)
    assert (got.text, got.calls, got.end.partial_content) == (HERMES, (), HERMES)


def test_arguments_in_text_follow_the_rules_of_all_arguments() -> None:
    got = stream('<tool_call>{"name": "now", "arguments": {"a": 1, "a": 2}}</tool_call>')
    assert "stands twice" in got.calls[0].error


def test_calls_of_its_own_leave_the_text_alone() -> None:
    tools = [ToolDefinition("now", "", "{}")]
    normaliser = make_normaliser("test", ProviderProfile(inline_tool_calls=["*"]), "m", tools)
    call = {"index": 0, "id": "c", "function": {"name": "now", "arguments": "{}"}}
    delta = {"content": BARE, "tool_calls": [call]}
    body = {"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}
    got = said(read(normaliser, [f"data: {json.dumps(body)}\n\n".encode()]))
    assert (got.text, len(got.calls)) == (BARE, 1)
