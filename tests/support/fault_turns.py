"""One turn of a fault run as its callers see it: a reader that always comes back, a cancel, an approval.

What a reader has seen once must be seen again, byte for byte; anything else is a finding.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from support.fault_load import Script
from support.turn_rig import TurnRig
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as control_pb
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.action_pb2 import Action

__all__ = ["Cancel", "FollowedTurn", "patiently"]

T = TypeVar("T")
# What a service answers that is on its way down or up, or the other side of which is.
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
# A client that was sent away comes back after so long.
_BACK_SECONDS = 0.03


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the service is there to answer it."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _AWAY:
                raise
        await asyncio.sleep(_BACK_SECONDS)


@dataclass
class Cancel:
    """A command and every outcome that was told of it."""

    command_id: str
    outcomes: list[command_pb.CommandOutcome] = field(default_factory=list)


class FollowedTurn:
    """Sends a turn and reads it to its end, over as many streams as it takes.

    Args:
        rig: of the cluster.
        script: what it does.
        finding: told of each thing that must not be.
    """

    def __init__(self, rig: TurnRig, script: Script, finding: Callable[[str], None]) -> None:
        self.script = script
        self.seen: dict[int, bytes] = {}
        self.name = ""
        self.thread = ""
        self.known = asyncio.Event()
        self.ended = asyncio.Event()
        self.cancel: Cancel | None = None
        self.streams = 0
        self._kinds: set[str] = set()
        self._changed = asyncio.Event()
        # Whoever clears it holds the approvals back.
        self.may_approve = asyncio.Event()
        self.may_approve.set()
        self._rig = rig
        self._rng = random.Random(script.model)
        self._finding = finding
        self._request = pb.RunTurnRequest()
        self._tasks: asyncio.TaskGroup
        self._approved: set[str] = set()

    async def run(self, thread: str) -> None:
        """Go through the whole of it; `thread` is empty for a new one."""
        self._request = self._rig.request(f"openai:{self.script.model}", self.script.model, thread=thread)
        async with asyncio.TaskGroup() as self._tasks:
            canceller = self._tasks.create_task(self._cancel())
            while not self.ended.is_set():
                await self._follow_once()
            if self.cancel is None:
                canceller.cancel()

    @property
    def last(self) -> int:
        """Last sequence that was seen."""
        return len(self.seen)

    async def reached(self, kind: str) -> None:
        """Wait until an event of a kind was seen, or the end."""
        while kind not in self._kinds and not self.ended.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def _follow_once(self) -> None:
        self.streams += 1
        if self.name and self._rng.random() < 0.5:
            stream = self._rig.watch(self.name, self.last)
        else:
            stream = self._rig.run(self._request, self.last)
        left = self.script.leave_every
        try:
            header = await stream.opened()
            self._learn(header)
            while (event := await stream.next()) is not None:
                self._take(event)
                left -= 1
                if left == 0:
                    stream.leave()
                    return
        except grpc.aio.AioRpcError as error:
            if error.code() not in _AWAY:
                self._finding(f"{self.label}: a reader got {error.code().name}: {error.details()}")
                await asyncio.sleep(0.3)
        except StopAsyncIteration:
            pass
        if not self.ended.is_set():
            await asyncio.sleep(_BACK_SECONDS)

    @property
    def label(self) -> str:
        """The turn in words of findings."""
        return f"{self.script.model} ({self.name or 'unknown'})"

    def _learn(self, header: pb.StreamHeader) -> None:
        if self.name and header.turn != self.name:
            self._finding(f"{self.label}: the same request became another turn, {header.turn}")
        self.name, self.thread = header.turn, header.thread
        self.known.set()

    def _take(self, event: event_pb.TurnEvent) -> None:
        body = event.SerializeToString(deterministic=True)
        if event.sequence != self.last + 1:
            self._finding(f"{self.label}: event {event.sequence} came after {self.last}")
        self.seen[event.sequence] = body
        self._kinds.add(str(event.WhichOneof("event")))
        self._changed.set()
        if event.HasField("action_required"):
            action = event.action_required.action
            if action.name not in self._approved:
                self._approved.add(action.name)
                self._tasks.create_task(self._approve(action))
        if event.HasField("turn_finished"):
            self.ended.set()

    async def _approve(self, action: Action) -> None:
        await self.may_approve.wait()
        await asyncio.sleep(self._rng.uniform(0.0, 0.4))
        request = pb.ResolveActionRequest(
            action=action.name, request_id=str(uuid.uuid4()), digest=action.digest, approve=pb.Approve()
        )
        try:
            await patiently(lambda: self._rig.turns.ResolveAction(request, timeout=20, wait_for_ready=True))
        except grpc.aio.AioRpcError as error:
            # A cancel may have closed it first.
            if self.cancel is None or error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                self._finding(f"{self.label}: an approval got {error.code().name}: {error.details()}")

    async def _cancel(self) -> None:
        if self.script.cancel_after is None:
            return
        await self.known.wait()
        await asyncio.sleep(self.script.cancel_after)
        self.cancel = Cancel(str(uuid.uuid4()))
        command = command_pb.Command(command_id=self.cancel.command_id)
        command.cancel_turn.cause = "the test wants it"
        command.target.turn = self.name
        request = control_pb.SendCommandRequest(command=command)
        for _ in range(2):
            # The second time repeats the first: it must be told the same.
            response = await patiently(
                lambda: self._rig.control.SendCommand(request, timeout=60, wait_for_ready=True)
            )
            self.cancel.outcomes.append(response.command.outcome)
