"""Between the wire and the executor's own words: total functions, one each way. Requests are checked here."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.executor.v1 import execution_pb2 as pb
from turnwire.api.executor.v1 import tool_executor_service_pb2 as svc
from turnwire.core.errors import FieldViolation, InvalidRequest
from turnwire.core.ids import ThreadRef
from turnwire.core.text import require_clean
from turnwire.executor.domain import (
    Accepted,
    Event,
    ExecuteCommand,
    ExecutionContext,
    ExecutionKey,
    ExecutionRecord,
    ExecutionState,
    Heartbeat,
    Outcome,
    Part,
    Progress,
    Result,
    ResumeInput,
    Started,
    StoredBytes,
    Suspension,
)
from turnwire.executor.overflow import Unit
from turnwire.executor.workspace import OutsideWorkspace, parts_of
from turnwire.extend.tools import Mode, Risk, SuspendStep, ToolSpec

__all__ = [
    "event_to_proto",
    "execute_command_from_proto",
    "lookup_to_proto",
    "page_from_proto",
    "page_token",
    "range_from_proto",
    "require_cause",
    "require_execution_id",
    "require_handle",
    "require_scope",
    "require_thread",
    "result_to_proto",
    "state_to_proto",
    "suspension_to_proto",
    "tool_to_proto",
]

_EXECUTION_ID = re.compile(r"threads/[a-z0-9-]{4,63}/turns/[a-z0-9-]{4,63}/[A-Za-z0-9._-]{1,80}")
_SCOPE = re.compile(r"[a-z0-9-]{4,63}")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_ARGUMENTS_BYTES = 256 << 10
_MAX_RESUME_BYTES = 256 << 10
_MAX_VARIABLES = 64
_MAX_VARIABLE_BYTES = 4 << 10
_DEFAULT_PAGE, _LARGEST_PAGE = 50, 200

_OUTCOMES: dict[Any, Any] = {o: tool_pb2.ToolOutcome.Value(f"TOOL_OUTCOME_{o.name}") for o in Outcome}
_STATES: dict[Any, Any] = {s: pb.ExecutionState.Value(f"EXECUTION_STATE_{s.name}") for s in ExecutionState}
_MODES: dict[Any, Any] = {m: tool_pb2.ExecutionMode.Value(f"EXECUTION_MODE_{m.name}") for m in Mode}
_RISKS: dict[Any, Any] = {r: tool_pb2.RiskTier.Value(f"RISK_TIER_{r.name}") for r in Risk}
_UNITS = {
    tool_pb2.RANGE_UNIT_UNSPECIFIED: Unit.BYTES,
    tool_pb2.RANGE_UNIT_BYTES: Unit.BYTES,
    tool_pb2.RANGE_UNIT_LINES: Unit.LINES,
}


def _invalid(field: str, description: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} {description}", violations=(FieldViolation(field, description),), field=field
    )


def require_scope(scope: str) -> str:
    """Return the scope unchanged. Raises InvalidRequest."""
    if not _SCOPE.fullmatch(scope):
        raise _invalid("scope", "must be 4 to 63 characters out of a-z, 0-9 and -")
    return scope


def require_execution_id(execution_id: str) -> str:
    """Return the name of a call unchanged. Raises InvalidRequest."""
    if not _EXECUTION_ID.fullmatch(execution_id):
        raise _invalid("execution_id", "must look like threads/{thread}/turns/{turn}/{call_id}")
    return execution_id


def require_cause(cause: str) -> str:
    """Return why a call is to be stopped, unchanged. Raises InvalidRequest."""
    return require_clean(cause, "cause")


def require_handle(handle: str) -> str:
    """Return the handle of a stored result unchanged. Raises InvalidRequest."""
    if not handle:
        raise _invalid("handle", "must not be empty")
    return handle


def require_thread(thread: str) -> str:
    """Return the name of a thread unchanged. Raises InvalidRequest."""
    return ThreadRef.parse(thread, "thread").name


def execute_command_from_proto(request: svc.ExecuteRequest) -> ExecuteCommand:
    """Read a request to run a tool. Raises InvalidRequest with the path of the wrong field."""
    key = ExecutionKey(
        require_scope(request.scope), require_execution_id(request.execution_id), request.attempt
    )
    if request.attempt < 1:
        raise _invalid("attempt", "counts from 1")
    if not _TOOL_NAME.fullmatch(request.tool_name):
        raise _invalid("tool_name", "must match [a-zA-Z0-9_-]{1,64}")
    if len(request.arguments_json.encode()) > _MAX_ARGUMENTS_BYTES:
        raise _invalid("arguments_json", f"must be at most {_MAX_ARGUMENTS_BYTES} bytes")
    return ExecuteCommand(
        key=key,
        tool_name=request.tool_name,
        arguments_json=require_clean(request.arguments_json, "arguments_json"),
        epoch=request.epoch,
        execution_timeout=_timeout(request, "execution_timeout"),
        queue_timeout=_timeout(request, "queue_timeout"),
        max_result_chars=request.max_result_chars,
        context=_context(request.context),
        resume=_resume(request.resume) if request.HasField("resume") else None,
    )


def _timeout(request: svc.ExecuteRequest, field: str) -> float | None:
    if not request.HasField(field):
        return None
    value: Duration = getattr(request, field)
    seconds = value.seconds + value.nanos / 1e9
    if seconds < 0 or (seconds == 0 and field == "execution_timeout"):
        raise _invalid(field, "must be above zero")
    return seconds


def _context(context: pb.ExecutionContext) -> ExecutionContext:
    variables = dict(context.variables)
    if len(variables) > _MAX_VARIABLES:
        raise _invalid("context.variables", f"must have at most {_MAX_VARIABLES} entries")
    for name, value in variables.items():
        require_clean(name + value, "context.variables")
        if len(value.encode()) > _MAX_VARIABLE_BYTES:
            raise _invalid("context.variables", f"must have values of at most {_MAX_VARIABLE_BYTES} bytes")
    try:
        parts_of(context.workspace)
    except OutsideWorkspace:
        raise _invalid("context.workspace", "must be a relative path without ..") from None
    return ExecutionContext(
        thread=require_clean(context.thread, "context.thread"),
        turn=require_clean(context.turn, "context.turn"),
        call_id=require_clean(context.call_id, "context.call_id"),
        agent=require_clean(context.agent, "context.agent"),
        workspace=context.workspace,
        traceparent=require_clean(context.traceparent, "context.traceparent"),
        variables=variables,
    )


def _resume(resume: pb.ResumeInput) -> ResumeInput:
    for field in ("payload_json", "state_json"):
        text = getattr(resume, field)
        if len(text) > _MAX_RESUME_BYTES:
            raise _invalid(f"resume.{field}", f"must be at most {_MAX_RESUME_BYTES} bytes")
        try:
            json.loads(text or "null")
        except (ValueError, RecursionError):
            raise _invalid(f"resume.{field}", "must be JSON") from None
    step = require_clean(resume.step, "resume.step")
    return ResumeInput(step, resume.payload_json, resume.state_json)


def range_from_proto(read_range: tool_pb2.ReadRange) -> tuple[Unit, int, int]:
    """Read unit, offset and length; absent means all bytes. Raises InvalidRequest."""
    unit = _UNITS.get(read_range.unit)
    if unit is None:
        raise _invalid("range.unit", "is not a unit of this version")
    return unit, read_range.offset, read_range.length


def page_from_proto(request: svc.ListToolsRequest, digest: str) -> tuple[str, int]:
    """Give the name after which the page starts, and its size.

    Raises InvalidRequest: a negative size, or PAGE_TOKEN_MISMATCH when the tools have changed meanwhile.
    """
    if request.page_size < 0:
        raise _invalid("page_size", "must not be negative")
    size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
    if not request.page_token:
        return "", size
    try:
        bound, _, after = base64.urlsafe_b64decode(request.page_token).decode().partition(" ")
    except ValueError:
        bound, after = "", ""
    if bound != digest[:16]:
        raise InvalidRequest(
            "page_token belongs to another list: begin again without it", reason="PAGE_TOKEN_MISMATCH"
        )
    return after, size


def page_token(after: str, digest: str) -> str:
    """Write the token for going on after a tool."""
    return base64.urlsafe_b64encode(f"{digest[:16]} {after}".encode()).decode()


def event_to_proto(event: Event) -> svc.ExecuteResponse:
    """Write one thing that happened."""
    match event:
        case Accepted():
            accepted = pb.ExecutionAccepted(joined=event.joined, queue_position=event.queue_position)
            return svc.ExecuteResponse(accepted=accepted)
        case Started():
            return svc.ExecuteResponse(
                started=pb.ExecutionStarted(
                    start_time=_time(event.start_time), execution_timeout=_duration(event.execution_timeout)
                )
            )
        case Progress():
            return svc.ExecuteResponse(progress=pb.ExecutionProgress(text=event.text))
        case Heartbeat():
            beat = pb.ExecutionHeartbeat(elapsed_duration=_duration(event.elapsed))
            return svc.ExecuteResponse(heartbeat=beat)
        case Suspension():
            return svc.ExecuteResponse(suspended=suspension_to_proto(event))
        case Result():
            return svc.ExecuteResponse(result=result_to_proto(event))


def result_to_proto(result: Result) -> pb.ExecutionResult:
    """Write the end of an execution."""
    message = pb.ExecutionResult(
        outcome=_OUTCOMES[result.outcome],
        content=result.content,
        is_error=result.is_error,
        overflow=_handle(result.overflow),
        parts=[_part(part) for part in result.parts],
        elapsed_duration=_duration(result.elapsed),
        execution_timeout=_duration(result.execution_timeout),
        cancel_note=result.cancel_note,
        total_chars=result.total_chars,
    )
    if result.exit_code is not None:
        message.exit_code = result.exit_code
    return message


def suspension_to_proto(suspension: Suspension) -> pb.ExecutionSuspended:
    """Write an open question."""
    return pb.ExecutionSuspended(
        step=suspension.step,
        payload_json=suspension.payload_json,
        resume_schema_json=suspension.resume_schema_json,
        state_json=suspension.state_json,
        resume_timeout=_duration(suspension.resume_timeout),
    )


def state_to_proto(state: ExecutionState) -> Any:
    """Write a state."""
    return _STATES[state]


def lookup_to_proto(record: ExecutionRecord | None) -> svc.LookupExecutionResponse:
    """Write what is known of an execution; None is the state NOT_FOUND."""
    if record is None:
        return svc.LookupExecutionResponse(state=_STATES[ExecutionState.NOT_FOUND])
    return svc.LookupExecutionResponse(
        state=_STATES[record.state],
        attempt=record.key.attempt,
        repeatable=record.repeatable,
        result=result_to_proto(record.end) if isinstance(record.end, Result) else None,
        suspended=suspension_to_proto(record.end) if isinstance(record.end, Suspension) else None,
        arguments_sha256=record.arguments_sha256,
    )


def tool_to_proto(spec: ToolSpec, default_timeout: float) -> tool_pb2.Tool:
    """Write what a tool promises; `default_timeout` (seconds) stands where the tool names none."""
    return tool_pb2.Tool(
        name=spec.name,
        description=spec.description,
        input_schema_json=_json(spec.input_schema),
        output_schema_json=_json(spec.output_schema) if spec.output_schema is not None else "",
        digest=spec.digest,
        execution_mode=_MODES[spec.mode],
        execution_timeout=_duration(
            spec.timeout.total_seconds() if spec.timeout is not None else default_timeout
        ),
        repeatable=spec.repeatable,
        risk_tier=_RISKS[spec.risk],
        suspend_steps=_steps(spec.suspend_steps),
    )


def _steps(steps: Sequence[SuspendStep]) -> list[tool_pb2.SuspendStep]:
    return [
        tool_pb2.SuspendStep(
            name=step.name,
            payload_schema_json=_json(step.payload_schema),
            resume_schema_json=_json(step.resume_schema),
            resume_timeout=_duration(step.timeout.total_seconds()),
        )
        for step in steps
    ]


def _part(part: Part) -> tool_pb2.ResultPart:
    return tool_pb2.ResultPart(media_type=part.media_type, data=part.data, handle=_handle(part.stored))


def _handle(stored: StoredBytes | None) -> tool_pb2.ResultHandle | None:
    if stored is None:
        return None
    return tool_pb2.ResultHandle(
        handle=stored.handle,
        size_bytes=stored.size_bytes,
        sha256=stored.sha256,
        media_type=stored.media_type,
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _duration(seconds: float) -> Duration:
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)


def _time(nanos: int) -> Timestamp:
    return Timestamp(seconds=nanos // 10**9, nanos=nanos % 10**9)
