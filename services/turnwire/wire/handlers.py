"""The shapes of gRPC method handlers, and how to put something in the place of their parts.

A handler is known by two flags (is the request, is the response a stream) and one behavior; everything here
keeps the flags.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError

from turnwire.core.errors import InvalidRequest

__all__ = [
    "MALFORMED",
    "behavior_of",
    "malformed_request",
    "raising_handler",
    "rebuild",
    "tolerant_deserializer",
]

_FACTORIES: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
_ATTRIBUTES = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}

# What a unary request is when its bytes are no message: gRPC parses before the handler runs, so that only a
# value can carry the news to where errors are answered.
MALFORMED: Final = object()


def behavior_of(handler: Any) -> Callable[[Any, Any], Any]:
    """Return the one function of the handler that is set."""
    shape = (bool(handler.request_streaming), bool(handler.response_streaming))
    behavior: Callable[[Any, Any], Any] = getattr(handler, _ATTRIBUTES[shape])
    return behavior


def rebuild(
    handler: Any,
    behavior: Callable[[Any, Any], Any],
    *,
    request_deserializer: Callable[[bytes], Any] | None,
    response_serializer: Callable[[Any], bytes] | None,
) -> Any:
    """Return a handler of the same shape with other parts."""
    shape = (bool(handler.request_streaming), bool(handler.response_streaming))
    return _FACTORIES[shape](
        behavior, request_deserializer=request_deserializer, response_serializer=response_serializer
    )


def raising_handler(handler: Any, error: Exception) -> Any:
    """Return a handler of the same shape that raises `error` without looking at the request."""

    async def refuse(request: Any, context: Any) -> NoReturn:
        raise error

    return rebuild(handler, refuse, request_deserializer=None, response_serializer=None)


def malformed_request() -> InvalidRequest:
    """Return the error for bytes that are not the message which the method takes."""
    return InvalidRequest("the request is not a well-formed message of the type that this method takes")


def tolerant_deserializer(
    deserialize: Callable[[bytes], Any] | None, *, streaming: bool
) -> Callable[[bytes], Any] | None:
    """Return a deserializer that never lets DecodeError out, as nothing above it could answer properly.

    A unary request becomes `MALFORMED`; within a request stream, where the handler is the reader, the error
    is raised as `InvalidRequest`.
    """
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            if streaming:
                raise malformed_request() from None
            return MALFORMED

    return read
