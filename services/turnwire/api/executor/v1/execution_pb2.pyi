import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnwire.api.common.v1 import tool_pb2 as _tool_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecutionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXECUTION_STATE_UNSPECIFIED: _ClassVar[ExecutionState]
    EXECUTION_STATE_NOT_FOUND: _ClassVar[ExecutionState]
    EXECUTION_STATE_ACCEPTED: _ClassVar[ExecutionState]
    EXECUTION_STATE_STARTED: _ClassVar[ExecutionState]
    EXECUTION_STATE_SUSPENDED: _ClassVar[ExecutionState]
    EXECUTION_STATE_FINISHED: _ClassVar[ExecutionState]
    EXECUTION_STATE_LOST: _ClassVar[ExecutionState]
EXECUTION_STATE_UNSPECIFIED: ExecutionState
EXECUTION_STATE_NOT_FOUND: ExecutionState
EXECUTION_STATE_ACCEPTED: ExecutionState
EXECUTION_STATE_STARTED: ExecutionState
EXECUTION_STATE_SUSPENDED: ExecutionState
EXECUTION_STATE_FINISHED: ExecutionState
EXECUTION_STATE_LOST: ExecutionState

class ExecutionContext(_message.Message):
    __slots__ = ("thread", "turn", "call_id", "agent", "workspace", "traceparent", "variables")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    THREAD_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    thread: str
    turn: str
    call_id: str
    agent: str
    workspace: str
    traceparent: str
    variables: _containers.ScalarMap[str, str]
    def __init__(self, thread: _Optional[str] = ..., turn: _Optional[str] = ..., call_id: _Optional[str] = ..., agent: _Optional[str] = ..., workspace: _Optional[str] = ..., traceparent: _Optional[str] = ..., variables: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ResumeInput(_message.Message):
    __slots__ = ("step", "payload_json", "state_json")
    STEP_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    STATE_JSON_FIELD_NUMBER: _ClassVar[int]
    step: str
    payload_json: str
    state_json: str
    def __init__(self, step: _Optional[str] = ..., payload_json: _Optional[str] = ..., state_json: _Optional[str] = ...) -> None: ...

class ExecutionAccepted(_message.Message):
    __slots__ = ("joined", "queue_position")
    JOINED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    joined: bool
    queue_position: int
    def __init__(self, joined: _Optional[bool] = ..., queue_position: _Optional[int] = ...) -> None: ...

class ExecutionStarted(_message.Message):
    __slots__ = ("start_time", "execution_timeout")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    start_time: _timestamp_pb2.Timestamp
    execution_timeout: _duration_pb2.Duration
    def __init__(self, start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., execution_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ExecutionProgress(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ExecutionSuspended(_message.Message):
    __slots__ = ("step", "payload_json", "resume_schema_json", "state_json", "resume_timeout")
    STEP_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    RESUME_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    STATE_JSON_FIELD_NUMBER: _ClassVar[int]
    RESUME_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    step: str
    payload_json: str
    resume_schema_json: str
    state_json: str
    resume_timeout: _duration_pb2.Duration
    def __init__(self, step: _Optional[str] = ..., payload_json: _Optional[str] = ..., resume_schema_json: _Optional[str] = ..., state_json: _Optional[str] = ..., resume_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ExecutionHeartbeat(_message.Message):
    __slots__ = ("elapsed_duration",)
    ELAPSED_DURATION_FIELD_NUMBER: _ClassVar[int]
    elapsed_duration: _duration_pb2.Duration
    def __init__(self, elapsed_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ExecutionResult(_message.Message):
    __slots__ = ("outcome", "content", "is_error", "overflow", "parts", "elapsed_duration", "execution_timeout", "exit_code", "cancel_note", "total_chars")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_DURATION_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_NOTE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CHARS_FIELD_NUMBER: _ClassVar[int]
    outcome: _tool_pb2.ToolOutcome
    content: str
    is_error: bool
    overflow: _tool_pb2.ResultHandle
    parts: _containers.RepeatedCompositeFieldContainer[_tool_pb2.ResultPart]
    elapsed_duration: _duration_pb2.Duration
    execution_timeout: _duration_pb2.Duration
    exit_code: int
    cancel_note: str
    total_chars: int
    def __init__(self, outcome: _Optional[_Union[_tool_pb2.ToolOutcome, str]] = ..., content: _Optional[str] = ..., is_error: _Optional[bool] = ..., overflow: _Optional[_Union[_tool_pb2.ResultHandle, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[_tool_pb2.ResultPart, _Mapping]]] = ..., elapsed_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., execution_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., exit_code: _Optional[int] = ..., cancel_note: _Optional[str] = ..., total_chars: _Optional[int] = ...) -> None: ...
