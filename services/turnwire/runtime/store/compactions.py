"""Summaries of threads in the store: written with the event that tells of them, and void after edits.

A row reaches up to a step of a message. Whatever changes the view at or before that message deletes the row,
so that a row that is there always holds, and one that reaches less far takes its place.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from turnwire.runtime.domain.compaction import Compaction, Measure, StoredHistory
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.store.rows import encode, load_messages
from turnwire.storage.units import Connection, Statement

__all__ = ["COPY", "compaction_statements", "history", "newest", "void_compactions"]

# Summaries of a thread that are kept, the newest of them.
KEPT = 8
_OF_THREAD = "scope = ? AND thread_id = ?"
_NEWEST_FIRST = "ORDER BY through_position DESC, through_step DESC, message_count DESC, create_time DESC"
_INSERT = (
    "INSERT INTO compactions (scope, thread_id, compaction_id, turn_id, through_position, through_message,"
    " through_step, message_count, summary, detail, create_time)"
    " SELECT scope, thread_id, ?, ?, position, message_id, ?, ?, ?, ?, ? FROM messages"
    f" WHERE {_OF_THREAD} AND message_id = ?"
)
_FORGET = (
    f"DELETE FROM compactions WHERE {_OF_THREAD} AND compaction_id NOT IN (SELECT compaction_id"
    f" FROM compactions WHERE {_OF_THREAD} {_NEWEST_FIRST} LIMIT {KEPT})"
)
_PROGRESS = "UPDATE turns SET progress = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
_NEWEST = (
    "SELECT compaction_id, through_message, through_step, message_count, summary, detail, through_position"
    f" FROM compactions WHERE {_OF_THREAD} {_NEWEST_FIRST} LIMIT 1"
)
# For a fork: what reaches no further than the last message of the copy, whose ids and positions are the same.
COPY = (
    "INSERT INTO compactions (scope, thread_id, compaction_id, turn_id, through_position, through_message,"
    " through_step, message_count, summary, detail, create_time)"
    " SELECT scope, ?, compaction_id, '', through_position, through_message, through_step, message_count,"
    f" summary, detail, create_time FROM compactions WHERE {_OF_THREAD} AND through_position <= ?"
)


class _Detail(msgspec.Struct, omit_defaults=True):
    constraints: tuple[str, ...] = ()
    question: str = ""
    kept: tuple[str, ...] = ()
    after: Measure = Measure()


_detail = msgspec.json.Decoder(_Detail)


def compaction_statements(key: TurnKey, made: Compaction, progress: str) -> list[Statement]:
    """Return what stores a summary; `progress` is that of its turn, with what the summary has used."""
    place = (key.scope, key.thread_id)
    detail = encode(_Detail(made.constraints, made.question, made.kept, made.after))
    values = (made.compaction_id, key.turn_id, made.through_step, made.count, made.summary, detail)
    return [
        Statement(_INSERT, (*values, time.time_ns(), *place, made.through_message)),
        Statement(_FORGET, (*place, *place)),
        Statement(_PROGRESS, (progress, *place, key.turn_id)),
    ]


def void_compactions(db: Connection, thread: ThreadKey, message_id: str) -> None:
    """Delete the summaries that reach the oldest message of the thread whose view changes."""
    place = (thread.scope, thread.thread_id)
    db.execute(
        f"DELETE FROM compactions WHERE {_OF_THREAD} AND through_position >= (SELECT position FROM messages"
        f" WHERE {_OF_THREAD} AND message_id = ?)",
        (*place, *place, message_id),
    )


def newest(db: Connection, thread: ThreadKey) -> tuple[Compaction, int] | None:
    """Return the summary that reaches furthest, and the position of the message that it ends in."""
    row = db.execute(_NEWEST, (thread.scope, thread.thread_id)).fetchone()
    return None if row is None else (_compaction(row), row[6])


def _compaction(row: Any) -> Compaction:
    detail = _detail.decode(row[5])
    compaction_id, message, step, count, summary = row[:5]
    return Compaction(
        compaction_id,
        message,
        step,
        count,
        summary,
        detail.constraints,
        detail.question,
        detail.kept,
        detail.after,
    )


def history(db: Connection, thread: ThreadKey) -> StoredHistory:
    """Return the newest summary of a thread and the visible messages that it does not stand for."""
    found = newest(db, thread)
    if found is None:
        return StoredHistory(load_messages(db, thread, "m.visibility = 'visible'", ()))
    made, position = found
    kept = "".join(" OR m.message_id = ?" for _ in made.kept)
    where = f"m.visibility = 'visible' AND (m.position >= ?{kept})"
    return StoredHistory(load_messages(db, thread, where, (position, *made.kept)), made)
