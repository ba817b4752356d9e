import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommandState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMMAND_STATE_UNSPECIFIED: _ClassVar[CommandState]
    COMMAND_STATE_ACCEPTED: _ClassVar[CommandState]
    COMMAND_STATE_DELIVERED: _ClassVar[CommandState]
    COMMAND_STATE_DONE: _ClassVar[CommandState]

class OutcomeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_KIND_UNSPECIFIED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_APPLIED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_DUPLICATE: _ClassVar[OutcomeKind]
    OUTCOME_KIND_STALE: _ClassVar[OutcomeKind]
    OUTCOME_KIND_NO_ACTIVE_TURN: _ClassVar[OutcomeKind]
    OUTCOME_KIND_ALREADY_FINISHED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_EXPIRED: _ClassVar[OutcomeKind]
    OUTCOME_KIND_REJECTED: _ClassVar[OutcomeKind]
COMMAND_STATE_UNSPECIFIED: CommandState
COMMAND_STATE_ACCEPTED: CommandState
COMMAND_STATE_DELIVERED: CommandState
COMMAND_STATE_DONE: CommandState
OUTCOME_KIND_UNSPECIFIED: OutcomeKind
OUTCOME_KIND_APPLIED: OutcomeKind
OUTCOME_KIND_DUPLICATE: OutcomeKind
OUTCOME_KIND_STALE: OutcomeKind
OUTCOME_KIND_NO_ACTIVE_TURN: OutcomeKind
OUTCOME_KIND_ALREADY_FINISHED: OutcomeKind
OUTCOME_KIND_EXPIRED: OutcomeKind
OUTCOME_KIND_REJECTED: OutcomeKind

class Command(_message.Message):
    __slots__ = ("command_id", "target", "ttl_timeout", "cancel_turn", "inject_steer", "pause_graph", "stop_graph", "resume_graph", "deliver_to_node", "cancel_run", "inject_user_message", "approval_response")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TTL_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_TURN_FIELD_NUMBER: _ClassVar[int]
    INJECT_STEER_FIELD_NUMBER: _ClassVar[int]
    PAUSE_GRAPH_FIELD_NUMBER: _ClassVar[int]
    STOP_GRAPH_FIELD_NUMBER: _ClassVar[int]
    RESUME_GRAPH_FIELD_NUMBER: _ClassVar[int]
    DELIVER_TO_NODE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_RUN_FIELD_NUMBER: _ClassVar[int]
    INJECT_USER_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    target: CommandTarget
    ttl_timeout: _duration_pb2.Duration
    cancel_turn: CancelTurn
    inject_steer: InjectSteer
    pause_graph: PauseGraph
    stop_graph: StopGraph
    resume_graph: ResumeGraph
    deliver_to_node: DeliverToNode
    cancel_run: CancelRun
    inject_user_message: InjectUserMessage
    approval_response: ApprovalResponse
    def __init__(self, command_id: _Optional[str] = ..., target: _Optional[_Union[CommandTarget, _Mapping]] = ..., ttl_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cancel_turn: _Optional[_Union[CancelTurn, _Mapping]] = ..., inject_steer: _Optional[_Union[InjectSteer, _Mapping]] = ..., pause_graph: _Optional[_Union[PauseGraph, _Mapping]] = ..., stop_graph: _Optional[_Union[StopGraph, _Mapping]] = ..., resume_graph: _Optional[_Union[ResumeGraph, _Mapping]] = ..., deliver_to_node: _Optional[_Union[DeliverToNode, _Mapping]] = ..., cancel_run: _Optional[_Union[CancelRun, _Mapping]] = ..., inject_user_message: _Optional[_Union[InjectUserMessage, _Mapping]] = ..., approval_response: _Optional[_Union[ApprovalResponse, _Mapping]] = ...) -> None: ...

class CommandTarget(_message.Message):
    __slots__ = ("thread", "turn", "graph", "node")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    thread: str
    turn: str
    graph: str
    node: str
    def __init__(self, thread: _Optional[str] = ..., turn: _Optional[str] = ..., graph: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class CancelTurn(_message.Message):
    __slots__ = ("cause", "clear_queue")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CLEAR_QUEUE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    clear_queue: bool
    def __init__(self, cause: _Optional[str] = ..., clear_queue: _Optional[bool] = ...) -> None: ...

class InjectSteer(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class PauseGraph(_message.Message):
    __slots__ = ("cause",)
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    def __init__(self, cause: _Optional[str] = ...) -> None: ...

class StopGraph(_message.Message):
    __slots__ = ("cause",)
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    def __init__(self, cause: _Optional[str] = ...) -> None: ...

class ResumeGraph(_message.Message):
    __slots__ = ("cause",)
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    def __init__(self, cause: _Optional[str] = ...) -> None: ...

class DeliverToNode(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class CancelRun(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InjectUserMessage(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ApprovalResponse(_message.Message):
    __slots__ = ("action",)
    ACTION_FIELD_NUMBER: _ClassVar[int]
    action: str
    def __init__(self, action: _Optional[str] = ...) -> None: ...

class CommandOutcome(_message.Message):
    __slots__ = ("command_id", "kind", "turn", "applied_sequence", "duplicate_of", "message", "reason", "decide_time")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_OF_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DECIDE_TIME_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    kind: OutcomeKind
    turn: str
    applied_sequence: int
    duplicate_of: str
    message: str
    reason: str
    decide_time: _timestamp_pb2.Timestamp
    def __init__(self, command_id: _Optional[str] = ..., kind: _Optional[_Union[OutcomeKind, str]] = ..., turn: _Optional[str] = ..., applied_sequence: _Optional[int] = ..., duplicate_of: _Optional[str] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., decide_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CommandRecord(_message.Message):
    __slots__ = ("command", "scope", "subject", "client_id", "state", "outcome", "bound_turn", "create_time", "expire_time", "position")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BOUND_TURN_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    command: Command
    scope: str
    subject: str
    client_id: str
    state: CommandState
    outcome: CommandOutcome
    bound_turn: str
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    position: int
    def __init__(self, command: _Optional[_Union[Command, _Mapping]] = ..., scope: _Optional[str] = ..., subject: _Optional[str] = ..., client_id: _Optional[str] = ..., state: _Optional[_Union[CommandState, str]] = ..., outcome: _Optional[_Union[CommandOutcome, _Mapping]] = ..., bound_turn: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., position: _Optional[int] = ...) -> None: ...
