"""Models behind HTTP: real sockets, whole and broken answers, limits, and connections that close at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from support.model_replay import Answer, ReplayServer, replay_server
from support.model_streams import Stream, own_streams, read, recorded_streams, said
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    LlmEvent,
    ModelRequest,
    StreamFailure,
    TextDelta,
    TextPart,
    ToolDefinition,
    UserMessage,
)
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import LimitSettings, ModelSettings, ProviderProfile, RetrySettings

REQUEST = ModelRequest("ignored", (UserMessage((TextPart("Hi"),)),))
HELLO = (
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
ONCE = RetrySettings(attempts=1)


@asynccontextmanager
async def model_at(
    server: ReplayServer, limits: LimitSettings | None = None, **profile: Any
) -> AsyncIterator[BatchedModel]:
    profile = {"base_url": server.url, "api_key": SecretStr("key-secret-1"), **profile}
    settings = ModelSettings(
        providers={"local": ProviderProfile(**profile)}, limits=limits or LimitSettings(), retries=ONCE
    )
    registry = ModelRegistry(settings)
    try:
        yield registry.resolve("local:m")
    finally:
        await registry.close()


async def everything(model: BatchedModel, request: ModelRequest = REQUEST) -> list[LlmEvent]:
    async with asyncio.timeout(20):
        return [event async for event in model.stream(request)]


async def test_an_answer_arrives_and_the_request_is_what_it_should_be() -> None:
    async with (
        replay_server(Answer(HELLO)) as server,
        model_at(server, headers={"X-Team": SecretStr("a")}) as m,
    ):
        got = said(await everything(m))
        assert got.text == "Hello"
        (seen,) = server.seen
    assert seen.path == "/chat/completions"
    assert seen.headers["authorization"] == "Bearer key-secret-1"
    assert seen.headers["x-team"] == "a"
    assert seen.json()["model"] == "m"
    assert seen.json()["stream"] is True
    assert (m.name, m.provider) == ("local:m", "local")


async def test_messages_go_to_their_path_with_their_key_header() -> None:
    body = next(stream.body for stream in own_streams() if stream.name == "anthropic-text.sse")
    async with replay_server(Answer(body)) as server, model_at(server, format="anthropic") as model:
        assert said(await everything(model)).text == "Hello wörld"
        (seen,) = server.seen
    assert seen.path == "/v1/messages"
    assert seen.headers["x-api-key"] == "key-secret-1"
    assert seen.headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize("piece", [0, 1, 7])
@pytest.mark.parametrize("stream", own_streams(), ids=lambda stream: stream.name)
async def test_a_stream_over_http_is_the_stream(stream: Stream, piece: int) -> None:
    wanted = said(read(stream.normaliser(), [stream.body]))
    async with (
        replay_server(Answer(stream.body, piece=piece)) as server,
        model_at(server, format=stream.format) as model,
    ):
        got = said(await everything(model))
    assert (got.text, got.reasoning, got.calls, got.usage) == (
        wanted.text,
        wanted.reasoning,
        wanted.calls,
        wanted.usage,
    )
    assert type(got.end) is type(wanted.end)


@pytest.mark.skipif(not recorded_streams(), reason="no recorded streams")
async def test_recorded_streams_over_http_are_the_streams() -> None:
    for stream in recorded_streams():
        wanted = said(read(stream.normaliser(), [stream.body]))
        async with (
            replay_server(Answer(stream.body, piece=1000)) as server,
            model_at(server, format=stream.format) as model,
        ):
            got = said(await everything(model))
        assert (got.text, got.reasoning, got.calls) == (wanted.text, wanted.reasoning, wanted.calls), (
            stream.name
        )
        assert type(got.end) is type(wanted.end), stream.name


async def test_connections_are_used_again() -> None:
    async with replay_server(Answer(HELLO)) as server, model_at(server) as model:
        for _ in range(5):
            await everything(model)
        assert server.connections <= 2


async def test_the_time_of_sending_is_told_before_anything_arrives() -> None:
    gate = asyncio.Semaphore(0)
    sent = asyncio.Event()
    async with replay_server(Answer(HELLO, gate=gate, ungated=0)) as server, model_at(server) as model:
        stream = model.stream(REQUEST, on_sent=sent.set)
        async with aclosing(stream), asyncio.TaskGroup() as group, asyncio.timeout(5):
            first = group.create_task(anext(stream))
            await sent.wait()
            assert not first.done()
            gate.release()
            assert await first == TextDelta("Hel")


async def test_closing_the_stream_closes_the_connection_at_once() -> None:
    async with replay_server(Answer(HELLO[:60], hang=True)) as server, model_at(server) as model:
        stream = model.stream(REQUEST)
        async with asyncio.timeout(5):
            assert await anext(stream) == TextDelta("Hel")
            await stream.aclose()
            await server.closed.wait()


async def test_cancelling_the_reader_closes_the_connection_at_once() -> None:
    read_one = asyncio.Event()

    async def reader(model: BatchedModel) -> None:
        async for _ in model.stream(REQUEST):
            read_one.set()

    async with replay_server(Answer(HELLO[:60], hang=True)) as server, model_at(server) as model:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            task = group.create_task(reader(model))
            await read_one.wait()
            task.cancel()
            await server.closed.wait()
        assert task.cancelled()


async def test_cancelling_before_the_answer_closes_the_connection_at_once() -> None:
    sent = asyncio.Event()

    async def reader(model: BatchedModel) -> None:
        async for _ in model.stream(REQUEST, on_sent=sent.set):
            pass

    async with replay_server(Answer(silent=True)) as server, model_at(server) as model:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            task = group.create_task(reader(model))
            await sent.wait()
            task.cancel()
            await server.closed.wait()
        assert task.cancelled()


# --- broken answers ---


async def test_a_connection_that_breaks_keeps_the_text() -> None:
    answer = Answer(HELLO[:60], reset=True, keep_alive=False)
    async with replay_server(answer) as server, model_at(server) as model:
        end = said(await everything(model)).end
    assert isinstance(end, StreamFailure)
    assert end.kind is FailureKind.CONNECTION
    assert end.partial_content == "Hel"
    assert end.provider == "local"


async def test_a_body_that_ends_early_is_incomplete() -> None:
    async with replay_server(Answer(HELLO, cut=60)) as server, model_at(server) as model:
        end = said(await everything(model)).end
    assert isinstance(end, StreamFailure)
    assert end.kind is FailureKind.INCOMPLETE
    assert end.partial_content == "Hel"


async def test_a_connection_that_breaks_after_the_finish_reason_has_finished() -> None:
    answer = Answer(HELLO.removesuffix(b"data: [DONE]\n\n"), reset=True, keep_alive=False)
    async with replay_server(answer) as server, model_at(server) as model:
        got = said(await everything(model))
    assert isinstance(got.end, Finish)
    assert got.text == "Hello"


async def test_nobody_listens() -> None:
    async with replay_server(Answer(HELLO)) as server:
        pass
    async with model_at(server) as model:
        end = said(await everything(model)).end
    assert isinstance(end, StreamFailure)
    assert end.kind is FailureKind.CONNECTION
    assert end.retryable


async def test_an_http_error_is_a_failure_without_the_key() -> None:
    body = b'{"error":{"message":"No such key: key-secret-1","type":"invalid_request_error"}}'
    answer = Answer(body, status=401, content_type="application/json", headers={"retry-after": "3"})
    async with replay_server(answer) as server, model_at(server) as model:
        (end,) = await everything(model)
    assert isinstance(end, StreamFailure)
    assert (end.kind, end.status_code, end.retry_after_seconds) == (FailureKind.AUTH, 401, 3.0)
    assert end.message == "HTTP 401: No such key: ***"


async def test_redirects_are_not_followed_with_the_key() -> None:
    answer = Answer(status=307, headers={"location": "http://127.0.0.1:9/"})
    async with replay_server(answer) as server, model_at(server) as model:
        (end,) = await everything(model)
    assert isinstance(end, StreamFailure)
    assert end.status_code == 307


async def test_a_request_that_cannot_be_written_is_a_failure_and_is_not_sent() -> None:
    request = ModelRequest("m", REQUEST.messages, (ToolDefinition("t", "", "no schema"),))
    async with replay_server(Answer(HELLO)) as server, model_at(server) as model:
        (end,) = await everything(model, request)
        assert not server.seen
    assert isinstance(end, StreamFailure)
    assert end.kind is FailureKind.INVALID_REQUEST


# --- limits ---


def limits(**seconds: float) -> LimitSettings:
    return LimitSettings(**{f"{name}_seconds": value for name, value in seconds.items()})


@pytest.mark.parametrize(
    ("answer", "limit", "what"),
    [
        (Answer(silent=True), limits(first_chunk=0.05), "no answer began within 0.05 s"),
        (Answer(hang=True), limits(first_chunk=0.05), "no answer began within 0.05 s"),
        (Answer(HELLO[:60], hang=True), limits(between_chunks=0.05), "the answer fell silent for 0.05 s"),
        (Answer(HELLO[:60], hang=True), limits(whole_call=0.1), "the answer took more than 0.1 s"),
    ],
)
async def test_a_limit_that_passes_ends_the_call(answer: Answer, limit: LimitSettings, what: str) -> None:
    async with replay_server(answer) as server, model_at(server, limit) as model:
        end = said(await everything(model)).end
        async with asyncio.timeout(5):
            await server.closed.wait()
    assert isinstance(end, StreamFailure)
    assert (end.kind, end.message) == (FailureKind.TIMEOUT, what)
    assert end.partial_content == ("Hel" if answer.body else "")


async def test_a_reader_that_is_busy_does_not_make_the_answer_silent() -> None:
    gate = asyncio.Semaphore(0)
    answer = Answer(HELLO, piece=60, gate=gate)
    async with replay_server(answer) as server, model_at(server, limits(between_chunks=0.2)) as model:
        found = []
        async with asyncio.timeout(10), aclosing(model.stream(REQUEST)) as stream:
            async for event in stream:
                if not found:
                    # Busy for longer than the limit, on the loop's own clock.
                    loop = asyncio.get_running_loop()
                    passed = asyncio.Event()
                    loop.call_later(0.4, passed.set)
                    await passed.wait()
                    for _ in range(20):
                        gate.release()
                found.append(event)
    assert isinstance(found[-1], Finish)


def test_the_outermost_limit_is_15_s_above_the_longest() -> None:
    assert LimitSettings().request_seconds == 315
    assert limits(first_chunk=400).request_seconds == 415


# --- servers that cannot stream ---

PLAIN = b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'
TOOLS = ModelRequest("m", REQUEST.messages, (ToolDefinition("t", "", "{}"),))


async def test_a_profile_may_ask_without_streaming() -> None:
    answer = Answer(PLAIN, content_type="application/json")
    async with replay_server(answer) as server, model_at(server, streaming=False) as model:
        got = said(await everything(model))
        assert server.seen[0].json()["stream"] is False
    assert got.text == "Hello"
    assert isinstance(got.end, Finish)


async def test_a_server_that_refuses_to_stream_with_tools_is_asked_once_without() -> None:
    refusal = Answer(b'{"error":{"message":"streaming is not supported with tools"}}', status=400)
    waits: list[str] = []
    async with replay_server(refusal, Answer(PLAIN)) as server, model_at(server) as model:
        stream = model.stream(TOOLS, on_wait=lambda what, *_: waits.append(what))
        async with asyncio.timeout(10):
            got = said([event async for event in stream])
        assert [seen.json()["stream"] for seen in server.seen] == [True, False]
    assert got.text == "Hello"
    assert waits == ["model.plain_request"]


async def test_a_server_that_refuses_for_another_reason_is_not_asked_again() -> None:
    refusal = Answer(b'{"error":{"message":"no tools here"}}', status=400)
    async with replay_server(refusal, Answer(PLAIN)) as server, model_at(server) as model:
        (end,) = await everything(model, TOOLS)
        assert len(server.seen) == 1
    assert isinstance(end, StreamFailure)
