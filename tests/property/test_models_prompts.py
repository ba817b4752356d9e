"""A request begins with the bytes of the one before it, so that caches of prompts can see what they know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.extend.llm import (
    AssistantMessage,
    MediaPart,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.models.dialects import DIALECTS
from turnwire.runtime.models.settings import ProviderProfile, WireFormat

FORMATS: list[WireFormat] = ["openai-chat", "openai-responses", "anthropic", "gemini"]
TOOL = ToolDefinition("get", "Gets.", '{"type":"object","properties":{}}')
PNG = MediaPart("image/png", b"\x89PNG")
WORDS = st.text(st.sampled_from('ab <"\\{}[]é🙂'), min_size=1, max_size=8).map(lambda text: "w" + text)
MARK = {"type": "ephemeral"}


@st.composite
def exchanges(draw: st.DrawFn) -> list[list[ModelMessage]]:
    """Steps of a conversation: what the user says, or an answer with its results."""
    found: list[list[ModelMessage]] = [[SystemMessage(draw(WORDS)), UserMessage((TextPart(draw(WORDS)),))]]
    for number in range(draw(st.integers(1, 5))):
        calls = draw(st.integers(0, 2))
        made = tuple(ToolCallPart(f"c{number}-{i}", "get", "{}") for i in range(calls))
        step: list[ModelMessage] = [AssistantMessage(draw(WORDS), tool_calls=made)]
        for call in made:
            media = (PNG,) if draw(st.booleans()) else ()
            step.append(ToolMessage(call.call_id, "get", draw(WORDS), media=media))
        if not made or draw(st.booleans()):
            step.append(UserMessage((TextPart(draw(WORDS)),)))
        found.append(step)
    return found


def body(form: WireFormat, messages: list[ModelMessage], **profile: Any) -> bytes:
    settings = ProviderProfile(format=form, **profile)
    request = ModelRequest("m", tuple(messages), (TOOL,), metadata={"thread": "s/threads/t"})
    return DIALECTS[form].encode(request, settings, True)


def unmarked(found: Any) -> Any:
    if isinstance(found, list):
        return [unmarked(item) for item in found]
    if isinstance(found, dict):
        return {name: unmarked(value) for name, value in found.items() if name != "cache_control"}
    return found


@settings(deadline=None, max_examples=60)
@given(exchanges(), st.sampled_from(FORMATS))
def test_each_request_begins_with_the_bytes_of_the_one_before(
    steps: list[list[ModelMessage]], form: WireFormat
) -> None:
    said: list[ModelMessage] = []
    before = b""
    for step in steps:
        said += step
        now = body(form, said, prompt_cache=False, cache_key=True)
        assert now.startswith(before.rstrip(b"]}"))
        before = now


@settings(deadline=None, max_examples=60)
@given(exchanges())
def test_marks_move_and_change_nothing_else(steps: list[list[ModelMessage]]) -> None:
    said: list[ModelMessage] = []
    stored: list[Any] = []
    for step in steps:
        said += step
        found = json.loads(body("anthropic", said))
        assert unmarked(found) == json.loads(body("anthropic", said, prompt_cache=False))
        assert json.dumps(found).count('"cache_control"') <= 4
        assert found["tools"][-1]["cache_control"] == found["system"][-1]["cache_control"] == MARK
        blocks = [block for message in found["messages"] for block in message["content"]]
        marked = [index for index, block in enumerate(blocks) if "cache_control" in block]
        assert marked[-1] == len(blocks) - 1
        # What the call before has stored is among what this one may read.
        assert unmarked(blocks)[: len(stored)] == stored
        stored = unmarked(blocks)[: marked[-1] + 1]


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses"])
def test_the_key_is_one_per_thread_tells_nothing_and_is_sent_where_it_is_known(form: WireFormat) -> None:
    said: list[ModelMessage] = [UserMessage((TextPart("Hi"),))]

    def key(thread: str, **profile: Any) -> str | None:
        request = ModelRequest("m", tuple(said), metadata={"thread": thread} if thread else {})
        found = json.loads(DIALECTS[form].encode(request, ProviderProfile(format=form, **profile), True))
        value: str | None = found.get("prompt_cache_key")
        return value

    ours = key("s/threads/one", cache_key=True)
    assert ours == key("s/threads/one", cache_key=True)
    assert ours != key("other/threads/one", cache_key=True)
    assert ours is not None
    assert "one" not in ours
    assert key("s/threads/one") is None
    assert key("", cache_key=True) is None
    assert key("s/threads/one", cache_key=True, prompt_cache=False) is None
