"""Provider trouble is named by kind, told in clean words, and marked as passing or not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from turnwire.extend.llm import FailureKind
from turnwire.runtime.models.failures import (
    clean_message,
    error_failure,
    http_failure,
    retry_after_of,
)


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        (
            400,
            {"message": "Invalid value", "type": "invalid_request_error"},
            FailureKind.INVALID_REQUEST,
            False,
        ),
        (
            400,
            {
                "message": "This model's maximum context length is 8192 tokens",
                "code": "context_length_exceeded",
            },
            FailureKind.CONTEXT_OVERFLOW,
            False,
        ),
        (400, {"message": "prompt is too long: 300000 tokens > 200000"}, FailureKind.CONTEXT_OVERFLOW, False),
        (400, {"message": "filtered", "code": "content_filter"}, FailureKind.CONTENT_FILTER, False),
        (400, {"message": "Your credit balance is too low"}, FailureKind.QUOTA, False),
        (401, {"message": "bad key"}, FailureKind.AUTH, False),
        (403, {"message": "no"}, FailureKind.AUTH, False),
        (402, {"message": "Insufficient Balance"}, FailureKind.QUOTA, False),
        (404, {"message": "no such model"}, FailureKind.INVALID_REQUEST, False),
        (408, {"message": "late"}, FailureKind.TIMEOUT, True),
        (413, {"message": "too large"}, FailureKind.CONTEXT_OVERFLOW, False),
        (422, {"message": "odd"}, FailureKind.INVALID_REQUEST, False),
        (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}, FailureKind.RATE_LIMIT, True),
        (
            429,
            {"message": "You exceeded your current quota", "code": "insufficient_quota"},
            FailureKind.QUOTA,
            False,
        ),
        (500, {"message": "oops"}, FailureKind.SERVER, True),
        (503, {"message": "busy"}, FailureKind.SERVER, True),
        (504, {"message": "late"}, FailureKind.TIMEOUT, True),
        (529, {"message": "Overloaded", "type": "overloaded_error"}, FailureKind.SERVER, True),
    ],
)
def test_an_http_error_is_named_by_kind(
    status: int, error: dict[str, str], kind: FailureKind, retryable: bool
) -> None:
    failure = http_failure(status, json.dumps({"error": error}), {}, provider="p")
    assert (failure.kind, failure.retryable, failure.status_code) == (kind, retryable, status)
    assert failure.message == f"HTTP {status}: {error['message']}"


def test_a_provider_that_says_do_not_repeat_is_believed() -> None:
    assert not http_failure(500, "", {"x-should-retry": "false"}, provider="p").retryable


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, FailureKind.SERVER, 0),
        ({"type": "rate_limit_error", "message": "slow"}, FailureKind.RATE_LIMIT, 0),
        ({"code": 429, "message": "slow"}, FailureKind.RATE_LIMIT, 429),
        ({"code": "502", "message": "bad gateway"}, FailureKind.SERVER, 502),
        ({"status": "UNAVAILABLE", "code": 503, "message": "busy"}, FailureKind.SERVER, 503),
        ("plain words", FailureKind.UNKNOWN, 0),
        ({"message": {"message": "inner"}}, FailureKind.UNKNOWN, 0),
        (None, FailureKind.UNKNOWN, 0),
    ],
)
def test_an_error_inside_a_stream_is_named_by_its_words(
    error: object, kind: FailureKind, status: int
) -> None:
    failure = error_failure(error, provider="p")
    assert (failure.kind, failure.status_code) == (kind, status)
    assert failure.message


def test_messages_carry_no_keys() -> None:
    text = clean_message(
        "Incorrect API key provided: sk-proj-abcdefghijkl. Bearer abcdefghijklmnop "
        "https://user:pass@host/x my-own-secret",
        ("my-own-secret",),
    )
    for secret in ("abcdefghijkl", "user:pass", "my-own-secret"):
        assert secret not in text


def test_a_page_becomes_a_line_of_bounded_length() -> None:
    page = "<html><head><style>a{}</style></head><body>\x00Bad\n\ngateway " + "x" * 2000 + "</body></html>"
    text = clean_message(page)
    assert text.removeprefix("\ufffd").startswith("Bad gateway xxx")
    assert len(text) == 500


def test_the_time_to_wait_is_read_in_all_its_forms() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after_of({"retry-after": "7"}) == 7
    assert retry_after_of({"retry-after": "1.5"}) == 1.5
    assert retry_after_of({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert 25 < (retry_after_of({"retry-after": later}) or 0) <= 30
    assert retry_after_of({"x-ms-retry-after-ms": "250"}) == 0.25
    assert retry_after_of({"retry-after": "999999"}) == 3600
    assert retry_after_of({"retry-after": "soon"}) is None
    assert retry_after_of({"retry-after-ms": "nan"}) is None
    assert retry_after_of({}) is None


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}


def test_the_time_to_wait_may_stand_in_the_error_itself() -> None:
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"other": 1}, RETRY_INFO]}
    body = json.dumps({"error": error})
    assert http_failure(429, body, {}, provider="p").retry_after_seconds == 34.5
    assert http_failure(429, body, {"retry-after": "0"}, provider="p").retry_after_seconds == 0
    assert error_failure(error, provider="p").retry_after_seconds == 34.5


@pytest.mark.parametrize("delay", ["soon", "-1s", "1e9s", 5, None, "s"])
def test_a_time_to_wait_that_is_none_is_not_taken(delay: object) -> None:
    error = {"code": 429, "details": [{"retryDelay": delay}]}
    assert error_failure(error, provider="p").retry_after_seconds is None
