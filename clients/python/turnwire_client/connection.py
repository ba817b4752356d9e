"""How a channel to turnwire is made: keepalive, sizes, balancing and credentials, once for both clients."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from turnwire_client.errors import Exhausted

__all__ = ["ConnectionOptions", "MAX_MESSAGE_BYTES", "Tls", "Token", "check_size", "is_local"]

MAX_MESSAGE_BYTES = 4 * 1024 * 1024

Token = str | Callable[[], str]

# The servers accept a ping every 10 s on a silent stream; a faster client would be sent away.
_KEEPALIVE_TIME_MS = 10_000
_KEEPALIVE_TIMEOUT_MS = 10_000

_SERVICE_CONFIG = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS with certificates in PEM; without `ca` the system's roots are used.

    `cert` and `key` prove who the client is, where the server asks for that.
    """

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """Give the channel credentials."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.cert)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What every call of one client has in common.

    Raises:
        ValueError: token or scope cannot travel as metadata, or a token would cross the network in clear.
    """

    target: str
    token: Token | None = field(default=None, repr=False)
    tls: Tls | None = None
    scope: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        if not self.target:
            raise ValueError("the target is empty: give host:port, for example 127.0.0.1:50051")
        _require_ascii("scope", self.scope)
        if self.token and not self.tls and not self.insecure and not is_local(self.target):
            raise ValueError(
                f"a token would travel to {self.target} in clear: give tls=Tls(...), "
                "or insecure=True to allow it"
            )
        if isinstance(self.token, str):
            _require_ascii("token", self.token)

    def channel_options(self) -> list[tuple[str, Any]]:
        """Give the channel arguments that match the servers' profile."""
        options: list[tuple[str, Any]] = [
            ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
            # A server that restarts should be found again within a second or two, not within two minutes.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 5_000),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.service_config", _SERVICE_CONFIG),
            # Two clients of one process, say with different tokens, share no connection and no back-off.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if is_local(self.target):
            options.append(("grpc.enable_http_proxy", 0))
        return options

    def metadata(self) -> list[tuple[str, str | bytes]]:
        """Give the metadata of one call; a token that is a function is asked each time.

        Raises:
            ValueError: the token has characters that cannot travel as metadata.
        """
        pairs: list[tuple[str, str | bytes]] = []
        if self.token:
            token = self.token() if callable(self.token) else self.token
            _require_ascii("token", token)
            pairs.append(("authorization", f"Bearer {token}"))
        if self.scope:
            pairs.append(("turnwire-scope", self.scope))
        return pairs


def is_local(target: str) -> bool:
    """Tell whether a target stays on this machine."""
    if target.startswith("unix:"):
        return True
    address = target.rsplit("/", 1)[-1]
    host = address.rsplit(":", 1)[0] if address.count(":") == 1 or "]" in address else address
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_size(request: Any) -> None:
    """Refuse a request that the transport would refuse, with a text that says what to do.

    Raises:
        Exhausted: MESSAGE_TOO_LARGE, with `size` and `limit` in its metadata; repeating does not help.
    """
    size = request.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise Exhausted(
            f"the request has {size} bytes and the limit is {MAX_MESSAGE_BYTES}: "
            "send less, or a handle or an address",
            reason="MESSAGE_TOO_LARGE",
            metadata={"size": str(size), "limit": str(MAX_MESSAGE_BYTES)},
        )


def _require_ascii(name: str, value: str) -> None:
    # A value outside ASCII breaks the call deep inside the transport, with a text that names no field.
    if any(not " " <= character <= "~" for character in value):
        raise ValueError(f"{name} must be printable ASCII, since it travels as metadata")
