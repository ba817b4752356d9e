"""Deletion of threads: marked in one transaction, removed in small ones; a tombstone with its epoch stays.

Whatever a process does that still believes to own a deleted thread is refused: its pages by the head's epoch
and later by the missing head, its claims by the time of deletion in the thread's row.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.core.errors import Conflict, NotFound
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.deletion import Deletion, Purge
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.store.claimed import EncodePage
from turnwire.runtime.store.endings import Ending, end_by_edit, queued_keys
from turnwire.runtime.store.rows import encode
from turnwire.storage.units import Connection

__all__ = [
    "DELETED",
    "begin_deletion",
    "end_purge",
    "live_turn_of_deleted",
    "purge_rows",
    "purges",
    "seal",
    "thread_deleted",
]

# Rows of one transaction, and free pages of the file given back in it: both about 10 ms of the writer's time.
CHUNK_ROWS = 500
RECLAIM_PAGES = 200
DELETED = "deleted"

_OF_THREAD = "scope = ? AND thread_id = ?"
_LOCK = f"UPDATE threads SET version = version WHERE {_OF_THREAD} RETURNING version, live_turn, delete_time"
# What a thread consists of beside its turns, each table with the rest of its key.
_CONTENT = (
    ("message_parts", "message_id, part_index"),
    ("tool_calls", "message_id, part_index"),
    ("messages", "position"),
    ("actions", "turn_id, action_id"),
    ("history_rewrites", "rewrite_id"),
    ("compactions", "compaction_id"),
)


def thread_deleted(thread: ThreadKey) -> NotFound:
    """Return the error for readers of a thread that is gone."""
    return NotFound(f"{thread.name} was deleted", reason="THREAD_DELETED", thread=thread.name)


def begin_deletion(
    db: Connection, thread: ThreadKey, expected_version: int | None, encode_page: EncodePage
) -> tuple[Deletion, Sequence[Ending]]:
    """Mark a thread as deleted and end all its turns but a running one, which is asked to end.

    Returns the turns that were ended, too. From here on nothing is admitted and the thread is not read; its
    turns can be until they are removed. Done again, it changes nothing.

    Raises:
        NotFound: THREAD_NOT_FOUND.
        Conflict: THREAD_CHANGED.
    """
    row = db.execute(_LOCK, (thread.scope, thread.thread_id)).fetchone()
    if row is None:
        raise NotFound(f"there is no {thread.name}", reason="THREAD_NOT_FOUND", thread=thread.name)
    version, live_turn, delete_time = row
    live = TurnKey(thread.scope, thread.thread_id, live_turn) if live_turn else None
    if delete_time is not None:
        return Deletion(version, live), ()
    if expected_version is not None and expected_version != version:
        raise Conflict(
            f"{thread.name} is at version {version}, not {expected_version}: read it again",
            reason="THREAD_CHANGED",
            version=str(version),
        )
    endings = [end_by_edit(db, key, DELETED, encode_page) for key in queued_keys(db, thread)]
    running = live if live is not None and _ask_to_end(db, live) else None
    if live is not None and running is None:
        endings.append(end_by_edit(db, live, DELETED, encode_page))
    now = db.now_ns()
    held = "" if running is not None else ", owner = '', lease = '', epoch = epoch + 1"
    (version,) = db.execute(
        f"UPDATE threads SET delete_time = ?, update_time = ?, version = version + 1{held}"
        f" WHERE {_OF_THREAD} RETURNING version",
        (now, now, thread.scope, thread.thread_id),
    ).fetchone()
    db.execute(
        "INSERT INTO purges (scope, thread_id, create_time) VALUES (?, ?, ?)",
        (thread.scope, thread.thread_id, now),
    )
    return Deletion(version, running), [e for e in endings if e is not None]


def _ask_to_end(db: Connection, key: TurnKey) -> bool:
    """Have whoever runs a turn end it; False when nobody runs it."""
    note = StopNote(DELETED, "its thread was deleted")
    changed = db.execute(
        f"UPDATE turns SET stop_request = ? WHERE {_OF_THREAD} AND turn_id = ? AND state = 'running'",
        (encode(note), key.scope, key.thread_id, key.turn_id),
    )
    return changed.rowcount == 1


def seal(db: Connection, thread: ThreadKey, encode_page: EncodePage) -> tuple[int, Ending | None]:
    """Shut out whoever still runs a turn of a deleted thread; returns the version and the turn's end."""
    version, live_turn, delete_time = db.execute(_LOCK, (thread.scope, thread.thread_id)).fetchone()
    if delete_time is None or not live_turn:
        return version, None
    live = TurnKey(thread.scope, thread.thread_id, live_turn)
    ending = end_by_edit(db, live, DELETED, encode_page)
    (version,) = db.execute(
        f"UPDATE threads SET owner = '', lease = '', live_turn = '', epoch = epoch + 1 WHERE {_OF_THREAD}"
        " RETURNING version",
        (thread.scope, thread.thread_id),
    ).fetchone()
    return version, ending


