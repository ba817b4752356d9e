import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_TOOL_CALLS: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_CONTENT_FILTER: _ClassVar[FinishReason]
    FINISH_REASON_REFUSAL: _ClassVar[FinishReason]
    FINISH_REASON_PAUSE: _ClassVar[FinishReason]
    FINISH_REASON_OTHER: _ClassVar[FinishReason]

class FailureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_KIND_UNSPECIFIED: _ClassVar[FailureKind]
    FAILURE_KIND_TIMEOUT: _ClassVar[FailureKind]
    FAILURE_KIND_RATE_LIMIT: _ClassVar[FailureKind]
    FAILURE_KIND_AUTH: _ClassVar[FailureKind]
    FAILURE_KIND_QUOTA: _ClassVar[FailureKind]
    FAILURE_KIND_CONNECTION: _ClassVar[FailureKind]
    FAILURE_KIND_SERVER: _ClassVar[FailureKind]
    FAILURE_KIND_INVALID_REQUEST: _ClassVar[FailureKind]
    FAILURE_KIND_CONTEXT_OVERFLOW: _ClassVar[FailureKind]
    FAILURE_KIND_CONTENT_FILTER: _ClassVar[FailureKind]
    FAILURE_KIND_INCOMPLETE: _ClassVar[FailureKind]
    FAILURE_KIND_UNKNOWN: _ClassVar[FailureKind]

class UsageProvenance(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USAGE_PROVENANCE_UNSPECIFIED: _ClassVar[UsageProvenance]
    USAGE_PROVENANCE_REPORTED: _ClassVar[UsageProvenance]
    USAGE_PROVENANCE_ESTIMATED: _ClassVar[UsageProvenance]
    USAGE_PROVENANCE_UNKNOWN: _ClassVar[UsageProvenance]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_TOOL_CALLS: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_CONTENT_FILTER: FinishReason
FINISH_REASON_REFUSAL: FinishReason
FINISH_REASON_PAUSE: FinishReason
FINISH_REASON_OTHER: FinishReason
FAILURE_KIND_UNSPECIFIED: FailureKind
FAILURE_KIND_TIMEOUT: FailureKind
FAILURE_KIND_RATE_LIMIT: FailureKind
FAILURE_KIND_AUTH: FailureKind
FAILURE_KIND_QUOTA: FailureKind
FAILURE_KIND_CONNECTION: FailureKind
FAILURE_KIND_SERVER: FailureKind
FAILURE_KIND_INVALID_REQUEST: FailureKind
FAILURE_KIND_CONTEXT_OVERFLOW: FailureKind
FAILURE_KIND_CONTENT_FILTER: FailureKind
FAILURE_KIND_INCOMPLETE: FailureKind
FAILURE_KIND_UNKNOWN: FailureKind
USAGE_PROVENANCE_UNSPECIFIED: UsageProvenance
USAGE_PROVENANCE_REPORTED: UsageProvenance
USAGE_PROVENANCE_ESTIMATED: UsageProvenance
USAGE_PROVENANCE_UNKNOWN: UsageProvenance

class LlmEvent(_message.Message):
    __slots__ = ("text_delta", "reasoning_delta", "tool_call_complete", "usage_snapshot", "finish", "stream_failure")
    TEXT_DELTA_FIELD_NUMBER: _ClassVar[int]
    REASONING_DELTA_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    USAGE_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    STREAM_FAILURE_FIELD_NUMBER: _ClassVar[int]
    text_delta: TextDelta
    reasoning_delta: ReasoningDelta
    tool_call_complete: ToolCallComplete
    usage_snapshot: UsageSnapshot
    finish: Finish
    stream_failure: StreamFailure
    def __init__(self, text_delta: _Optional[_Union[TextDelta, _Mapping]] = ..., reasoning_delta: _Optional[_Union[ReasoningDelta, _Mapping]] = ..., tool_call_complete: _Optional[_Union[ToolCallComplete, _Mapping]] = ..., usage_snapshot: _Optional[_Union[UsageSnapshot, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., stream_failure: _Optional[_Union[StreamFailure, _Mapping]] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ReasoningDelta(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ToolCallComplete(_message.Message):
    __slots__ = ("call_id", "provider_call_id", "tool_name", "arguments_json")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    provider_call_id: str
    tool_name: str
    arguments_json: str
    def __init__(self, call_id: _Optional[str] = ..., provider_call_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., arguments_json: _Optional[str] = ...) -> None: ...

class UsageSnapshot(_message.Message):
    __slots__ = ("usage",)
    USAGE_FIELD_NUMBER: _ClassVar[int]
    usage: TokenUsage
    def __init__(self, usage: _Optional[_Union[TokenUsage, _Mapping]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("reason", "provider_reason", "replay_json", "refusal")
    REASON_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_REASON_FIELD_NUMBER: _ClassVar[int]
    REPLAY_JSON_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    reason: FinishReason
    provider_reason: str
    replay_json: str
    refusal: str
    def __init__(self, reason: _Optional[_Union[FinishReason, str]] = ..., provider_reason: _Optional[str] = ..., replay_json: _Optional[str] = ..., refusal: _Optional[str] = ...) -> None: ...

class StreamFailure(_message.Message):
    __slots__ = ("kind", "message", "provider", "status_code", "retry_after_delay", "retryable", "partial_content")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_DELAY_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_CONTENT_FIELD_NUMBER: _ClassVar[int]
    kind: FailureKind
    message: str
    provider: str
    status_code: int
    retry_after_delay: _duration_pb2.Duration
    retryable: bool
    partial_content: str
    def __init__(self, kind: _Optional[_Union[FailureKind, str]] = ..., message: _Optional[str] = ..., provider: _Optional[str] = ..., status_code: _Optional[int] = ..., retry_after_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retryable: _Optional[bool] = ..., partial_content: _Optional[str] = ...) -> None: ...

class TokenUsage(_message.Message):
    __slots__ = ("input_tokens", "cache_read_tokens", "cache_creation_tokens", "output_tokens", "reasoning_tokens", "provenance")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_READ_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHE_CREATION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    cache_read_tokens: int
    cache_creation_tokens: int
    output_tokens: int
    reasoning_tokens: int
    provenance: UsageProvenance
    def __init__(self, input_tokens: _Optional[int] = ..., cache_read_tokens: _Optional[int] = ..., cache_creation_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., provenance: _Optional[_Union[UsageProvenance, str]] = ...) -> None: ...
