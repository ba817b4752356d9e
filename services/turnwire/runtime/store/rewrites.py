"""Edits of a thread's history: one transaction for all that an edit changes, checked against one version.

Nothing is deleted: what an edit takes out of the view keeps its rows, marked with the edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from turnwire.core.errors import AlreadyExists, Unavailable
from turnwire.extend.events import TurnAccepted
from turnwire.extend.lifecycle import MetadataPatch, RewriteKind
from turnwire.runtime.domain.rewrites import NewTurn, RewriteBase, RewriteCommand, Rewritten
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.store.claimed import EncodePage, insert_page
from turnwire.runtime.store.claims import acquire_admin, alive, lock
from turnwire.runtime.store.compactions import void_compactions
from turnwire.runtime.store.endings import Ending, end_by_edit
from turnwire.runtime.store.rewrite_bases import find_rewrite, missing_thread, study
from turnwire.runtime.store.rows import encode
from turnwire.storage.units import Connection

__all__ = ["Hold", "Patched", "commit_rewrite", "hold_for_rewrite", "note_observed"]

SUPERSEDED = "superseded"
_OF_THREAD = "scope = ? AND thread_id = ?"
_INSERT_TURN = (
    "INSERT INTO turns (scope, thread_id, turn_id, state, agent, agent_digest, request_id, fingerprint, spec,"
    " subject, queue_position, max_steps, labels, metadata, create_time, turn_timeout, input_message,"
    " change_version, origin, retry_of) VALUES (?, ?, ?, 'queued', ?, ?, ?, ?, ?, ?, (SELECT"
    " coalesce(min(q.queue_position), 1) - 1 FROM turns q WHERE q.scope = ? AND q.thread_id = ?"
    " AND q.state = 'queued'), ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, request_id) DO NOTHING"
)
_INSERT_REWRITE = (
    "INSERT INTO history_rewrites (scope, thread_id, rewrite_id, kind, subject, base_version, new_version,"
    " changes, create_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Hold:
    """An admin lease of this process on a thread."""

    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Patched:
    """What a commit takes beside the command: the edit's id, the new turn, the patch, the lease."""

    rewrite_id: str
    turn: NewTurn | None
    patch: MetadataPatch
    hold: Hold | None
    owner: str


def hold_for_rewrite(db: Connection, command: RewriteCommand, owner: str) -> tuple[RewriteBase, Hold]:
    """Study an edit and hold its thread for it. Raises as `study`, and Unavailable (THREAD_HELD)."""
    if lock(db, command.thread) is None:
        missing_thread(command)
    base = study(db, command)
    epoch = acquire_admin(db, command.thread, owner)
    if epoch is None:
        _held(command.thread)
    return base, Hold(owner, epoch)


def commit_rewrite(
    db: Connection, command: RewriteCommand, given: Patched, encode_page: EncodePage
) -> tuple[Rewritten, Sequence[Ending]]:
    """Make an edit, whole, and give the thread back. Raises as `hold_for_rewrite`, and AlreadyExists."""
    thread = command.thread
    held = lock(db, thread)
    if held is None:
        missing_thread(command)
    if command.request_id and (known := find_rewrite(db, command)) is not None:
        return Rewritten(held.version, known), ()
    base = study(db, command)
    if held.owner and not _ours(db, thread, given) and alive(db, held.owner, given.owner):
        _held(thread)
    endings = []
    if base.waiting is not None:
        endings.append(end_by_edit(db, base.waiting, SUPERSEDED, encode_page))
    _change_messages(db, command, base, given.rewrite_id)
    if given.turn is not None:
        _insert_turn(db, command, base, given.turn, encode_page)
    _patch_metadata(db, thread, base, given.patch)
    (version,) = db.execute(
        f"UPDATE threads SET owner = '', lease = '', update_time = ? WHERE {_OF_THREAD} RETURNING version",
        (db.now_ns(), thread.scope, thread.thread_id),
    ).fetchone()
    if version != base.version:
        _note_rewrite(db, command, base, given, version)
    turn = given.turn.key if given.turn is not None else None
    return Rewritten(version, turn), [e for e in endings if e is not None]


def _ours(db: Connection, thread: ThreadKey, given: Patched) -> bool:
    """Tell whether the lease that was taken for this edit still stands."""
    if given.hold is None:
        return False
    row = db.execute(
        f"SELECT owner, epoch, lease FROM threads WHERE {_OF_THREAD}", (thread.scope, thread.thread_id)
    ).fetchone()
    return bool(row == (given.hold.owner, given.hold.epoch, "admin"))


