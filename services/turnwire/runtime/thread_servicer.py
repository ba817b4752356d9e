"""ThreadService: threads, their messages and queues: created, read, changed and followed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.api.runtime.v1 import thread_service_pb2_grpc as grpc_pb
from turnwire.core.errors import Forbidden
from turnwire.runtime import codec, request_codec
from turnwire.runtime.change_codec import change_to_proto
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.history_servicer import History, HistoryMethods
from turnwire.runtime.paging import FilterField, fitting, page_size, parse_filter, read_token, write_token
from turnwire.runtime.store import queries, queue, threads
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.wire.auth import current_principal

__all__ = ["ThreadServicer"]

logger = logging.getLogger(__name__)

_FILTER: dict[str, FilterField] = {"agent": ("agent", "text"), "create_time": ("create_time", "time")}


class ThreadServicer(HistoryMethods, grpc_pb.ThreadServiceServicer):
    """Serves threads of one runtime."""

    def __init__(self, store: TurnStore, agents: AgentCatalog, history: History) -> None:
        self._store = store
        self._agents = agents
        self._history = history

    async def CreateThread(self, request: pb.CreateThreadRequest, context: Any) -> pb.CreateThreadResponse:
        """Create a thread."""
        scope = current_principal().scope
        new = request_codec.create_thread_from_proto(request, scope)
        _check_mode(new.permission_mode, "CreateThread")
        if new.agent:
            self._agents.get(scope, new.agent)
        row = await self._store.create_thread(new)
        _note_mode(row.key, new.permission_mode if new.permission_mode == "auto" else None)
        return pb.CreateThreadResponse(thread=codec.thread_to_proto(row))

    async def GetThread(self, request: pb.GetThreadRequest, context: Any) -> pb.GetThreadResponse:
        """Read a thread with its latest messages, its live turn and its queue."""
        key = _key(request.name, "name")
        count = 0 if request.message_count < 0 else page_size(request.message_count)
        found = await self._store.read(lambda db: queries.thread_snapshot(db, key, count))
        return pb.GetThreadResponse(
            thread=codec.thread_to_proto(found.thread),
            messages=[codec.message_to_proto(m, key.name) for m in found.messages],
            live_turn=codec.turn_to_proto(found.live_turn) if found.live_turn else None,
            transcript_sequence=found.transcript_sequence,
            # The rest of a queue that is longer than any should be is read with ListQueuedTurns.
            queued_turns=fitting(codec.turn_to_proto(t) for t in found.queued),
        )

    async def ListThreads(self, request: pb.ListThreadsRequest, context: Any) -> pb.ListThreadsResponse:
        """List threads, the latest changed first."""
        size = page_size(request.page_size)
        where = parse_filter(request.filter, _FILTER, "t.labels")
        scope = current_principal().scope
        bound = (scope, request.filter)
        before = read_token(request.page_token, *bound)
        rows = await self._store.read(lambda db: queries.list_threads(db, scope, where, before, size + 1))
        listed = fitting(codec.thread_to_proto(r) for r in rows[:size])
        token = ""
        if len(listed) < len(rows):
            last = rows[len(listed) - 1]
            token = write_token((last.update_time, last.key.thread_id), *bound)
        return pb.ListThreadsResponse(threads=listed, next_page_token=token)

    async def ListMessages(self, request: pb.ListMessagesRequest, context: Any) -> pb.ListMessagesResponse:
        """List messages, newest first; a page also ends at 1 MiB."""
        key = _key(request.parent, "parent")
        size = page_size(request.page_size)
        bound = (key.scope, request.parent, str(request.include_hidden))
        before = read_token(request.page_token, *bound)
        position = before[0] if before else None
        rows, more = await self._store.read(
            lambda db: queries.list_messages(db, key, position, size, request.include_hidden)
        )
        return pb.ListMessagesResponse(
            messages=[codec.message_to_proto(row, key.name) for row in rows],
            next_page_token=write_token((rows[-1].position, ""), *bound) if more else "",
        )

    async def UpdateThread(self, request: pb.UpdateThreadRequest, context: Any) -> pb.UpdateThreadResponse:
        """Change title, metadata, labels or permission mode."""
        key = _key(request.thread.name, "thread.name")
        patch = request_codec.thread_patch_from_proto(request)
        _check_mode(patch.permission_mode, "UpdateThread")
        expected = request.expected_version if request.HasField("expected_version") else None
        row = await self._store.change(key, lambda db: threads.update_thread(db, key, patch, expected))
        _note_mode(key, patch.permission_mode)
        return pb.UpdateThreadResponse(thread=codec.thread_to_proto(row))

    async def WatchThread(
        self, request: pb.WatchThreadRequest, context: Any
    ) -> AsyncIterator[pb.WatchThreadResponse]:
        """Stream the changes of a thread above a version, until it is deleted."""
        key = _key(request.thread, "thread")
        reader = self._store.watch.reader(key, request.after_version)
        try:
            async for change in reader:
                yield change_to_proto(change, key.name) if change is not None else pb.WatchThreadResponse()
        except (GeneratorExit, asyncio.CancelledError):
            reader.raise_if_stalled()
            raise
        finally:
            reader.close()

    async def ListQueuedTurns(
        self, request: pb.ListQueuedTurnsRequest, context: Any
    ) -> pb.ListQueuedTurnsResponse:
        """List the turns that wait, first the next one."""
        key = _key(request.parent, "parent")
        size = page_size(request.page_size)
        bound = (key.scope, request.parent, "queue")
        after = read_token(request.page_token, *bound)
        place = after[0] if after else None
        rows = await self._store.read(lambda db: queries.list_queue(db, key, place, size + 1))
        turns = fitting(codec.turn_to_proto(row) for _, row in rows[:size])
        more = len(turns) < len(rows)
        return pb.ListQueuedTurnsResponse(
            turns=turns, next_page_token=write_token((rows[len(turns) - 1][0], ""), *bound) if more else ""
        )

    async def UpdateQueuedTurn(
        self, request: pb.UpdateQueuedTurnRequest, context: Any
    ) -> pb.UpdateQueuedTurnResponse:
        """Give a turn that waits another input."""
        key = request_codec.turn_key(request.name, "name", current_principal().scope)
        if not request.etag:
            raise request_codec.bad("etag", "is needed: it is in the turn as it was read")
        parts = request_codec.input_parts(request.input.parts, "input.parts")
        row = await self._store.change(
            key.thread, lambda db: queue.update_queued_turn(db, key, request.etag, parts)
        )
        return pb.UpdateQueuedTurnResponse(turn=codec.turn_to_proto(row))


def _check_mode(mode: str | None, method: str) -> None:
    """Let only those who may approve have everything approved. Raises Forbidden (ROLE_MISSING)."""
    if mode == "auto" and not current_principal().roles & {"approver", "operator"}:
        raise Forbidden(
            "permission mode AUTO needs the role approver or operator",
            method=f"/turnwire.api.runtime.v1.ThreadService/{method}",
        )


def _note_mode(key: ThreadKey, mode: str | None) -> None:
    """Leave a line for the audit: who set whether somebody is asked."""
    if mode is not None:
        extra = {"thread_name": key.name, "mode": mode, "subject": current_principal().subject}
        logger.info("thread.permission_mode", extra=extra)


def _key(name: str, field: str) -> ThreadKey:
    return request_codec.thread_key(name, field, current_principal().scope)
