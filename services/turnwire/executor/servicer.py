"""The contract's methods: check the request, ask the supervisor, write the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from turnwire.api.executor.v1 import tool_executor_service_pb2 as svc
from turnwire.api.executor.v1 import tool_executor_service_pb2_grpc as grpc_stubs
from turnwire.core.logs import bind
from turnwire.executor import codec
from turnwire.executor.catalog import Catalog
from turnwire.executor.domain import Accepted, ExecutionRecord
from turnwire.executor.ledger import Ledger
from turnwire.executor.overflow import Overflow
from turnwire.executor.runs import Ended, Runs

__all__ = ["SERVICE", "ToolExecutorServicer", "executor_roles"]

SERVICE = "turnwire.api.executor.v1.ToolExecutorService"
# A page closes here too: long schemas would not fit one message.
_PAGE_BYTES = 1 << 20
_METHODS = ("ListTools", "Execute", "CancelExecution", "LookupExecution", "ReadResult", "PurgeThread")


def executor_roles() -> dict[str, frozenset[str]]:
    """Give the table of roles: only the other services reach the executor."""
    return {f"/{SERVICE}/{method}": frozenset({"runtime", "control"}) for method in _METHODS}


class ToolExecutorServicer(grpc_stubs.ToolExecutorServiceServicer):
    """Serves the contract over one supervisor, ledger and store."""

    def __init__(
        self,
        catalog: Catalog,
        runs: Runs,
        ledger: Ledger,
        overflow: Overflow,
        *,
        default_timeout: float,
        heartbeat_seconds: float,
    ) -> None:
        self._catalog = catalog
        self._runs = runs
        self._ledger = ledger
        self._overflow = overflow
        self._default_timeout = default_timeout
        self._heartbeat_seconds = heartbeat_seconds

    async def ListTools(self, request: svc.ListToolsRequest, context: Any) -> svc.ListToolsResponse:
        """List the tools by name, a page at a time."""
        after, size = codec.page_from_proto(request, self._catalog.digest)
        rest = [spec for spec in self._catalog.specs if spec.name > after]
        answer = svc.ListToolsResponse(digest=self._catalog.digest)
        room = _PAGE_BYTES
        for spec in rest[:size]:
            tool = codec.tool_to_proto(spec, self._default_timeout)
            room -= tool.ByteSize()
            if room < 0 and answer.tools:
                break
            answer.tools.append(tool)
        if len(answer.tools) < len(rest):
            answer.next_page_token = codec.page_token(answer.tools[-1].name, self._catalog.digest)
        return answer

    async def Execute(self, request: svc.ExecuteRequest, context: Any) -> AsyncIterator[svc.ExecuteResponse]:
        """Start or join an execution and follow it to its end."""
        command = codec.execute_command_from_proto(request)
        bind(execution=command.key.execution_id, tool=command.tool_name)
        found = await self._runs.execute(command)
        if isinstance(found, Ended):
            yield codec.event_to_proto(Accepted(joined=True))
            if found.started is not None:
                yield codec.event_to_proto(found.started)
            yield codec.event_to_proto(found.end)
            return
        run, joined = found
        watch = run.watch(joined=joined, heartbeat_seconds=self._heartbeat_seconds)
        try:
            async for event in watch:
                yield codec.event_to_proto(event)
        finally:
            watch.close()

    async def CancelExecution(
        self, request: svc.CancelExecutionRequest, context: Any
    ) -> svc.CancelExecutionResponse:
        """Ask for a stop and return at once."""
        state = await self._runs.cancel(
            codec.require_scope(request.scope),
            codec.require_execution_id(request.execution_id),
            request.epoch,
            codec.require_cause(request.cause),
        )
        return svc.CancelExecutionResponse(state=codec.state_to_proto(state))

    async def LookupExecution(
        self, request: svc.LookupExecutionRequest, context: Any
    ) -> svc.LookupExecutionResponse:
        """Tell what is known: what runs here, else what the ledger holds."""
        scope = codec.require_scope(request.scope)
        execution_id = codec.require_execution_id(request.execution_id)
        run = self._runs.find_live(scope, execution_id, request.attempt)
        if run is not None:
            return codec.lookup_to_proto(
                ExecutionRecord(
                    key=run.command.key,
                    state=run.state,
                    tool_name=run.command.tool_name,
                    arguments_sha256=run.arguments_sha256,
                    repeatable=self._catalog.body(run.command.tool_name).spec.repeatable,
                    end=run.end,
                )
            )
        snapshot = await self._ledger.snapshot(scope, execution_id)
        return codec.lookup_to_proto(snapshot.attempt(request.attempt))

    async def ReadResult(
        self, request: svc.ReadResultRequest, context: Any
    ) -> AsyncIterator[svc.ReadResultResponse]:
        """Stream a range of a stored result."""
        scope = codec.require_scope(request.scope)
        unit, offset, length = codec.range_from_proto(request.range)
        handle = codec.require_handle(request.handle)
        chunks = self._overflow.read(scope, handle, unit, offset, length)
        async for chunk in chunks:
            yield svc.ReadResultResponse(data=chunk.data, offset_bytes=chunk.offset, size_bytes=chunk.size)

    async def PurgeThread(self, request: svc.PurgeThreadRequest, context: Any) -> svc.PurgeThreadResponse:
        """Stop what runs for a thread, then remove its rows and results."""
        scope = codec.require_scope(request.scope)
        thread = codec.require_thread(request.thread)
        await self._runs.stop_thread(scope, thread)
        results = await self._overflow.delete_thread(scope, thread)
        executions = await self._ledger.purge_thread(scope, thread)
        return svc.PurgeThreadResponse(purged_executions=executions, purged_results=results)