def _bump(db: Connection, thread: ThreadKey, *also: str) -> int:
    """Take the next version of the thread, for the columns named `also` too."""
    columns = "".join(f", {column} = version + 1" for column in also)
    (version,) = db.execute(
        f"UPDATE threads SET version = version + 1{columns} WHERE {_OF_THREAD} RETURNING version",
        (thread.scope, thread.thread_id),
    ).fetchone()
    return int(version)


def _change_messages(db: Connection, command: RewriteCommand, base: RewriteBase, rewrite_id: str) -> None:
    """Give the messages their new visibility: superseded ones go as one change, others as one each."""
    thread = command.thread
    shown = command.kind is RewriteKind.VISIBILITY
    visibility = command.visibility if shown else SUPERSEDED
    version = 0
    if base.messages:
        void_compactions(db, thread, base.messages[0])
    for message_id in base.messages:
        version = _bump(db, thread) if shown or not version else version
        db.execute(
            f"UPDATE messages SET visibility = ?, rewrite_id = ?, change_version = ? WHERE {_OF_THREAD}"
            " AND message_id = ?",
            (visibility, rewrite_id, version, thread.scope, thread.thread_id, message_id),
        )


def _insert_turn(
    db: Connection, command: RewriteCommand, base: RewriteBase, turn: NewTurn, encode_page: EncodePage
) -> None:
    """Put the new turn before all that wait."""
    key = turn.key
    version = _bump(db, command.thread, "queue_version")
    inserted = db.execute(
        _INSERT_TURN,
        (
            key.scope,
            key.thread_id,
            key.turn_id,
            turn.agent,
            turn.agent_digest,
            command.request_id,
            command.fingerprint(),
            turn.spec.canonical_json(),
            command.subject,
            key.scope,
            key.thread_id,
            turn.max_steps,
            encode(turn.spec.labels),
            encode(turn.spec.metadata),
            db.now_ns(),
            turn.timeout,
            base.input_message,
            version,
            command.kind.value,
            base.retry_of,
        ),
    )
    if inserted.rowcount != 1:
        raise AlreadyExists(
            f"request_id {command.request_id} was taken by a turn meanwhile: use a new one",
            reason="REQUEST_ID_REUSED",
        )
    db.execute(
        "INSERT INTO turn_heads (scope, turn_id, epoch, next_sequence) VALUES (?, ?, 0, 2)",
        (key.scope, key.turn_id),
    )
    insert_page(db, key, 1, 1, encode_page(key, 1, [TurnAccepted(turn.agent, command.request_id, 1)]))


def _patch_metadata(db: Connection, thread: ThreadKey, base: RewriteBase, patch: MetadataPatch) -> None:
    public, private = _patched(base.public, patch.public), _patched(base.private, patch.private)
    if private != base.private:
        db.execute(
            f"UPDATE threads SET private_metadata = ? WHERE {_OF_THREAD}",
            (encode(private), thread.scope, thread.thread_id),
        )
    if public != base.public:
        _bump(db, thread, "metadata_version")
        db.execute(
            f"UPDATE threads SET metadata = ? WHERE {_OF_THREAD}",
            (encode(public), thread.scope, thread.thread_id),
        )


def _patched(texts: Mapping[str, str], patch: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**texts, **patch}
    return {key: value for key, value in merged.items() if value is not None}


def _note_rewrite(
    db: Connection, command: RewriteCommand, base: RewriteBase, given: Patched, version: int
) -> None:
    changes: dict[str, Any] = {"messages": base.messages}
    if given.turn is not None:
        changes["turn"] = given.turn.key.turn_id
    if base.waiting is not None:
        changes["cancelled"] = base.waiting.turn_id
    if command.visibility:
        changes["visibility"] = command.visibility
    thread = command.thread
    db.execute(
        _INSERT_REWRITE,
        (
            thread.scope,
            thread.thread_id,
            given.rewrite_id,
            command.kind.value,
            command.subject,
            base.version,
            version,
            encode(changes),
            db.now_ns(),
        ),
    )


def note_observed(db: Connection, thread: ThreadKey, rewrite_id: str, errors: Sequence[str]) -> None:
    """Note that the observers of an edit were told, and what became of it."""
    db.execute(
        f"UPDATE history_rewrites SET observe_time = ?, observe_errors = ? WHERE {_OF_THREAD}"
        " AND rewrite_id = ?",
        (db.now_ns(), encode(list(errors)), thread.scope, thread.thread_id, rewrite_id),
    )


def _held(thread: ThreadKey) -> NoReturn:
    text = f"another edit of {thread.name} is under way: repeat"
    raise Unavailable(text, reason="THREAD_HELD", retry_after=0.5, thread=thread.name)
