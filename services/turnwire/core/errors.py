"""Every error that turnwire raises on purpose: the class decides the gRPC code, the reason names the case.

The wire form is `google.rpc.ErrorInfo` with domain `turnwire.dev`; the reasons are documented one by one in
`turnwire/api/common/v1/error_reason.proto` and on the page `docs/errors.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "Cancelled",
    "Conflict",
    "DeadlineExceeded",
    "Exhausted",
    "Expired",
    "FieldViolation",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "NotServed",
    "TurnwireError",
    "Unauthenticated",
    "Unavailable",
    "WrongState",
]


class TurnwireError(Exception):
    """Base of every error we raise on purpose.

    Args:
        reason: UPPER_SNAKE word of the error catalog, at most 63 characters.
        message: one sentence for a person, with the way out; never parsed by programs.
        retry_after: seconds after which a repeat makes sense, for errors that pass.
        metadata: whatever varies in the message, once more for programs; ASCII keys, text values.
    """

    default_reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self, message: str, /, *, reason: str = "", retry_after: float | None = None, **metadata: str
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.retry_after = retry_after
        self.metadata = metadata


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One thing wrong with one field of a request; `field` is the proto path, as in `spec.limits.steps`."""

    field: str
    description: str


class InvalidRequest(TurnwireError):
    """The request can never succeed as it is: fix it. INVALID_ARGUMENT."""

    default_reason = "INVALID_REQUEST"

    def __init__(
        self,
        message: str,
        /,
        *,
        reason: str = "",
        violations: Sequence[FieldViolation] = (),
        **metadata: str,
    ) -> None:
        super().__init__(message, reason=reason, retry_after=None, **metadata)
        self.violations = tuple(violations)


class NotFound(TurnwireError):
    """No such thing in the caller's scope. NOT_FOUND."""

    default_reason = "THREAD_NOT_FOUND"


class AlreadyExists(TurnwireError):
    """The name or request id is taken by something else. ALREADY_EXISTS."""

    default_reason = "REQUEST_ID_REUSED"


class WrongState(TurnwireError):
    """The thing exists and is in a state that forbids this. FAILED_PRECONDITION."""

    default_reason = "TURN_ALREADY_TERMINAL"


class Conflict(TurnwireError):
    """Someone else changed it first: read again and repeat. ABORTED."""

    default_reason = "THREAD_CHANGED"


class Expired(TurnwireError):
    """Outside the range that is kept or exists. OUT_OF_RANGE."""

    default_reason = "EVENTS_EXPIRED"


class Exhausted(TurnwireError):
    """A quota or limit is used up. RESOURCE_EXHAUSTED."""

    default_reason = "TURN_QUOTA_EXCEEDED"


class Unavailable(TurnwireError):
    """Not now: repeat after a while. UNAVAILABLE."""

    default_reason = "OVERLOADED"


class Unauthenticated(TurnwireError):
    """No valid credentials. UNAUTHENTICATED."""

    default_reason = "CREDENTIALS_MISSING"


class Forbidden(TurnwireError):
    """Valid credentials without the role that this method needs. PERMISSION_DENIED."""

    default_reason = "ROLE_MISSING"


class NotServed(TurnwireError):
    """Part of the contract that this server does not serve. UNIMPLEMENTED."""

    default_reason = "FEATURE_NOT_SERVED"


class DeadlineExceeded(TurnwireError):
    """The caller's time ran out before the answer; what was asked may have happened. DEADLINE_EXCEEDED."""

    default_reason = "DEADLINE_EXCEEDED"


class Cancelled(TurnwireError):
    """The call was cancelled before the answer; what was asked may have happened. CANCELLED."""

    default_reason = "CALL_CANCELLED"
