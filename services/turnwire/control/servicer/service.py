"""The RPCs of ControlService. What a caller may see and do is its scope and its roles, never its words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceServicer
from turnwire.control.codec import (
    command_from_proto,
    owned_turns_from_proto,
    record_to_proto,
    require_clean_hello,
    require_client_id,
    require_command_id,
    require_runtime_id,
    seconds_from_proto,
)
from turnwire.control.domain import SERVED, Sender
from turnwire.control.filters import parse_filter
from turnwire.control.hub import Hub
from turnwire.control.ledger import SqliteLedger
from turnwire.control.servicer.client import ClientSession
from turnwire.control.servicer.listing import list_rows, page_size
from turnwire.control.servicer.runtime import RuntimeSession
from turnwire.control.servicer.stream import END, StreamLimits, read_hello, read_message, run_stream
from turnwire.control.servicer.waiter import Waiter
from turnwire.control.servicer.watch import Watch
from turnwire.control.tokens import page_token, read_page_token, read_resume_token
from turnwire.core.deadline import Deadline
from turnwire.core.errors import FieldViolation, InvalidRequest, NotFound, TurnwireError, Unavailable
from turnwire.core.ids import mint_id
from turnwire.wire.auth import Principal, current_principal

__all__ = ["ROLES", "ControlServicer"]

logger = logging.getLogger(__name__)

_SERVICE = "/turnwire.api.control.v1.ControlService"
_SENDERS = frozenset({"caller", "approver", "operator"})

# Who may call what. What a sender may command is decided command by command, and stands in the ledger.
ROLES: dict[str, frozenset[str]] = {
    f"{_SERVICE}/Connect": _SENDERS,
    f"{_SERVICE}/SendCommand": _SENDERS,
    f"{_SERVICE}/GetCommand": _SENDERS,
    f"{_SERVICE}/ListCommands": frozenset({"caller", "operator"}),
    f"{_SERVICE}/WatchCommands": frozenset({"operator"}),
    f"{_SERVICE}/Attach": frozenset({"runtime"}),
}

_DEFAULT_WAIT, _LONGEST_WAIT = 30.0, 300.0


class ControlServicer(ControlServiceServicer):
    """Serves clients, operators and runtimes over one hub.

    Args:
        clients, runtimes: limits of the two kinds of streams.
        server_id: name of this process, for the logs of its peers.
    """

    def __init__(
        self,
        hub: Hub,
        ledger: SqliteLedger,
        *,
        clients: StreamLimits | None = None,
        runtimes: StreamLimits | None = None,
        server_id: str = "",
    ) -> None:
        self._hub = hub
        self._ledger = ledger
        self._client_limits = clients or StreamLimits()
        self._runtime_limits = runtimes or StreamLimits(heartbeat=5.0, stall=15.0, queue=4096)
        self._server_id = server_id or mint_id()
        self._capabilities = tuple(sorted(kind.value for kind in SERVED))
        self._sessions: dict[ClientSession | RuntimeSession, None] = {}
        self._waiters: dict[Waiter | Watch, None] = {}
        self._leaving = False
        self._gone = asyncio.Event()

    @property
    def streams(self) -> int:
        """Number of open streams, of clients and of runtimes."""
        return len(self._sessions)

    @property
    def waiting(self) -> int:
        """Number of calls that wait for an outcome or follow the ledger."""
        return len(self._waiters)

    def go_away(self, grace: float) -> None:
        """Refuse new streams and commands, and tell the open streams that they have `grace` seconds."""
        self._leaving = True
        self._hub.drain()
        for session in tuple(self._sessions):
            session.go_away(grace)

    async def leave(self, grace: float) -> None:
        """Give clients `grace` seconds to go by themselves, then end every stream and every wait."""
        try:
            async with asyncio.timeout(grace):
                while any(isinstance(session, ClientSession) for session in self._sessions):
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            logger.info("drain.streams_left", extra={"streams": self.streams})
        self.close()

    def close(self) -> None:
        """End every stream; calls that wait get what is known."""
        for session in tuple(self._sessions):
            session.close()
        for waiter in tuple(self._waiters):
            waiter.give_up()

    async def Connect(self, request_iterator: Any, context: Any) -> None:
        principal = current_principal()
        self._check_leaving()
        hello = await read_hello(context, self._client_limits.silence)
        require_clean_hello(hello)
        client_id = require_client_id(hello.client_id)
        resumed = bool(hello.resume_token)
        position = self._hub.position
        if resumed:
            position = read_resume_token(hello.resume_token, self._ledger.ledger_id)
        session = ClientSession(
            self._ledger,
            principal.scope,
            client_id,
            position=position,
            behind=resumed,
            limits=self._client_limits,
        )
        session.welcome(self._server_id, self._capabilities)
        self._sessions[session] = None
        self._hub.followers.add(session, session.scope, client_id)
        sender = _sender(principal, client_id)
        try:
            await run_stream(lambda: self._listen(context, session, sender), lambda: session.write(context))
        finally:
            del self._sessions[session]
            self._gone.set()
            self._hub.followers.remove(session, session.scope, client_id)
            for command_id in session.open_ids:
                self._hub.leave(session, (session.scope, command_id))

    async def _listen(self, context: Any, session: ClientSession, sender: Sender) -> None:
        """Take what a client says until it has said everything, then wait for what it still has to hear."""
        limits = self._client_limits
        while True:
            await session.room()
            try:
                message = await read_message(context, limits.silence)
            except InvalidRequest as error:
                session.refuse("", error)
                continue
            if message is END:
                break
            match message.WhichOneof("message"):
                case "command":
                    self._submit(session, sender, message.command)
                case "ping":
                    session.pong(message.ping.nonce)
                case "hello":
                    raise InvalidRequest("hello may come only once", reason="HELLO_REPEATED")
        try:
            async with asyncio.timeout(limits.linger):
                await session.settled()
        except TimeoutError:
            logger.info("connect.lingered", extra={"client_id": session.client_id})
        session.close()

    def _submit(self, session: ClientSession, sender: Sender, message: Any) -> None:
        try:
            command = command_from_proto(message)
        except TurnwireError as error:
            session.refuse(message.command_id[:64], error)
            return
        session.submitted(command.command_id)
        self._hub.submit(command, sender, session)

    async def Attach(self, request_iterator: Any, context: Any) -> None:
        self._check_leaving()
        hello = await read_hello(context, self._runtime_limits.silence)
        require_clean_hello(hello)
        session = RuntimeSession(require_runtime_id(hello.runtime_id), self._runtime_limits)
        turns = owned_turns_from_proto(hello.turns, "hello.turns")
        session.welcome(self._server_id, self._capabilities)
        self._sessions[session] = None
        fields = {"runtime_id": session.runtime_id, "boot_id": hello.boot_id[:64], "turns": len(turns)}
        logger.info("runtime.attached", extra=fields)
        try:
            self._hub.attach(session, turns, complete=hello.snapshot_complete)
            await run_stream(lambda: session.read(context, self._hub), lambda: session.write(context))
        finally:
            del self._sessions[session]
            self._hub.detach(session)
            logger.info("runtime.detached", extra={"runtime_id": session.runtime_id})

    async def SendCommand(self, request: Any, context: Any) -> Any:
        command = command_from_proto(request.command)
        wait = _wait(request)
        principal = current_principal()
        waiter = Waiter()
        key = (principal.scope, command.command_id)
        left = Deadline.after(context.time_remaining()).for_hop()
        self._waiters[waiter] = None
        try:
            self._hub.submit(command, _sender(principal, ""), waiter)
            row = await waiter.answer()
            if not row.done:
                row = (
                    await waiter.end(wait if left is None else min(wait, left)) or self._hub.find(key) or row
                )
        finally:
            del self._waiters[waiter]
            self._hub.leave(waiter, key)
        return service_pb.SendCommandResponse(
            command=record_to_proto(row), already_known=waiter.already_known
        )

    async def GetCommand(self, request: Any, context: Any) -> Any:
        key = (current_principal().scope, require_command_id(request.command_id))
        row = self._hub.find(key) or await self._ledger.find(key)
        if row is None:
            raise NotFound(
                "there is no such command", reason="COMMAND_NOT_FOUND", command_id=request.command_id
            )
        return service_pb.GetCommandResponse(command=record_to_proto(row))

    async def ListCommands(self, request: Any, context: Any) -> Any:
        scope = current_principal().scope
        size = page_size(request.page_size)
        terms = parse_filter(request.filter)
        bound = (scope, request.filter)
        before = read_page_token(request.page_token, *bound) if request.page_token else None
        rows, more = await list_rows(self._hub, self._ledger, scope, terms, before, size)
        return service_pb.ListCommandsResponse(
            commands=[record_to_proto(row) for row in rows],
            next_page_token=page_token(rows[-1].entry, *bound) if more else "",
        )

    async def WatchCommands(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._check_leaving()
        scope = current_principal().scope
        watch = Watch(self._hub, self._ledger, scope, parse_filter(request.filter), request.after_position)
        self._waiters[watch] = None
        self._hub.followers.add(watch, scope)
        try:
            while (rows := await watch.next(self._client_limits.heartbeat)) is not None:
                for row in rows:
                    yield service_pb.WatchCommandsResponse(command=record_to_proto(row))
                if not rows:
                    yield service_pb.WatchCommandsResponse()
        finally:
            del self._waiters[watch]
            self._hub.followers.remove(watch, scope)

    def _check_leaving(self) -> None:
        if self._leaving:
            raise Unavailable("this server is leaving: connect again", reason="DRAINING", retry_after=1.0)


def _sender(principal: Principal, client_id: str) -> Sender:
    return Sender(principal.scope, principal.subject, principal.roles, client_id)


def _wait(request: Any) -> float:
    """Return how many seconds the caller wants to wait. Raises: InvalidRequest."""
    if not request.HasField("wait_timeout"):
        return _DEFAULT_WAIT
    seconds = seconds_from_proto(request.wait_timeout, "wait_timeout")
    if not 0 <= seconds <= _LONGEST_WAIT:
        description = f"must be between 0 and {_LONGEST_WAIT:g} s"
        raise InvalidRequest(
            f"wait_timeout {description}", violations=(FieldViolation("wait_timeout", description),)
        )
    return seconds
