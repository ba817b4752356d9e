"""Provider trouble becomes one typed `StreamFailure`: kind, cleaned message, whether a repeat makes sense.

The provider's own words are kept because people need them, but never more than 500 characters and never with
anything that looks like a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from turnwire.core.text import repair
from turnwire.extend.llm import FailureKind, StreamFailure

__all__ = [
    "MAX_MESSAGE",
    "MAX_PARTIAL_BYTES",
    "clean_message",
    "error_failure",
    "failure_of",
    "http_failure",
    "parse_error",
    "retry_after_of",
]

MAX_MESSAGE = 500
MAX_PARTIAL_BYTES = 256 * 1024
MAX_RETRY_AFTER = 3600.0

_SECRETS = re.compile(
    r"(?i)\b(?:sk|pk|rk|gsk|xai|key|api)[-_][a-z0-9_*.\-]{6,}|\bAIza[\w\-]{10,}|\beyJ[\w\-]{8,}\.[\w\-.]+"
    r"|\b(?:bearer|basic)\s+[\w.~+/=\-]{8,}|(?<=//)[^/\s@]+:[^/\s@]+@"
)
_TAGS = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^<>]{1,500}>", re.S | re.I)
_OVERFLOW = re.compile(
    r"context[ _]length|context[ _]window|maximum context|prompt is too long|too many (?:input )?tokens"
    r"|input (?:is )?too long|exceeds? the (?:model's )?(?:maximum )?(?:context|token limit|input token)"
    r"|exceed_context_size|string_above_max_length|request too large for"
)
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
_QUOTA = re.compile(
    r"insufficient[ _](?:quota|balance|credits?)|billing_(?:error|hard_limit|not_active)|credit balance"
    r"|exceeded your current quota"
)
_FILTER = re.compile(r"content[ _](?:filter|policy)|responsibleaipolicy|safety system")

_BY_WORD = {
    "authentication_error": FailureKind.AUTH,
    "permission_error": FailureKind.AUTH,
    "invalid_api_key": FailureKind.AUTH,
    "rate_limit_error": FailureKind.RATE_LIMIT,
    "rate_limit_exceeded": FailureKind.RATE_LIMIT,
    "tokens": FailureKind.RATE_LIMIT,
    "requests": FailureKind.RATE_LIMIT,
    "resource_exhausted": FailureKind.RATE_LIMIT,
    "billing_error": FailureKind.QUOTA,
    "insufficient_quota": FailureKind.QUOTA,
    "overloaded_error": FailureKind.SERVER,
    "api_error": FailureKind.SERVER,
    "server_error": FailureKind.SERVER,
    "internal_error": FailureKind.SERVER,
    "unavailable": FailureKind.SERVER,
    "timeout_error": FailureKind.TIMEOUT,
    "context_length_exceeded": FailureKind.CONTEXT_OVERFLOW,
    "request_too_large": FailureKind.CONTEXT_OVERFLOW,
    "content_filter": FailureKind.CONTENT_FILTER,
    "content_policy_violation": FailureKind.CONTENT_FILTER,
    "invalid_request_error": FailureKind.INVALID_REQUEST,
    "not_found_error": FailureKind.INVALID_REQUEST,
    "model_not_found": FailureKind.INVALID_REQUEST,
}
_BY_STATUS = {
    401: FailureKind.AUTH,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTH,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER,
    413: FailureKind.CONTEXT_OVERFLOW,
    425: FailureKind.SERVER,
    429: FailureKind.RATE_LIMIT,
    504: FailureKind.TIMEOUT,
}
_RETRYABLE = frozenset(
    {
        FailureKind.RATE_LIMIT,
        FailureKind.SERVER,
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.INCOMPLETE,
    }
)


def clean_message(text: str, secrets: tuple[str, ...] = ()) -> str:
    """One line of at most 500 characters without markup, control characters or keys."""
    text = text[:20_000]
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "***")
    if "<" in text and re.search(r"<(?:!doctype|html|head|body)\b", text, re.I):
        text = _TAGS.sub(" ", text)
    text = _SECRETS.sub("***", repair(text))
    text = " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in text).split())
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def failure_of(
    kind: FailureKind,
    message: str,
    *,
    provider: str = "",
    status_code: int = 0,
    retry_after: float | None = None,
    retryable: bool | None = None,
    partial: str = "",
    secrets: tuple[str, ...] = (),
) -> StreamFailure:
    """Build a failure; whether it is retryable follows from the kind unless said otherwise."""
    return StreamFailure(
        kind,
        clean_message(message, secrets) or kind.value,
        provider=provider,
        status_code=status_code,
        retry_after_seconds=retry_after,
        retryable=kind in _RETRYABLE if retryable is None else retryable,
        partial_content=partial,
    )


def error_failure(error: Any, *, provider: str, status: int = 0, partial: str = "") -> StreamFailure:
    """The failure for an error object of a provider, inside a stream or as the body of an HTTP error."""
    message, words = _read_error(error)
    code = status or _status_in(error)
    return failure_of(
        _kind(code, words, message),
        message or "the provider reported an error without a message",
        provider=provider,
        status_code=code,
        retry_after=_delay_in(error),
        partial=partial,
    )


def http_failure(
    status: int, body: str, headers: Mapping[str, str], *, provider: str, secrets: tuple[str, ...] = ()
) -> StreamFailure:
    """The failure for an HTTP answer that is not a stream; `body` is what could be read of it."""
    error = parse_error(body)
    message, words = _read_error(error) if error is not None else (body, [])
    kind = _kind(status, words, message)
    message = clean_message(message, secrets) or "no explanation"
    retryable = None if headers.get("x-should-retry", "") != "false" else False
    asked = retry_after_of(headers)
    return failure_of(
        kind,
        f"HTTP {status}: {message}",
        provider=provider,
        status_code=status,
        retry_after=asked if asked is not None else _delay_in(error),
        retryable=retryable,
        secrets=secrets,
    )


def parse_error(body: str) -> Any:
    """The error object in a JSON body, or None."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, dict):
        return None
    return found.get("error") or found


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the provider asks, between 0 and one hour; None if it does not say."""
    try:
        if millis := headers.get("retry-after-ms") or headers.get("x-ms-retry-after-ms"):
            seconds = float(millis) / 1000
        elif value := headers.get("retry-after"):
            seconds = _seconds(value)
        else:
            return None
    except (ValueError, TypeError):
        return None
    return _bounded(seconds)


def _bounded(seconds: float) -> float | None:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if seconds == seconds else None


def _delay_in(error: Any) -> float | None:
    """The delay that an error object itself asks for, as those of Google do: `retryDelay: "34.5s"`."""
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (found := _DELAY.fullmatch(delay)):
            return _bounded(float(found[1]))
    return None


def _seconds(value: str) -> float:
    if value.strip().replace(".", "", 1).isdigit():
        return float(value)
    return (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()


def _read_error(error: Any) -> tuple[str, list[str]]:
    if isinstance(error, str):
        return error, []
    if not isinstance(error, dict):
        return "", []
    words = [str(error[key]).lower() for key in ("code", "type", "status") if error.get(key) is not None]
    inner = error.get("message") or error.get("detail") or error.get("error") or ""
    if isinstance(inner, dict):
        inner = inner.get("message") or ""
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        inner = f"{inner}: {metadata['raw']}"
    return (inner if isinstance(inner, str) else str(inner)), words


def _status_in(error: Any) -> int:
    if isinstance(error, dict):
        for key in ("status_code", "code", "status"):
            value = error.get(key)
            if isinstance(value, str) and value.isdigit():
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
                return value
    return 0


def _kind(status: int, words: list[str], message: str) -> FailureKind:
    text = " ".join([*words, message[:4000]]).lower()
    if _OVERFLOW.search(text):
        return FailureKind.CONTEXT_OVERFLOW
    if status in (0, 400, 402, 403, 429) and _QUOTA.search(text):
        return FailureKind.QUOTA
    if status in (0, 400, 403) and _FILTER.search(text):
        return FailureKind.CONTENT_FILTER
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return FailureKind.SERVER
    for word in words:
        if word in _BY_WORD:
            return _BY_WORD[word]
    return FailureKind.INVALID_REQUEST if status >= 400 else FailureKind.UNKNOWN
