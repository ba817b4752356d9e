"""The two channels of a sync client, opened on first use: calls go out here and errors are mapped here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage

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
from turnwire_client.channels import control_target_of
from turnwire_client.connection import ConnectionOptions, check_size
from turnwire_client.errors import Unavailable, from_rpc_error
from turnwire_client.operations import Operation
from turnwire_client.policy import Patience, StreamPolicy
from turnwire_client.sync_stream import StreamCall, TurnStream
from turnwire_client.thread_stream import ThreadStream

__all__ = ["SyncChannels"]

_R = TypeVar("_R", bound=ProtoMessage)


class SyncChannels:
    """Opens channels lazily; threads may share it."""

    def __init__(self, options: ConnectionOptions, control_target: str, patience: Patience) -> None:
        self._options = options
        self._control_target = control_target
        self._patience = patience
        self._open: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """End all calls and close both channels; a later call opens them again."""
        with self._lock:
            channels, self._open = list(self._open.values()), {}
        for channel in channels:
            channel.close()

    def unary(self, operation: Operation[_R]) -> _R:
        """Carry out one call; repeat it within the connect time while the server is unavailable.

        Raises:
            TurnwireError: whatever the call ended with.
        """
        check_size(operation.request)
        target = self._target(operation.path)
        backoff = Backoff(self._patience.connect_time)
        while True:
            method = self._channel(target).unary_unary(
                operation.path,
                request_serializer=type(operation.request).SerializeToString,
                response_deserializer=operation.response.FromString,
            )
            try:
                answer: _R = method(operation.request, timeout=operation.timeout, metadata=self._metadata())
                return answer
            except grpc.RpcError as caught:
                error = from_rpc_error(caught)
                delay = backoff.next_delay(error.retry_delay) if isinstance(error, Unavailable) else None
                if delay is None:
                    raise error from None
            time.sleep(delay)

    def pages(self, page: Callable[[str], Operation[_R]]) -> Iterator[_R]:
        """Give the answers of a list method, one page after the other."""
        token = ""
        while True:
            answer: Any = self.unary(page(token))
            yield answer
            token = answer.next_page_token
            if not token:
                return

    def follow(self, request: RunTurnRequest | WatchTurnRequest, timeout: float | None) -> TurnStream:
        """Give a stream over a turn's events; nothing is sent before it is entered."""
        check_size(request)
        return TurnStream(self._stream, request, self.policy(timeout))

    def watch_thread(self, request: WatchThreadRequest, timeout: float | None) -> ThreadStream:
        """Give a stream over a thread's changes; nothing is sent before it is read."""
        return ThreadStream(self._watch_thread, request, self.policy(timeout))

    def _watch_thread(self, request: WatchThreadRequest, timeout: float | None) -> StreamCall:
        method = self._channel(self._options.target).unary_stream(
            operations.WATCH_THREAD,
            request_serializer=WatchThreadRequest.SerializeToString,
            response_deserializer=WatchThreadResponse.FromString,
        )
        return method(request, timeout=timeout, metadata=self._metadata())

    def read_result(self, request: ReadToolResultRequest) -> StreamCall:
        """Open the stream of a stored result's bytes."""
        method = self._channel(self._options.target).unary_stream(
            operations.READ_TOOL_RESULT,
            request_serializer=ReadToolResultRequest.SerializeToString,
            response_deserializer=ReadToolResultResponse.FromString,
        )
        return method(request, metadata=self._metadata())

    def watch_actions(self, request: WatchActionsRequest) -> Any:
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

    def _stream(self, request: RunTurnRequest | WatchTurnRequest, timeout: float | None) -> StreamCall:
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

    def _channel(self, target: str) -> grpc.Channel:
        with self._lock:
            channel = self._open.get(target)
            if channel is None:
                channel = self._open[target] = self._make(replace(self._options, target=target))
            return channel

    @staticmethod
    def _make(options: ConnectionOptions) -> grpc.Channel:
        arguments = options.channel_options()
        if options.tls is None:
            return grpc.insecure_channel(options.target, options=arguments)
        return grpc.secure_channel(options.target, options.tls.credentials(), options=arguments)

    def _target(self, path: str) -> str:
        if not path.startswith(operations.CONTROL):
            return self._options.target
        if not self._control_target:
            self._control_target = control_target_of(self.unary(operations.server_info()))
        return self._control_target
