"""Each word of the table of capabilities, put to a local server: what it carries, reads, or refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from support.model_replay import Answer, replay_server
from support.model_streams import OWN, Said, said
from support.runtime_fakes import FakeModel
from support.runtime_rig import command
from support.runtime_turns import rig
from turnwire.core.errors import InvalidRequest
from turnwire.extend.events import TurnState
from turnwire.extend.llm import (
    AssistantMessage,
    FailureKind,
    Finish,
    FinishReason,
    MediaPart,
    ModelOptions,
    ModelRequest,
    Part,
    StreamFailure,
    TextPart,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.domain.turn import InputPart, OptionsSpec
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.capabilities import CAPABILITIES, FORMATS, WireFormat, level
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import ModelSettings, ProviderProfile, RetrySettings

OURS: tuple[WireFormat, ...] = FORMATS[:4]
SCHEMA = (
    '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}'
)
TOOL = ToolDefinition("get", "Gets.", SCHEMA)
HI = UserMessage((TextPart("Hi"),))
PNG = MediaPart("image/png", b"\x89PNG")
PDF = MediaPart("application/pdf", b"%PDF", filename="a.pdf")


def asking(*parts: Part) -> ModelRequest:
    return ModelRequest("m", (UserMessage((TextPart("Look"), *parts)),))


def choosing(mode: str) -> ModelRequest:
    return ModelRequest("m", (HI,), (TOOL,), ToolChoice(mode, "get" if mode == "tool" else ""))


def after_result(*media: MediaPart) -> ModelRequest:
    call = AssistantMessage(tool_calls=(ToolCallPart("c1", "get", '{"a":1}'),))
    return ModelRequest("m", (HI, call, ToolMessage("c1", "get", "one", media=media)), (TOOL,))


# For each capability that a request asks for: the request, and what its body must hold in each format.
ASKED: dict[str, tuple[ModelRequest, dict[WireFormat, str]]] = {
    "streaming": (
        asking(),
        {
            "openai-chat": '"stream": true',
            "openai-responses": '"stream": true',
            "anthropic": '"stream": true',
        },
    ),
    "streaming_with_tools": (
        choosing("auto"),
        dict.fromkeys(OURS, '"get"'),
    ),
    "tool_choice_none": (
        choosing("none"),
        {
            "openai-chat": '"tool_choice": "none"',
            "openai-responses": '"tool_choice": "none"',
            "anthropic": '"tool_choice": {"type": "none"}',
            "gemini": '"mode": "NONE"',
        },
    ),
    "tool_choice_required": (
        choosing("required"),
        {
            "openai-chat": '"tool_choice": "required"',
            "openai-responses": '"tool_choice": "required"',
            "anthropic": '"tool_choice": {"type": "any"}',
            "gemini": '"mode": "ANY"',
        },
    ),
    "tool_choice_tool": (
        choosing("tool"),
        {
            "openai-chat": '"tool_choice": {"type": "function", "function": {"name": "get"}}',
            "openai-responses": '"tool_choice": {"type": "function", "name": "get"}',
            "anthropic": '"tool_choice": {"type": "tool", "name": "get"}',
            "gemini": '"allowedFunctionNames": ["get"]',
        },
    ),
    "images": (
        asking(PNG),
        {
            "openai-chat": '{"url": "data:image/png;base64,iVBORw=="}',
            "openai-responses": '"image_url": "data:image/png;base64,iVBORw=="',
            "anthropic": '{"type": "base64", "media_type": "image/png", "data": "iVBORw=="}',
            "gemini": '{"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}',
        },
    ),
    "image_uris": (
        asking(MediaPart("", uri="https://example.com/a.jpg")),
        {
            "openai-chat": '{"url": "https://example.com/a.jpg"}',
            "openai-responses": '"image_url": "https://example.com/a.jpg"',
            "anthropic": '{"type": "image", "source": {"type": "url", "url": "https://example.com/a.jpg"}',
            "gemini": '{"mimeType": "image/jpeg", "fileUri": "https://example.com/a.jpg"}',
        },
    ),
    "documents": (
        asking(PDF),
        {
            "openai-chat": '{"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}',
            "openai-responses": '"file_data": "data:application/pdf;base64,JVBERg=="',
            "anthropic": '{"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}',
            "gemini": '{"mimeType": "application/pdf", "data": "JVBERg=="}',
        },
    ),
    "document_uris": (
        asking(MediaPart("application/pdf", uri="https://example.com/a.pdf")),
        {
            "openai-responses": '{"type": "input_file", "file_url": "https://example.com/a.pdf"}',
            "anthropic": '{"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}',
            "gemini": '{"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}',
        },
    ),
    "text_files": (
        asking(MediaPart("text/csv", b"a,b", filename="a.csv")),
        {
            "openai-chat": "<file name='a.csv'>\\na,b\\n</file>",
            "openai-responses": "<file name='a.csv'>\\na,b\\n</file>",
            "anthropic": "<file name='a.csv'>\\na,b\\n</file>",
            "gemini": '{"mimeType": "text/csv", "data": "YSxi"}',
        },
    ),
    "audio": (
        asking(MediaPart("audio/mpeg", b"ID3")),
        {
            "openai-chat": '{"data": "SUQz", "format": "mp3"}',
            "gemini": '{"mimeType": "audio/mpeg", "data": "SUQz"}',
        },
    ),
    "video": (
        asking(MediaPart("video/mp4", b"mp4")),
        {"gemini": '{"mimeType": "video/mp4", "data": "bXA0"}'},
    ),
    "other_files": (
        asking(MediaPart("application/zip", b"PK")),
        {
            "openai-chat": '"file_data": "data:application/zip;base64,UEs="',
            "openai-responses": '"file_data": "data:application/zip;base64,UEs="',
            "gemini": '{"mimeType": "application/zip", "data": "UEs="}',
        },
    ),
    "other_uris": (
        asking(MediaPart("video/mp4", uri="https://example.com/a.mp4")),
        {
            "openai-responses": '"file_url": "https://example.com/a.mp4"',
            "gemini": '{"mimeType": "video/mp4", "fileUri": "https://example.com/a.mp4"}',
        },
    ),
    "result_media": (
        after_result(PNG),
        {
            "openai-chat": '{"type": "text", "text": "Files that the tools returned:"}, {"type": "image_url"',
            "openai-responses": '"output": [{"type": "input_text", "text": "one"}, {"type": "input_image"',
            "anthropic": '"tool_use_id": "c1", "content": [{"type": "text", "text": "one"}, {"type": "image"',
            "gemini": '"response": {"result": "one"}}}, {"inlineData"',
        },
    ),
    "reasoning_effort": (
        ModelRequest("m", (HI,), options=ModelOptions(reasoning_effort="low")),
        {
            "openai-chat": '"reasoning_effort": "low"',
            "openai-responses": '"reasoning": {"effort": "low"',
            "anthropic": '"thinking": {"type": "enabled", "budget_tokens": 2048}',
            "gemini": '"thinkingConfig": {"thinkingBudget": 2048',
        },
    ),
    "response_schema": (
        ModelRequest("m", (HI,), response_schema_json=SCHEMA),
        {
            "openai-chat": '"response_format": {"type": "json_schema"',
            "openai-responses": '"text": {"format": {"type": "json_schema"',
            "anthropic": "<json_schema>",
            "gemini": '"responseJsonSchema": {"type": "object"',
        },
    ),
    "prompt_caching": (
        ModelRequest("m", (HI,), (TOOL,), metadata={"thread": "s/threads/t"}),
        {
            "openai-chat": '"prompt_cache_key": "',
            "openai-responses": '"prompt_cache_key": "',
            "anthropic": '"cache_control": {"type": "ephemeral"}',
            "gemini": '"contents"',
        },
    ),
    "usage_in_stream": (asking(), {"openai-chat": '"stream_options": {"include_usage": true}'}),
    "stop": (
        ModelRequest("m", (HI,), options=ModelOptions(stop=("END",))),
        {
            "openai-chat": '"stop": ["END"]',
            "anthropic": '"stop_sequences": ["END"]',
            "gemini": '"stopSequences": ["END"]',
        },
    ),
    "max_output_tokens": (
        ModelRequest("m", (HI,), options=ModelOptions(max_output_tokens=77)),
        {
            "openai-chat": '"max_tokens": 77',
            "openai-responses": '"max_output_tokens": 77',
            "anthropic": '"max_tokens": 77',
            "gemini": '"maxOutputTokens": 77',
        },
    ),
}


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


PLAIN: dict[WireFormat, bytes] = {
    "openai-chat": (OWN / "chat-text.sse").read_bytes(),
    "openai-responses": (OWN / "responses-text.sse").read_bytes(),
    "anthropic": (OWN / "anthropic-text.sse").read_bytes(),
    "gemini": (OWN / "gemini-text.sse").read_bytes(),
}
WITH_CALLS: dict[WireFormat, bytes] = {
    "openai-chat": (OWN / "chat-parallel-same-index.sse").read_bytes(),
    "openai-responses": (OWN / "responses-reasoning-and-calls.sse").read_bytes(),
    "anthropic": b"".join(
        event({"type": "content_block_start", "index": i, "content_block": block})
        for i, block in enumerate(
            {"type": "tool_use", "id": f"t{i}", "name": "get", "input": {"a": i}} for i in range(2)
        )
    )
    + event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    + event({"type": "message_stop"}),
    "gemini": (OWN / "gemini-calls.sse").read_bytes(),
}
REASONED: dict[WireFormat, bytes] = {
    "openai-chat": (OWN / "chat-encrypted-reasoning.sse").read_bytes(),
    "openai-responses": (OWN / "responses-reasoning-and-calls.sse").read_bytes(),
    "anthropic": (OWN / "anthropic-thinking-and-call.sse").read_bytes(),
    "gemini": event({"candidates": [{"content": {"parts": [{"text": "Hm.", "thought": True}]}}]})
    + event({"candidates": [{"content": {"parts": [{"text": "Yes.", "thoughtSignature": "s"}]}}]})
    + event({"candidates": [{"finishReason": "STOP"}]}),
}
# For each capability of answers: bodies, and what must come out of them.
ANSWERED: dict[str, tuple[dict[WireFormat, bytes], Callable[[Said], bool]]] = {
    "parallel_calls": (WITH_CALLS, lambda got: len(got.calls) == 2 and not any(c.error for c in got.calls)),
    "reasoning": (REASONED, lambda got: bool(got.reasoning)),
    "reasoning_replay": (REASONED, lambda got: isinstance(got.end, Finish) and bool(got.end.replay_json)),
    "usage_in_stream": (PLAIN, lambda got: got.usage is not None and got.usage.usage.output_tokens > 0),
    "streaming": (PLAIN, lambda got: isinstance(got.end, Finish) and bool(got.text)),
}


async def ask(
    form: WireFormat, request: ModelRequest, answer: bytes = b"", **profile: Any
) -> tuple[Said, list[str]]:
    """What came out, and the bodies that were sent."""
    async with replay_server(Answer(answer or PLAIN[form], piece=50)) as server:
        provider = ProviderProfile(format=form, base_url=server.url, **{"cache_key": True, **profile})
        registry = ModelRegistry(
            ModelSettings(providers={"local": provider}, retries=RetrySettings(attempts=1))
        )
        try:
            async with asyncio.timeout(20):
                got = said([event async for event in registry.resolve("local:m").stream(request)])
        finally:
            await registry.close()
        return got, [json.dumps(seen.json()) for seen in server.seen]


CELLS = [(row.name, form, row.words[FORMATS.index(form)]) for row in CAPABILITIES for form in OURS]


def test_every_row_is_put_to_a_server_and_every_word_is_one() -> None:
    assert {row.name for row in CAPABILITIES} == set(ASKED) | set(ANSWERED)
    for row in CAPABILITIES:
        assert set(row.words) <= {"yes", "no", "degraded"}
        assert row.note or "degraded" not in row.words
        assert row.checked or "no" not in row.words


@pytest.mark.parametrize(("name", "form", "word"), [c for c in CELLS if c[0] in ASKED])
async def test_a_request_carries_what_the_table_promises_or_is_refused(
    name: str, form: WireFormat, word: str
) -> None:
    request, wanted = ASKED[name]
    got, sent = await ask(form, request)
    if word == "no":
        assert form not in wanted
        assert isinstance(got.end, StreamFailure)
        assert got.end.kind is FailureKind.INVALID_REQUEST
        assert not got.end.retryable
        assert not sent
        return
    assert isinstance(got.end, Finish)
    (body,) = sent
    # What has no words of its own there: the address of the call says that it streams.
    assert form in wanted or (name, form) in {("streaming", "gemini")} or name == "usage_in_stream"
    assert wanted.get(form, "") in body


@pytest.mark.parametrize(("name", "form", "word"), [c for c in CELLS if c[0] in ANSWERED])
async def test_an_answer_gives_what_the_table_promises(name: str, form: WireFormat, word: str) -> None:
    bodies, promised = ANSWERED[name]
    got, _ = await ask(form, asking(), bodies[form])
    assert word == "yes"
    assert promised(got)


@pytest.mark.parametrize("form", OURS)
async def test_a_result_that_cannot_be_shown_is_told_to_the_model_in_words(form: WireFormat) -> None:
    clip = MediaPart("video/mp4", b"mp4", filename="a.mp4")
    got, (body,) = await ask(form, after_result(PNG, clip))
    assert isinstance(got.end, Finish)
    shown = form == "gemini"
    assert ("a.mp4 (video/mp4) of 3 bytes is left out" in body) is not shown
    assert ("video/mp4" in body) is True
    assert "iVBORw==" in body


@pytest.mark.parametrize("form", ["anthropic", "gemini"])
async def test_an_effort_that_is_none_is_refused(form: WireFormat) -> None:
    got, sent = await ask(form, ModelRequest("m", (HI,), options=ModelOptions(reasoning_effort="huge")))
    assert isinstance(got.end, StreamFailure)
    assert "medium" in got.end.message
    assert not sent


async def test_an_effort_may_be_told_as_it_is() -> None:
    request = ModelRequest("m", (HI,), options=ModelOptions(reasoning_effort="high"))
    _, (body,) = await ask("anthropic", request, thinking="adaptive")
    assert '"thinking": {"type": "adaptive", "display": "summarized"}' in body
    assert '"output_config": {"effort": "high"}' in body


async def test_images_of_a_kind_that_anthropic_does_not_read_are_refused() -> None:
    got, sent = await ask("anthropic", asking(MediaPart("image/svg+xml", b"<svg/>")))
    assert isinstance(got.end, StreamFailure)
    assert "image/svg+xml" in got.end.message
    assert not sent


async def test_a_profile_says_where_its_server_differs() -> None:
    got, sent = await ask("openai-chat", asking(PNG), capabilities={"images": "no"})
    assert isinstance(got.end, StreamFailure)
    assert not sent
    got, sent = await ask("openai-chat", choosing("required"), capabilities={"tool_choice_required": "no"})
    assert isinstance(got.end, StreamFailure)
    assert not sent
    assert level("openai-responses", {"stop": "yes"}, "stop") == "yes"
    with pytest.raises(ValidationError, match=r"there are .*images"):
        ProviderProfile(capabilities={"pictures": "no"})


def test_a_model_tells_beforehand_what_it_cannot_be_asked_and_which_field_says_so() -> None:
    settings = ModelSettings(
        providers={form: ProviderProfile(format=form, base_url="http://127.0.0.1:9") for form in OURS}
    )
    registry = ModelRegistry(settings)
    model = registry.resolve_all(["anthropic:m", "gemini:m"])
    clip = asking(MediaPart("video/mp4", b"mp4"))
    refusal = model.refusal(clip)
    assert refusal is not None
    assert (refusal.field, "video/mp4" in refusal.why) == ("input.parts[1]", True)
    assert registry.resolve("gemini:m").refusal(clip) is None
    stops = registry.resolve("openai-responses:m").refusal(ASKED["stop"][0])
    assert stops is not None
    assert stops.field == "model_options.stop"
    assert registry.resolve("demo:").refusal(clip) is None


class _Choosy(FakeModel):
    """A model that asks the table of another."""

    def __init__(self, inner: BatchedModel) -> None:
        super().__init__([Finish(FinishReason.STOP)])
        self.refusal = inner.refusal


async def test_what_the_model_cannot_be_asked_is_refused_before_the_turn_exists(tmp_path: Path) -> None:
    profile = ProviderProfile(format="openai-responses", base_url="http://127.0.0.1:9")
    registry = ModelRegistry(ModelSettings(providers={"far": profile}))
    clip = InputPart(kind="blob", data=b"mp4", media_type="video/mp4")
    asked = [
        ({"parts": (InputPart(kind="text", text="Look"), clip)}, "spec.input.parts[1]"),
        ({"options": OptionsSpec(stop=("END",))}, "spec.model_options.stop"),
    ]
    async with rig(tmp_path, _Choosy(registry.resolve("far:m"))) as made:
        for changes, field in asked:
            wanted = command()
            wanted = replace(wanted, spec=wanted.spec.model_copy(update=changes))
            with pytest.raises(InvalidRequest) as caught:
                await made.supervisor.start(wanted)
            assert [v.field for v in caught.value.violations] == [field]
            assert await made.store.find(wanted) is None
        admitted = await made.supervisor.start(command())
        assert await made.ended(admitted.key) is TurnState.COMPLETED
