"""The runtime's end of Attach: the turns it owns go one way, commands come the other, no outcome is lost.

An outcome is repeated on every new stream until the control service has stored it. Work on a delivery
outlives the stream that brought it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import grpc

from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub
from turnwire.core.ids import mint_id
from turnwire.runtime.domain.control import ControlDelivery, ControlHandler, ControlOutcome, DeliveryMode
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.ownership_link import Owned, OwnershipReports

__all__ = ["ControlLink"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Key: TypeAlias = tuple[str, str]

_CAPABILITIES = ("cancel_turn",)
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
_WELCOME_SECONDS = 10.0
_FLUSH_SECONDS = 1.0
_PART = 1000
# So many heartbeat intervals without a word from the other side end a stream.
_PATIENCE = 3

_MODES: dict[int, DeliveryMode] = {
    service_pb.DELIVERY_MODE_UNOWNED: "unowned",
    service_pb.DELIVERY_MODE_QUERY_ONLY: "query-only",
}
_KINDS = {
    "applied": command_pb.OUTCOME_KIND_APPLIED,
    "duplicate": command_pb.OUTCOME_KIND_DUPLICATE,
    "stale": command_pb.OUTCOME_KIND_STALE,
    "no-active-turn": command_pb.OUTCOME_KIND_NO_ACTIVE_TURN,
    "already-finished": command_pb.OUTCOME_KIND_ALREADY_FINISHED,
    "expired": command_pb.OUTCOME_KIND_EXPIRED,
    "rejected": command_pb.OUTCOME_KIND_REJECTED,
}


class _Broken(Exception):
    """The stream has ended; the text says how, for the log."""


class ControlLink:
    """Keeps a stream to the control service open, as long as it runs.

    Args:
        channel: to the control service; whoever opened it closes it.
        runtime_id: name of the runtime, the same after a restart.
        boot_id: another one with each start of the process.
        handler: acts on deliveries.
        on_change: told when the link comes up or goes down.
        spacing: least seconds between two reports of turns that were opened.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        runtime_id: str,
        boot_id: str = "",
        handler: ControlHandler,
        on_change: Callable[[bool], None] | None = None,
        spacing: float = 0.02,
    ) -> None:
        self._stub = ControlServiceStub(channel)
        self._runtime_id = runtime_id
        self._boot_id = boot_id or mint_id()
        self._handler = handler
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._turns = OwnershipReports(self._wake.set, spacing=spacing)
        self._outbox: deque[service_pb.AttachRequest] = deque()
        self._unstored: dict[_Key, ControlOutcome] = {}
        self._working: set[_Key] = set()
        self._flushed = asyncio.Event()
        self._connected = False
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether the control service has welcomed this runtime, and the stream stands."""
        return self._connected

    @property
    def unstored(self) -> int:
        """Number of outcomes that the control service has not confirmed."""
        return len(self._unstored)

    def turn_opened(self, key: TurnKey, epoch: int) -> None:
        """Report that this runtime owns a turn; never waits."""
        self._turns.opened((key.scope, key.name), epoch)

    def turn_closed(self, key: TurnKey, epoch: int) -> None:
        """Report that this runtime no longer owns a turn; never waits."""
        self._turns.closed((key.scope, key.name), epoch)

    def start(self) -> None:
        """Begin to connect, on the running loop."""
        self._task = asyncio.create_task(self._run(), name="control.link")

    async def stop(self) -> None:
        """Give outcomes a second to be stored, then leave; deliveries under way are given up."""
        if self._task is None:
            return
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                while self._connected and (self._unstored or self._outbox):
                    self._flushed.clear()
                    await self._flushed.wait()
        except TimeoutError:
            logger.warning("control.link.unflushed", extra={"outcomes": len(self._unstored)})
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._task = None
        self._change(False)

    async def _run(self) -> None:
        """Open one stream after the other, until cancelled."""
        async with asyncio.TaskGroup() as work:
            while True:
                try:
                    await self._stream(work)
                except* Exception as errors:
                    self._lost(errors)
                if _cancelled():
                    # A part that failed in the moment of the cancel hides it: TaskGroup raises the failure.
                    raise asyncio.CancelledError
                self._change(False)
                wait = min(_FIRST_WAIT * 2**self._failures, _LONGEST_WAIT)
                self._failures += 1
                await asyncio.sleep(random.uniform(0.5, 1.0) * wait)  # noqa: S311 - spreads load, no secret

    def _lost(self, errors: BaseExceptionGroup[Exception]) -> None:
        error = errors.exceptions[0]
        if not isinstance(error, _Broken | grpc.aio.AioRpcError):
            logger.error("control.link.failed", exc_info=error)
        cause = error.code().name if isinstance(error, grpc.aio.AioRpcError) else str(error)
        # Once per outage: the tries that follow say nothing new.
        level = logging.WARNING if self._connected or self._failures == 0 else logging.DEBUG
        logger.log(level, "control.link.broken", extra={"cause": cause, "turns": len(self._turns)})

    async def _stream(self, work: asyncio.TaskGroup) -> None:
        call = self._stub.Attach()
        try:
            interval = await self._greet(call)
            async with asyncio.TaskGroup() as parts:
                parts.create_task(self._write(call))
                parts.create_task(self._heartbeat(interval))
                await self._read(call, work, interval * _PATIENCE)
        finally:
            self._turns.silence()
            call.cancel()

    async def _greet(self, call: Any) -> float:
        """Say hello with every turn, and return the heartbeat interval of the welcome in seconds."""
        self._outbox.clear()
        turns = list(self._turns.snapshot().items())
        hello = service_pb.AttachHello(
            runtime_id=self._runtime_id,
            boot_id=self._boot_id,
            capabilities=_CAPABILITIES,
            turns=_owned(turns[:_PART]),
            snapshot_complete=len(turns) <= _PART,
        )
        await _own(call.write(service_pb.AttachRequest(hello=hello)))
        for start in range(_PART, len(turns), _PART):
            more = service_pb.TurnsOpened(
                turns=_owned(turns[start : start + _PART]), snapshot_complete=start + _PART >= len(turns)
            )
            await _own(call.write(service_pb.AttachRequest(turns_opened=more)))
        first = await _next(call, _WELCOME_SECONDS)
        if first.WhichOneof("message") != "welcome":
            raise _Broken("no welcome")
        self._failures = 0
        for key, outcome in self._unstored.items():
            self._send(_outcome(key, outcome))
        self._change(True)
        return max(float(first.welcome.heartbeat_interval.ToMilliseconds()) / 1000, 0.1)

    async def _read(self, call: Any, work: asyncio.TaskGroup, patience: float) -> None:
        while True:
            message = await _next(call, patience)
            kind = message.WhichOneof("message")
            if kind == "delivery":
                self._delivered(message.delivery_id, message.delivery, work)
            elif kind == "outcome_stored":
                stored = message.outcome_stored
                self._unstored.pop((stored.scope, stored.command_id), None)
                self._flushed.set()
            elif kind == "go_away":
                logger.info("control.link.go_away")

    async def _write(self, call: Any) -> None:
        while True:
            while self._outbox:
                await _own(call.write(self._outbox.popleft()))
            if (report := self._turns.take()) is not None:
                for message in _reports(report.opened, report.closed):
                    await _own(call.write(message))
                continue
            self._flushed.set()
            await self._wake.wait()
            self._wake.clear()

    async def _heartbeat(self, interval: float) -> None:
        nonce = 0
        while True:
            await asyncio.sleep(interval)
            nonce += 1
            self._send(service_pb.AttachRequest(ping=service_pb.Ping(nonce=nonce)))

    def _send(self, message: service_pb.AttachRequest) -> None:
        self._outbox.append(message)
        self._wake.set()

    def _change(self, up: bool) -> None:
        if up == self._connected:
            return
        self._connected = up
        self._flushed.set()
        if up:
            logger.info("control.link.up", extra={"turns": len(self._turns)})
        if self._on_change is not None:
            self._on_change(up)

    def _delivered(self, delivery_id: int, message: service_pb.Delivery, work: asyncio.TaskGroup) -> None:
        delivery = self._delivery(message)
        key = (delivery.scope, delivery.command_id)
        ack = service_pb.DeliveryAck(delivery_id=delivery_id, bound_turn=delivery.bound_turn)
        self._send(service_pb.AttachRequest(delivery_ack=ack))
        if (known := self._unstored.get(key)) is not None:
            self._send(_outcome(key, known))
        elif message.command.WhichOneof("command") != "cancel_turn":
            self._answer(key, ControlOutcome("rejected", message="this runtime does not serve the command"))
        elif key not in self._working:
            self._working.add(key)
            work.create_task(self._act(key, delivery))

    async def _act(self, key: _Key, delivery: ControlDelivery) -> None:
        """Have the handler act until it has an outcome: only it can say that nothing happened."""
        loop = asyncio.get_running_loop()
        arrived, wait = loop.time(), _FIRST_WAIT
        try:
            while True:
                try:
                    self._answer(key, await self._handler.deliver(delivery))
                    return
                except (Exception, asyncio.CancelledError):
                    if _cancelled():
                        raise
                    logger.exception("control.delivery.failed", extra={"command_id": delivery.command_id})
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
                left = delivery.remaining_seconds - (loop.time() - arrived)
                delivery, arrived = replace(delivery, remaining_seconds=max(left, 0.0)), loop.time()
        finally:
            self._working.discard(key)

    def _answer(self, key: _Key, outcome: ControlOutcome) -> None:
        if outcome.kind != "not-applied":
            self._unstored[key] = outcome
        if self._connected:
            self._send(_outcome(key, outcome))

    def _delivery(self, message: service_pb.Delivery) -> ControlDelivery:
        command = message.command
        bound = message.bound_turn
        if not bound and command.target.thread and message.mode != service_pb.DELIVERY_MODE_QUERY_ONLY:
            bound = self._turns.live_in(message.scope, command.target.thread)
        return ControlDelivery(
            scope=message.scope,
            command_id=command.command_id,
            turn=command.target.turn,
            thread=command.target.thread,
            cause=command.cancel_turn.cause,
            clear_queue=command.cancel_turn.clear_queue,
            remaining_seconds=message.remaining_timeout.ToNanoseconds() / 1e9,
            mode=_MODES.get(message.mode, "owned"),
            bound_turn=bound,
            subject=message.subject,
        )


def _cancelled() -> bool:
    """Tell whether somebody wants this task to end, as against a CancelledError that came from elsewhere."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _own(operation: Awaitable[T]) -> T:
    """Await an operation of a call; a CANCELLED of the other side ends the stream, not this task.

    Raises:
        _Broken: the call was cancelled, or can take nothing more.
    """
    try:
        return await operation
    except asyncio.CancelledError:
        if _cancelled():
            raise
        raise _Broken("CANCELLED") from None
    except (asyncio.InvalidStateError, grpc.aio.BaseError):
        raise _Broken("the stream has ended") from None


