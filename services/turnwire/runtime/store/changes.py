"""The visible changes of a thread, read from the versions that its rows keep.

Each change has a version of its own, so that a watcher may stop after any of them and go on from there. A row
that changed more than once is told once, as it is now, with the version of its latest change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from turnwire.core.errors import Expired, NotFound
from turnwire.runtime.domain.message import StoredMessage
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import ThreadKey, TurnKey, TurnRow
from turnwire.runtime.store.queries import MAX_PAGE_BYTES, get_thread, get_turn, queued_rows
from turnwire.runtime.store.rows import load_messages
from turnwire.storage.units import Connection

__all__ = ["MAX_CHANGES", "Change", "ChangeKind", "ChangePage", "read_changes", "versions_of"]

# A read gives at most so many changes, and about MAX_PAGE_BYTES of messages.
MAX_CHANGES = 200
# Threads whose versions are asked for at once; the engines bound the places of a statement.
_ASKED_AT_ONCE = 200


class ChangeKind(Enum):
    """What changed."""

    MESSAGE_ADDED = "message_added"
    MESSAGE_CHANGED = "message_changed"
    MESSAGES_SUPERSEDED = "messages_superseded"
    TURN_CHANGED = "turn_changed"
    QUEUE_CHANGED = "queue_changed"
    METADATA_CHANGED = "metadata_changed"
    DELETED = "deleted"
    RESNAPSHOT = "resnapshot"


@dataclass(frozen=True, slots=True)
class Change:
    """One change with its version; `value` is the row as it is now, for superseded messages their ids."""

    version: int
    kind: ChangeKind
    value: StoredMessage | TurnRow | ThreadRow | Sequence[TurnRow] | Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes in the order of their versions.

    `version` is the thread's; `more` says that the page ended before it was reached.
    """

    changes: Sequence[Change]
    version: int
    more: bool = False


# What a version stands for before its row is read: (version, kind, id of the row).
_Mark = tuple[int, ChangeKind, str]


def read_changes(
    db: Connection, key: ThreadKey, after_version: int, *, told: int | None = None
) -> ChangePage:
    """Return the changes above a version, the lowest first.

    Args:
        told: the version up to which this watcher was told everything, at or below `after_version`; messages
            that were created later are new to it. None for one that has not read before; to others a deleted
            thread is its last change.

    Raises:
        NotFound: THREAD_NOT_FOUND; THREAD_DELETED for a watcher that comes too late.
        Expired: VERSION_AHEAD.
    """
    row = db.execute(
        "SELECT version, queue_version, metadata_version, snapshot_version, delete_time FROM threads"
        " WHERE scope = ? AND thread_id = ?",
        (key.scope, key.thread_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no {key.name}", reason="THREAD_NOT_FOUND", thread=key.name)
    version, queue_version, metadata_version, snapshot_version, delete_time = row
    if delete_time is not None and told is None:
        raise NotFound(f"{key.name} was deleted", reason="THREAD_DELETED", thread=key.name)
    if after_version > version:
        raise Expired(
            f"after_version {after_version} is ahead of {key.name}, which is at {version}",
            reason="VERSION_AHEAD",
            version=str(version),
        )
    if delete_time is not None:
        return ChangePage([Change(version, ChangeKind.DELETED)], version)
    if after_version < snapshot_version:
        return ChangePage([Change(version, ChangeKind.RESNAPSHOT)], version)
    if after_version == version:
        return ChangePage((), version)
    marks = list(_row_marks(db, key, after_version, after_version if told is None else told))
    if queue_version > after_version:
        marks.append((queue_version, ChangeKind.QUEUE_CHANGED, ""))
    if metadata_version > after_version:
        marks.append((metadata_version, ChangeKind.METADATA_CHANGED, ""))
    return _page(db, key, heapq.nsmallest(MAX_CHANGES + 1, marks, key=lambda mark: mark[0]), version)


def _row_marks(db: Connection, key: ThreadKey, after: int, told: int) -> Iterator[_Mark]:
    """Give the changed messages and turns, more of them than a page holds at most."""
    place = (key.scope, key.thread_id, after, MAX_CHANGES + 1)
    for version, message_id, created in db.execute(
        "SELECT change_version, message_id, create_version FROM messages WHERE scope = ? AND thread_id = ?"
        " AND change_version > ? AND visibility <> 'superseded' ORDER BY change_version LIMIT ?",
        place,
    ):
        added = created > told
        yield version, ChangeKind.MESSAGE_ADDED if added else ChangeKind.MESSAGE_CHANGED, message_id
    for (version,) in db.execute(
        "SELECT DISTINCT change_version FROM messages WHERE scope = ? AND thread_id = ?"
        " AND change_version > ? AND visibility = 'superseded' ORDER BY change_version LIMIT ?",
        place,
    ):
        yield version, ChangeKind.MESSAGES_SUPERSEDED, ""
    # A turn that waits is told with the queue.
    for version, turn_id in db.execute(
        "SELECT change_version, turn_id FROM turns WHERE scope = ? AND thread_id = ?"
        " AND change_version > ? AND state <> 'queued' ORDER BY change_version LIMIT ?",
        place,
    ):
        yield version, ChangeKind.TURN_CHANGED, turn_id


def _page(db: Connection, key: ThreadKey, marks: Sequence[_Mark], version: int) -> ChangePage:
    """Read the rows of the marks, up to the limits of a page."""
    changes: list[Change] = []
    size = 0
    for mark in marks[:MAX_CHANGES]:
        change = _change(db, key, mark)
        size += change.value.weight if isinstance(change.value, StoredMessage) else 0
        if changes and size > MAX_PAGE_BYTES:
            break
        changes.append(change)
    return ChangePage(changes, version, len(changes) < len(marks))


def _change(db: Connection, key: ThreadKey, mark: _Mark) -> Change:
    version, kind, row_id = mark
    match kind:
        case ChangeKind.TURN_CHANGED:
            return Change(version, kind, get_turn(db, TurnKey(key.scope, key.thread_id, row_id)))
        case ChangeKind.QUEUE_CHANGED:
            return Change(version, kind, [row for _, row in queued_rows(db, key)])
        case ChangeKind.METADATA_CHANGED:
            return Change(version, kind, get_thread(db, key))
        case ChangeKind.MESSAGES_SUPERSEDED:
            rows = db.execute(
                "SELECT message_id FROM messages WHERE scope = ? AND thread_id = ?"
                " AND change_version = ? AND visibility = 'superseded' ORDER BY position",
                (key.scope, key.thread_id, version),
            )
            return Change(version, kind, [message_id for (message_id,) in rows])
        case _:
            (message,) = load_messages(db, key, "m.message_id = ?", (row_id,))
            return Change(version, kind, message)


def versions_of(db: Connection, keys: Sequence[ThreadKey]) -> dict[ThreadKey, int]:
    """Return the versions of threads; those that do not exist are left out."""
    found: dict[ThreadKey, int] = {}
    for start in range(0, len(keys), _ASKED_AT_ONCE):
        asked = keys[start : start + _ASKED_AT_ONCE]
        places = ", ".join(["(?, ?)"] * _ASKED_AT_ONCE)
        # Always as many places, the last key repeated: statements are prepared once per text.
        filled = [*asked, *[asked[-1]] * (_ASKED_AT_ONCE - len(asked))]
        rows = db.execute(
            f"SELECT scope, thread_id, version FROM threads WHERE (scope, thread_id) IN (VALUES {places})",
            tuple(value for key in filled for value in (key.scope, key.thread_id)),
        )
        found.update({ThreadKey(scope, thread_id): version for scope, thread_id, version in rows})
    return found
