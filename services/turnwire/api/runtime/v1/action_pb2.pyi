import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnwire.api.common.v1 import tool_pb2 as _tool_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_KIND_UNSPECIFIED: _ClassVar[ActionKind]
    ACTION_KIND_APPROVAL: _ClassVar[ActionKind]
    ACTION_KIND_SUSPEND: _ClassVar[ActionKind]
    ACTION_KIND_CLIENT_TOOL: _ClassVar[ActionKind]
    ACTION_KIND_CLARIFICATION: _ClassVar[ActionKind]
    ACTION_KIND_CONTINUE: _ClassVar[ActionKind]

class ActionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_STATE_UNSPECIFIED: _ClassVar[ActionState]
    ACTION_STATE_OPEN: _ClassVar[ActionState]
    ACTION_STATE_APPROVED: _ClassVar[ActionState]
    ACTION_STATE_REJECTED: _ClassVar[ActionState]
    ACTION_STATE_ANSWERED: _ClassVar[ActionState]
    ACTION_STATE_EXPIRED: _ClassVar[ActionState]
    ACTION_STATE_CANCELLED: _ClassVar[ActionState]
    ACTION_STATE_VOIDED: _ClassVar[ActionState]
ACTION_KIND_UNSPECIFIED: ActionKind
ACTION_KIND_APPROVAL: ActionKind
ACTION_KIND_SUSPEND: ActionKind
ACTION_KIND_CLIENT_TOOL: ActionKind
ACTION_KIND_CLARIFICATION: ActionKind
ACTION_KIND_CONTINUE: ActionKind
ACTION_STATE_UNSPECIFIED: ActionState
ACTION_STATE_OPEN: ActionState
ACTION_STATE_APPROVED: ActionState
ACTION_STATE_REJECTED: ActionState
ACTION_STATE_ANSWERED: ActionState
ACTION_STATE_EXPIRED: ActionState
ACTION_STATE_CANCELLED: ActionState
ACTION_STATE_VOIDED: ActionState

class Action(_message.Message):
    __slots__ = ("name", "kind", "state", "call_id", "tool_name", "arguments_json", "digest", "risk_tier", "question", "payload_json", "answer_schema_json", "required_role", "create_time", "expire_time", "resolve_time", "resolver", "agent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RISK_TIER_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_ROLE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_TIME_FIELD_NUMBER: _ClassVar[int]
    RESOLVER_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: ActionKind
    state: ActionState
    call_id: str
    tool_name: str
    arguments_json: str
    digest: str
    risk_tier: _tool_pb2.RiskTier
    question: str
    payload_json: str
    answer_schema_json: str
    required_role: str
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    resolve_time: _timestamp_pb2.Timestamp
    resolver: str
    agent: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[ActionKind, str]] = ..., state: _Optional[_Union[ActionState, str]] = ..., call_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., arguments_json: _Optional[str] = ..., digest: _Optional[str] = ..., risk_tier: _Optional[_Union[_tool_pb2.RiskTier, str]] = ..., question: _Optional[str] = ..., payload_json: _Optional[str] = ..., answer_schema_json: _Optional[str] = ..., required_role: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., resolve_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., resolver: _Optional[str] = ..., agent: _Optional[str] = ...) -> None: ...
