"""How patient a client is: one place for the limits of connecting, resuming and silence."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire_client.backoff import Backoff
from turnwire_client.errors import TurnwireError, Unavailable

__all__ = ["Patience", "StreamPolicy"]


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits in seconds.

    Attributes:
        connect_time: how long a call without an answer yet is repeated while the server is unavailable.
        retry_time: how long a stream that has delivered something tries to resume, counted from the break.
        silence: longest time without any message, heartbeats included, before a stream is taken for dead.
            The servers send a heartbeat every 20 s. The sync client leaves this to keepalive.
    """

    connect_time: float = 10.0
    retry_time: float = 120.0
    silence: float = 70.0

    def stream(self, timeout: float | None, *, renews_token: bool = False) -> StreamPolicy:
        """Give the policy of one stream.

        Args:
            timeout: seconds that the reader may take; it never bounds the turn.
            renews_token: whether another attempt may carry another token.
        """
        return StreamPolicy(self.connect_time, self.retry_time, self.silence, timeout, renews_token)


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """The limits of one stream, in seconds."""

    connect_time: float
    retry_time: float
    silence: float
    timeout: float | None = None
    renews_token: bool = False

    def passes(self, error: TurnwireError) -> bool:
        """Tell whether another attempt can succeed where this one failed."""
        if isinstance(error, Unavailable):
            return True
        return self.renews_token and error.reason == "TOKEN_EXPIRED"

    def first_backoff(self) -> Backoff:
        """Give the delays before anything has arrived."""
        return Backoff(self.connect_time)

    def later_backoff(self) -> Backoff:
        """Give the delays after something has arrived."""
        return Backoff(self.retry_time)
