"""An approver's inbox as an iterator that survives lost connections.

Each action is given once for each state that is seen of it. What was answered while there was no connection
is read when there is one again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc

from turnwire.api.runtime.v1.action_pb2 import Action, ActionState
from turnwire.api.runtime.v1.turn_service_pb2 import WatchActionsResponse
from turnwire_client.errors import NotFound, TurnwireError, Unavailable, from_rpc_error
from turnwire_client.policy import StreamPolicy

__all__ = ["follow_actions", "follow_actions_sync"]


class _Inbox:
    """What was given so far, and whether another attempt makes sense."""

    def __init__(self, policy: StreamPolicy) -> None:
        self._policy = policy
        self._backoff = policy.first_backoff()
        self._given: dict[str, ActionState] = {}
        self._seen: set[str] = set()
        self._complete = False

    def connected(self) -> None:
        """Begin a connection."""
        self._seen.clear()
        self._complete = False

    def take(self, response: WatchActionsResponse) -> Iterator[Action]:
        """Give the action of a message, if it is news."""
        self._backoff = self._policy.later_backoff()
        if response.HasField("action"):
            self._seen.add(response.action.name)
            yield from self.news(response.action)

    def news(self, action: Action) -> Iterator[Action]:
        """Give the action if it was not given as it is now."""
        if self._given.get(action.name) == action.state:
            return
        if action.state == ActionState.ACTION_STATE_OPEN:
            self._given[action.name] = action.state
        else:
            # An action that has ended changes no more, so it need not be remembered.
            self._given.pop(action.name, None)
        yield action

    def missed(self, response: WatchActionsResponse) -> list[str]:
        """Give, once a connection, the names of what was open before and is open no more."""
        if self._complete or not response.snapshot_complete:
            return []
        self._complete = True
        return [name for name in self._given if name not in self._seen]

    def forget(self, name: str) -> None:
        """Leave out an action that is not there any more."""
        self._given.pop(name, None)

    def delay_after(self, error: TurnwireError) -> float:
        """Give the seconds before the next attempt. Raises the error when it will not pass."""
        delay = self._backoff.next_delay(error.retry_delay) if self._policy.passes(error) else None
        if delay is None:
            raise error
        return delay


def _ended() -> Unavailable:
    return Unavailable("the stream ended", reason="UNREACHABLE")


async def follow_actions(
    connect: Callable[[], grpc.aio.UnaryStreamCall[Any, WatchActionsResponse]],
    get: Callable[[str], Awaitable[Action]],
    policy: StreamPolicy,
) -> AsyncIterator[Action]:
    """Give actions as they come; ends only with an error. Raises TurnwireError."""
    inbox = _Inbox(policy)
    while True:
        error: TurnwireError = _ended()
        inbox.connected()
        call = connect()
        try:
            while (response := await _read(call, policy.silence)) is not grpc.aio.EOF:
                for action in inbox.take(response):
                    yield action
                for name in inbox.missed(response):
                    try:
                        found = await get(name)
                    except NotFound:
                        inbox.forget(name)
                        continue
                    for action in inbox.news(found):
                        yield action
        except grpc.RpcError as caught:
            error = from_rpc_error(caught)
        except TimeoutError:
            error = Unavailable(f"the stream was silent for {policy.silence:.0f} s", reason="UNREACHABLE")
        finally:
            call.cancel()
        await asyncio.sleep(inbox.delay_after(error))


async def _read(call: grpc.aio.UnaryStreamCall[Any, WatchActionsResponse], silence: float) -> Any:
    async with asyncio.timeout(silence):
        return await call.read()


def follow_actions_sync(
    connect: Callable[[], Any], get: Callable[[str], Action], policy: StreamPolicy
) -> Iterator[Action]:
    """Give actions as they come; ends only with an error. Raises TurnwireError."""
    inbox = _Inbox(policy)
    while True:
        error: TurnwireError = _ended()
        inbox.connected()
        call = connect()
        try:
            for response in call:
                yield from inbox.take(response)
                for name in inbox.missed(response):
                    try:
                        found = get(name)
                    except NotFound:
                        inbox.forget(name)
                        continue
                    yield from inbox.news(found)
        except grpc.RpcError as caught:
            error = from_rpc_error(caught)
        finally:
            call.cancel()
        time.sleep(inbox.delay_after(error))
