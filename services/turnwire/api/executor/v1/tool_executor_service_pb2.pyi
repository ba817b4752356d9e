import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from turnwire.api.common.v1 import tool_pb2 as _tool_pb2
from turnwire.api.executor.v1 import execution_pb2 as _execution_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListToolsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ("tools", "next_page_token", "digest")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[_tool_pb2.Tool]
    next_page_token: str
    digest: str
    def __init__(self, tools: _Optional[_Iterable[_Union[_tool_pb2.Tool, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("scope", "execution_id", "attempt", "epoch", "tool_name", "arguments_json", "execution_timeout", "queue_timeout", "max_result_chars", "context", "resume")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULT_CHARS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    scope: str
    execution_id: str
    attempt: int
    epoch: int
    tool_name: str
    arguments_json: str
    execution_timeout: _duration_pb2.Duration
    queue_timeout: _duration_pb2.Duration
    max_result_chars: int
    context: _execution_pb2.ExecutionContext
    resume: _execution_pb2.ResumeInput
    def __init__(self, scope: _Optional[str] = ..., execution_id: _Optional[str] = ..., attempt: _Optional[int] = ..., epoch: _Optional[int] = ..., tool_name: _Optional[str] = ..., arguments_json: _Optional[str] = ..., execution_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., queue_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_result_chars: _Optional[int] = ..., context: _Optional[_Union[_execution_pb2.ExecutionContext, _Mapping]] = ..., resume: _Optional[_Union[_execution_pb2.ResumeInput, _Mapping]] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("accepted", "started", "progress", "suspended", "result", "heartbeat")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    accepted: _execution_pb2.ExecutionAccepted
    started: _execution_pb2.ExecutionStarted
    progress: _execution_pb2.ExecutionProgress
    suspended: _execution_pb2.ExecutionSuspended
    result: _execution_pb2.ExecutionResult
    heartbeat: _execution_pb2.ExecutionHeartbeat
    def __init__(self, accepted: _Optional[_Union[_execution_pb2.ExecutionAccepted, _Mapping]] = ..., started: _Optional[_Union[_execution_pb2.ExecutionStarted, _Mapping]] = ..., progress: _Optional[_Union[_execution_pb2.ExecutionProgress, _Mapping]] = ..., suspended: _Optional[_Union[_execution_pb2.ExecutionSuspended, _Mapping]] = ..., result: _Optional[_Union[_execution_pb2.ExecutionResult, _Mapping]] = ..., heartbeat: _Optional[_Union[_execution_pb2.ExecutionHeartbeat, _Mapping]] = ...) -> None: ...

class CancelExecutionRequest(_message.Message):
    __slots__ = ("scope", "execution_id", "epoch", "cause")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    execution_id: str
    epoch: int
    cause: str
    def __init__(self, scope: _Optional[str] = ..., execution_id: _Optional[str] = ..., epoch: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class CancelExecutionResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: _execution_pb2.ExecutionState
    def __init__(self, state: _Optional[_Union[_execution_pb2.ExecutionState, str]] = ...) -> None: ...

class LookupExecutionRequest(_message.Message):
    __slots__ = ("scope", "execution_id", "attempt")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    scope: str
    execution_id: str
    attempt: int
    def __init__(self, scope: _Optional[str] = ..., execution_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class LookupExecutionResponse(_message.Message):
    __slots__ = ("state", "attempt", "repeatable", "result", "suspended", "arguments_sha256")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REPEATABLE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_SHA256_FIELD_NUMBER: _ClassVar[int]
    state: _execution_pb2.ExecutionState
    attempt: int
    repeatable: bool
    result: _execution_pb2.ExecutionResult
    suspended: _execution_pb2.ExecutionSuspended
    arguments_sha256: str
    def __init__(self, state: _Optional[_Union[_execution_pb2.ExecutionState, str]] = ..., attempt: _Optional[int] = ..., repeatable: _Optional[bool] = ..., result: _Optional[_Union[_execution_pb2.ExecutionResult, _Mapping]] = ..., suspended: _Optional[_Union[_execution_pb2.ExecutionSuspended, _Mapping]] = ..., arguments_sha256: _Optional[str] = ...) -> None: ...

class ReadResultRequest(_message.Message):
    __slots__ = ("scope", "handle", "range")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    handle: str
    range: _tool_pb2.ReadRange
    def __init__(self, scope: _Optional[str] = ..., handle: _Optional[str] = ..., range: _Optional[_Union[_tool_pb2.ReadRange, _Mapping]] = ...) -> None: ...

class ReadResultResponse(_message.Message):
    __slots__ = ("data", "offset_bytes", "size_bytes")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset_bytes: int
    size_bytes: int
    def __init__(self, data: _Optional[bytes] = ..., offset_bytes: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class PurgeThreadRequest(_message.Message):
    __slots__ = ("scope", "thread")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    scope: str
    thread: str
    def __init__(self, scope: _Optional[str] = ..., thread: _Optional[str] = ...) -> None: ...

class PurgeThreadResponse(_message.Message):
    __slots__ = ("purged_executions", "purged_results")
    PURGED_EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    PURGED_RESULTS_FIELD_NUMBER: _ClassVar[int]
    purged_executions: int
    purged_results: int
    def __init__(self, purged_executions: _Optional[int] = ..., purged_results: _Optional[int] = ...) -> None: ...
