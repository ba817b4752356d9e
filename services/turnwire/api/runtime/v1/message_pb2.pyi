import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnwire.api.common.v1 import tool_pb2 as _tool_pb2
from turnwire.api.runtime.v1 import content_pb2 as _content_pb2
from turnwire.api.runtime.v1 import turn_event_pb2 as _turn_event_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_ROLE_UNSPECIFIED: _ClassVar[MessageRole]
    MESSAGE_ROLE_USER: _ClassVar[MessageRole]
    MESSAGE_ROLE_ASSISTANT: _ClassVar[MessageRole]

class MessageStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATUS_UNSPECIFIED: _ClassVar[MessageStatus]
    MESSAGE_STATUS_OPEN: _ClassVar[MessageStatus]
    MESSAGE_STATUS_FINAL: _ClassVar[MessageStatus]

class MessageVisibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_VISIBILITY_UNSPECIFIED: _ClassVar[MessageVisibility]
    MESSAGE_VISIBILITY_VISIBLE: _ClassVar[MessageVisibility]
    MESSAGE_VISIBILITY_HIDDEN: _ClassVar[MessageVisibility]
    MESSAGE_VISIBILITY_SUPERSEDED: _ClassVar[MessageVisibility]
MESSAGE_ROLE_UNSPECIFIED: MessageRole
MESSAGE_ROLE_USER: MessageRole
MESSAGE_ROLE_ASSISTANT: MessageRole
MESSAGE_STATUS_UNSPECIFIED: MessageStatus
MESSAGE_STATUS_OPEN: MessageStatus
MESSAGE_STATUS_FINAL: MessageStatus
MESSAGE_VISIBILITY_UNSPECIFIED: MessageVisibility
MESSAGE_VISIBILITY_VISIBLE: MessageVisibility
MESSAGE_VISIBILITY_HIDDEN: MessageVisibility
MESSAGE_VISIBILITY_SUPERSEDED: MessageVisibility

class Message(_message.Message):
    __slots__ = ("name", "position", "role", "status", "visibility", "turn", "origin", "parts", "create_time", "update_time", "interrupted_reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    position: int
    role: MessageRole
    status: MessageStatus
    visibility: MessageVisibility
    turn: str
    origin: _turn_event_pb2.MessageOrigin
    parts: _containers.RepeatedCompositeFieldContainer[MessagePart]
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    interrupted_reason: str
    def __init__(self, name: _Optional[str] = ..., position: _Optional[int] = ..., role: _Optional[_Union[MessageRole, str]] = ..., status: _Optional[_Union[MessageStatus, str]] = ..., visibility: _Optional[_Union[MessageVisibility, str]] = ..., turn: _Optional[str] = ..., origin: _Optional[_Union[_turn_event_pb2.MessageOrigin, str]] = ..., parts: _Optional[_Iterable[_Union[MessagePart, _Mapping]]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., interrupted_reason: _Optional[str] = ...) -> None: ...

class MessagePart(_message.Message):
    __slots__ = ("step", "content", "reasoning", "tool_call")
    STEP_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    step: int
    content: _content_pb2.Part
    reasoning: ReasoningContent
    tool_call: ToolCall
    def __init__(self, step: _Optional[int] = ..., content: _Optional[_Union[_content_pb2.Part, _Mapping]] = ..., reasoning: _Optional[_Union[ReasoningContent, _Mapping]] = ..., tool_call: _Optional[_Union[ToolCall, _Mapping]] = ...) -> None: ...

class ReasoningContent(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("call_id", "tool_name", "arguments_json", "outcome", "content", "is_error", "overflow", "parts")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    tool_name: str
    arguments_json: str
    outcome: _tool_pb2.ToolOutcome
    content: str
    is_error: bool
    overflow: _tool_pb2.ResultHandle
    parts: _containers.RepeatedCompositeFieldContainer[_tool_pb2.ResultPart]
    def __init__(self, call_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., arguments_json: _Optional[str] = ..., outcome: _Optional[_Union[_tool_pb2.ToolOutcome, str]] = ..., content: _Optional[str] = ..., is_error: _Optional[bool] = ..., overflow: _Optional[_Union[_tool_pb2.ResultHandle, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[_tool_pb2.ResultPart, _Mapping]]] = ...) -> None: ...