def live_turn_of_deleted(db: Connection, thread: ThreadKey) -> str:
    """Return the bare id of the turn that still runs in a deleted thread, empty when none does."""
    row = db.execute(
        f"SELECT live_turn FROM threads WHERE {_OF_THREAD}", (thread.scope, thread.thread_id)
    ).fetchone()
    return "" if row is None else str(row[0])


def purges(db: Connection, limit: int = 100) -> Sequence[Purge]:
    """Return threads whose content is still to be removed, the longest deleted first."""
    now = db.now_ns()
    rows = db.execute(
        "SELECT p.scope, p.thread_id, t.live_turn, p.create_time FROM purges p JOIN threads t"
        " ON t.scope = p.scope AND t.thread_id = p.thread_id ORDER BY p.create_time LIMIT ?",
        (limit,),
    ).fetchall()
    return [Purge(ThreadKey(*row[:2]), row[2], max(0.0, (now - row[3]) / 1e9)) for row in rows]


def purge_rows(db: Connection, thread: ThreadKey, rows: int = CHUNK_ROWS) -> bool:
    """Remove at most so many rows of a deleted thread and give pages back; False when nothing is left."""
    place = (thread.scope, thread.thread_id)
    left = rows
    for table, key in _CONTENT:
        left -= db.execute(
            f"DELETE FROM {table} WHERE {_OF_THREAD} AND ({key}) IN"
            f" (SELECT {key} FROM {table} WHERE {_OF_THREAD} LIMIT ?)",
            (*place, *place, left),
        ).rowcount
        if left <= 0:
            break
    if left > 0:
        left -= _purge_turns(db, thread, left)
    if left == rows:
        db.execute(
            "UPDATE threads SET title = '', agent = '', metadata = '{}', private_metadata = '{}',"
            f" labels = '{{}}', forked_from = '' WHERE {_OF_THREAD} AND delete_time IS NOT NULL",
            place,
        )
    # What is freed here and now is what the file gives back; see `OverflowStore` for results kept elsewhere.
    reclaimed = db.reclaim(RECLAIM_PAGES)
    return left < rows or reclaimed == RECLAIM_PAGES


def _purge_turns(db: Connection, thread: ThreadKey, rows: int) -> int:
    """Remove logs and then the turns themselves; returns the number of rows."""
    place = (thread.scope, thread.thread_id)
    done = 0
    turns = db.execute(f"SELECT turn_id FROM turns WHERE {_OF_THREAD} LIMIT ?", (*place, rows)).fetchall()
    for (turn_id,) in turns:
        if done >= rows:
            break
        done += db.execute(
            "DELETE FROM pages WHERE scope = ? AND turn_id = ? AND first_sequence IN"
            " (SELECT first_sequence FROM pages WHERE scope = ? AND turn_id = ? LIMIT ?)",
            (thread.scope, turn_id, thread.scope, turn_id, rows - done),
        ).rowcount
        if done >= rows:
            break
        db.execute("DELETE FROM turn_heads WHERE scope = ? AND turn_id = ?", (thread.scope, turn_id))
        db.execute(f"DELETE FROM turns WHERE {_OF_THREAD} AND turn_id = ?", (*place, turn_id))
        done += 2
    return done


def end_purge(db: Connection, thread: ThreadKey) -> None:
    """Note that nothing of a thread is left, here and at the executor."""
    db.execute(f"DELETE FROM purges WHERE {_OF_THREAD}", (thread.scope, thread.thread_id))
