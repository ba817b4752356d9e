"""One client's stream: commands in, answers and outcomes out, each outcome behind the one before it.

Outcomes are read from memory while the client keeps up, and from the ledger when it lags or comes back; so a
slow client holds a bounded number of messages and loses none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.control.codec import outcome_to_proto, seconds_to_proto, status_to_proto
from turnwire.control.domain import CommandRow
from turnwire.control.ledger import SqliteLedger
from turnwire.control.servicer.stream import Outbox, StreamLimits, write_message
from turnwire.control.tokens import resume_token
from turnwire.core.errors import TurnwireError

__all__ = ["ClientSession"]

_PAGE = 100


@dataclass(frozen=True, slots=True)
class _Ended:
    """An outcome to tell; `followed` says that it is the next one of this client's."""

    row: CommandRow
    followed: bool


class ClientSession:
    """Listener and follower of one stream.

    Args:
        position: where the stream begins in the ledger.
        behind: whether outcomes behind that position may be in the ledger already.
    """

    def __init__(
        self,
        ledger: SqliteLedger,
        scope: str,
        client_id: str,
        *,
        position: int,
        behind: bool,
        limits: StreamLimits,
    ) -> None:
        self.scope, self.client_id = scope, client_id
        self._ledger = ledger
        self._limits = limits
        self._out: Outbox[service_pb.ConnectResponse | _Ended] = Outbox(limits.queue)
        self._seen = self._told = position
        self._lagging, self._missed = behind, behind
        self._submitted: set[str] = set()
        self._unended: set[str] = set()
        self._quiet = asyncio.Event()
        self._delivery = 0

    def follows(self, row: CommandRow) -> bool:
        """Tell whether the end of a row comes to this stream by itself."""
        return row.client_id == self.client_id

    def accepted(self, row: CommandRow, already_known: bool) -> None:
        """Answer a command that is durable."""
        self._submitted.discard(row.command_id)
        if not (row.done and self.follows(row) and row.position <= self._seen):
            self._unended.add(row.command_id)
        answer = service_pb.CommandAccepted(command_id=row.command_id, already_known=already_known)
        self._out.put(service_pb.ConnectResponse(accepted=answer))

    def refused(self, command_id: str, error: TurnwireError) -> None:
        """Answer a command that was not taken."""
        self._submitted.discard(command_id)
        self.refuse(command_id, error)

    def refuse(self, command_id: str, error: TurnwireError) -> None:
        """Answer something that never became a command."""
        answer = service_pb.CommandRefused(command_id=command_id, status=status_to_proto(error))
        self._out.put(service_pb.ConnectResponse(refused=answer))

    def ended(self, row: CommandRow) -> None:
        """Tell the end of a command that this stream asked about."""
        self._out.put(_Ended(row, followed=False))

    def changed(self, row: CommandRow) -> None:
        """Tell the end of one of this client's commands, or note that the ledger has it."""
        if not row.done or row.position <= self._seen:
            return
        if self._lagging or self._out.full:
            self._lagging = self._missed = True
            self._out.stir()
        else:
            self._seen = row.position
            self._out.put(_Ended(row, followed=True))

    def welcome(self, server_id: str, capabilities: tuple[str, ...]) -> None:
        """Put the first message."""
        welcome = service_pb.Welcome(
            capabilities=capabilities,
            resume_token=self._token(),
            heartbeat_interval=seconds_to_proto(self._limits.heartbeat),
            server_id=server_id,
        )
        self._out.put(service_pb.ConnectResponse(welcome=welcome))

    def pong(self, nonce: int) -> None:
        """Answer a ping."""
        self._out.put(service_pb.ConnectResponse(pong=service_pb.Pong(nonce=nonce)))

    def go_away(self, grace: float) -> None:
        """Tell the client to connect again."""
        self._out.put(
            service_pb.ConnectResponse(go_away=service_pb.GoAway(grace_timeout=seconds_to_proto(grace)))
        )

    def close(self) -> None:
        """End the stream once everything is written."""
        self._out.close()

    @property
    def open_ids(self) -> set[str]:
        """Commands that were taken from this stream and whose end it has not been told."""
        return self._submitted | self._unended

    def submitted(self, command_id: str) -> None:
        """Note a command that waits for its answer."""
        self._submitted.add(command_id)

    async def room(self) -> None:
        """Wait until the client has taken enough to be listened to again."""
        while len(self._submitted) >= self._limits.pipelined:
            self._quiet.clear()
            await self._quiet.wait()
        await self._out.room()

    async def settled(self) -> None:
        """Wait until every command of this stream has been answered and its end told."""
        while self._submitted or self._unended:
            self._quiet.clear()
            await self._quiet.wait()

    async def write(self, context: Any) -> None:
        """Write until the session is closed."""
        while True:
            while (item := self._out.pop()) is not None:
                if isinstance(item, _Ended):
                    await self._tell(context, item.row, followed=item.followed)
                else:
                    await self._send(context, item)
            if self._lagging:
                await self._catch_up(context)
            elif self._out.closed:
                return
            else:
                await self._out.wait()

    async def _catch_up(self, context: Any) -> None:
        self._missed = False
        rows = await self._ledger.outcomes(self.scope, self.client_id, self._seen, _PAGE)
        for row in rows:
            self._seen = row.position
            await self._tell(context, row, followed=True)
        if len(rows) < _PAGE and not self._missed:
            self._lagging = False

    async def _tell(self, context: Any, row: CommandRow, *, followed: bool) -> None:
        if followed:
            self._told = row.position
        self._unended.discard(row.command_id)
        outcome = service_pb.OutcomeDelivered(outcome=outcome_to_proto(row), resume_token=self._token())
        await self._send(context, service_pb.ConnectResponse(outcome=outcome))

    async def _send(self, context: Any, message: service_pb.ConnectResponse) -> None:
        self._delivery += 1
        message.delivery_id = self._delivery
        await write_message(context, message, self._limits.stall)
        self._quiet.set()

    def _token(self) -> str:
        return resume_token(self._ledger.ledger_id, self._told)
