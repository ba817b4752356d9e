import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PruneEventsRequest(_message.Message):
    __slots__ = ("older_than", "dry_run")
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    older_than: _duration_pb2.Duration
    dry_run: bool
    def __init__(self, older_than: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class PruneEventsResponse(_message.Message):
    __slots__ = ("turns", "pages", "bytes")
    TURNS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    turns: int
    pages: int
    bytes: int
    def __init__(self, turns: _Optional[int] = ..., pages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
