"""The runtime's side of the executor's contract. Calls carry no deadline: the executor owns that clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.executor.v1 import execution_pb2
from turnwire.api.executor.v1 import tool_executor_service_pb2 as pb
from turnwire.api.executor.v1 import tool_executor_service_pb2_grpc as stubs
from turnwire.core.errors import Expired, InvalidRequest, NotFound, TurnwireError, Unavailable
from turnwire.extend.events import Overflow, ResultPart, ToolOutcome
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionAccepted,
    ExecutionEvent,
    ExecutionProgress,
    ExecutionResult,
    ExecutionStarted,
    ExecutionState,
    LookupAnswer,
    RiskTier,
    ToolInfo,
)
from turnwire.runtime.event_codec import duration
from turnwire.wire.rpc_errors import error_from_rpc

__all__ = ["ExecutorLink"]

_OUTCOMES = {tool_pb2.ToolOutcome.Value(f"TOOL_OUTCOME_{o.name}"): o for o in ToolOutcome}
_STATES = {execution_pb2.ExecutionState.Value(f"EXECUTION_STATE_{s.name}"): s for s in ExecutionState}
_TIERS = {
    tool_pb2.RISK_TIER_UNSPECIFIED: RiskTier.NORMAL,
    **{tool_pb2.RiskTier.Value(f"RISK_TIER_{t.name}"): t for t in RiskTier},
}
# The tool list is asked for again after this long; a changed list is seen by the next turn.
_TOOLS_FRESH_SECONDS = 5.0
_UNARY_TIMEOUT = 10.0
_ASK_AGAIN_SECONDS = 0.2
# A thread may have thousands of objects.
_PURGE_TIMEOUT = 120.0
# How long a stream may take to end after its result.
_END_SECONDS = 1.0
# The executor sends a heartbeat every 10 s; a stream that is silent for longer is dead.
_SILENCE_SECONDS = 35.0


class ExecutorLink:
    """Implements the engine's `ToolExecutor` over a channel.

    Args:
        workspace_by_scope: gives the tools of each scope a workspace of their own; else all share the root.
    """

    def __init__(self, channel: grpc.aio.Channel, *, workspace_by_scope: bool = False) -> None:
        self._stub = stubs.ToolExecutorServiceStub(channel)
        self._workspace_by_scope = workspace_by_scope
        self._tools: Sequence[ToolInfo] = ()
        self._tools_until = float("-inf")

    async def list_tools(self) -> Sequence[ToolInfo]:
        """Return the tools there are, at most five seconds old.

        Raises:
            Unavailable: EXECUTOR_UNAVAILABLE.
        """
        now = asyncio.get_running_loop().time()
        if now < self._tools_until:
            return self._tools
        found: list[ToolInfo] = []
        token = ""
        while True:
            page = await self._page_of_tools(token, now + _UNARY_TIMEOUT)
            found.extend(_tool(t) for t in page.tools)
            token = page.next_page_token
            if not token:
                break
        self._tools, self._tools_until = tuple(found), now + _TOOLS_FRESH_SECONDS
        return self._tools

    async def _page_of_tools(self, token: str, until: float) -> pb.ListToolsResponse:
        """Ask for a page until a time of the loop, over as many links as break meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                page: pb.ListToolsResponse = await self._stub.ListTools(
                    pb.ListToolsRequest(page_size=200, page_token=token),
                    timeout=until - loop.time(),
                    wait_for_ready=True,
                )
                return page
            except grpc.aio.AioRpcError as error:
                broken = error.code() is grpc.StatusCode.UNAVAILABLE
                if not broken or loop.time() + _ASK_AGAIN_SECONDS >= until:
                    raise _unavailable(error_from_rpc(error)) from error
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def execute(self, call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        """Run or join one call; the last event is its result.

        Raises:
            TurnwireError: what the executor answered, or UNREACHABLE when the link broke.
        """
        workspace = call.scope if self._workspace_by_scope else ""
        stream = self._stub.Execute(_execute_request(call, workspace))
        silence = _Watchdog(stream.cancel)
        try:
            async for response in stream:
                silence.fed()
                event = _event(response)
                if isinstance(event, ExecutionResult):
                    # The call has come to its regular end at the executor before the stream is let go.
                    await _let_end(stream)
                if event is not None:
                    yield event
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
        except asyncio.CancelledError:
            if silence.fired:
                raise Unavailable("the executor fell silent", reason="UNREACHABLE") from None
            raise
        finally:
            silence.close()
            stream.cancel()

    async def cancel(self, call: ExecuteCall, cause: str) -> None:
        """Ask for the call to be stopped."""
        try:
            await self._stub.CancelExecution(
                pb.CancelExecutionRequest(
                    scope=call.scope, execution_id=call.execution_id, epoch=call.epoch, cause=cause[:500]
                ),
                timeout=_UNARY_TIMEOUT,
            )
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error

    async def lookup(self, call: ExecuteCall) -> LookupAnswer:
        """Tell what the executor knows of the call."""
        try:
            found = await self._stub.LookupExecution(
                pb.LookupExecutionRequest(
                    scope=call.scope, execution_id=call.execution_id, attempt=call.attempt
                ),
                timeout=_UNARY_TIMEOUT,
            )
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
        result = _result(found.result) if found.HasField("result") else None
        return LookupAnswer(_STATES[found.state], found.repeatable, result)

    async def purge_thread(self, scope: str, thread: str) -> None:
        """Have everything of a thread removed: what runs, what is known of it, and its results.

        Raises:
            TurnwireError: what the executor answered; repeat later.
        """
        request = pb.PurgeThreadRequest(scope=scope, thread=thread)
        try:
            await self._stub.PurgeThread(request, timeout=_PURGE_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error

    async def read_result(
        self, scope: str, handle: str, read_range: tool_pb2.ReadRange | None
    ) -> AsyncIterator[pb.ReadResultResponse]:
        """Stream bytes of a stored result.

        Raises:
            InvalidRequest, NotFound, Expired: what the executor says of range and result.
            Unavailable: EXECUTOR_UNAVAILABLE, it says anything else, which no caller could mend.
        """
        stream = self._stub.ReadResult(pb.ReadResultRequest(scope=scope, handle=handle, range=read_range))
        try:
            async for chunk in stream:
                yield chunk
        except grpc.aio.AioRpcError as error:
            found = error_from_rpc(error)
            passed_on = isinstance(found, NotFound | Expired | InvalidRequest)
            raise (found if passed_on else _unavailable(found)) from error
        finally:
            stream.cancel()


async def _let_end(stream: grpc.aio.UnaryStreamCall[Any, Any]) -> None:
    """Wait a moment for a stream that has given its result to end by itself."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            async for _ in stream:
                pass
    except (TimeoutError, grpc.aio.AioRpcError):
        # The result is here: how the stream ends after it changes nothing.
        return


class _Watchdog:
    """Cancels a stream that has been silent for too long; one timer, moved on lazily."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._cancel = cancel
        self._fed_at = self._loop.time()
        self._timer = self._loop.call_later(_SILENCE_SECONDS, self._look)
        self.fired = False

    def fed(self) -> None:
        """Note a sign of life."""
        self._fed_at = self._loop.time()

    def _look(self) -> None:
        left = self._fed_at + _SILENCE_SECONDS - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
            return
        self.fired = True
        self._cancel()

    def close(self) -> None:
        """Forget the timer."""
        self._timer.cancel()


def _unavailable(error: TurnwireError) -> TurnwireError:
    return Unavailable(
        f"the tool executor cannot be reached: {error.message}",
        reason="EXECUTOR_UNAVAILABLE",
        retry_after=1.0,
    )


def _execute_request(call: ExecuteCall, workspace: str) -> pb.ExecuteRequest:
    return pb.ExecuteRequest(
        scope=call.scope,
        execution_id=call.execution_id,
        attempt=call.attempt,
        epoch=call.epoch,
        tool_name=call.tool_name,
        arguments_json=call.arguments_json,
        execution_timeout=duration(call.execution_timeout),
        queue_timeout=duration(call.queue_timeout),
        context=execution_pb2.ExecutionContext(
            thread=call.thread,
            turn=call.turn,
            call_id=call.call_id,
            agent=call.agent,
            workspace=workspace,
            traceparent=call.traceparent,
        ),
    )


def _event(response: pb.ExecuteResponse) -> ExecutionEvent | None:
    match response.WhichOneof("event"):
        case "accepted":
            return ExecutionAccepted()
        case "started":
            return ExecutionStarted(_seconds(response.started.execution_timeout))
        case "progress":
            return ExecutionProgress(response.progress.text)
        case "suspended":
            text = "The tool asks for an answer before it goes on, and nobody can give one here."
            return ExecutionResult(ToolOutcome.FAILED, text, True)
        case "result":
            return _result(response.result)
    return None


def _result(result: execution_pb2.ExecutionResult) -> ExecutionResult:
    return ExecutionResult(
        # An outcome that this version does not know is not a success.
        outcome=_OUTCOMES.get(result.outcome, ToolOutcome.OUTCOME_UNKNOWN),
        content=result.content,
        is_error=result.is_error,
        overflow=_overflow(result.overflow) if result.HasField("overflow") else None,
        parts=tuple(
            ResultPart(p.media_type, p.data, _overflow(p.handle) if p.HasField("handle") else None)
            for p in result.parts
        ),
        elapsed=_seconds(result.elapsed_duration),
        execution_timeout=_seconds(result.execution_timeout),
        exit_code=result.exit_code if result.HasField("exit_code") else None,
        cancel_note=result.cancel_note,
    )


def _overflow(handle: tool_pb2.ResultHandle) -> Overflow:
    return Overflow(handle.handle, handle.size_bytes, handle.sha256, handle.media_type)


def _seconds(value: object) -> float:
    return float(value.seconds + value.nanos / 1e9)  # type: ignore[attr-defined]


def _tool(tool: tool_pb2.Tool) -> ToolInfo:
    return ToolInfo(
        name=tool.name,
        description=tool.description,
        input_schema_json=tool.input_schema_json,
        digest=tool.digest,
        output_schema_json=tool.output_schema_json,
        parallel=tool.execution_mode == tool_pb2.EXECUTION_MODE_PARALLEL,
        execution_timeout=_seconds(tool.execution_timeout) or 540.0,
        repeatable=tool.repeatable,
        # A tier that this version does not know is not harmless.
        risk_tier=_TIERS.get(tool.risk_tier, RiskTier.HARDLINE),
    )
