"""Channels of links and clients: kept alive, balanced, bounded, and carrying token and trace by hand.

The metadata is added where a call is made. Client interceptors of grpc.aio would run each call in a task of
their own: that costs a third of a call and is in the way of cancellation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc

from turnwire.core.errors import FieldViolation, InvalidRequest
from turnwire.wire.certificates import read_pem
from turnwire.wire.telemetry import trace_metadata

if TYPE_CHECKING:
    from turnwire.core.settings import LinkSettings

__all__ = ["WireChannel", "channel_options", "open_channel", "open_link"]

_Pairs = Sequence[tuple[str, str | bytes]]
_MESSAGE_BYTES = 4 * 1024 * 1024
_SERVICE_CONFIG = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


def channel_options(max_message_bytes: int = _MESSAGE_BYTES) -> list[tuple[str, Any]]:
    """Return the options of every channel; servers here permit pings every 10 s, these come every 20."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.service_config", _SERVICE_CONFIG),
        # One connection per channel object: closing one must not depend on others in the process.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def open_link(settings: LinkSettings) -> WireChannel:
    """Open the channel that `settings` describe.

    Raises:
        WrongState: a certificate file cannot be read (CERTIFICATE_UNREADABLE).
        InvalidRequest: the token is not printable ASCII.
    """
    credentials = None
    if not settings.plaintext:
        credentials = grpc.ssl_channel_credentials(
            root_certificates=read_pem(settings.tls_ca),
            private_key=read_pem(settings.tls_key),
            certificate_chain=read_pem(settings.tls_cert),
        )
    token = settings.token.get_secret_value() if settings.token is not None else None
    return open_channel(settings.target, token=token, credentials=credentials)


def open_channel(
    target: str,
    *,
    token: str | None = None,
    credentials: grpc.ChannelCredentials | None = None,
    metadata: Sequence[tuple[str, str]] = (),
    max_message_bytes: int = _MESSAGE_BYTES,
) -> WireChannel:
    """Open a channel, plaintext without `credentials`; it connects with the first call.

    Args:
        token: bearer token of every call; give it only with TLS or to this machine.
        metadata: further pairs of every call, such as `turnwire-scope`.

    Raises:
        InvalidRequest: token or metadata hold something else than printable ASCII.
    """
    options = channel_options(max_message_bytes)
    if credentials is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    fixed: list[tuple[str, str | bytes]] = list(metadata)
    if token is not None:
        fixed.append(("authorization", f"Bearer {token}"))
    return WireChannel(channel, tuple(fixed))


def _require_ascii(pairs: _Pairs) -> None:
    """Refuse what gRPC answers with a low-level batch error that names nothing."""
    for key, value in pairs:
        if isinstance(value, str) and not (value.isascii() and (value.isprintable() or not value)):
            description = "metadata values are printable ASCII; other text belongs in messages or -bin keys"
            raise InvalidRequest(
                f"{key}: {description}", violations=(FieldViolation(key, description),), field=key
            )


class _Call:
    """A multicallable that adds the channel's metadata and the current trace to each call."""

    __slots__ = ("_fixed", "_inner")

    def __init__(self, inner: Callable[..., Any], fixed: tuple[tuple[str, str | bytes], ...]) -> None:
        self._inner, self._fixed = inner, fixed

    def __call__(self, *args: Any, metadata: _Pairs | None = None, **options: Any) -> Any:
        pairs = self._fixed + trace_metadata()
        if metadata:
            _require_ascii(metadata)
            pairs += tuple(metadata)
        return self._inner(*args, metadata=pairs or None, **options)


class WireChannel(grpc.aio.Channel):
    """A `grpc.aio.Channel` for generated stubs, with fixed metadata and the current trace on every call."""

    def __init__(self, inner: grpc.aio.Channel, fixed: tuple[tuple[str, str | bytes], ...]) -> None:
        _require_ascii(fixed)
        self._inner, self._fixed = inner, fixed

    def unary_unary(self, method: str, *args: Any, **options: Any) -> Any:
        """Return the multicallable for one method; so do the next three."""
        return _Call(self._inner.unary_unary(method, *args, **options), self._fixed)

    def unary_stream(self, method: str, *args: Any, **options: Any) -> Any:
        return _Call(self._inner.unary_stream(method, *args, **options), self._fixed)

    def stream_unary(self, method: str, *args: Any, **options: Any) -> Any:
        return _Call(self._inner.stream_unary(method, *args, **options), self._fixed)

    def stream_stream(self, method: str, *args: Any, **options: Any) -> Any:
        return _Call(self._inner.stream_stream(method, *args, **options), self._fixed)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._inner.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        """Close; calls still open get `grace` seconds."""
        await self._inner.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()
