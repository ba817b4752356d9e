"""Models that need no key: scripts, the demo rules, recordings."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from support.model_replay import Answer, replay_server
from support.model_streams import Said, own_streams, read, said
from turnwire.core.errors import InvalidRequest
from turnwire.extend.llm import (
    AssistantMessage,
    Finish,
    FinishReason,
    ModelMessage,
    ModelRequest,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolMessage,
    UsageProvenance,
    UserMessage,
)
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.demo import DemoModel
from turnwire.runtime.models.demo_story import story
from turnwire.runtime.models.recording import ReplayModel, read_recordings
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.script_events import ScriptError
from turnwire.runtime.models.scripted import ScriptedModel, read_script
from turnwire.runtime.models.settings import ModelSettings, ProviderProfile, RetrySettings

NUMBERS = '{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}'
TOOLS = (
    ToolDefinition("multiply", "", NUMBERS),
    ToolDefinition("local__add", "", NUMBERS),
    ToolDefinition("current_time", "", '{"type":"object","properties":{}}'),
    ToolDefinition(
        "slow_report",
        "",
        '{"type":"object","properties":{"rows":{"type":"integer"}},"required":["rows"]}',
    ),
    ToolDefinition("read_file", "", '{"type":"object","properties":{"path":{"type":"string"}}}'),
)


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


async def run(model: BatchedModel, *messages: ModelMessage, **request: Any) -> Said:
    async with asyncio.timeout(30):
        stream = model.stream(ModelRequest("m", messages or (user("Hi"),), **request))
        return said([event async for event in stream])


# --- scripts ---


async def test_a_script_plays_one_call_per_step() -> None:
    script = [
        [{"text": "Asking."}, {"tool_call": {"name": "get", "arguments": {"a": 1}, "id": "p1"}}],
        [{"text": "Got $result for $user."}],
    ]
    model = ScriptedModel({"calls": script})
    first = await run(model)
    assert [(c.provider_call_id, c.tool_name, c.arguments_json) for c in first.calls] == [
        ("p1", "get", '{"a": 1}')
    ]
    assert isinstance(first.end, Finish)
    assert first.end.reason is FinishReason.TOOL_CALLS
    asked = AssistantMessage("Asking.", tool_calls=(ToolCallPart("c1", "get", "{}"),))
    second = await run(model, user("Hi"), asked, ToolMessage("c1", "get", "42"))
    assert second.text == "Got 42 for Hi."
    third = await run(model, user("Hi"), asked, ToolMessage("c1", "get", "42"), AssistantMessage("x"))
    assert isinstance(third.end, StreamFailure)


@pytest.mark.parametrize(("by", "text"), [("step", "one"), ("thread", "two"), ("order", "one")])
async def test_a_script_says_what_counts_as_the_next_call(by: str, text: str) -> None:
    model = ScriptedModel({"by": by, "calls": [[{"text": "one"}], [{"text": "two"}]]})
    assert (await run(model, user("a"), AssistantMessage("x"), user("b"))).text == text


async def test_cases_go_by_the_last_user_message() -> None:
    model = ScriptedModel(
        {"cases": [{"contains": "rain", "calls": [[{"text": "wet"}]]}], "calls": [[{"text": "dry"}]]}
    )
    assert (await run(model, user("Will it rain?"))).text == "wet"
    assert (await run(model, user("Hello"))).text == "dry"


async def test_text_is_cut_in_pieces_and_usage_and_ends_are_as_written() -> None:
    model = ScriptedModel(
        {
            "calls": [
                [
                    {"reasoning": "hm"},
                    {"text": "abcdef", "size": 4, "every": 0.001},
                    {"usage": {"input": 3, "output": 2}},
                    {"finish": {"reason": "refusal", "refusal": "no", "replay": [{"type": "x"}]}},
                    {"text": "never"},
                ]
            ]
        }
    )
    events = [event async for event in model.stream(ModelRequest("m", (user("Hi"),)))]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["abcd", "ef"]
    got = said(events)
    assert got.reasoning == "hm"
    assert got.usage is not None
    assert got.usage.usage.input_tokens == 3
    assert got.end == Finish(FinishReason.REFUSAL, "", '[{"type":"x"}]', "no")


async def test_broken_arguments_of_a_script_are_an_error_like_any_other() -> None:
    got = await run(ScriptedModel({"calls": [[{"tool_call": {"name": "get", "arguments": '{"a":'}}]]}))
    assert "cut off" in got.calls[0].error


@pytest.mark.parametrize(
    "script",
    [
        {"calls": "x"},
        {"calls": [{"attempts": []}]},
        {"calls": [["text"]]},
        {"calls": [[{"words": "x"}]]},
        {"calls": [[{"finish": "bored"}]]},
        {"calls": [[{"delay": -1}]]},
        {"calls": [], "by": "moon"},
        {"calls": [[{"tool_call": {"arguments": {}}}]]},
    ],
)
def test_a_script_that_is_none_is_refused(script: dict[str, Any]) -> None:
    with pytest.raises(ScriptError):
        ScriptedModel(script)


def test_scripts_come_from_json_yaml_and_inline(tmp_path: Path) -> None:
    events = [{"text": "hi"}]
    (tmp_path / "a.json").write_text(json.dumps(events))
    (tmp_path / "a.yaml").write_text("calls:\n- - text: hi\n")
    for source in (str(tmp_path / "a.json"), str(tmp_path / "a.yaml"), json.dumps({"calls": [events]})):
        assert read_script(source)["calls"] == [events]
    for source in (str(tmp_path / "none.json"), "{", '"x"'):
        with pytest.raises(ScriptError):
            read_script(source)


# --- the demo rules ---


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("multiply 12 by 34", "multiply", {"a": 12, "b": 34}),
        ("What is 12 * 34?", "multiply", {"a": 12, "b": 34}),
        ("add 2 and 3.5 please", "local__add", {"a": 2, "b": 3.5}),
        ("What time is it?", "current_time", {}),
        ("run the slow report", "slow_report", {"rows": 1}),
        ("please read file notes/today.md", "read_file", {"path": "notes/today.md"}),
        ('call multiply {"a": 1, "b": 2}', "multiply", {"a": 1, "b": 2}),
    ],
)
async def test_the_demo_uses_the_tool_that_is_asked_for(
    text: str, tool: str, arguments: dict[str, Any]
) -> None:
    got = await run(DemoModel(), user(text), tools=TOOLS)
    ((name, sent),) = [(call.tool_name, json.loads(call.arguments_json)) for call in got.calls]
    assert (name, sent) == (tool, arguments)
    assert isinstance(got.end, Finish)
    assert got.end.reason is FinishReason.TOOL_CALLS
    assert got.reasoning


async def test_the_demo_may_ask_for_two_tools_at_once() -> None:
    got = await run(DemoModel(), user("multiply 2 by 3, and what time is it?"), tools=TOOLS)
    assert [call.tool_name for call in got.calls] == ["multiply", "current_time"]


async def test_the_demo_answers_with_what_the_tool_said_and_says_what_it_is() -> None:
    calls = AssistantMessage(tool_calls=(ToolCallPart("c1", "multiply", "{}"), ToolCallPart("c2", "x", "{}")))
    results = (ToolMessage("c1", "multiply", "408"), ToolMessage("c2", "x", "no", is_error=True))
    got = await run(DemoModel(), user("multiply 12 by 34"), calls, *results, tools=TOOLS)
    assert got.text == "[demo model] The tool `multiply` answered: 408\nThe tool `x` failed: no"
    assert isinstance(got.end, Finish)
    assert got.end.reason is FinishReason.STOP
    assert got.usage is not None
    assert got.usage.usage.provenance is UsageProvenance.ESTIMATED
    assert got.usage.usage.output_tokens > 0


@pytest.mark.parametrize("request_", [{"tools": ()}, {"tools": TOOLS, "tool_choice": ToolChoice("none")}])
async def test_the_demo_calls_nothing_that_is_not_offered(request_: dict[str, Any]) -> None:
    got = await run(DemoModel(), user("multiply 12 by 34"), **request_)
    assert not got.calls
    assert "[demo model]" in got.text


async def test_a_long_story_streams_and_can_be_left() -> None:
    assert 350 < len(story().split()) < 450
    stream = DemoModel().stream(ModelRequest("m", (user("tell me a long story"),)))
    async with asyncio.timeout(10), aclosing(stream):
        found = []
        async for event in stream:
            found.append(event)
            if sum(isinstance(event, TextDelta) for event in found) == 5:
                break
    assert isinstance(found[0], ReasoningDelta)


# --- recordings ---


async def test_what_was_recorded_over_http_plays_again(tmp_path: Path) -> None:
    bodies = {stream.name: stream.body for stream in own_streams()}
    first, second = bodies["chat-think-tags.sse"], bodies["chat-no-finish.sse"]
    file = tmp_path / "deep" / "talk.sse"
    async with replay_server(Answer(first, piece=10), Answer(second)) as server:
        profile = ProviderProfile(base_url=server.url)
        settings = ModelSettings(providers={"local": profile}, retries=RetrySettings(attempts=1))
        registry = ModelRegistry(settings)
        model = registry.resolve(f"record:{file}:local:m")
        wanted = [await run(model), await run(model)]
        await registry.close()
    assert [recording.body for recording in read_recordings(file.read_bytes())] == [first, second]
    replay = ModelRegistry(settings).resolve(f"replay:{file}")
    assert await run(replay) == wanted[0]
    again = await run(replay, user("Hi"), AssistantMessage("x"), user("So?"))
    assert (again.text, type(again.end)) == (wanted[1].text, type(wanted[1].end))


async def test_events_of_a_model_without_bytes_are_recorded_too(tmp_path: Path) -> None:
    file = tmp_path / "demo.sse"
    registry = ModelRegistry(ModelSettings())
    wanted = await run(registry.resolve(f"record:{file}:demo:"), user("multiply 2 by 3"), tools=TOOLS)
    assert await run(registry.resolve(f"replay:{file}")) == wanted


@pytest.mark.parametrize("stream", own_streams(), ids=lambda stream: stream.name)
async def test_a_bare_body_is_a_recording(stream: Any) -> None:
    if stream.name == "anthropic-overloaded.sse" or "bare" in stream.name:
        pytest.skip("its format shows in no byte of it")
    wanted = said(read(stream.normaliser(), [stream.body]))
    got = await run(ReplayModel(read_recordings(stream.body)))
    assert (got.text, got.reasoning, got.calls) == (wanted.text, wanted.reasoning, wanted.calls)
    assert type(got.end) is type(wanted.end)


# --- names ---


@pytest.mark.parametrize(
    "name",
    ["gpt-4o", "nobody:gpt-4o", "openai:", "scripted:/none.json", "scripted:{}x", "replay:/none", "record:x"],
)
def test_a_name_that_is_none_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ModelRegistry(ModelSettings(openai_base_url="http://127.0.0.1:1")).resolve(name)
    assert caught.value.reason == "MODEL_UNKNOWN"
    assert "anthropic:, demo:, gemini:, openai:" in caught.value.message
