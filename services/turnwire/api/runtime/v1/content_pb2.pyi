from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Part(_message.Message):
    __slots__ = ("text", "blob", "uri", "handle")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    text: TextContent
    blob: BlobContent
    uri: UriContent
    handle: HandleContent
    def __init__(self, text: _Optional[_Union[TextContent, _Mapping]] = ..., blob: _Optional[_Union[BlobContent, _Mapping]] = ..., uri: _Optional[_Union[UriContent, _Mapping]] = ..., handle: _Optional[_Union[HandleContent, _Mapping]] = ...) -> None: ...

class TextContent(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class BlobContent(_message.Message):
    __slots__ = ("media_type", "data", "filename")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    data: bytes
    filename: str
    def __init__(self, media_type: _Optional[str] = ..., data: _Optional[bytes] = ..., filename: _Optional[str] = ...) -> None: ...

class UriContent(_message.Message):
    __slots__ = ("uri", "media_type")
    URI_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    uri: str
    media_type: str
    def __init__(self, uri: _Optional[str] = ..., media_type: _Optional[str] = ...) -> None: ...

class HandleContent(_message.Message):
    __slots__ = ("handle", "media_type")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    media_type: str
    def __init__(self, handle: _Optional[str] = ..., media_type: _Optional[str] = ...) -> None: ...
