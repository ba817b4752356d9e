"""Reads: each function is one query set inside one short read transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from turnwire.core.errors import Expired, NotFound
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.message import StoredMessage
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import TaskSpec, ThreadKey, TurnKey, TurnRow
from turnwire.runtime.store.actions import open_actions
from turnwire.runtime.store.rows import THREAD_COLUMNS, TURN_COLUMNS, load_messages, thread_row, turn_row
from turnwire.storage.units import Connection

__all__ = [
    "MAX_PAGE_BYTES",
    "Filter",
    "ThreadSnapshot",
    "applied_command",
    "call_overflow",
    "cancelled_by",
    "events_expired",
    "get_thread",
    "asked_turn",
    "get_turn",
    "list_messages",
    "list_queue",
    "list_threads",
    "list_turns",
    "queued_rows",
    "queued_turns",
    "read_pages",
    "thread_snapshot",
    "transcript",
]

# A page also ends here, whatever its count.
MAX_PAGE_BYTES = 1024 * 1024

_FROM_TURNS = "FROM turns t JOIN turn_heads h ON h.scope = t.scope AND h.turn_id = t.turn_id"


class _Task(msgspec.Struct):
    description: str
    expected_output: str = ""


class _Asked(msgspec.Struct):
    """What is read of a stored spec, without the files in it."""

    task: _Task | None = None
    response_schema_json: str = ""


_asked = msgspec.json.Decoder(_Asked)


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions of a list, each a column test with its value; labels are tests on the JSON text."""

    conditions: tuple[tuple[str, Any], ...] = ()

    def sql(self) -> tuple[str, tuple[Any, ...]]:
        """Return ` AND ...` and its values."""
        return "".join(f" AND {c}" for c, _ in self.conditions), tuple(v for _, v in self.conditions)


@dataclass(frozen=True, slots=True)
class ThreadSnapshot:
    """A thread with its latest messages, live turn and queue, all of one moment."""

    thread: ThreadRow
    messages: Sequence[StoredMessage]
    live_turn: TurnRow | None
    queued: Sequence[TurnRow]
    transcript_sequence: int


