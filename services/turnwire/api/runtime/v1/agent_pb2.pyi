import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from turnwire.api.common.v1 import tool_pb2 as _tool_pb2
from turnwire.api.runtime.v1 import turn_pb2 as _turn_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Agent(_message.Message):
    __slots__ = ("name", "uid", "display_name", "role", "goal", "backstory", "model", "fallback_models", "tools", "delegates", "limits", "busy_policy", "organization_id", "digest", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    BACKSTORY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_MODELS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    DELEGATES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    BUSY_POLICY_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: str
    display_name: str
    role: str
    goal: str
    backstory: str
    model: str
    fallback_models: _containers.RepeatedScalarFieldContainer[str]
    tools: _containers.RepeatedCompositeFieldContainer[_tool_pb2.Tool]
    delegates: _containers.RepeatedScalarFieldContainer[str]
    limits: AgentLimits
    busy_policy: _turn_pb2.BusyPolicy
    organization_id: str
    digest: str
    description: str
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[str] = ..., display_name: _Optional[str] = ..., role: _Optional[str] = ..., goal: _Optional[str] = ..., backstory: _Optional[str] = ..., model: _Optional[str] = ..., fallback_models: _Optional[_Iterable[str]] = ..., tools: _Optional[_Iterable[_Union[_tool_pb2.Tool, _Mapping]]] = ..., delegates: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[AgentLimits, _Mapping]] = ..., busy_policy: _Optional[_Union[_turn_pb2.BusyPolicy, str]] = ..., organization_id: _Optional[str] = ..., digest: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class AgentLimits(_message.Message):
    __slots__ = ("steps", "turn_timeout", "tokens", "cost_micro_usd", "tool_timeout", "max_retry_limit")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TURN_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICRO_USD_FIELD_NUMBER: _ClassVar[int]
    TOOL_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    steps: int
    turn_timeout: _duration_pb2.Duration
    tokens: int
    cost_micro_usd: int
    tool_timeout: _duration_pb2.Duration
    max_retry_limit: int
    def __init__(self, steps: _Optional[int] = ..., turn_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., tokens: _Optional[int] = ..., cost_micro_usd: _Optional[int] = ..., tool_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_retry_limit: _Optional[int] = ...) -> None: ...

class ServerLimits(_message.Message):
    __slots__ = ("max_request_bytes", "max_event_bytes", "max_queue_length", "max_result_chars", "event_retention_duration", "heartbeat_interval")
    MAX_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULT_CHARS_FIELD_NUMBER: _ClassVar[int]
    EVENT_RETENTION_DURATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    max_request_bytes: int
    max_event_bytes: int
    max_queue_length: int
    max_result_chars: int
    event_retention_duration: _duration_pb2.Duration
    heartbeat_interval: _duration_pb2.Duration
    def __init__(self, max_request_bytes: _Optional[int] = ..., max_event_bytes: _Optional[int] = ..., max_queue_length: _Optional[int] = ..., max_result_chars: _Optional[int] = ..., event_retention_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
