"""Streams and cancellation through the whole stack of interceptors, with and without tracing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.wire_echo import Echo, running, text
from turnwire.core import logs
from turnwire.core.errors import Unavailable
from turnwire.wire.tracing import LONG_STREAMS


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture(params=["plain", "traced"])
def options(request: pytest.FixtureRequest, provider: TracerProvider) -> dict[str, Any]:
    return {"provider": provider} if request.param == "traced" else {}


async def test_all_shapes_work_through_every_interceptor(options: dict[str, Any]) -> None:
    async with running(**options) as rig:
        assert (await rig.stub.unary(text("a"))).value == "a"
        assert [message.value async for message in rig.stub.stream(text("b"))] == ["b", "b"]
        assert [m.value async for m in rig.stub.connect(iter([text("c"), text("d")]))] == ["c", "d"]
        assert (await rig.stub.collect(iter([text("e"), text("f")]))).value == "ef"


async def test_encoded_messages_pass_as_they_are_next_to_message_objects(options: dict[str, Any]) -> None:
    async def pages(request: Any, context: Any) -> AsyncIterator[Any]:
        yield text("encoded").SerializeToString()
        yield text("object")

    async with running(Echo(stream=pages), passthrough=("Stream",), **options) as rig:
        assert [m.value async for m in rig.stub.stream(text("x"))] == ["encoded", "object"]


async def test_when_the_caller_cancels_the_generator_ends_in_the_task_of_its_call(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tasks: list[asyncio.Task[Any] | None] = []
    ended = asyncio.Event()

    async def endless(request: Any, context: Any) -> AsyncIterator[Any]:
        tasks.append(asyncio.current_task())
        try:
            while True:
                yield text("x" * 30_000)
        finally:
            tasks.append(asyncio.current_task())
            ended.set()

    async with running(Echo(stream=endless), **options) as rig, asyncio.timeout(10):
        call = rig.stub.stream(text("x"))
        await call.read()
        # The caller reads no more, so flow control blocks the server within a write.
        assert call.cancel()
        await ended.wait()
    assert tasks[0] is tasks[1]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_cancelled_stream_leaves_no_error_line(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ended = asyncio.Event()

    async def waiting(request: Any, context: Any) -> AsyncIterator[Any]:
        context.add_done_callback(lambda _: ended.set())
        yield request
        await asyncio.Event().wait()

    async with running(Echo(stream=waiting), **options) as rig, asyncio.timeout(10):
        call = rig.stub.stream(text("x"))
        await call.read()
        call.cancel()
        await ended.wait()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    lines = [vars(record) for record in caplog.records if record.getMessage() == "rpc.finished"]
    assert [(line["method"], line["code"]) for line in lines] == [("/test.Echo/Stream", "CANCELLED")]


async def test_a_cancelled_unary_call_is_cancelled_inside(options: dict[str, Any]) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(request: Any, context: Any) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with running(Echo(unary=hang), **options) as rig, asyncio.timeout(10):
        call = rig.stub.unary(text("x"))
        waiter = asyncio.ensure_future(call)
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        await cancelled.wait()


async def test_a_failing_generator_after_the_first_message_still_answers(options: dict[str, Any]) -> None:
    async def fails(request: Any, context: Any) -> AsyncIterator[Any]:
        yield request
        raise Unavailable("later", reason="READER_STALLED")

    async with running(Echo(stream=fails), **options) as rig:
        call = rig.stub.stream(text("x"))
        assert (await call.read()).value == "x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_two_way_handler_may_use_a_task_group(options: dict[str, Any]) -> None:
    async def connect(requests: Any, context: Any) -> None:
        async def reader() -> None:
            async for request in requests:
                await context.write(request)

        async with asyncio.TaskGroup() as group:
            group.create_task(reader())

    async with running(Echo(connect=connect), **options) as rig:
        call = rig.stub.connect()
        await call.write(text("a"))
        assert (await call.read()).value == "a"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_one_line_per_call_carries_what_the_handler_bound(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[dict[str, Any]] = []

    class Capture(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append({**logs.bound_fields(), **vars(record)})

    capture = Capture()
    logging.getLogger("turnwire.wire.calls").addHandler(capture)

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        logs.bind(turn=request.value)
        yield request

    try:
        async with running(Echo(stream=handler), **options) as rig:
            for turn in ("one", "two"):
                async for _ in rig.stub.stream(text(turn)):
                    pass
    finally:
        logging.getLogger("turnwire.wire.calls").removeHandler(capture)
    assert [(line["turn"], line["code"]) for line in seen] == [("one", "OK"), ("two", "OK")]
    assert logs.bound_fields() == {}


async def test_spans_carry_the_status_and_the_callers_trace_in_both_shapes(
    provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    inside: list[int] = []

    async def fail(request: Any, context: Any) -> Any:
        inside.append(trace.get_current_span().get_span_context().trace_id)
        raise Unavailable("later")

    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        inside.append(trace.get_current_span().get_span_context().trace_id)
        yield request

    async with running(Echo(unary=fail, stream=stream), provider=provider) as rig:
        with provider.get_tracer("test").start_as_current_span("caller") as caller:
            trace_id = caller.get_span_context().trace_id
            with pytest.raises(grpc.aio.AioRpcError):
                await rig.stub.unary(text("x"))
            async for _ in rig.stub.stream(text("x")):
                pass
    finished = {span.name: span for span in spans.get_finished_spans()}
    assert inside == [trace_id, trace_id]
    for name, code in (("/test.Echo/Unary", 14), ("/test.Echo/Stream", 0)):
        assert finished[name].context.trace_id == trace_id
        assert finished[name].attributes is not None
        assert finished[name].attributes["rpc.grpc.status_code"] == code
    assert finished["/test.Echo/Unary"].status.is_ok is False


async def test_the_callers_trace_crosses_without_any_provider() -> None:
    inside: list[str] = []

    async def handler(request: Any, context: Any) -> Any:
        inside.append(f"{trace.get_current_span().get_span_context().trace_id:032x}")
        return request

    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with running(Echo(unary=handler)) as rig:
        await rig.stub.unary(text("x"), metadata=(("traceparent", f"00-{trace_id}-b7ad6b7169203331-01"),))
        await rig.stub.unary(text("x"))
    assert inside == [trace_id, "0" * 32]


async def test_long_streams_get_no_span(provider: TracerProvider, spans: InMemorySpanExporter) -> None:
    assert "Connect" in LONG_STREAMS
    async with running(provider=provider) as rig:
        assert [m.value async for m in rig.stub.connect(iter([text("c")]))] == ["c"]
    assert spans.get_finished_spans() == ()
