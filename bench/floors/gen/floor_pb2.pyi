from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunRequest(_message.Message):
    __slots__ = ("model", "prompt")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    model: str
    prompt: str
    def __init__(self, model: _Optional[str] = ..., prompt: _Optional[str] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("sequence", "text")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    text: str
    def __init__(self, sequence: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: int
    def __init__(self, reason: _Optional[int] = ...) -> None: ...

class ModelEvent(_message.Message):
    __slots__ = ("text_delta",)
    TEXT_DELTA_FIELD_NUMBER: _ClassVar[int]
    text_delta: TextDelta
    def __init__(self, text_delta: _Optional[_Union[TextDelta, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("sequence", "create_time_us", "turn", "step", "step_attempt", "model", "finished")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    create_time_us: int
    turn: str
    step: int
    step_attempt: int
    model: ModelEvent
    finished: Finish
    def __init__(self, sequence: _Optional[int] = ..., create_time_us: _Optional[int] = ..., turn: _Optional[str] = ..., step: _Optional[int] = ..., step_attempt: _Optional[int] = ..., model: _Optional[_Union[ModelEvent, _Mapping]] = ..., finished: _Optional[_Union[Finish, _Mapping]] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...
