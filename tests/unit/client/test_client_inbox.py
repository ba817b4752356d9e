"""An inbox over lost connections: each state once, and what ended meanwhile is read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from support.scripted_runtime import CUT, Failure, ScriptedRuntime, serving
from turnwire.api.runtime.v1.action_pb2 import Action, ActionState
from turnwire.api.runtime.v1.turn_service_pb2 import GetActionResponse, WatchActionsResponse
from turnwire_client import AsyncClient, Client, Forbidden, Patience

OPEN, APPROVED = ActionState.ACTION_STATE_OPEN, ActionState.ACTION_STATE_APPROVED
EXPIRED = ActionState.ACTION_STATE_EXPIRED
GONE = Failure(grpc.StatusCode.NOT_FOUND, "there is no such action", "ACTION_NOT_FOUND")
DENIED = Failure(grpc.StatusCode.PERMISSION_DENIED, "not yours", "ROLE_MISSING")


def action(name: str, state: ActionState = OPEN) -> Action:
    return Action(name=name, state=state)


def told(*actions: Action, complete: bool = False) -> list[WatchActionsResponse]:
    """Messages of a stream; `complete` ends the snapshot."""
    found = [WatchActionsResponse(action=each) for each in actions]
    return [*found, WatchActionsResponse(snapshot_complete=True)] if complete else found


class Inbox(ScriptedRuntime):
    """Plays one list of messages for each connection, each ended by its failure."""

    def __init__(self, *legs: tuple[list[WatchActionsResponse], Failure], **now: Any) -> None:
        super().__init__([])
        self.inbox = deque(legs)
        self.now = now

    async def WatchActions(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.note(request, context)
        messages, failure = self.inbox.popleft()
        for message in messages:
            yield message
        await failure.abort(context)

    async def GetAction(self, request: Any, context: Any) -> Any:
        found = self.now[request.name]
        if isinstance(found, Failure):
            await found.abort(context)
        return GetActionResponse(action=found)


LEGS = (
    (told(action("a"), action("b"), action("c"), complete=True), CUT),
    (told(action("b"), complete=True), CUT),
    (told(action("b"), complete=True) + told(action("b", APPROVED), action("d")), DENIED),
)
NOW = {"a": action("a", EXPIRED), "c": GONE}
SEEN = [("a", OPEN), ("b", OPEN), ("c", OPEN), ("a", EXPIRED), ("b", APPROVED), ("d", OPEN)]
PATIENCE = Patience(connect_time=2.0, retry_time=5.0)


@asynccontextmanager
async def inbox() -> AsyncIterator[tuple[Inbox, str]]:
    runtime = Inbox(*LEGS, **NOW)
    async with asyncio.timeout(20), serving(runtime) as target:
        yield runtime, target


async def test_the_async_client_tells_each_state_once() -> None:
    seen = []
    async with inbox() as (runtime, target), AsyncClient(target, patience=PATIENCE) as client:
        with pytest.raises(Forbidden):
            async for each in client.watch_actions("threads/t", query="state=OPEN"):
                seen.append((each.name, each.state))
        assert [(r.parent, r.filter) for r in runtime.requests] == [("threads/t", "state=OPEN")] * 3
    assert seen == SEEN


async def test_the_sync_client_tells_the_same() -> None:
    def read(target: str) -> list[tuple[str, ActionState]]:
        seen = []
        with Client(target, patience=PATIENCE) as client, pytest.raises(Forbidden):
            for each in client.watch_actions():
                seen.append((each.name, each.state))
        return seen

    async with inbox() as (_, target):
        assert await asyncio.to_thread(read, target) == SEEN
