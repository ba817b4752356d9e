"""TurnService: admission and readers. A handler only watches; the turn runs on its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from turnwire.api.runtime.v1 import turn_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1 import turn_service_pb2_grpc as grpc_pb
from turnwire.core.errors import Conflict, Expired, NotFound
from turnwire.core.ids import require_segment
from turnwire.extend.events import TurnState
from turnwire.runtime import codec, request_codec
from turnwire.runtime.action_servicer import ActionMethods
from turnwire.runtime.capabilities import CAPABILITIES
from turnwire.runtime.disconnect import DisconnectWatch
from turnwire.runtime.domain.admission import Admitted
from turnwire.runtime.domain.answer_schema import schema_problem
from turnwire.runtime.domain.turn import Disposition, StartCommand, TurnKey, TurnRow
from turnwire.runtime.engine.supervisor import Supervisor
from turnwire.runtime.event_codec import STATES, timestamp
from turnwire.runtime.executor_link import ExecutorLink
from turnwire.runtime.paging import FilterField, fitting, page_size, parse_filter, read_token, write_token
from turnwire.runtime.store import queries
from turnwire.runtime.store.log import TurnLog
from turnwire.runtime.store.rows import overflow_of
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.wire.auth import current_principal

__all__ = ["TurnServicer"]

MAX_WAIT_SECONDS = 300.0

_FILTER: dict[str, FilterField] = {
    "state": ("t.state", "word"),
    "agent": ("t.agent", "text"),
    "create_time": ("t.create_time", "time"),
}


class TurnServicer(ActionMethods, grpc_pb.TurnServiceServicer):
    """Serves turns of one runtime."""

    def __init__(
        self, supervisor: Supervisor, store: TurnStore, executor: ExecutorLink, disconnects: DisconnectWatch
    ) -> None:
        self._supervisor = supervisor
        self._store = store
        self._executor = executor
        self._disconnects = disconnects

    async def RunTurn(self, request: pb.RunTurnRequest, context: Any) -> AsyncIterator[Any]:
        """Start or join a turn and stream its pages, already encoded."""
        self._check_log(request.log_id)
        await _look_at_schema(request.spec.response_schema_json)
        command = _command(request, request_codec.disconnect_grace(request), request.after_sequence)
        presence = self._disconnects.presence(command.cancel_on_disconnect)
        try:
            admitted = await self._supervisor.start(command, presence.reads)
            row, log = await self._found(admitted, command)
            follow = self._follow(
                row,
                log,
                admitted.disposition,
                request.after_sequence,
                request.follow_while_waiting,
                pb.RunTurnResponse,
            )
            async with aclosing(follow) as messages:
                async for message in messages:
                    yield message
        finally:
            presence.leave()

    async def StartTurn(self, request: pb.StartTurnRequest, context: Any) -> pb.StartTurnResponse:
        """Admit a turn."""
        not_before = request_codec.not_before(request)
        await _look_at_schema(request.spec.response_schema_json)
        admitted = await self._supervisor.start(_command(request, None, not_before=not_before))
        row = await self._store.get_turn(admitted.key)
        return pb.StartTurnResponse(
            turn=codec.turn_to_proto(row),
            disposition=codec.DISPOSITIONS[admitted.disposition],
            log_id=self._store.log_id,
        )

    async def WatchTurn(self, request: pb.WatchTurnRequest, context: Any) -> AsyncIterator[Any]:
        """Stream the pages of a turn, running or ended."""
        key = _key(request.turn, "turn")
        self._check_log(request.log_id)
        presence = self._disconnects.presence(request_codec.disconnect_grace(request))
        try:
            row, log = await self._store.follow(key)
            presence.reads(key)
            follow = self._follow(
                row,
                log,
                Disposition.ATTACHED,
                request.after_sequence,
                request.follow_while_waiting,
                pb.WatchTurnResponse,
            )
            async with aclosing(follow) as messages:
                async for message in messages:
                    yield message
        finally:
            presence.leave()

    async def GetTurn(self, request: pb.GetTurnRequest, context: Any) -> pb.GetTurnResponse:
        """Read a turn, now or when it has ended."""
        key = _key(request.name, "name")
        if request.view not in (turn_pb2.TURN_VIEW_UNSPECIFIED, turn_pb2.TURN_VIEW_BASIC):
            raise request_codec.not_served("view")
        seconds = request_codec.seconds(request, "wait_timeout", "wait_timeout", MAX_WAIT_SECONDS)
        if seconds is None:
            return pb.GetTurnResponse(turn=codec.turn_to_proto(await self._store.asked_turn(key)))
        _, log = await self._store.follow(key)
        if log is not None:
            await self._store.wait_for_end(log, seconds)
        return pb.GetTurnResponse(turn=codec.turn_to_proto(await self._store.asked_turn(key)))

    async def ListTurns(self, request: pb.ListTurnsRequest, context: Any) -> pb.ListTurnsResponse:
        """List turns, newest first."""
        scope = current_principal().scope
        thread = request_codec.thread_key(request.parent, "parent", scope, wildcard=True)
        size = page_size(request.page_size)
        where = parse_filter(request.filter, _FILTER, "t.labels")
        bound = (scope, request.parent, request.filter)
        before = read_token(request.page_token, *bound)
        rows = await self._store.read(lambda db: queries.list_turns(db, thread, where, before, size + 1))
        turns = fitting(codec.turn_to_proto(r) for r in rows[:size])
        token = ""
        if len(turns) < len(rows):
            last = rows[len(turns) - 1]
            token = write_token((last.create_time, last.key.turn_id), *bound)
        return pb.ListTurnsResponse(turns=turns, next_page_token=token)

    async def ReadToolResult(self, request: pb.ReadToolResultRequest, context: Any) -> AsyncIterator[Any]:
        """Stream a stored result: the scope is checked here, the bytes come from the executor."""
        key = _key(request.turn, "turn")
        call_id = require_segment(request.call_id, "call_id")
        extra = await self._store.read(lambda db: queries.call_overflow(db, key, call_id))
        overflow = overflow_of(extra)
        if overflow is None:
            raise NotFound(
                f"call {call_id} has no stored result: all of it is in its content",
                reason="RESULT_NOT_FOUND",
                call_id=call_id,
            )
        read_range = request.range if request.HasField("range") else None
        async for chunk in self._executor.read_result(key.scope, overflow.handle, read_range):
            yield pb.ReadToolResultResponse(
                data=chunk.data, offset_bytes=chunk.offset_bytes, size_bytes=chunk.size_bytes
            )

    async def ContinueTurn(self, request: Any, context: Any) -> Any:
        """Not served yet."""
        raise request_codec.not_served("ContinueTurn")

    def _check_log(self, log_id: str) -> None:
        if log_id and log_id != self._store.log_id:
            raise Conflict(
                "the log is another one than you read before: read the turn's state anew",
                reason="LOG_REPLACED",
                log_id=self._store.log_id,
            )

    async def _found(self, admitted: Admitted, command: StartCommand) -> tuple[TurnRow, TurnLog | None]:
        """Return the turn and its log; a turn that has just begun here is known without a read."""
        key = admitted.key
        log = self._store.log_of(key)
        if admitted.disposition is not Disposition.STARTED or log is None:
            return await self._store.follow(key)
        row = TurnRow(
            key, TurnState.RUNNING, admitted.agent, "", command.request_id, "", 0, log.epoch, log.committed
        )
        return row, log

    async def _follow(
        self,
        row: TurnRow,
        log: TurnLog | None,
        disposition: Disposition,
        after: int,
        follow_while_waiting: bool,
        response: Callable[..., Any],
    ) -> AsyncGenerator[Any, None]:
        last = max(row.last_sequence, log.committed) if log is not None else row.last_sequence
        _check_cursor(row, after, last)
        reader = self._store.reader(row.key, log, after, last, follow_while_waiting)
        try:
            yield response(header=self._header(row, disposition, last))
            async for page in reader:
                yield (
                    page if page else response(heartbeat=pb.Heartbeat(create_time=timestamp(time.time_ns())))
                )
        except (GeneratorExit, asyncio.CancelledError):
            reader.raise_if_stalled()
            raise
        finally:
            reader.close()

    def _header(self, row: TurnRow, disposition: Disposition, last: int) -> pb.StreamHeader:
        return pb.StreamHeader(
            turn=row.key.name,
            thread=row.key.thread.name,
            agent=row.agent,
            state=STATES[row.state],
            disposition=codec.DISPOSITIONS[disposition],
            queue_position=row.queue_position if row.state is TurnState.QUEUED else 0,
            first_kept_sequence=row.first_kept_sequence,
            last_sequence=last,
            log_id=self._store.log_id,
            capabilities=CAPABILITIES,
        )


def _key(name: str, field: str) -> TurnKey:
    return request_codec.turn_key(name, field, current_principal().scope)


async def _look_at_schema(text: str) -> None:
    """Have a schema checked beside the loop: the codec then finds it known."""
    if text:
        await asyncio.to_thread(schema_problem, text)


def _command(request: Any, grace: float | None, after_sequence: int = 0, not_before: int = 0) -> StartCommand:
    principal = current_principal()
    return request_codec.start_command_from_proto(
        request.request_id,
        request.spec,
        principal.scope,
        principal.subject,
        grace,
        after_sequence,
        not_before,
    )


def _check_cursor(row: TurnRow, after: int, last: int) -> None:
    if after > last:
        raise Expired(
            f"after_sequence {after} is ahead of the log, which ends at {last}",
            reason="SEQUENCE_AHEAD",
            last_sequence=str(last),
        )
    if after < row.first_kept_sequence - 1:
        raise queries.events_expired(row.first_kept_sequence, last)
