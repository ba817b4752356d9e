"""The runtime's store on a real file, with what tests need to drive and to read it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnwire.api.runtime.v1 import turn_event_pb2, turn_service_pb2
from turnwire.extend.events import TurnFinished, TurnState
from turnwire.runtime.domain.admission import Admitted
from turnwire.runtime.domain.turn import StartCommand, ThreadKey, TurnKey, TurnSpec
from turnwire.runtime.event_codec import encode_event, open_attempt, trim_page
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.leases import enter
from turnwire.runtime.store.log import EncodeEvent
from turnwire.runtime.store.reader import LogReader
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.database import database_at

DONE = TurnFinished(TurnState.COMPLETED, "completed", 0.1, 1)
CANCELLED = TurnFinished(TurnState.CANCELLED, "cancelled", 0.0, 0)


@asynccontextmanager
async def open_store(
    location: Path | str,
    *,
    encode: EncodeEvent = encode_event,
    spacing: float = 0.0,
    queue_limit: int = 50,
    heartbeat: float = 20.0,
    runtime_id: str = "runtime",
) -> AsyncIterator[TurnStore]:
    """Open the store of a file, or of a PostgreSQL database, and close it whole."""
    database = database_at(
        location,
        "turnwire.runtime",
        on_fatal=_never,
        synchronous="NORMAL",
        spacing=spacing,
    )
    await database.open()
    owner = f"{runtime_id}/{uuid.uuid4().hex}"
    try:
        named = await database.claim_name(runtime_id)
        await database.writer.run(lambda db: enter(db, owner, alone=not database.shared, named=named))
        yield TurnStore(
            database,
            encode,
            trim_page,
            owner,
            read_tail=open_attempt,
            queue_limit=queue_limit,
            heartbeat=heartbeat,
        )
    finally:
        await database.close()


async def take(store: TurnStore) -> list[Admitted]:
    """Claim what nobody runs, as a runtime does when it starts."""
    found = [await store.claim(thread) for thread in await store.claimable(100)]
    return [admitted for admitted in found if admitted is not None]


def _never(error: BaseException) -> None:
    raise AssertionError("the store has failed") from error


def command(
    thread: str = "", *, scope: str = "team", request_id: str = "", text: str = "hello", **fields: Any
) -> StartCommand:
    """A request for a turn, on a new thread where none is named."""
    place = {"thread": f"threads/{thread}"} if thread else {"new_thread": fields.pop("new_thread", {})}
    spec = {**place, "parts": [{"kind": "text", "text": text}], **fields}
    return StartCommand(scope, request_id or str(uuid.uuid4()), TurnSpec.model_validate(spec))


async def admit(store: TurnStore, given: StartCommand) -> Admitted:
    """Admit a turn of the agent `helper`."""
    return await store.admit(given, "agents/helper", "digest", 30)


async def begin(store: TurnStore, thread: str = "", **fields: Any) -> tuple[TurnKey, Journal]:
    """Begin a turn and return its key and journal."""
    admitted = await admit(store, command(thread, **fields))
    assert isinstance(admitted.journal, Journal)
    return admitted.key, admitted.journal


async def end(journal: Journal, event: TurnFinished = DONE) -> None:
    """End a turn."""
    await journal.finish(event, interrupted_reason="", applied=())


async def queued(store: TurnStore, key: TurnKey | ThreadKey, **fields: Any) -> TurnKey:
    """Put a turn into the queue of a thread."""
    admitted = await admit(store, command(key.thread_id, **fields))
    assert admitted.journal is None
    return admitted.key


async def reader(store: TurnStore, key: TurnKey, after: int = 0) -> LogReader:
    """Attach a reader as a handler does."""
    row, log = await store.follow(key)
    last = max(row.last_sequence, log.committed) if log is not None else row.last_sequence
    return store.reader(key, log, after, last)


async def pages(store: TurnStore, key: TurnKey, after: int = 0) -> list[bytes]:
    """Read a turn to its end."""
    reading = await reader(store, key, after)
    try:
        return [page async for page in reading if page]
    finally:
        reading.close()


def events(bodies: Sequence[bytes] | bytes) -> list[turn_event_pb2.TurnEvent]:
    """Return the events of pages."""
    whole = bodies if isinstance(bodies, bytes) else b"".join(bodies)
    return list(turn_service_pb2.RunTurnResponse.FromString(whole).events)


async def history(store: TurnStore, key: TurnKey) -> list[turn_event_pb2.TurnEvent]:
    """Return the events of a turn that has ended."""
    return events(await pages(store, key))


def kinds(found: Sequence[turn_event_pb2.TurnEvent]) -> list[str]:
    """Return the arm of each event; for those of the model, its own arm."""
    return [
        event.llm.WhichOneof("event") if event.HasField("llm") else event.WhichOneof("event") or ""
        for event in found
    ]
