"""A tiny service of well-known types whose behaviors each test writes down, served by the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue

from turnwire.core.settings import ListenSettings
from turnwire.wire.channel import WireChannel, open_channel
from turnwire.wire.server import WireServer, build_server
from turnwire.wire.services import Service

SERVICE = "test.Echo"


@dataclass(frozen=True)
class Echo:
    """What the four methods do; the default answers with what it got."""

    unary: Callable[[Any, Any], Any] | None = None
    stream: Callable[[Any, Any], Any] | None = None
    connect: Callable[[Any, Any], Any] | None = None
    collect: Callable[[Any, Any], Any] | None = None


async def _unary(request: Any, context: Any) -> Any:
    return request


async def _stream(request: Any, context: Any) -> AsyncIterator[Any]:
    yield request
    yield request


async def _connect(requests: Any, context: Any) -> None:
    async for request in requests:
        await context.write(request)


async def _collect(requests: Any, context: Any) -> Any:
    return StringValue(value="".join([request.value async for request in requests]))


def _register(echo: Echo, server: Any) -> None:
    codec = {
        "request_deserializer": StringValue.FromString,
        "response_serializer": StringValue.SerializeToString,
    }
    server.add_registered_method_handlers(
        SERVICE,
        {
            "Unary": grpc.unary_unary_rpc_method_handler(echo.unary or _unary, **codec),
            "Stream": grpc.unary_stream_rpc_method_handler(echo.stream or _stream, **codec),
            "Connect": grpc.stream_stream_rpc_method_handler(echo.connect or _connect, **codec),
            "Collect": grpc.stream_unary_rpc_method_handler(echo.collect or _collect, **codec),
        },
    )


def service(echo: Echo | None = None, *passthrough: str) -> Service:
    return Service(_register, echo or Echo(), frozenset(passthrough))


class Stub:
    """The client side, made by hand as generated code would."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        codec = {
            "request_serializer": StringValue.SerializeToString,
            "response_deserializer": StringValue.FromString,
        }
        self.unary = channel.unary_unary(f"/{SERVICE}/Unary", **codec)
        self.stream = channel.unary_stream(f"/{SERVICE}/Stream", **codec)
        self.connect = channel.stream_stream(f"/{SERVICE}/Connect", **codec)
        self.collect = channel.stream_unary(f"/{SERVICE}/Collect", **codec)
        self.raw = channel.unary_unary(f"/{SERVICE}/Unary")
        self.raw_stream = channel.unary_stream(f"/{SERVICE}/Stream")
        self.raw_connect = channel.stream_stream(f"/{SERVICE}/Connect")
        self.missing = channel.unary_unary(f"/{SERVICE}/Missing", **codec)


@dataclass
class Rig:
    server: WireServer
    channel: WireChannel
    stub: Stub


@asynccontextmanager
async def running(
    echo: Echo | None = None,
    *,
    passthrough: tuple[str, ...] = (),
    listen: ListenSettings | None = None,
    token: str | None = None,
    **options: Any,
) -> AsyncIterator[Rig]:
    """Serve `echo` on a free port of loopback, with a channel to it."""
    options.setdefault("roles", {})
    server = build_server(listen or ListenSettings(), [service(echo, *passthrough)], **options)
    port = await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}", token=token) as channel:
            yield Rig(server, channel, Stub(channel))
    finally:
        await server.stop(0.0)


def text(value: str) -> StringValue:
    return StringValue(value=value)
