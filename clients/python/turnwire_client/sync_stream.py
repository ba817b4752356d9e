"""A turn's events as a plain iterator that survives lost connections and ends its call with its scope."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

import grpc

from turnwire.api.runtime.v1.turn_event_pb2 import TurnEvent
from turnwire.api.runtime.v1.turn_service_pb2 import (
    RunTurnRequest,
    RunTurnResponse,
    StreamHeader,
    WatchTurnRequest,
    WatchTurnResponse,
)
from turnwire_client.errors import TurnwireError, Unavailable, from_rpc_error
from turnwire_client.follow import Follow
from turnwire_client.policy import StreamPolicy

__all__ = ["StreamCall", "TurnStream"]


class StreamCall(Protocol):
    """What a sync stub returns for a server stream."""

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def cancel(self) -> bool: ...


class TurnStream:
    """The events of one turn, each once and in order, over as many connections as it takes.

    Use it in `with`: entering connects and reads the header, leaving cancels the call. That detaches the
    reader and does not stop the turn. `close` may be called from another thread.
    """

    def __init__(
        self,
        connect: Callable[[RunTurnRequest | WatchTurnRequest, float | None], StreamCall],
        request: RunTurnRequest | WatchTurnRequest,
        policy: StreamPolicy,
    ) -> None:
        self._connect = connect
        self._follow = Follow(request)
        self._policy = policy
        self._ends = None if policy.timeout is None else time.monotonic() + policy.timeout
        self._backoff = policy.first_backoff()
        self._pending: deque[TurnEvent] = deque()
        self._call: StreamCall | None = None
        self._closed = False
        self.last_sequence = request.after_sequence

    @property
    def header(self) -> StreamHeader:
        """The header of the first connection. Raises: RuntimeError before the stream is entered."""
        if self._follow.header is None:
            raise RuntimeError("the stream has no header yet: enter it with `with`")
        return self._follow.header

    @property
    def turn(self) -> str:
        """Name of the turn; empty before the stream is entered."""
        return self._follow.turn

    @property
    def finished(self) -> bool:
        """Whether the turn has ended and every event has been taken in."""
        return self._follow.finished

    def __enter__(self) -> Self:
        """Connect and read the header.

        Raises:
            TurnwireError: the server refused, or could not be reached within the connect time.
        """
        try:
            while self._follow.header is None and self._receive():
                pass
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Detach from the turn: cancel the call and end the iteration."""
        self._closed = True
        self._drop()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TurnEvent:
        """Give the next event.

        Raises:
            TurnwireError: the stream failed for good, or could not be resumed within the retry time.
        """
        while not self._pending:
            if self._closed or self._follow.finished or not self._receive():
                raise StopIteration
        event = self._pending.popleft()
        self.last_sequence = event.sequence
        return event

    def _receive(self) -> bool:
        """Take one message in; False when the stream is over for good."""
        if self._closed:
            return False
        try:
            if self._call is None:
                self._call = self._connect(self._follow.next_request(), self._time_left())
            message = next(self._call, None)
        except grpc.RpcError as error:
            if self._was_closed():
                return False
            self._recover(from_rpc_error(error))
            return True
        except KeyboardInterrupt:
            # The read was cut in the middle; should the caller read on, a new call resumes.
            self._drop()
            raise
        if message is None:
            if self._follow.complete or self._was_closed():
                return False
            self._recover(Unavailable("the stream ended before the turn did", reason="UNREACHABLE"))
            return True
        self._take(message)
        if self._follow.broken:
            self._drop()
            if not self._pending:
                self._recover(Unavailable("the stream left out an event", reason="UNREACHABLE"))
        return True

    def _was_closed(self) -> bool:
        return self._closed

    def _take(self, message: RunTurnResponse | WatchTurnResponse) -> None:
        first = self._follow.header is None
        self._pending.extend(self._follow.take(message))
        # A later header alone is no progress: a server that dies after each one must not be asked for ever.
        if self._pending or message.HasField("heartbeat") or (first and self._follow.header is not None):
            self._backoff = self._policy.later_backoff()

    def _recover(self, error: TurnwireError) -> None:
        """Wait before the next attempt.

        Raises:
            TurnwireError: the error, when it will not pass or time is up.
        """
        self._drop()
        if self._follow.finished:
            return
        delay = self._backoff.next_delay(error.retry_delay) if self._policy.passes(error) else None
        if delay is None:
            raise error
        time.sleep(delay)

    def _time_left(self) -> float | None:
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def _drop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
