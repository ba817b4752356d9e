from google.protobuf import field_mask_pb2 as _field_mask_pb2
from turnwire.api.runtime.v1 import message_pb2 as _message_pb2
from turnwire.api.runtime.v1 import thread_pb2 as _thread_pb2
from turnwire.api.runtime.v1 import turn_pb2 as _turn_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateThreadRequest(_message.Message):
    __slots__ = ("request_id", "thread_id", "thread", "private_metadata")
    class PrivateMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_METADATA_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    thread_id: str
    thread: _thread_pb2.Thread
    private_metadata: _containers.ScalarMap[str, str]
    def __init__(self, request_id: _Optional[str] = ..., thread_id: _Optional[str] = ..., thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ..., private_metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateThreadResponse(_message.Message):
    __slots__ = ("thread",)
    THREAD_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ...) -> None: ...

class GetThreadRequest(_message.Message):
    __slots__ = ("name", "message_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    message_count: int
    def __init__(self, name: _Optional[str] = ..., message_count: _Optional[int] = ...) -> None: ...

class GetThreadResponse(_message.Message):
    __slots__ = ("thread", "messages", "live_turn", "transcript_sequence", "queued_turns")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LIVE_TURN_FIELD_NUMBER: _ClassVar[int]
    TRANSCRIPT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TURNS_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.Message]
    live_turn: _turn_pb2.Turn
    transcript_sequence: int
    queued_turns: _containers.RepeatedCompositeFieldContainer[_turn_pb2.Turn]
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[_message_pb2.Message, _Mapping]]] = ..., live_turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ..., transcript_sequence: _Optional[int] = ..., queued_turns: _Optional[_Iterable[_Union[_turn_pb2.Turn, _Mapping]]] = ...) -> None: ...

class ListThreadsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "filter")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    filter: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListThreadsResponse(_message.Message):
    __slots__ = ("threads", "next_page_token")
    THREADS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    threads: _containers.RepeatedCompositeFieldContainer[_thread_pb2.Thread]
    next_page_token: str
    def __init__(self, threads: _Optional[_Iterable[_Union[_thread_pb2.Thread, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateThreadRequest(_message.Message):
    __slots__ = ("thread", "update_mask", "expected_version")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    update_mask: _field_mask_pb2.FieldMask
    expected_version: int
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class UpdateThreadResponse(_message.Message):
    __slots__ = ("thread",)
    THREAD_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ...) -> None: ...

class DeleteThreadRequest(_message.Message):
    __slots__ = ("name", "expected_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_version: int
    def __init__(self, name: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class DeleteThreadResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ListMessagesRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "include_hidden")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    include_hidden: bool
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_hidden: _Optional[bool] = ...) -> None: ...

class ListMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.Message]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.Message, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchThreadRequest(_message.Message):
    __slots__ = ("thread", "after_version")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    AFTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    thread: str
    after_version: int
    def __init__(self, thread: _Optional[str] = ..., after_version: _Optional[int] = ...) -> None: ...

class WatchThreadResponse(_message.Message):
    __slots__ = ("version", "message_added", "message_changed", "messages_superseded", "turn_changed", "queue_changed", "metadata_changed", "deleted", "resnapshot")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ADDED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    TURN_CHANGED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    METADATA_CHANGED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    RESNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    version: int
    message_added: MessageAdded
    message_changed: MessageChanged
    messages_superseded: MessagesSuperseded
    turn_changed: TurnChanged
    queue_changed: QueueChanged
    metadata_changed: MetadataChanged
    deleted: ThreadDeleted
    resnapshot: Resnapshot
    def __init__(self, version: _Optional[int] = ..., message_added: _Optional[_Union[MessageAdded, _Mapping]] = ..., message_changed: _Optional[_Union[MessageChanged, _Mapping]] = ..., messages_superseded: _Optional[_Union[MessagesSuperseded, _Mapping]] = ..., turn_changed: _Optional[_Union[TurnChanged, _Mapping]] = ..., queue_changed: _Optional[_Union[QueueChanged, _Mapping]] = ..., metadata_changed: _Optional[_Union[MetadataChanged, _Mapping]] = ..., deleted: _Optional[_Union[ThreadDeleted, _Mapping]] = ..., resnapshot: _Optional[_Union[Resnapshot, _Mapping]] = ...) -> None: ...

class MessageAdded(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class MessageChanged(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.Message
    def __init__(self, message: _Optional[_Union[_message_pb2.Message, _Mapping]] = ...) -> None: ...

class MessagesSuperseded(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, messages: _Optional[_Iterable[str]] = ...) -> None: ...

class TurnChanged(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _turn_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ...) -> None: ...

class QueueChanged(_message.Message):
    __slots__ = ("queued_turns",)
    QUEUED_TURNS_FIELD_NUMBER: _ClassVar[int]
    queued_turns: _containers.RepeatedCompositeFieldContainer[_turn_pb2.Turn]
    def __init__(self, queued_turns: _Optional[_Iterable[_Union[_turn_pb2.Turn, _Mapping]]] = ...) -> None: ...

class MetadataChanged(_message.Message):
    __slots__ = ("thread",)
    THREAD_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ...) -> None: ...

class ThreadDeleted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resnapshot(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuedTurnsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListQueuedTurnsResponse(_message.Message):
    __slots__ = ("turns", "next_page_token")
    TURNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    turns: _containers.RepeatedCompositeFieldContainer[_turn_pb2.Turn]
    next_page_token: str
    def __init__(self, turns: _Optional[_Iterable[_Union[_turn_pb2.Turn, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateQueuedTurnRequest(_message.Message):
    __slots__ = ("name", "etag", "input")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    input: _turn_pb2.Input
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ..., input: _Optional[_Union[_turn_pb2.Input, _Mapping]] = ...) -> None: ...

class UpdateQueuedTurnResponse(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _turn_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ...) -> None: ...

class RegenerateTurnRequest(_message.Message):
    __slots__ = ("thread", "request_id", "message", "expected_version", "model_options")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    thread: str
    request_id: str
    message: str
    expected_version: int
    model_options: _turn_pb2.ModelOptions
    def __init__(self, thread: _Optional[str] = ..., request_id: _Optional[str] = ..., message: _Optional[str] = ..., expected_version: _Optional[int] = ..., model_options: _Optional[_Union[_turn_pb2.ModelOptions, _Mapping]] = ...) -> None: ...

class RegenerateTurnResponse(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _turn_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ...) -> None: ...

class RetryTurnRequest(_message.Message):
    __slots__ = ("turn", "request_id", "expected_version")
    TURN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    turn: str
    request_id: str
    expected_version: int
    def __init__(self, turn: _Optional[str] = ..., request_id: _Optional[str] = ..., expected_version: _Optional[int] = ...) -> None: ...

class RetryTurnResponse(_message.Message):
    __slots__ = ("turn",)
    TURN_FIELD_NUMBER: _ClassVar[int]
    turn: _turn_pb2.Turn
    def __init__(self, turn: _Optional[_Union[_turn_pb2.Turn, _Mapping]] = ...) -> None: ...

class SetMessageVisibilityRequest(_message.Message):
    __slots__ = ("thread", "messages", "visibility", "expected_version")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    thread: str
    messages: _containers.RepeatedScalarFieldContainer[str]
    visibility: _message_pb2.MessageVisibility
    expected_version: int
    def __init__(self, thread: _Optional[str] = ..., messages: _Optional[_Iterable[str]] = ..., visibility: _Optional[_Union[_message_pb2.MessageVisibility, str]] = ..., expected_version: _Optional[int] = ...) -> None: ...

class SetMessageVisibilityResponse(_message.Message):
    __slots__ = ("thread",)
    THREAD_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ...) -> None: ...

class ForkThreadRequest(_message.Message):
    __slots__ = ("thread", "request_id", "message", "thread_id")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    thread: str
    request_id: str
    message: str
    thread_id: str
    def __init__(self, thread: _Optional[str] = ..., request_id: _Optional[str] = ..., message: _Optional[str] = ..., thread_id: _Optional[str] = ...) -> None: ...

class ForkThreadResponse(_message.Message):
    __slots__ = ("thread",)
    THREAD_FIELD_NUMBER: _ClassVar[int]
    thread: _thread_pb2.Thread
    def __init__(self, thread: _Optional[_Union[_thread_pb2.Thread, _Mapping]] = ...) -> None: ...
