"""Copies of threads: what can be read of one, up to a message, becomes a thread of its own.

A copy shares nothing with its origin, so that either may be deleted. What the executor keeps belongs to the
origin alone: the copy has the text that was shown of a long result, and no handle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from turnwire.core.errors import AlreadyExists, NotFound, WrongState
from turnwire.core.ids import mint_id
from turnwire.runtime.domain.rewrites import ForkCommand
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.store.compactions import COPY as COPY_COMPACTIONS
from turnwire.runtime.store.queries import get_thread
from turnwire.runtime.store.rows import without_handles
from turnwire.storage.units import Connection

__all__ = ["fork_thread"]

_OPERATION = "fork_thread"
_FORK = (
    "INSERT INTO threads (scope, thread_id, agent, title, metadata, private_metadata, labels,"
    " permission_mode, forked_from, create_time, update_time, version, snapshot_version, next_position)"
    " SELECT scope, ?, agent, title, metadata, private_metadata, labels, permission_mode, ?, ?, ?, 1, 1, ?"
    " FROM threads WHERE scope = ? AND thread_id = ? ON CONFLICT DO NOTHING"
)
# Whoever reads the copy from its beginning gets a snapshot: all of it is of version 1. The turns stay behind.
_MESSAGES = (
    "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, origin,"
    " interrupted_reason, create_time, update_time, change_version, create_version)"
    " SELECT scope, ?, position, message_id, role, '', status, origin, interrupted_reason, create_time,"
    " update_time, 1, 1 FROM messages"
    " WHERE scope = ? AND thread_id = ? AND visibility = 'visible' AND position <= ?"
)
_COPIED = (
    " FROM {table} p JOIN messages m"
    " ON m.scope = p.scope AND m.thread_id = p.thread_id AND m.message_id = p.message_id"
    " WHERE p.scope = ? AND p.thread_id = ? AND m.visibility = 'visible' AND m.position <= ?"
)
_PARTS = (
    "INSERT INTO message_parts (scope, thread_id, message_id, part_index, step, kind, text, data, extra)"
    " SELECT p.scope, ?, p.message_id, p.part_index, p.step, p.kind, p.text, p.data, p.extra"
    + _COPIED.format(table="message_parts")
)
_CALLS = (
    "INSERT INTO tool_calls (scope, thread_id, message_id, part_index, call_id, provider_call_id, turn_id,"
    " step, call_index, tool_name, arguments, state, attempt, outcome, content, is_error, extra)"
    " SELECT p.scope, ?, p.message_id, p.part_index, p.call_id, p.provider_call_id, '', p.step, p.call_index,"
    " p.tool_name, p.arguments, p.state, p.attempt, p.outcome, p.content, p.is_error, p.extra"
    + _COPIED.format(table="tool_calls")
)
_WITH_HANDLES = (
    "SELECT message_id, part_index, extra FROM tool_calls WHERE scope = ? AND thread_id = ?"
    " AND extra LIKE '%\"handle\"%'"
)


def fork_thread(db: Connection, command: ForkCommand) -> ThreadRow:
    """Copy a thread, or return the copy that the same request made.

    Raises:
        NotFound: MESSAGE_NOT_FOUND, also when the thread is not there.
        AlreadyExists: REQUEST_ID_REUSED, THREAD_ID_USED.
        WrongState: MESSAGE_OPEN.
    """
    thread = command.thread
    fingerprint = _fingerprint(command)
    # The lock comes first, so that of two requests of one id the second finds what the first has made.
    there = _lock(db, thread)
    known = _known(db, command, fingerprint)
    if known is not None:
        return get_thread(db, known)
    if not there:
        _missing(command)
    position, last = _last(db, command)
    copy = ThreadKey(thread.scope, command.thread_id or mint_id())
    now = db.now_ns()
    origin = f"{thread.name}/messages/{last}" if last else thread.name
    created = db.execute(
        _FORK, (copy.thread_id, origin, now, now, position + 1, thread.scope, thread.thread_id)
    )
    if created.rowcount != 1:
        raise AlreadyExists(
            f"{copy.name} is or was in use: choose another id", reason="THREAD_ID_USED", thread=copy.name
        )
    place = (copy.thread_id, thread.scope, thread.thread_id, position)
    for statement in (_MESSAGES, _PARTS, _CALLS, COPY_COMPACTIONS):
        db.execute(statement, place)
    _drop_handles(db, copy)
    db.execute(
        "INSERT INTO requests (scope, operation, request_id, fingerprint, result, create_time)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (thread.scope, _OPERATION, command.request_id, fingerprint, copy.thread_id, now),
    )
    return get_thread(db, copy)


def _lock(db: Connection, thread: ThreadKey) -> bool:
    locked = db.execute(
        "UPDATE threads SET version = version WHERE scope = ? AND thread_id = ? AND delete_time IS NULL",
        (thread.scope, thread.thread_id),
    )
    return locked.rowcount == 1


def _last(db: Connection, command: ForkCommand) -> tuple[int, str]:
    """Return position and id of the last message to copy, 0 and nothing for a thread without messages."""
    thread = command.thread
    sql = (
        "SELECT position, message_id, status FROM messages WHERE scope = ? AND thread_id = ?"
        " AND visibility = 'visible'"
    )
    if command.message:
        row = db.execute(
            f"{sql} AND message_id = ?", (thread.scope, thread.thread_id, command.message)
        ).fetchone()
        if row is None:
            _missing(command)
    else:
        row = db.execute(f"{sql} ORDER BY position DESC LIMIT 1", (thread.scope, thread.thread_id)).fetchone()
        if row is None:
            return 0, ""
    if row[2] == "open":
        name = f"{thread.name}/messages/{row[1]}"
        raise WrongState(
            f"{name} is still being written: name an earlier message or wait for the end of its turn",
            reason="MESSAGE_OPEN",
            message=name,
        )
    return row[0], row[1]


def _drop_handles(db: Connection, copy: ThreadKey) -> None:
    """Take out of the copied results what only the origin can read."""
    rows: Sequence[tuple[Any, ...]] = db.execute(_WITH_HANDLES, (copy.scope, copy.thread_id)).fetchall()
    for message_id, part_index, extra in rows:
        db.execute(
            "UPDATE tool_calls SET extra = ? WHERE scope = ? AND thread_id = ? AND message_id = ?"
            " AND part_index = ?",
            (without_handles(extra), copy.scope, copy.thread_id, message_id, part_index),
        )


def _fingerprint(command: ForkCommand) -> str:
    told = (command.thread.thread_id, command.message, command.thread_id)
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()


def _known(db: Connection, command: ForkCommand, fingerprint: str) -> ThreadKey | None:
    row = db.execute(
        "SELECT fingerprint, result FROM requests WHERE scope = ? AND operation = ? AND request_id = ?",
        (command.thread.scope, _OPERATION, command.request_id),
    ).fetchone()
    if row is None:
        return None
    key = ThreadKey(command.thread.scope, row[1])
    if row[0] != fingerprint:
        raise AlreadyExists(
            f"request_id {command.request_id} came before with another body: use a new one",
            reason="REQUEST_ID_REUSED",
            thread=key.name,
        )
    return key


def _missing(command: ForkCommand) -> NoReturn:
    thread = command.thread.name
    name = f"{thread}/messages/{command.message}" if command.message else thread
    raise NotFound(f"there is no {name}", reason="MESSAGE_NOT_FOUND", message=name)
