"""Changes of threads outside turns, as functions that run inside one write transaction."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict

import msgspec

from turnwire.core.errors import AlreadyExists, Conflict, NotFound
from turnwire.core.ids import mint_id
from turnwire.runtime.domain.thread import NewThreadCommand, ThreadPatch, ThreadRow
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.store.queries import get_thread
from turnwire.runtime.store.rows import encode
from turnwire.storage.units import Connection

__all__ = ["create_thread", "lock_thread", "update_thread"]

_KEPT_NS = 24 * 3600 * 10**9


def create_thread(db: Connection, new: NewThreadCommand) -> ThreadRow:
    """Create a thread, or return the one that the same request made.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED, THREAD_ID_USED.
    """
    now = time.time_ns()
    fingerprint = _fingerprint(new)
    known = _known(db, new, fingerprint, now)
    if known is not None:
        return get_thread(db, known)
    thread_id = new.thread_id or mint_id()
    agent = f"agents/{new.agent}" if new.agent else ""
    created = db.execute(
        "INSERT INTO threads (scope, thread_id, agent, title, metadata, private_metadata, labels,"
        " permission_mode, create_time, update_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            new.scope,
            thread_id,
            agent,
            new.title,
            encode(new.metadata),
            encode(new.private_metadata),
            encode(new.labels),
            new.permission_mode,
            now,
            now,
        ),
    )
    key = ThreadKey(new.scope, thread_id)
    if created.rowcount != 1:
        raise AlreadyExists(
            f"{key.name} is or was in use: choose another id", reason="THREAD_ID_USED", thread=key.name
        )
    if new.request_id:
        db.execute(
            "INSERT INTO requests VALUES (?, 'create_thread', ?, ?, ?, ?)",
            (new.scope, new.request_id, fingerprint, thread_id, now),
        )
    return get_thread(db, key)


def _fingerprint(new: NewThreadCommand) -> str:
    fields = asdict(new)
    if new.permission_mode == "ask":
        # As it was before there was another one: a request may be repeated over an upgrade.
        del fields["permission_mode"]
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def lock_thread(db: Connection, key: ThreadKey, expected_version: int | None = None) -> int:
    """Keep a thread from changing until the transaction ends, and return its version.

    Raises:
        NotFound: THREAD_NOT_FOUND. Conflict: THREAD_CHANGED, the version is not the expected one.
    """
    row = db.execute(
        "UPDATE threads SET version = version WHERE scope = ? AND thread_id = ? AND delete_time IS NULL"
        " RETURNING version",
        (key.scope, key.thread_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no {key.name}", reason="THREAD_NOT_FOUND", thread=key.name)
    if expected_version is not None and expected_version != row[0]:
        raise Conflict(
            f"{key.name} is at version {row[0]}, not {expected_version}: read it again",
            reason="THREAD_CHANGED",
            version=str(row[0]),
        )
    return int(row[0])


def update_thread(
    db: Connection, key: ThreadKey, patch: ThreadPatch, expected_version: int | None
) -> ThreadRow:
    """Change what a patch names; one that changes nothing leaves the version alone.

    Raises:
        NotFound: THREAD_NOT_FOUND. Conflict: THREAD_CHANGED.
    """
    lock_thread(db, key, expected_version)
    before = get_thread(db, key)
    after = patch.applied_to(before)
    if after == before:
        return before
    db.execute(
        "UPDATE threads SET title = ?, metadata = ?, labels = ?, permission_mode = ?, update_time = ?,"
        " version = version + 1, metadata_version = version + 1 WHERE scope = ? AND thread_id = ?",
        (
            after.title,
            encode(after.metadata),
            encode(after.labels),
            after.permission_mode,
            db.now_ns(),
            key.scope,
            key.thread_id,
        ),
    )
    return get_thread(db, key)


def _known(db: Connection, new: NewThreadCommand, fingerprint: str, now: int) -> ThreadKey | None:
    if not new.request_id:
        return None
    db.execute("DELETE FROM requests WHERE create_time < ?", (now - _KEPT_NS,))
    row = db.execute(
        "SELECT fingerprint, result FROM requests"
        " WHERE scope = ? AND operation = 'create_thread' AND request_id = ?",
        (new.scope, new.request_id),
    ).fetchone()
    if row is None:
        return None
    key = ThreadKey(new.scope, row[1])
    if row[0] != fingerprint:
        raise AlreadyExists(
            f"request_id {new.request_id} came before with another body: use a new one",
            reason="REQUEST_ID_REUSED",
            thread=key.name,
        )
    return key
