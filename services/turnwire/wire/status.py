"""One table from error class to gRPC code, looked up along the MRO, and the way to and from the wire.

What leaves here has exactly one `google.rpc.ErrorInfo` of domain `turnwire.dev`, holds no text of unknown
exceptions, and stays far below the 8 KiB of metadata above which gRPC starts to drop calls.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from turnwire.core.errors import (
    AlreadyExists,
    Cancelled,
    Conflict,
    DeadlineExceeded,
    Exhausted,
    Expired,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotServed,
    TurnwireError,
    Unauthenticated,
    Unavailable,
    WrongState,
)
from turnwire.core.text import cut

__all__ = ["CODES", "DETAILS_KEY", "DOMAIN", "WireStatus", "code_of", "status_details", "unwrap"]

DOMAIN = "turnwire.dev"
DETAILS_KEY = "grpc-status-details-bin"

CODES: dict[type[TurnwireError], grpc.StatusCode] = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    WrongState: grpc.StatusCode.FAILED_PRECONDITION,
    Conflict: grpc.StatusCode.ABORTED,
    Expired: grpc.StatusCode.OUT_OF_RANGE,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    NotServed: grpc.StatusCode.UNIMPLEMENTED,
    DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    Cancelled: grpc.StatusCode.CANCELLED,
    TurnwireError: grpc.StatusCode.INTERNAL,
}

_INTERNAL_TEXT = "internal error; report the error_id in the details"
_MESSAGE_BYTES = 512
_VALUE_BYTES = 256
_PAIRS = 16
_VIOLATIONS = 16
_STATUS_BYTES = 4096


class WireStatus(NamedTuple):
    """What a call ends with; the first three are the arguments of `context.abort`."""

    code: grpc.StatusCode
    message: str
    trailing: tuple[tuple[str, bytes], ...]
    reason: str
    error_id: str


def code_of(error: type[BaseException]) -> grpc.StatusCode:
    """Return the code of an error class: its own or that of the nearest base in the table, else INTERNAL."""
    for base in error.__mro__:
        if base in CODES:
            return CODES[base]
    return grpc.StatusCode.INTERNAL


def unwrap(error: BaseException) -> BaseException:
    """Return what an exception group is about: the first error of ours in it, else its first unknown one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [unwrap(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, TurnwireError)), leaves[0])


def status_details(error: BaseException) -> WireStatus:
    """Return the status for any error: ours as documented, anything else INTERNAL with an id for the log."""
    error = unwrap(error)
    if isinstance(error, TurnwireError):
        message = cut(error.message, _MESSAGE_BYTES)
        details = [_error_info(error.reason, error.metadata), *_details(error, message)]
        return _assemble(code_of(type(error)), message, details, error.reason, "")
    if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNAVAILABLE:
        upstream = Unavailable("a service behind this one cannot be reached", reason="UNREACHABLE")
        return status_details(upstream)
    error_id = uuid.uuid4().hex
    details = [_error_info("INTERNAL", {"error_id": error_id})]
    return _assemble(grpc.StatusCode.INTERNAL, _INTERNAL_TEXT, details, "INTERNAL", error_id)


def _error_info(reason: str, metadata: dict[str, str]) -> Message:
    pairs = list(metadata.items())[:_PAIRS]
    info: Message = error_details_pb2.ErrorInfo(
        reason=reason, domain=DOMAIN, metadata={key: cut(str(value), _VALUE_BYTES) for key, value in pairs}
    )
    return info


def _details(error: TurnwireError, message: str) -> list[Message]:
    """Return what the standard has besides ErrorInfo for this kind of error, most useful first."""
    details: list[Message] = []
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(max(error.retry_after, 0.0) * 1000))
        details.append(retry)
    if isinstance(error, InvalidRequest) and error.violations:
        bad = error_details_pb2.BadRequest()
        for violation in error.violations[:_VIOLATIONS]:
            bad.field_violations.add(
                field=cut(violation.field, _VALUE_BYTES), description=cut(violation.description, _VALUE_BYTES)
            )
        details.append(bad)
    elif isinstance(error, NotFound | AlreadyExists):
        kind, value = _resource(error)
        details.append(error_details_pb2.ResourceInfo(resource_type=kind, resource_name=value))
    elif isinstance(error, WrongState):
        failure = error_details_pb2.PreconditionFailure()
        failure.violations.add(type=error.reason, subject=_resource(error)[1], description=message)
        details.append(failure)
    elif isinstance(error, Exhausted):
        quota = error_details_pb2.QuotaFailure()
        quota.violations.add(subject=error.reason, description=message)
        details.append(quota)
    return details


def _resource(error: TurnwireError) -> tuple[str, str]:
    """Return kind and name of the thing an error is about: its first metadata pair."""
    key, value = next(iter(error.metadata.items()), ("", ""))
    return key, cut(str(value), _VALUE_BYTES)


def _assemble(
    code: grpc.StatusCode, message: str, details: list[Message], reason: str, error_id: str
) -> WireStatus:
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        # Metadata of 8 KiB and more makes gRPC replace the whole status: drop what is too much.
        if status.ByteSize() + packed.ByteSize() <= _STATUS_BYTES or not status.details:
            status.details.append(packed)
    return WireStatus(code, message, ((DETAILS_KEY, status.SerializeToString()),), reason, error_id)
