"""What pydantic-ai raises becomes a typed failure. It is told apart by name, so nothing is imported."""

from __future__ import annotations

from typing import Any

from turnwire.extend.llm import FailureKind, StreamFailure
from turnwire.runtime.models.failures import error_failure, failure_of

__all__ = ["bridge_failure"]

# By class name, along the MRO of the exception, nearest first.
_KINDS = {
    "ContentFilterError": FailureKind.CONTENT_FILTER,
    "ModelContextWindowExceededError": FailureKind.CONTEXT_OVERFLOW,
    "ModelQuotaExceededError": FailureKind.QUOTA,
    "ModelRateLimitError": FailureKind.RATE_LIMIT,
    "ModelAuthenticationError": FailureKind.AUTH,
    "ModelTimeoutError": FailureKind.TIMEOUT,
    "ModelRequestTimeout": FailureKind.TIMEOUT,
    "ModelConnectionError": FailureKind.CONNECTION,
    "ModelServerError": FailureKind.SERVER,
    "ModelUnavailableError": FailureKind.SERVER,
    "ModelRequestRejectedError": FailureKind.INVALID_REQUEST,
    "UserError": FailureKind.INVALID_REQUEST,
    "NotImplementedError": FailureKind.INVALID_REQUEST,
    "ImportError": FailureKind.INVALID_REQUEST,
    "ValueError": FailureKind.INVALID_REQUEST,
    "UnexpectedModelBehavior": FailureKind.SERVER,
}
# Whose texts are for people; what others say may be anything.
_SPEAKING = frozenset({"AgentRunError", "UserError", "NotImplementedError", "ImportError", "ValueError"})


def bridge_failure(error: Exception, secrets: tuple[str, ...] = ()) -> StreamFailure:
    """Return the failure for whatever the library, or an SDK below it, raised."""
    if isinstance(error, TimeoutError):
        return failure_of(FailureKind.TIMEOUT, "the answer passed a time limit")
    names = [kind.__name__ for kind in type(error).__mro__]
    status = getattr(error, "status_code", 0)
    status = status if isinstance(status, int) else 0
    text = str(error) if _SPEAKING.intersection(names) else f"unexpected {type(error).__name__}"
    kind = next((_KINDS[name] for name in names if name in _KINDS), FailureKind.UNKNOWN)
    if kind is FailureKind.UNKNOWN and status:
        kind = error_failure({"code": status, "message": text}, provider="").kind
    retry_after: Any = getattr(error, "retry_after", None)
    seconds = float(retry_after) if isinstance(retry_after, (int, float)) else None
    return failure_of(kind, text, status_code=status, retry_after=seconds, secrets=secrets)