async def _next(call: Any, seconds: float) -> Any:
    """Read one message. Raises: _Broken, at the end, and after `seconds` of silence."""
    try:
        async with asyncio.timeout(seconds):
            message = await _own(call.read())
    except TimeoutError:
        raise _Broken("silence") from None
    if message is grpc.aio.EOF:
        raise _Broken("end of stream")
    return message


def _owned(turns: list[tuple[Owned, int]]) -> list[service_pb.OwnedTurn]:
    return [service_pb.OwnedTurn(scope=scope, turn=turn, epoch=epoch) for (scope, turn), epoch in turns]


def _reports(opened: dict[Owned, int], closed: dict[Owned, int]) -> list[service_pb.AttachRequest]:
    """Return the messages for a report; ends go first, as a turn may have been taken again since."""
    ends, starts = list(closed.items()), list(opened.items())
    messages = []
    for at in range(0, len(ends), _PART):
        part = service_pb.TurnsClosed(turns=_owned(ends[at : at + _PART]))
        messages.append(service_pb.AttachRequest(turns_closed=part))
    for at in range(0, len(starts), _PART):
        opening = service_pb.TurnsOpened(turns=_owned(starts[at : at + _PART]))
        messages.append(service_pb.AttachRequest(turns_opened=opening))
    return messages


def _outcome(key: _Key, outcome: ControlOutcome) -> service_pb.AttachRequest:
    scope, command_id = key
    if outcome.kind == "not-applied":
        answer = service_pb.DeliveryOutcome(
            scope=scope, outcome=command_pb.CommandOutcome(command_id=command_id), not_applied=True
        )
        return service_pb.AttachRequest(delivery_outcome=answer)
    told = command_pb.CommandOutcome(
        command_id=command_id,
        kind=_KINDS[outcome.kind],
        turn=outcome.turn,
        applied_sequence=outcome.applied_sequence,
        duplicate_of=outcome.duplicate_of,
        message=outcome.message,
        reason="FEATURE_NOT_SERVED" if outcome.kind == "rejected" else "",
    )
    return service_pb.AttachRequest(delivery_outcome=service_pb.DeliveryOutcome(scope=scope, outcome=told))
