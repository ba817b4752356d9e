"""Models through pydantic-ai: its own test models, and its OpenAI class against a local server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from support.model_replay import Answer, ReplayServer, replay_server
from support.model_streams import Said, said
from turnwire.core.errors import InvalidRequest, WrongState
from turnwire.extend.llm import (
    AssistantMessage,
    FailureKind,
    Finish,
    FinishReason,
    MediaPart,
    ModelOptions,
    ModelRequest,
    StreamFailure,
    SystemMessage,
    TextDelta,
    TextPart,
    TokenUsage,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolMessage,
    UsageProvenance,
    UserMessage,
)
from turnwire.runtime.models import bridge
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.bridge import BridgedModel
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import LimitSettings, ModelSettings, ProviderProfile, RetrySettings

pytest.importorskip("pydantic_ai")

from pydantic_ai import messages as its
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

ROOT = Path(__file__).resolve().parents[3]
TOOL = ToolDefinition(
    "get", "Gets.", '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
)
REQUEST = ModelRequest("ignored", (UserMessage((TextPart("Hi"),)),), (TOOL,))


def bridged(build: Callable[[], Any], limits: LimitSettings | None = None, **profile: Any) -> BridgedModel:
    profile = {"null_finish_ok": True, **profile}
    settings = ProviderProfile(format="pydantic-ai", **profile)
    return BridgedModel("pydantic-ai", "function:f", settings, limits or LimitSettings(), build=build)


def speaking(*pieces: Any, seen: list[Any] | None = None) -> Callable[[], FunctionModel]:
    """A model that says `pieces`; an exception among them is raised where it stands."""

    async def stream(messages: list[its.ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if seen is not None:
            seen.append((messages, info))
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    return lambda: FunctionModel(stream_function=stream)


async def everything(model: BatchedModel, request: ModelRequest = REQUEST) -> Said:
    async with asyncio.timeout(20):
        return said([event async for event in model.stream(request)])


async def test_text_reasoning_and_calls_come_out_whole_and_once() -> None:
    pieces = (
        {0: DeltaThinkingPart(content="Hm. ")},
        {0: DeltaThinkingPart(content="Yes.", signature="signed")},
        "Asking ",
        "now.",
        {2: DeltaToolCall(name="get", json_args='{"a":', tool_call_id="c1")},
        {2: DeltaToolCall(json_args="1}")},
        {3: DeltaToolCall(name="get", json_args='{"a": 2}', tool_call_id="c2")},
    )
    got = await everything(bridged(speaking(*pieces)))
    assert (got.text, got.reasoning) == ("Asking now.", "Hm. Yes.")
    calls = [(c.provider_call_id, c.tool_name, c.arguments_json, c.error) for c in got.calls]
    assert calls == [("c1", "get", '{"a":1}', ""), ("c2", "get", '{"a": 2}', "")]
    assert isinstance(got.end, Finish)
    (block,) = json.loads(got.end.replay_json)
    assert block["type"] == "pydantic-ai.response"


async def test_the_test_model_calls_the_tool_that_it_is_offered() -> None:
    got = await everything(bridged(TestModel))
    assert [(call.tool_name, call.error) for call in got.calls] == [("get", "")]
    assert isinstance(got.end, Finish)


async def test_a_model_that_names_no_reason_has_not_finished_unless_the_profile_says_so() -> None:
    got = await everything(bridged(speaking("The ans"), null_finish_ok=False))
    assert isinstance(got.end, StreamFailure)
    assert (got.end.kind, got.end.partial_content) == (FailureKind.INCOMPLETE, "The ans")
    got = await everything(bridged(speaking("The answer")))
    assert isinstance(got.end, Finish)
    assert got.end.reason is FinishReason.OTHER


async def test_cut_off_arguments_are_an_error_and_not_a_call() -> None:
    got = await everything(
        bridged(speaking({0: DeltaToolCall(name="get", json_args='{"a": "b', tool_call_id="c")}))
    )
    assert "cut off" in got.calls[0].error


async def test_what_was_signed_goes_back_with_our_ids_and_arguments() -> None:
    first = await everything(
        bridged(
            speaking(
                {0: DeltaThinkingPart(content="Hm.", signature="signed")},
                "Asking.",
                {2: DeltaToolCall(name="get", json_args='{"a":1}', tool_call_id="theirs")},
            )
        )
    )
    assert isinstance(first.end, Finish)
    answer = AssistantMessage(
        "Asking.", "Hm.", (ToolCallPart("ours", "get", '{"a": 1}'),), first.end.replay_json
    )
    seen: list[Any] = []
    history = (*REQUEST.messages, answer, ToolMessage("ours", "get", "one"))
    await everything(bridged(speaking("Done.", seen=seen)), ModelRequest("m", history))
    ((messages, _),) = seen
    kept = messages[1]
    assert [part.part_kind for part in kept.parts] == ["thinking", "text", "tool-call"]
    assert kept.parts[0].signature == "signed"
    assert (kept.parts[2].tool_call_id, kept.parts[2].args) == ("ours", '{"a": 1}')
    changed = AssistantMessage("Other.", "", answer.tool_calls, first.end.replay_json)
    seen.clear()
    history = (*REQUEST.messages, changed, ToolMessage("ours", "get", "one"))
    await everything(bridged(speaking("Done.", seen=seen)), ModelRequest("m", history))
    assert [getattr(part, "content", "") for part in seen[0][0][1].parts][:2] == ["Hm.", "Other."]


async def test_the_conversation_its_media_and_the_options_arrive() -> None:
    seen: list[Any] = []
    messages = (
        SystemMessage("Be brief."),
        UserMessage((TextPart("Look"), MediaPart("image/png", b"\x89PNG"))),
        AssistantMessage("Asking.", tool_calls=(ToolCallPart("c", "get", '{"a":1'),)),
        ToolMessage("c", "get", "no", is_error=True, media=(MediaPart("image/png", b"\x89PNG"),)),
        UserMessage((MediaPart("application/pdf", uri="https://example.com/a.pdf"),)),
    )
    options = ModelOptions(0.5, 0.9, 100, ("END",), "low")
    request = ModelRequest("m", messages, (TOOL,), ToolChoice("tool", "get"), options)
    await everything(bridged(speaking("ok", seen=seen), extra_body={"seed": 7}), request)
    ((found, info),) = seen
    assert [message.kind for message in found] == ["request", "response", "request"]
    system, user = found[0].parts
    assert system.content == "Be brief."
    assert user.content[1].data == b"\x89PNG"
    assert found[1].parts[1].args == "{}"
    result, document = found[2].parts
    assert (result.content[0], result.content[1].media_type, result.outcome) == ("no", "image/png", "failed")
    assert document.content[0].url == "https://example.com/a.pdf"
    settings = info.model_settings
    assert settings["tool_choice"] == ["get"]
    assert (settings["temperature"], settings["top_p"], settings["max_tokens"]) == (0.5, 0.9, 100)
    assert (settings["stop_sequences"], settings["seed"], settings["max_retries"]) == (["END"], 7, 0)
    assert [tool.name for tool in info.function_tools] == ["get"]


async def test_an_effort_that_is_none_is_refused_before_anything_is_sent() -> None:
    seen: list[Any] = []
    request = ModelRequest("m", REQUEST.messages, options=ModelOptions(reasoning_effort="huge"))
    got = await everything(bridged(speaking("ok", seen=seen)), request)
    assert isinstance(got.end, StreamFailure)
    assert got.end.kind is FailureKind.INVALID_REQUEST
    assert not seen


async def test_whatever_is_raised_below_is_one_typed_failure_and_keeps_the_text() -> None:
    got = await everything(bridged(speaking("The ans", KeyError("secret"))))
    assert isinstance(got.end, StreamFailure)
    assert (got.end.kind, got.end.partial_content) == (FailureKind.UNKNOWN, "The ans")
    assert "secret" not in got.end.message


async def test_leaving_closes_the_stream_below() -> None:
    closed = asyncio.Event()

    async def stream(messages: list[its.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        try:
            yield "Hel"
            await asyncio.Event().wait()
        finally:
            closed.set()

    model = bridged(lambda: FunctionModel(stream_function=stream))
    async with asyncio.timeout(10):
        async with aclosing(model.stream(REQUEST)) as events:
            assert await anext(events) == TextDelta("Hel")
        await closed.wait()


async def test_a_silent_stream_ends_at_its_limit() -> None:
    async def stream(messages: list[its.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "Hel"
        await asyncio.Event().wait()

    limits = LimitSettings(between_chunks_seconds=0.05)
    got = await everything(bridged(lambda: FunctionModel(stream_function=stream), limits))
    assert isinstance(got.end, StreamFailure)
    assert (got.end.kind, got.end.partial_content) == (FailureKind.TIMEOUT, "Hel")


# --- its OpenAI class, over real sockets ---


def chunk(**fields: Any) -> bytes:
    body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], **fields}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": fields, "finish_reason": finish}]


@asynccontextmanager
async def openai_at(server: ReplayServer) -> AsyncIterator[BatchedModel]:
    profile = ProviderProfile(format="pydantic-ai", base_url=server.url, api_key=SecretStr("key-secret-1"))
    settings = ModelSettings(providers={"pydantic-ai": profile}, retries=RetrySettings(attempts=1))
    registry = ModelRegistry(settings)
    try:
        yield registry.resolve("pydantic-ai:openai-chat:m")
    finally:
        await registry.close()


async def test_usage_that_every_chunk_repeats_is_overwritten_and_not_added_up() -> None:
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "total_tokens": 27,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    body = (
        chunk(choices=delta(content="Hel"), usage=usage | {"completion_tokens": 3, "total_tokens": 23})
        + chunk(choices=delta("stop", content="lo"), usage=usage)
        + chunk(usage=usage)
        + b"data: [DONE]\n\n"
    )
    async with replay_server(Answer(body)) as server, openai_at(server) as model:
        got = await everything(model)
    assert got.text == "Hello"
    assert got.usage is not None
    assert got.usage.usage == TokenUsage(16, 4, 0, 7, 2, UsageProvenance.REPORTED)
    assert isinstance(got.end, Finish)
    assert got.end.reason is FinishReason.STOP
    assert server.seen[0].headers["authorization"] == "Bearer key-secret-1"
    assert model.provider == "pydantic-ai:openai-chat"


async def test_an_error_of_the_provider_is_typed_and_asked_for_once() -> None:
    answer = Answer(
        b'{"error":{"message":"Slow down, key-secret-1","type":"rate_limit_error"}}',
        status=429,
        content_type="application/json",
        headers={"retry-after": "3"},
    )
    async with replay_server(answer) as server, openai_at(server) as model:
        got = await everything(model)
        assert len(server.seen) == 1
    assert isinstance(got.end, StreamFailure)
    assert (got.end.kind, got.end.status_code) == (FailureKind.RATE_LIMIT, 429)
    assert (got.end.retry_after_seconds, got.end.retryable) == (3.0, True)
    assert "key-secret-1" not in got.end.message


async def test_cancelling_the_reader_closes_the_connection() -> None:
    read_one = asyncio.Event()

    async def reader(model: BatchedModel) -> None:
        async for _ in model.stream(REQUEST):
            read_one.set()

    body = chunk(choices=delta(content="Hel"))
    async with replay_server(Answer(body, hang=True)) as server, openai_at(server) as model:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            task = group.create_task(reader(model))
            await read_one.wait()
            task.cancel()
            await server.closed.wait()
        assert task.cancelled()


# --- names ---


def test_a_missing_extra_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not bridge.bridge_installed()
    with pytest.raises(WrongState, match=r"turnwire\[pydantic-ai\]") as caught:
        ModelRegistry(ModelSettings()).resolve("pydantic-ai:bedrock:m")
    assert caught.value.reason == "MODEL_NOT_CONFIGURED"


def test_names_are_for_agents_files_only() -> None:
    registry = ModelRegistry(ModelSettings())
    assert registry.resolve("pydantic-ai:bedrock:m").provider == "pydantic-ai:bedrock"
    for name, from_caller in (("pydantic-ai:bedrock:m", True), ("pydantic-ai:bedrock", False)):
        with pytest.raises(InvalidRequest):
            registry.resolve(name, from_caller=from_caller)


async def test_a_provider_that_is_none_is_a_typed_failure() -> None:
    registry = ModelRegistry(ModelSettings())
    got = await everything(registry.resolve("pydantic-ai:nobody:m"))
    assert isinstance(got.end, StreamFailure)
    assert got.end.kind is FailureKind.INVALID_REQUEST


def test_the_library_is_imported_with_the_first_call_only() -> None:
    code = (
        "import sys; from turnwire.runtime.models.registry import ModelRegistry as R;"
        "from turnwire.runtime.models.settings import ModelSettings as S;"
        "R(S()).resolve('pydantic-ai:openai-chat:m'); sys.exit('pydantic_ai' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "services")})
