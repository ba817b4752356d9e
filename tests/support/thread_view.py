"""What a client keeps of a thread: built from changes alone, or read whole from the store, to be compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from turnwire.runtime.domain.message import StoredMessage
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import ThreadKey, TurnRow
from turnwire.runtime.store import changes as changes_module
from turnwire.runtime.store import queries
from turnwire.runtime.store.changes import Change, ChangeKind, read_changes
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection


def turn_seen(row: TurnRow) -> tuple[Any, ...]:
    """What can be seen of a turn beside its own log: not its sequences, usage and steps."""
    return (
        row.state,
        row.agent,
        row.stop_reason,
        row.error_reason,
        row.error_text,
        row.final_message,
        row.start_time,
        row.finish_time,
        tuple(row.open_actions),
    )


def thread_seen(row: ThreadRow) -> tuple[Any, ...]:
    """What `metadata_changed` is about."""
    return row.title, row.metadata, row.labels, row.permission_mode


@dataclass
class View:
    """A thread as somebody sees it. Messages that were superseded are gone from it."""

    version: int = 0
    messages: dict[str, StoredMessage] = field(default_factory=dict)
    turns: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    queue: list[tuple[str, str]] = field(default_factory=list)
    thread: tuple[Any, ...] = ()
    deleted: bool = False
    # Whether everything up to `version` was told; else a message may change that was not told of yet.
    complete: bool = field(default=True, compare=False)

    def apply(self, change: Change) -> None:
        """Take one change in."""
        assert change.version > self.version, "each change has a version of its own, and they only grow"
        self.version = change.version
        match change.kind:
            case ChangeKind.MESSAGE_ADDED:
                message = cast(StoredMessage, change.value)
                assert message.message_id not in self.messages, "a message is added once"
                self.messages[message.message_id] = message
            case ChangeKind.MESSAGE_CHANGED:
                message = cast(StoredMessage, change.value)
                known = message.message_id in self.messages
                assert known or not self.complete, "what changes was added before"
                self.messages[message.message_id] = message
            case ChangeKind.MESSAGES_SUPERSEDED:
                for message_id in cast(list[str], change.value):
                    self.messages.pop(message_id, None)
            case ChangeKind.TURN_CHANGED:
                turn = cast(TurnRow, change.value)
                self.turns[turn.key.turn_id] = turn_seen(turn)
            case ChangeKind.QUEUE_CHANGED:
                rows = cast(list[TurnRow], change.value)
                self.queue = [(row.key.turn_id, row.etag) for row in rows]
            case ChangeKind.METADATA_CHANGED:
                self.thread = thread_seen(cast(ThreadRow, change.value))
            case ChangeKind.DELETED:
                self.deleted = True
            case ChangeKind.RESNAPSHOT:
                raise AssertionError("every change of this thread is known")


def whole(db: Connection, key: ThreadKey) -> View:
    """Read a thread as it is now, in one transaction."""
    thread = queries.get_thread(db, key)
    messages, more = queries.list_messages(db, key, None, 10_000, True)
    assert not more
    turns = queries.list_turns(db, key, queries.Filter(), None, 10_000)
    return View(
        thread.version,
        {m.message_id: m for m in messages if m.visibility != "superseded"},
        {t.key.turn_id: turn_seen(t) for t in turns if t.state.value != "queued"},
        [(row.key.turn_id, row.etag) for _, row in queries.queued_rows(db, key)],
        thread_seen(thread),
    )


def seen_changes(before: View, after: View) -> int:
    """Count what changed between two moments; messages that were superseded together are one change."""
    gone = before.messages.keys() - after.messages.keys()
    return (
        bool(gone)
        # One that was still open is closed first, and then superseded.
        + sum(before.messages[message_id].open for message_id in gone)
        + sum(before.messages.get(k) != v for k, v in after.messages.items())
        + sum(before.turns.get(k) != v for k, v in after.turns.items())
        + (before.queue != after.queue)
        + (before.thread != after.thread)
    )


async def follow(store: TurnStore, key: ThreadKey, view: View, most: int, page: int = 3) -> bool:
    """Take in at most so many changes, as a watcher that leaves then; False when there was nothing more."""
    taken, told = 0, view.version
    limit, changes_module.MAX_CHANGES = changes_module.MAX_CHANGES, page
    try:
        while taken < most and not view.deleted:
            query = partial(read_changes, key=key, after_version=view.version, told=told)
            found = await store.read(query)
            for change in found.changes[: most - taken]:
                view.apply(change)
                taken += 1
            if not found.more and taken < most:
                view.version = max(view.version, found.version)
                view.complete = True
                return False
        view.complete = view.complete and taken == 0
    finally:
        changes_module.MAX_CHANGES = limit
    return True
