"""Opaque tokens: where a client's outcomes go on after a reconnect, and where a listing goes on."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from turnwire.core.errors import FieldViolation, InvalidRequest

__all__ = ["page_token", "read_page_token", "read_resume_token", "resume_token"]


def resume_token(ledger_id: str, position: int) -> str:
    """Return the token for everything behind `position` of one ledger."""
    return f"{ledger_id}.{position:x}"


def read_resume_token(text: str, ledger_id: str) -> int:
    """Return the position of a token.

    A token of another ledger, as after a restore, gives 0: outcomes come again rather than not at all.

    Raises:
        InvalidRequest: it is not one of our tokens.
    """
    owner, _, position = text.partition(".")
    try:
        number = int(position, 16)
    except ValueError:
        number = -1
    if number < 0 or not owner or len(text) > 64:
        description = "is none that this service has given"
        raise InvalidRequest(
            f"hello.resume_token {description}",
            violations=(FieldViolation("hello.resume_token", description),),
            field="hello.resume_token",
        )
    return number if owner == ledger_id else 0


def page_token(entry: int, *request: str) -> str:
    """Return the token for the rows before `entry`, for a request with the same other fields."""
    body = json.dumps([entry, _digest(request)], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def read_page_token(text: str, *request: str) -> int:
    """Return where to go on.

    Raises:
        InvalidRequest: PAGE_TOKEN_MISMATCH, it belongs to another request or is none of ours.
    """
    entry, digest = _decode(text)
    if digest != _digest(request):
        raise InvalidRequest(
            "the page token belongs to another request: begin again without it", reason="PAGE_TOKEN_MISMATCH"
        )
    return entry


def _decode(text: str) -> tuple[int, str]:
    try:
        value: Any = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        return 0, ""
    match value:
        case [int(entry), str(digest)] if len(value) == 2:
            return entry, digest
    return 0, ""


def _digest(request: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(request).encode()).hexdigest()[:16]
