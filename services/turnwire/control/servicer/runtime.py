"""One runtime's stream, as the hub sees it: what does not fit any more is a runtime that is gone."""

from __future__ import annotations

import logging
from typing import Any

from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.control.codec import (
    delivery_to_proto,
    outcome_from_proto,
    owned_turns_from_proto,
    seconds_to_proto,
)
from turnwire.control.domain import Delivery, Key
from turnwire.control.hub import Hub
from turnwire.control.servicer.stream import END, Outbox, StreamLimits, read_message, write_message
from turnwire.core.errors import FieldViolation, InvalidRequest, Unavailable

__all__ = ["RuntimeSession"]

logger = logging.getLogger(__name__)


class RuntimeSession:
    """The link to one runtime; implements `ports.RuntimeLink`."""

    def __init__(self, runtime_id: str, limits: StreamLimits) -> None:
        self._runtime_id = runtime_id
        self._limits = limits
        self._out: Outbox[service_pb.AttachResponse] = Outbox(limits.queue)
        self._last = 0
        self._stalled = False

    @property
    def runtime_id(self) -> str:
        """Name of the runtime."""
        return self._runtime_id

    def deliver(self, delivery: Delivery) -> int:
        """Put a delivery and return its id; 0 when the runtime takes nothing."""
        if self._out.closed:
            return 0
        if self._out.full:
            self._stalled = True
            self.close()
            return 0
        return self._put(service_pb.AttachResponse(delivery=delivery_to_proto(delivery)))

    def outcome_stored(self, key: Key) -> None:
        """Put a confirmation; lost with the stream, it is asked for again by the next repeat."""
        scope, command_id = key
        stored = service_pb.OutcomeStored(scope=scope, command_id=command_id)
        self._put(service_pb.AttachResponse(outcome_stored=stored))

    def supersede(self) -> None:
        """End the stream: the runtime has opened another one."""
        self.close()

    def welcome(self, server_id: str, capabilities: tuple[str, ...]) -> None:
        """Put the first message."""
        interval = seconds_to_proto(self._limits.heartbeat)
        welcome = service_pb.Welcome(
            capabilities=capabilities, heartbeat_interval=interval, server_id=server_id
        )
        self._put(service_pb.AttachResponse(welcome=welcome))

    def go_away(self, grace: float) -> None:
        """Tell the runtime that the server is about to leave."""
        leave = service_pb.GoAway(grace_timeout=seconds_to_proto(grace))
        self._put(service_pb.AttachResponse(go_away=leave))

    def close(self) -> None:
        """End the stream once everything is written."""
        self._out.close()

    async def read(self, context: Any, hub: Hub) -> None:
        """Hand what the runtime says to the hub until it has said everything."""
        while (message := await read_message(context, self._limits.silence)) is not END:
            self._take(message, hub)
            await self._out.room()
        self.close()

    async def write(self, context: Any) -> None:
        """Write until the session is closed.

        Raises:
            Unavailable: READER_STALLED, the runtime let too many messages wait.
        """
        while True:
            while not self._stalled and (message := self._out.pop()) is not None:
                await write_message(context, message, self._limits.stall)
            if self._stalled:
                raise Unavailable("the runtime let too many messages wait", reason="READER_STALLED")
            if self._out.closed:
                return
            await self._out.wait()

    def _put(self, message: service_pb.AttachResponse) -> int:
        # Everything put is written in this order, so the number can be given here.
        self._last += 1
        message.delivery_id = self._last
        self._out.put(message)
        return self._last

    def _take(self, message: service_pb.AttachRequest, hub: Hub) -> None:
        match message.WhichOneof("message"):
            case "turns_opened":
                opened = message.turns_opened
                turns = owned_turns_from_proto(opened.turns, "turns_opened.turns")
                hub.opened(self, turns, complete=opened.snapshot_complete)
            case "turns_closed":
                hub.closed(self, owned_turns_from_proto(message.turns_closed.turns, "turns_closed.turns"))
            case "delivery_ack":
                hub.acked(self, message.delivery_ack.delivery_id, message.delivery_ack.bound_turn)
            case "delivery_outcome":
                self._outcome(message.delivery_outcome, hub)
            case "ping":
                self._put(service_pb.AttachResponse(pong=service_pb.Pong(nonce=message.ping.nonce)))
            case "hello":
                raise InvalidRequest("hello may come only once", reason="HELLO_REPEATED")

    def _outcome(self, message: service_pb.DeliveryOutcome, hub: Hub) -> None:
        key = (message.scope, message.outcome.command_id)
        if not all(key):
            field = "delivery_outcome"
            description = "must name a scope and a command"
            violations = (FieldViolation(field, description),)
            raise InvalidRequest(f"{field} {description}", violations=violations, field=field)
        if message.not_applied:
            hub.not_applied(self, key)
        else:
            hub.outcome(self, key, outcome_from_proto(message.outcome))
