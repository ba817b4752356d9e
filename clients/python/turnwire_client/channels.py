"""The two channels of an async client, opened on first use: calls go out here and errors are mapped here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage

from turnwire.api.runtime.v1.agent_service_pb2 import GetServerInfoResponse
from turnwire.api.runtime.v1.thread_service_pb2 import WatchThreadRequest, WatchThreadResponse
from turnwire.api.runtime.v1.turn_service_pb2 import (
    ReadToolResultRequest,
    ReadToolResultResponse,
    RunTurnRequest,
    RunTurnResponse,
    WatchActionsRequest,
    WatchActionsResponse,
    WatchTurnRequest,
    WatchTurnResponse,
)
from turnwire_client import operations
from turnwire_client.backoff import Backoff
from turnwire_client.connection import ConnectionOptions, check_size
from turnwire_client.errors import Unavailable, WrongState, from_rpc_error
from turnwire_client.operations import Operation
from turnwire_client.policy import Patience, StreamPolicy
from turnwire_client.stream import AsyncTurnStream
from turnwire_client.thread_stream import AsyncThreadStream

__all__ = ["AsyncChannels", "control_target_of"]

_R = TypeVar("_R", bound=ProtoMessage)


def control_target_of(info: GetServerInfoResponse) -> str:
    """Read where the control service is.

    Raises:
        WrongState: CONTROL_TARGET_UNKNOWN, when the runtime does not tell.
    """
    if not info.control_target:
        raise WrongState(
            "the runtime does not tell where its control service is: give control_target",
            reason="CONTROL_TARGET_UNKNOWN",
        )
    return info.control_target


class AsyncChannels:
    """Opens channels lazily, so that a client can be made outside an event loop."""

    def __init__(self, options: ConnectionOptions, control_target: str, patience: Patience) -> None:
        self._options = options
        self._control_target = control_target
        self._patience = patience
        self._open: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        """End all calls and close both channels; a later call opens them again."""
        channels, self._open = list(self._open.values()), {}
        for channel in channels:
            await channel.close()

    async def unary(self, operation: Operation[_R]) -> _R:
        """Carry out one call; repeat it within the connect time while the server is unavailable.

        Raises:
            TurnwireError: whatever the call ended with.
        """
        check_size(operation.request)
        target = await self._target(operation.path)
        backoff = Backoff(self._patience.connect_time)
        while True:
            method = self._channel(target).unary_unary(
                operation.path,
                request_serializer=type(operation.request).SerializeToString,
                response_deserializer=operation.response.FromString,
            )
            try:
                answer: _R = await method(
                    operation.request, timeout=operation.timeout, metadata=self._metadata()
                )
                return answer
            except grpc.RpcError as caught:
                error = from_rpc_error(caught)
                delay = backoff.next_delay(error.retry_delay) if isinstance(error, Unavailable) else None
                if delay is None:
                    raise error from None
            await asyncio.sleep(delay)

    async def pages(self, page: Callable[[str], Operation[_R]]) -> AsyncIterator[_R]:
        """Give the answers of a list method, one page after the other."""
        token = ""
        while True:
            answer: Any = await self.unary(page(token))
            yield answer
            token = answer.next_page_token
            if not token:
                return

    def follow(self, request: RunTurnRequest | WatchTurnRequest, timeout: float | None) -> AsyncTurnStream:
        """Give a stream over a turn's events; nothing is sent before it is entered."""
        check_size(request)
        return AsyncTurnStream(self._stream, request, self.policy(timeout))

    def watch_thread(self, request: WatchThreadRequest, timeout: float | None) -> AsyncThreadStream:
        """Give a stream over a thread's changes; nothing is sent before it is read."""
        return AsyncThreadStream(self._watch_thread, request, self.policy(timeout))

    def _watch_thread(
        self, request: WatchThreadRequest, timeout: float | None
    ) -> grpc.aio.UnaryStreamCall[Any, Any]:
        method = self._channel(self._options.target).unary_stream(
            operations.WATCH_THREAD,
            request_serializer=WatchThreadRequest.SerializeToString,
            response_deserializer=WatchThreadResponse.FromString,
        )
        return method(request, timeout=timeout, metadata=self._metadata())

    def read_result(
        self, request: ReadToolResultRequest
    ) -> grpc.aio.UnaryStreamCall[Any, ReadToolResultResponse]:
        """Open the stream of a stored result's bytes."""
        method = self._channel(self._options.target).unary_stream(
            operations.READ_TOOL_RESULT,
            request_serializer=ReadToolResultRequest.SerializeToString,
            response_deserializer=ReadToolResultResponse.FromString,
        )
        return method(request, metadata=self._metadata())

    def watch_actions(
        self, request: WatchActionsRequest
    ) -> grpc.aio.UnaryStreamCall[Any, WatchActionsResponse]:
        """Open a stream of actions."""
        method = self._channel(self._options.target).unary_stream(
            operations.WATCH_ACTIONS,
            request_serializer=WatchActionsRequest.SerializeToString,
            response_deserializer=WatchActionsResponse.FromString,
        )
        return method(request, metadata=self._metadata())

    def policy(self, timeout: float | None) -> StreamPolicy:
        """Give the limits of one stream."""
        return self._patience.stream(timeout, renews_token=callable(self._options.token))

    def _stream(
        self, request: RunTurnRequest | WatchTurnRequest, timeout: float | None
    ) -> grpc.aio.UnaryStreamCall[Any, Any]:
        runs = isinstance(request, RunTurnRequest)
        deserializer: Callable[[bytes], Any] = (
            RunTurnResponse.FromString if runs else WatchTurnResponse.FromString
        )
        method = self._channel(self._options.target).unary_stream(
            operations.RUN_TURN if runs else operations.WATCH_TURN,
            request_serializer=type(request).SerializeToString,
            response_deserializer=deserializer,
        )
        return method(request, timeout=timeout, metadata=self._metadata())

    def _metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return tuple(self._options.metadata())

    def _channel(self, target: str) -> grpc.aio.Channel:
        channel = self._open.get(target)
        if channel is None:
            options = replace(self._options, target=target)
            if options.tls is not None:
                channel = grpc.aio.secure_channel(
                    target, options.tls.credentials(), options=options.channel_options()
                )
            else:
                channel = grpc.aio.insecure_channel(target, options=options.channel_options())
            self._open[target] = channel
        return channel

    async def _target(self, path: str) -> str:
        if not path.startswith(operations.CONTROL):
            return self._options.target
        if not self._control_target:
            self._control_target = control_target_of(await self.unary(operations.server_info()))
        return self._control_target