def get_thread(db: Connection, key: ThreadKey) -> ThreadRow:
    """Read a thread. Raises NotFound (THREAD_NOT_FOUND)."""
    row = db.execute(
        f"SELECT {THREAD_COLUMNS} FROM threads t WHERE scope = ? AND thread_id = ? AND delete_time IS NULL",
        (key.scope, key.thread_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no {key.name}", reason="THREAD_NOT_FOUND", thread=key.name)
    return thread_row(row)


def get_turn(db: Connection, key: TurnKey) -> TurnRow:
    """Read a turn. Raises NotFound (TURN_NOT_FOUND)."""
    row = db.execute(
        f"SELECT {TURN_COLUMNS} {_FROM_TURNS} WHERE t.scope = ? AND t.thread_id = ? AND t.turn_id = ?",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no {key.name}", reason="TURN_NOT_FOUND", turn=key.name)
    return _with_actions(db, turn_row(row))


def asked_turn(db: Connection, key: TurnKey) -> TurnRow:
    """Read a turn with the task and the schema that it was given. Raises NotFound (TURN_NOT_FOUND)."""
    turn = get_turn(db, key)
    (spec,) = db.execute(
        "SELECT spec FROM turns WHERE scope = ? AND thread_id = ? AND turn_id = ?",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    asked = _asked.decode(spec)
    found = asked.task
    task = (
        TaskSpec(description=found.description, expected_output=found.expected_output)
        if found is not None
        else None
    )
    return replace(turn, task=task, response_schema_json=asked.response_schema_json)


def _with_actions(db: Connection, turn: TurnRow) -> TurnRow:
    """Return the turn with the names of what it waits for."""
    if turn.state is not TurnState.WAITING:
        return turn
    return replace(turn, open_actions=open_actions(db, turn.key))


def list_turns(
    db: Connection, thread: ThreadKey, where: Filter, before: tuple[int, str] | None, count: int
) -> Sequence[TurnRow]:
    """Return turns of a thread (`-` = all), newest first.

    `before` is (create_time, turn_id) of the last one that was given.
    """
    conditions, values = where.sql()
    params: list[Any] = [thread.scope]
    sql = f"SELECT {TURN_COLUMNS} {_FROM_TURNS} WHERE t.scope = ?"
    if thread.thread_id != "-":
        get_thread(db, thread)
        sql += " AND t.thread_id = ?"
        params.append(thread.thread_id)
    sql += conditions
    params.extend(values)
    if before is not None:
        sql += " AND (t.create_time, t.turn_id) < (?, ?)"
        params.extend(before)
    sql += " ORDER BY t.create_time DESC, t.turn_id DESC LIMIT ?"
    return [_with_actions(db, turn_row(r)) for r in db.execute(sql, (*params, count)).fetchall()]


def queued_turns(db: Connection, thread: ThreadKey) -> Sequence[TurnKey]:
    """Return the turns that wait in a thread, in their order."""
    rows = db.execute(
        "SELECT turn_id FROM turns WHERE scope = ? AND thread_id = ? AND state = 'queued'"
        " ORDER BY queue_position",
        (thread.scope, thread.thread_id),
    )
    return [TurnKey(thread.scope, thread.thread_id, turn_id) for (turn_id,) in rows]


def queued_rows(
    db: Connection, thread: ThreadKey, after: int | None = None, count: int = 2**31
) -> Sequence[tuple[int, TurnRow]]:
    """Return the turns that wait in a thread with their places; `after` is that of the last one given."""
    rows = db.execute(
        f"SELECT {TURN_COLUMNS}, t.queue_position {_FROM_TURNS} WHERE t.scope = ? AND t.thread_id = ?"
        " AND t.state = 'queued' AND t.queue_position > ? ORDER BY t.queue_position LIMIT ?",
        (thread.scope, thread.thread_id, -(2**62) if after is None else after, count),
    )
    return [(row[-1], turn_row(row)) for row in rows]


def list_queue(
    db: Connection, thread: ThreadKey, after: int | None, count: int
) -> Sequence[tuple[int, TurnRow]]:
    """Return a page of `queued_rows`. Raises NotFound (THREAD_NOT_FOUND)."""
    get_thread(db, thread)
    return queued_rows(db, thread, after, count)


def list_threads(
    db: Connection, scope: str, where: Filter, before: tuple[int, str] | None, count: int
) -> Sequence[ThreadRow]:
    """Return threads, the latest changed first; `before` is (update_time, thread_id) of the last given."""
    conditions, values = where.sql()
    sql = f"SELECT {THREAD_COLUMNS} FROM threads t WHERE scope = ? AND delete_time IS NULL{conditions}"
    params: list[Any] = [scope, *values]
    if before is not None:
        sql += " AND (update_time, thread_id) < (?, ?)"
        params.extend(before)
    sql += " ORDER BY update_time DESC, thread_id DESC LIMIT ?"
    return [thread_row(r) for r in db.execute(sql, (*params, count))]


def list_messages(
    db: Connection, key: ThreadKey, before: int | None, count: int, include_hidden: bool
) -> tuple[list[StoredMessage], bool]:
    """Return messages, newest first, and whether more follow; also the size of a page ends them.

    `before` is the position of the last one given. They are read one by one: a page of long messages would
    not fit into memory many times at once.
    """
    get_thread(db, key)
    conditions = "" if include_hidden else " AND visibility = 'visible'"
    positions = db.execute(
        f"SELECT position FROM messages WHERE scope = ? AND thread_id = ? AND position < ?{conditions}"
        " ORDER BY position DESC LIMIT ?",
        (key.scope, key.thread_id, before if before is not None else 2**62, count + 1),
    ).fetchall()
    found: list[StoredMessage] = []
    size = 0
    for position in positions[:count]:
        (message,) = load_messages(db, key, "m.position = ?", position)
        size += message.weight
        if found and size > MAX_PAGE_BYTES:
            break
        found.append(message)
    return found, len(found) < len(positions)


def transcript(db: Connection, key: ThreadKey) -> Sequence[StoredMessage]:
    """Return the visible messages of a thread, oldest first."""
    return load_messages(db, key, "m.visibility = 'visible'", ())


def thread_snapshot(db: Connection, key: ThreadKey, message_count: int) -> ThreadSnapshot:
    """Read a thread and what belongs to it. Raises NotFound (THREAD_NOT_FOUND)."""
    thread = get_thread(db, key)
    messages = list_messages(db, key, None, message_count, False)[0][::-1] if message_count else []
    live = get_turn(db, TurnKey(key.scope, key.thread_id, thread.live_turn)) if thread.live_turn else None
    queued = [row for _, row in queued_rows(db, key)]
    return ThreadSnapshot(thread, messages, live, queued, _transcript_sequence(db, live))


def _transcript_sequence(db: Connection, live: TurnRow | None) -> int:
    """Return the last sequence of the live turn whose content the messages hold."""
    if live is None:
        return 0
    (sequence,) = db.execute(
        "SELECT transcript_sequence FROM turns WHERE scope = ? AND thread_id = ? AND turn_id = ?",
        (live.key.scope, live.key.thread_id, live.key.turn_id),
    ).fetchone()
    return int(sequence)


def read_pages(
    db: Connection, scope: str, turn_id: str, after_sequence: int, max_bytes: int
) -> Sequence[tuple[int, int, bytes]]:
    """Return pages whose last sequence is above `after_sequence`, at most about `max_bytes` of them.

    Raises:
        Expired: EVENTS_EXPIRED, the next sequence is no longer kept.
        NotFound: TURN_NOT_FOUND, the turn has been deleted.
    """
    pages: list[tuple[int, int, bytes]] = []
    size = 0
    row = db.execute(
        "SELECT coalesce(max(first_sequence), 0) FROM pages"
        " WHERE scope = ? AND turn_id = ? AND first_sequence <= ?",
        (scope, turn_id, after_sequence + 1),
    ).fetchone()
    for page in db.execute(
        "SELECT first_sequence, last_sequence, body FROM pages"
        " WHERE scope = ? AND turn_id = ? AND first_sequence >= ? ORDER BY first_sequence",
        (scope, turn_id, row[0]),
    ):
        if page[1] <= after_sequence:
            continue
        pages.append(page)
        size += len(page[2])
        if size >= max_bytes:
            break
    if not pages or pages[0][0] > after_sequence + 1:
        _check_kept(db, scope, turn_id, after_sequence)
    return pages


def events_expired(first_kept: int, last: int) -> Expired:
    """Return the error for a reader that asks for events which are no longer kept."""
    return Expired(
        f"events up to {first_kept - 1} are no longer kept: read the end with GetTurn",
        reason="EVENTS_EXPIRED",
        oldest_sequence=str(first_kept),
        last_sequence=str(last),
    )


def _check_kept(db: Connection, scope: str, turn_id: str, after_sequence: int) -> None:
    head = db.execute(
        "SELECT first_kept_sequence, next_sequence FROM turn_heads WHERE scope = ? AND turn_id = ?",
        (scope, turn_id),
    ).fetchone()
    if head is None:
        raise NotFound("the turn has been deleted", reason="TURN_NOT_FOUND", turn=turn_id)
    if after_sequence < head[0] - 1:
        raise events_expired(head[0], head[1] - 1)


def cancelled_by(db: Connection, key: TurnKey) -> str:
    """Return the id of the command that cancelled a turn, empty when none did."""
    row = db.execute(
        "SELECT command_id FROM applied_commands WHERE scope = ? AND turn = ? AND kind = 'applied'",
        (key.scope, key.name),
    ).fetchone()
    return "" if row is None else str(row[0])


def applied_command(db: Connection, scope: str, command_id: str) -> tuple[str, str, str, int] | None:
    """Return turn, kind, the command it duplicates, and sequence of a command that took effect."""
    row: tuple[str, str, str, int] | None = db.execute(
        "SELECT turn, kind, duplicate_of, sequence FROM applied_commands WHERE scope = ? AND command_id = ?",
        (scope, command_id),
    ).fetchone()
    return row


def call_overflow(db: Connection, key: TurnKey, call_id: str) -> str:
    """Return the `extra` JSON of a call of this turn. Raises NotFound (TURN_NOT_FOUND, RESULT_NOT_FOUND)."""
    get_turn(db, key)
    row = db.execute(
        "SELECT extra FROM tool_calls WHERE scope = ? AND thread_id = ? AND call_id = ? AND turn_id = ?",
        (key.scope, key.thread_id, call_id, key.turn_id),
    ).fetchone()
    if row is None:
        raise NotFound(
            f"{key.name} has no call {call_id}", reason="RESULT_NOT_FOUND", turn=key.name, call_id=call_id
        )
    return str(row[0])
