import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from turnwire.api.common.v1 import tool_pb2 as _tool_pb2
from turnwire.api.runtime.v1 import action_pb2 as _action_pb2
from turnwire.api.runtime.v1 import turn_pb2 as _turn_pb2
from turnwire.api.runtime.v1 import turn_event_pb2 as _turn_event_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunTurnRequest(_message.Message):
    __slots__ = ("request_id", "spec", "after_sequence", "log_id", "follow_while_waiting", "cancel_on_disconnect")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_WHILE_WAITING_FIELD_NUMBER: _ClassVar[int]
    CANCEL_ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: _turn_pb2.TurnSpec
    after_sequence: int
    log_id: str
    follow_while_waiting: bool
    cancel_on_disconnect: CancelOnDisconnect
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[_turn_pb2.TurnSpec, _Mapping]] = ..., after_sequence: _Optional[int] = ..., log_id: _Optional[str] = ..., follow_while_waiting: _Optional[bool] = ..., cancel_on_disconnect: _Optional[_Union[CancelOnDisconnect, _Mapping]] = ...) -> None: ...

class CancelOnDisconnect(_message.Message):
    __slots__ = ("grace_timeout",)
    GRACE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    grace_timeout: _duration_pb2.Duration
    def __init__(self, grace_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RunTurnResponse(_message.Message):
    __slots__ = ("events", "header", "heartbeat")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_turn_event_pb2.TurnEvent]
    header: StreamHeader
    heartbeat: Heartbeat
    def __init__(self, events: _Optional[_Iterable[_Union[_turn_event_pb2.TurnEvent, _Mapping]]] = ..., header: _Optional[_Union[StreamHeader, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class StreamHeader(_message.Message):
    __slots__ = ("turn", "thread", "agent", "state", "disposition", "queue_position", "first_kept_sequence", "last_sequence", "log_id", "capabilities")
    TURN_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_KEPT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    turn: str
    thread: str
    agent: str
    state: _turn_pb2.TurnState
    disposition: _turn_pb2.TurnDisposition
    queue_position: int
    first_kept_sequence: int
    last_sequence: int
    log_id: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, turn: _Optional[str] = ..., thread: _Optional[str] = ..., agent: _Optional[str] = ..., state: _Optional[_Union[_turn_pb2.TurnState, str]] = ..., disposition: _Optional[_Union[_turn_pb2.TurnDisposition, str]] = ..., queue_position: _Optional[int] = ..., first_kept_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., log_id: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("create_time",)
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StartTurnRequest(_message.Message):
    __slots__ = ("request_id", "spec", "not_before_time")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_TIME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: _turn_pb2.TurnSpec
    not_before_time: _timestamp_pb2.Timestamp
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[_turn_pb2.TurnSpec, _Mapping]] = ..., not_before_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StartTurnResponse(_message.Message):
    __slots__ = ("turn", "disposition", "log_id")
    TURN_FIELD_NUMBER: _ClassVar[int]
    DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    turn: _turn_pb2.Turn
    disposition: _turn_pb2.TurnDisposition
    log_id: str
    def __init__(self, turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ..., disposition: _Optional[_Union[_turn_pb2.TurnDisposition, str]] = ..., log_id: _Optional[str] = ...) -> None: ...

class WatchTurnRequest(_message.Message):
    __slots__ = ("turn", "after_sequence", "log_id", "follow_while_waiting", "cancel_on_disconnect")
    TURN_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_WHILE_WAITING_FIELD_NUMBER: _ClassVar[int]
    CANCEL_ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    turn: str
    after_sequence: int
    log_id: str
    follow_while_waiting: bool
    cancel_on_disconnect: CancelOnDisconnect
    def __init__(self, turn: _Optional[str] = ..., after_sequence: _Optional[int] = ..., log_id: _Optional[str] = ..., follow_while_waiting: _Optional[bool] = ..., cancel_on_disconnect: _Optional[_Union[CancelOnDisconnect, _Mapping]] = ...) -> None: ...

class WatchTurnResponse(_message.Message):
    __slots__ = ("events", "header", "heartbeat")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_turn_event_pb2.TurnEvent]
    header: StreamHeader
    heartbeat: Heartbeat
    def __init__(self, events: _Optional[_Iterable[_Union[_turn_event_pb2.TurnEvent, _Mapping]]] = ..., header: _Optional[_Union[StreamHeader, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class GetTurnRequest(_message.Message):
    __slots__ = ("name", "wait_timeout", "view")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WAIT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    name: str
    wait_timeout: _duration_pb2.Duration
    view: _turn_pb2.TurnView
    def __init__(self, name: _Optional[str] = ..., wait_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., view: _Optional[_Union[_turn_pb2.TurnView, str]] = ...) -> None: ...

class GetTurnResponse(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _turn_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ...) -> None: ...

class ListTurnsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "filter")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    filter: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListTurnsResponse(_message.Message):
    __slots__ = ("turns", "next_page_token")
    TURNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    turns: _containers.RepeatedCompositeFieldContainer[_turn_pb2.Turn]
    next_page_token: str
    def __init__(self, turns: _Optional[_Iterable[_Union[_turn_pb2.Turn, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ContinueTurnRequest(_message.Message):
    __slots__ = ("turn", "request_id", "steps")
    TURN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    turn: str
    request_id: str
    steps: int
    def __init__(self, turn: _Optional[str] = ..., request_id: _Optional[str] = ..., steps: _Optional[int] = ...) -> None: ...

class ContinueTurnResponse(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _turn_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ...) -> None: ...

class ResolveActionRequest(_message.Message):
    __slots__ = ("action", "request_id", "digest", "approve", "reject", "resume", "client_result", "manual_result")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    APPROVE_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_RESULT_FIELD_NUMBER: _ClassVar[int]
    MANUAL_RESULT_FIELD_NUMBER: _ClassVar[int]
    action: str
    request_id: str
    digest: str
    approve: Approve
    reject: Reject
    resume: Resume
    client_result: ClientResult
    manual_result: ManualResult
    def __init__(self, action: _Optional[str] = ..., request_id: _Optional[str] = ..., digest: _Optional[str] = ..., approve: _Optional[_Union[Approve, _Mapping]] = ..., reject: _Optional[_Union[Reject, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., client_result: _Optional[_Union[ClientResult, _Mapping]] = ..., manual_result: _Optional[_Union[ManualResult, _Mapping]] = ...) -> None: ...

class Approve(_message.Message):
    __slots__ = ("comment",)
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    comment: str
    def __init__(self, comment: _Optional[str] = ...) -> None: ...

class Reject(_message.Message):
    __slots__ = ("comment",)
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    comment: str
    def __init__(self, comment: _Optional[str] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("payload_json",)
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    payload_json: str
    def __init__(self, payload_json: _Optional[str] = ...) -> None: ...

class ClientResult(_message.Message):
    __slots__ = ("content", "is_error")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    content: str
    is_error: bool
    def __init__(self, content: _Optional[str] = ..., is_error: _Optional[bool] = ...) -> None: ...

class ManualResult(_message.Message):
    __slots__ = ("content", "is_error")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    content: str
    is_error: bool
    def __init__(self, content: _Optional[str] = ..., is_error: _Optional[bool] = ...) -> None: ...

class ResolveActionResponse(_message.Message):
    __slots__ = ("action",)
    ACTION_FIELD_NUMBER: _ClassVar[int]
    action: _action_pb2.Action
    def __init__(self, action: _Optional[_Union[_action_pb2.Action, _Mapping]] = ...) -> None: ...

class GetActionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetActionResponse(_message.Message):
    __slots__ = ("action",)
    ACTION_FIELD_NUMBER: _ClassVar[int]
    action: _action_pb2.Action
    def __init__(self, action: _Optional[_Union[_action_pb2.Action, _Mapping]] = ...) -> None: ...

class ListActionsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "filter")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    filter: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListActionsResponse(_message.Message):
    __slots__ = ("actions", "next_page_token")
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedCompositeFieldContainer[_action_pb2.Action]
    next_page_token: str
    def __init__(self, actions: _Optional[_Iterable[_Union[_action_pb2.Action, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchActionsRequest(_message.Message):
    __slots__ = ("parent", "filter")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    parent: str
    filter: str
    def __init__(self, parent: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class WatchActionsResponse(_message.Message):
    __slots__ = ("action", "snapshot_complete")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    action: _action_pb2.Action
    snapshot_complete: bool
    def __init__(self, action: _Optional[_Union[_action_pb2.Action, _Mapping]] = ..., snapshot_complete: _Optional[bool] = ...) -> None: ...

class ReadToolResultRequest(_message.Message):
    __slots__ = ("turn", "call_id", "range")
    TURN_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    turn: str
    call_id: str
    range: _tool_pb2.ReadRange
    def __init__(self, turn: _Optional[str] = ..., call_id: _Optional[str] = ..., range: _Optional[_Union[_tool_pb2.ReadRange, _Mapping]] = ...) -> None: ...

class ReadToolResultResponse(_message.Message):
    __slots__ = ("data", "offset_bytes", "size_bytes")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset_bytes: int
    size_bytes: int
    def __init__(self, data: _Optional[bytes] = ..., offset_bytes: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...
