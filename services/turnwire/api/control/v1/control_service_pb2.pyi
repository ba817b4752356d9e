import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.rpc import status_pb2 as _status_pb2
from turnwire.api.control.v1 import command_pb2 as _command_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeliveryMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELIVERY_MODE_UNSPECIFIED: _ClassVar[DeliveryMode]
    DELIVERY_MODE_OWNED: _ClassVar[DeliveryMode]
    DELIVERY_MODE_UNOWNED: _ClassVar[DeliveryMode]
    DELIVERY_MODE_QUERY_ONLY: _ClassVar[DeliveryMode]
DELIVERY_MODE_UNSPECIFIED: DeliveryMode
DELIVERY_MODE_OWNED: DeliveryMode
DELIVERY_MODE_UNOWNED: DeliveryMode
DELIVERY_MODE_QUERY_ONLY: DeliveryMode

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "command", "ping", "ack")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    hello: ConnectHello
    command: _command_pb2.Command
    ping: Ping
    ack: Ack
    def __init__(self, hello: _Optional[_Union[ConnectHello, _Mapping]] = ..., command: _Optional[_Union[_command_pb2.Command, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("delivery_id", "welcome", "accepted", "refused", "outcome", "pong", "go_away")
    DELIVERY_ID_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    delivery_id: int
    welcome: Welcome
    accepted: CommandAccepted
    refused: CommandRefused
    outcome: OutcomeDelivered
    pong: Pong
    go_away: GoAway
    def __init__(self, delivery_id: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., accepted: _Optional[_Union[CommandAccepted, _Mapping]] = ..., refused: _Optional[_Union[CommandRefused, _Mapping]] = ..., outcome: _Optional[_Union[OutcomeDelivered, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ...) -> None: ...

class ConnectHello(_message.Message):
    __slots__ = ("client_id", "capabilities", "resume_token")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    resume_token: str
    def __init__(self, client_id: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("capabilities", "resume_token", "heartbeat_interval", "server_id")
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    resume_token: str
    heartbeat_interval: _duration_pb2.Duration
    server_id: str
    def __init__(self, capabilities: _Optional[_Iterable[str]] = ..., resume_token: _Optional[str] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., server_id: _Optional[str] = ...) -> None: ...

class CommandAccepted(_message.Message):
    __slots__ = ("command_id", "already_known")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ALREADY_KNOWN_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    already_known: bool
    def __init__(self, command_id: _Optional[str] = ..., already_known: _Optional[bool] = ...) -> None: ...

class CommandRefused(_message.Message):
    __slots__ = ("command_id", "status")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    status: _status_pb2.Status
    def __init__(self, command_id: _Optional[str] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class OutcomeDelivered(_message.Message):
    __slots__ = ("outcome", "resume_token")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    outcome: _command_pb2.CommandOutcome
    resume_token: str
    def __init__(self, outcome: _Optional[_Union[_command_pb2.CommandOutcome, _Mapping]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("delivery_id",)
    DELIVERY_ID_FIELD_NUMBER: _ClassVar[int]
    delivery_id: int
    def __init__(self, delivery_id: _Optional[int] = ...) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("grace_timeout",)
    GRACE_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    grace_timeout: _duration_pb2.Duration
    def __init__(self, grace_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SendCommandRequest(_message.Message):
    __slots__ = ("command", "wait_timeout")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    WAIT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    command: _command_pb2.Command
    wait_timeout: _duration_pb2.Duration
    def __init__(self, command: _Optional[_Union[_command_pb2.Command, _Mapping]] = ..., wait_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SendCommandResponse(_message.Message):
    __slots__ = ("command", "already_known")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ALREADY_KNOWN_FIELD_NUMBER: _ClassVar[int]
    command: _command_pb2.CommandRecord
    already_known: bool
    def __init__(self, command: _Optional[_Union[_command_pb2.CommandRecord, _Mapping]] = ..., already_known: _Optional[bool] = ...) -> None: ...

class GetCommandRequest(_message.Message):
    __slots__ = ("command_id",)
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    def __init__(self, command_id: _Optional[str] = ...) -> None: ...

class GetCommandResponse(_message.Message):
    __slots__ = ("command",)
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    command: _command_pb2.CommandRecord
    def __init__(self, command: _Optional[_Union[_command_pb2.CommandRecord, _Mapping]] = ...) -> None: ...

class ListCommandsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "filter")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    filter: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListCommandsResponse(_message.Message):
    __slots__ = ("commands", "next_page_token")
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[_command_pb2.CommandRecord]
    next_page_token: str
    def __init__(self, commands: _Optional[_Iterable[_Union[_command_pb2.CommandRecord, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchCommandsRequest(_message.Message):
    __slots__ = ("after_position", "filter")
    AFTER_POSITION_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    after_position: int
    filter: str
    def __init__(self, after_position: _Optional[int] = ..., filter: _Optional[str] = ...) -> None: ...

class WatchCommandsResponse(_message.Message):
    __slots__ = ("command",)
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    command: _command_pb2.CommandRecord
    def __init__(self, command: _Optional[_Union[_command_pb2.CommandRecord, _Mapping]] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("hello", "turns_opened", "turns_closed", "delivery_ack", "delivery_outcome", "ping")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TURNS_OPENED_FIELD_NUMBER: _ClassVar[int]
    TURNS_CLOSED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ACK_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    hello: AttachHello
    turns_opened: TurnsOpened
    turns_closed: TurnsClosed
    delivery_ack: DeliveryAck
    delivery_outcome: DeliveryOutcome
    ping: Ping
    def __init__(self, hello: _Optional[_Union[AttachHello, _Mapping]] = ..., turns_opened: _Optional[_Union[TurnsOpened, _Mapping]] = ..., turns_closed: _Optional[_Union[TurnsClosed, _Mapping]] = ..., delivery_ack: _Optional[_Union[DeliveryAck, _Mapping]] = ..., delivery_outcome: _Optional[_Union[DeliveryOutcome, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("delivery_id", "welcome", "delivery", "outcome_stored", "pong", "go_away")
    DELIVERY_ID_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_STORED_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    delivery_id: int
    welcome: Welcome
    delivery: Delivery
    outcome_stored: OutcomeStored
    pong: Pong
    go_away: GoAway
    def __init__(self, delivery_id: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., delivery: _Optional[_Union[Delivery, _Mapping]] = ..., outcome_stored: _Optional[_Union[OutcomeStored, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ...) -> None: ...

class AttachHello(_message.Message):
    __slots__ = ("runtime_id", "boot_id", "capabilities", "turns", "snapshot_complete")
    RUNTIME_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    runtime_id: str
    boot_id: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    turns: _containers.RepeatedCompositeFieldContainer[OwnedTurn]
    snapshot_complete: bool
    def __init__(self, runtime_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., turns: _Optional[_Iterable[_Union[OwnedTurn, _Mapping]]] = ..., snapshot_complete: _Optional[bool] = ...) -> None: ...

class OwnedTurn(_message.Message):
    __slots__ = ("scope", "turn", "epoch")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    scope: str
    turn: str
    epoch: int
    def __init__(self, scope: _Optional[str] = ..., turn: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class TurnsOpened(_message.Message):
    __slots__ = ("turns", "snapshot_complete")
    TURNS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    turns: _containers.RepeatedCompositeFieldContainer[OwnedTurn]
    snapshot_complete: bool
    def __init__(self, turns: _Optional[_Iterable[_Union[OwnedTurn, _Mapping]]] = ..., snapshot_complete: _Optional[bool] = ...) -> None: ...

class TurnsClosed(_message.Message):
    __slots__ = ("turns",)
    TURNS_FIELD_NUMBER: _ClassVar[int]
    turns: _containers.RepeatedCompositeFieldContainer[OwnedTurn]
    def __init__(self, turns: _Optional[_Iterable[_Union[OwnedTurn, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("scope", "command", "subject", "bound_turn", "remaining_timeout", "mode")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    BOUND_TURN_FIELD_NUMBER: _ClassVar[int]
    REMAINING_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    command: _command_pb2.Command
    subject: str
    bound_turn: str
    remaining_timeout: _duration_pb2.Duration
    mode: DeliveryMode
    def __init__(self, scope: _Optional[str] = ..., command: _Optional[_Union[_command_pb2.Command, _Mapping]] = ..., subject: _Optional[str] = ..., bound_turn: _Optional[str] = ..., remaining_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., mode: _Optional[_Union[DeliveryMode, str]] = ...) -> None: ...

class DeliveryAck(_message.Message):
    __slots__ = ("delivery_id", "bound_turn")
    DELIVERY_ID_FIELD_NUMBER: _ClassVar[int]
    BOUND_TURN_FIELD_NUMBER: _ClassVar[int]
    delivery_id: int
    bound_turn: str
    def __init__(self, delivery_id: _Optional[int] = ..., bound_turn: _Optional[str] = ...) -> None: ...

class DeliveryOutcome(_message.Message):
    __slots__ = ("scope", "outcome", "not_applied")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    NOT_APPLIED_FIELD_NUMBER: _ClassVar[int]
    scope: str
    outcome: _command_pb2.CommandOutcome
    not_applied: bool
    def __init__(self, scope: _Optional[str] = ..., outcome: _Optional[_Union[_command_pb2.CommandOutcome, _Mapping]] = ..., not_applied: _Optional[bool] = ...) -> None: ...

class OutcomeStored(_message.Message):
    __slots__ = ("scope", "command_id")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    scope: str
    command_id: str
    def __init__(self, scope: _Optional[str] = ..., command_id: _Optional[str] = ...) -> None: ...
