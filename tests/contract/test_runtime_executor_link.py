"""The runtime's link to an executor: what it makes of answers, silences and things it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.executor.v1 import execution_pb2
from turnwire.api.executor.v1 import tool_executor_service_pb2 as pb
from turnwire.api.executor.v1 import tool_executor_service_pb2_grpc as stubs
from turnwire.core.errors import NotFound, TurnwireError, Unavailable, WrongState
from turnwire.core.settings import ListenSettings
from turnwire.extend.events import ToolOutcome
from turnwire.runtime import executor_link
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionAccepted,
    ExecutionEvent,
    ExecutionProgress,
    ExecutionResult,
    ExecutionStarted,
    ExecutionState,
)
from turnwire.runtime.executor_link import ExecutorLink
from turnwire.wire.channel import open_channel
from turnwire.wire.server import build_server
from turnwire.wire.services import Service

CALL = ExecuteCall(
    "team",
    "threads/t-01/turns/u-01/c-01",
    "threads/t-01",
    "threads/t-01/turns/u-01",
    "c-01",
    "agents/a",
    1,
    7,
    "work",
    '{"a":1}',
    9.5,
)
Answer = Callable[[Any], AsyncIterator[pb.ExecuteResponse]]


@dataclass
class Executor(stubs.ToolExecutorServiceServicer):
    """Answers as each test says."""

    answer: Answer | None = None
    lists: int = 0
    found: pb.LookupExecutionResponse = field(default_factory=pb.LookupExecutionResponse)
    requests: list[Any] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def ListTools(self, request: Any, context: Any) -> pb.ListToolsResponse:
        self.lists += 1
        first = int(request.page_token or 0)
        mode = tool_pb2.EXECUTION_MODE_PARALLEL if first else tool_pb2.EXECUTION_MODE_UNSPECIFIED
        listed = tool_pb2.Tool(name=f"tool-{first}", execution_mode=mode)
        return pb.ListToolsResponse(tools=[listed], next_page_token="" if first else "1")

    async def Execute(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        assert self.answer is not None
        try:
            async for response in self.answer(request):
                yield response
        finally:
            self.left.set()

    async def CancelExecution(self, request: Any, context: Any) -> pb.CancelExecutionResponse:
        self.requests.append(request)
        return pb.CancelExecutionResponse()

    async def LookupExecution(self, request: Any, context: Any) -> pb.LookupExecutionResponse:
        return self.found


@asynccontextmanager
async def linked(executor: Executor, *, by_scope: bool = False) -> AsyncIterator[ExecutorLink]:
    service = Service(stubs.add_ToolExecutorServiceServicer_to_server, executor)
    server = build_server(ListenSettings(reflection=False), [service], roles={})
    port = await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(10):
            yield ExecutorLink(channel, workspace_by_scope=by_scope)
    finally:
        await server.stop(0.0)


def gives(*items: pb.ExecuteResponse | BaseException) -> Answer:
    async def answer(request: Any) -> AsyncIterator[pb.ExecuteResponse]:
        for item in items:
            if isinstance(item, BaseException):
                raise item
            yield item

    return answer


async def events(link: ExecutorLink) -> list[ExecutionEvent]:
    return [event async for event in link.execute(CALL)]


ACCEPTED = pb.ExecuteResponse(accepted=execution_pb2.ExecutionAccepted())
BEAT = pb.ExecuteResponse(heartbeat=execution_pb2.ExecutionHeartbeat())


async def test_a_call_arrives_with_all_that_the_executor_keys_and_limits_it_by() -> None:
    executor = Executor(gives(ACCEPTED))
    async with linked(executor) as link:
        await events(link)
    (request,) = executor.requests
    assert (request.scope, request.execution_id, request.attempt, request.epoch) == (
        "team",
        "threads/t-01/turns/u-01/c-01",
        1,
        7,
    )
    assert request.execution_timeout.ToMilliseconds() == 9500
    assert request.queue_timeout.seconds == 60
    assert (request.context.turn, request.context.agent) == ("threads/t-01/turns/u-01", "agents/a")
    assert request.context.workspace == ""


async def test_with_several_scopes_a_call_works_in_the_folder_of_its_own() -> None:
    executor = Executor(gives(ACCEPTED))
    async with linked(executor, by_scope=True) as link:
        await events(link)
    assert executor.requests[0].context.workspace == "team"


async def test_each_answer_becomes_its_event_and_heartbeats_none() -> None:
    result = execution_pb2.ExecutionResult(
        outcome=tool_pb2.TOOL_OUTCOME_SUCCEEDED, content="done", exit_code=0, cancel_note="n"
    )
    result.overflow.handle = "h-1"
    result.elapsed_duration.nanos = 250_000_000
    started = pb.ExecuteResponse(started=execution_pb2.ExecutionStarted())
    started.started.execution_timeout.seconds = 9
    progress = pb.ExecuteResponse(progress=execution_pb2.ExecutionProgress(text="half"))
    answers = gives(ACCEPTED, started, BEAT, progress, pb.ExecuteResponse(result=result))
    async with linked(Executor(answers)) as link:
        *first, last = await events(link)
    assert first == [ExecutionAccepted(), ExecutionStarted(9.0), ExecutionProgress("half")]
    assert isinstance(last, ExecutionResult)
    assert (last.outcome, last.content, last.exit_code, last.elapsed) == (
        ToolOutcome.SUCCEEDED,
        "done",
        0,
        0.25,
    )
    assert last.overflow is not None
    assert last.overflow.handle == "h-1"


async def test_an_outcome_of_a_later_version_is_no_success() -> None:
    later = pb.ExecuteResponse(result=execution_pb2.ExecutionResult(outcome=99, content="?"))  # type: ignore[arg-type]
    async with linked(Executor(gives(later))) as link:
        (result,) = await events(link)
    assert isinstance(result, ExecutionResult)
    assert result.outcome is ToolOutcome.OUTCOME_UNKNOWN


async def test_what_the_executor_refuses_keeps_class_and_reason() -> None:
    async with linked(Executor(gives(WrongState("old", reason="EPOCH_STALE")))) as link:
        with pytest.raises(WrongState) as caught:
            await events(link)
    assert caught.value.reason == "EPOCH_STALE"
    async with linked(Executor(gives(NotFound("none", reason="TOOL_NOT_FOUND")))) as link:
        with pytest.raises(NotFound):
            await events(link)


async def test_a_stream_that_falls_silent_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_link, "_SILENCE_SECONDS", 0.05)

    async def silent(request: Any) -> AsyncIterator[pb.ExecuteResponse]:
        yield ACCEPTED
        await asyncio.Event().wait()

    executor = Executor(silent)
    async with linked(executor) as link:
        with pytest.raises(Unavailable) as caught:
            await events(link)
        await executor.left.wait()
    assert caught.value.reason == "UNREACHABLE"


async def test_heartbeats_keep_a_silent_stream_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_link, "_SILENCE_SECONDS", 0.3)
    loop = asyncio.get_running_loop()

    async def slow(request: Any) -> AsyncIterator[pb.ExecuteResponse]:
        for _ in range(4):
            beat = asyncio.Event()
            loop.call_later(0.1, beat.set)
            await beat.wait()
            yield BEAT
        yield pb.ExecuteResponse(
            result=execution_pb2.ExecutionResult(outcome=tool_pb2.TOOL_OUTCOME_SUCCEEDED)
        )

    async with linked(Executor(slow)) as link:
        assert len(await events(link)) == 1


async def test_a_turn_that_stops_reading_lets_the_stream_go() -> None:
    async def endless(request: Any) -> AsyncIterator[pb.ExecuteResponse]:
        while True:
            yield ACCEPTED
            await asyncio.sleep(0)

    executor = Executor(endless)
    async with linked(executor) as link:
        stream = link.execute(CALL)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await executor.left.wait()


async def test_a_task_that_is_cancelled_while_it_reads_is_cancelled_and_no_broken_link() -> None:
    async def hangs(request: Any) -> AsyncIterator[pb.ExecuteResponse]:
        yield ACCEPTED
        await asyncio.Event().wait()

    executor = Executor(hangs)
    async with linked(executor) as link:
        reading = asyncio.create_task(events(link))
        while not executor.requests:
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled()


async def test_tools_are_listed_page_by_page_and_kept_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor()
    async with linked(executor) as link:
        one, two = await link.list_tools()
        assert [(t.name, t.parallel) for t in (one, two)] == [("tool-0", False), ("tool-1", True)]
        assert one.execution_timeout == 540.0
        await link.list_tools()
        assert executor.lists == 2
        monkeypatch.setattr(link, "_tools_until", float("-inf"))
        await link.list_tools()
        assert executor.lists == 4


async def test_an_executor_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_link, "_UNARY_TIMEOUT", 0.1)
    async with open_channel("127.0.0.1:1") as channel, asyncio.timeout(10):
        link = ExecutorLink(channel)
        with pytest.raises(Unavailable) as caught:
            await link.list_tools()
        assert caught.value.reason == "EXECUTOR_UNAVAILABLE"
        with pytest.raises(Unavailable) as caught:
            await events(link)
        assert caught.value.reason == "UNREACHABLE"
        with pytest.raises(TurnwireError):
            await link.lookup(CALL)
        with pytest.raises(TurnwireError):
            await link.cancel(CALL, "enough")


async def test_a_lookup_tells_state_and_result() -> None:
    found = pb.LookupExecutionResponse(state=execution_pb2.EXECUTION_STATE_LOST, repeatable=True)
    async with linked(Executor(found=found)) as link:
        answer = await link.lookup(CALL)
        assert (answer.state, answer.repeatable, answer.result) == (ExecutionState.LOST, True, None)
        found.result.outcome = tool_pb2.TOOL_OUTCOME_FAILED
        answer = await link.lookup(CALL)
        assert answer.result is not None
        assert answer.result.outcome is ToolOutcome.FAILED


async def test_a_cancel_carries_its_cause_and_epoch() -> None:
    executor = Executor()
    async with linked(executor) as link:
        await link.cancel(CALL, "x" * 999)
    (request,) = executor.requests
    assert (request.epoch, len(request.cause)) == (7, 500)
