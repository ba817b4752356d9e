"""What an HTTP model needs of whatever sends its requests: a status, headers, and the bytes of the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from turnwire.extend.llm import FailureKind
from turnwire.runtime.models.base import OnSent
from turnwire.runtime.models.settings import LimitSettings

__all__ = ["OpenAnswer", "Transport", "TransportTrouble", "transport_trouble"]


class TransportTrouble(Exception):
    """The exchange failed for a reason of the network or of a time limit."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class OpenAnswer(Protocol):
    """One answer: its status is known, its body is read piece by piece under the limits of the call."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by names in any case."""
        ...

    async def read(self) -> bytes:
        """Return what has arrived, b"" at the end. Raises TransportTrouble."""
        ...

    async def read_error(self) -> str:
        """Return the start of an error body, as far as it comes within a short time."""
        ...

    def close(self) -> None:
        """End the exchange and its connection at once."""
        ...

    def finish(self) -> None:
        """End an exchange whose answer is complete."""
        ...


class Transport(Protocol):
    """Sends requests to one provider."""

    async def open(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: LimitSettings,
        *,
        on_sent: OnSent | None = None,
    ) -> OpenAnswer:
        """Send a POST and return as soon as the status and headers are there. Raises TransportTrouble."""
        ...


def transport_trouble(error: BaseException) -> TransportTrouble:
    """What an error of a network library is about, without its words."""
    if isinstance(error, TimeoutError):
        return TransportTrouble(FailureKind.TIMEOUT, "the connection timed out")
    detail = type(error).__name__
    reason = getattr(error, "os_error", error)
    if isinstance(reason, OSError) and reason.strerror:
        detail = reason.strerror
    return TransportTrouble(FailureKind.CONNECTION, f"the connection failed: {detail}")
