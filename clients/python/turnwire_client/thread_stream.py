"""The changes of a thread over as many connections as it takes; each has the version to go on from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc

from turnwire.api.runtime.v1.thread_service_pb2 import WatchThreadRequest, WatchThreadResponse
from turnwire_client.errors import TurnwireError, Unavailable, from_rpc_error
from turnwire_client.policy import StreamPolicy
from turnwire_client.sync_stream import StreamCall

__all__ = ["AsyncThreadStream", "ThreadStream"]

_Connect = Callable[[WatchThreadRequest, float | None], Any]


class _Position:
    """What both streams keep: where the thread was read, whether it is over, how patient to be."""

    def __init__(self, connect: _Connect, request: WatchThreadRequest, policy: StreamPolicy) -> None:
        self._connect = connect
        self._thread = request.thread
        self._policy = policy
        self._ends = None if policy.timeout is None else time.monotonic() + policy.timeout
        self._backoff = policy.first_backoff()
        self._call: Any = None
        self._over = False
        self.version = request.after_version

    def close(self) -> None:
        """End the call and the iteration."""
        self._over = True
        self._drop()

    def _was_closed(self) -> bool:
        return self._over

    def _open(self) -> Any:
        if self._call is None:
            left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
            request = WatchThreadRequest(thread=self._thread, after_version=self.version)
            self._call = self._connect(request, left)
        return self._call

    def _take(self, message: WatchThreadResponse) -> bool:
        """Note how far the thread was read; False for a heartbeat."""
        self._backoff = self._policy.later_backoff()
        if message.WhichOneof("change") is None:
            self.version = max(self.version, message.version)
            return False
        self.version = message.version
        if message.HasField("deleted"):
            self.close()
        return True

    def _delay(self, error: TurnwireError) -> float:
        """Return the seconds before the next attempt; raise the error when there is none."""
        self._drop()
        delay = self._backoff.next_delay(error.retry_delay) if self._policy.passes(error) else None
        if delay is None:
            raise error
        return delay

    def _drop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


def _cut_off() -> Unavailable:
    return Unavailable("the stream ended before the thread did", reason="UNREACHABLE")


class AsyncThreadStream(_Position):
    """An async iterator over changes; ends after the deletion of the thread, or with `close`.

    Use it in `async with`. `version` is that of the change given last.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchThreadResponse:
        """Give the next change.

        Raises:
            TurnwireError: the stream failed for good, or could not be resumed within the retry time.
        """
        while not self._over:
            try:
                async with asyncio.timeout(self._policy.silence):
                    message = await self._open().read()
            except grpc.RpcError as error:
                await asyncio.sleep(self._delay(from_rpc_error(error)))
                continue
            except TimeoutError:
                silent = f"the stream was silent for {self._policy.silence:.0f} s"
                await asyncio.sleep(self._delay(Unavailable(silent, reason="UNREACHABLE")))
                continue
            except asyncio.CancelledError:
                # A cancelled read takes its call with it; should the caller read on, a new call resumes.
                self._drop()
                task = asyncio.current_task()
                if self._was_closed() and not (task is not None and task.cancelling()):
                    break  # `close` ended the call, and nobody this task
                raise
            if message is grpc.aio.EOF:
                await asyncio.sleep(self._delay(_cut_off()))
            elif self._take(message):
                return message  # type: ignore[no-any-return]
        raise StopAsyncIteration


class ThreadStream(_Position):
    """An iterator over changes; ends after the deletion of the thread, or with `close`.

    Use it in `with`. `version` is that of the change given last.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchThreadResponse:
        """Give the next change.

        Raises:
            TurnwireError: the stream failed for good, or could not be resumed within the retry time.
        """
        while not self._over:
            try:
                call: StreamCall = self._open()
                message = next(call, None)
            except grpc.RpcError as error:
                if not self._was_closed():
                    time.sleep(self._delay(from_rpc_error(error)))
                continue
            except KeyboardInterrupt:
                # The read was cut in the middle; should the caller read on, a new call resumes.
                self._drop()
                raise
            if message is None:
                if not self._was_closed():
                    time.sleep(self._delay(_cut_off()))
            elif self._take(message):
                return message  # type: ignore[no-any-return]
        raise StopIteration
