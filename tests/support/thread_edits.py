"""Edits and deletions of threads on a real store, and what tests read of their rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from support.action_rows import action_of
from support.runtime_rig import DONE, begin, end
from turnwire.extend.actions import Action
from turnwire.extend.events import (
    StepCommitted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnFinished,
    TurnState,
)
from turnwire.extend.lifecycle import MetadataPatch, RewriteKind
from turnwire.runtime.domain.message import CallPart, ContentPart, StoredPart
from turnwire.runtime.domain.rewrites import NewTurn, RewriteCommand, Rewritten
from turnwire.runtime.domain.turn import InputPart, ThreadKey, TurnKey
from turnwire.runtime.store import queries
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.rewrites import Hold
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore

FAILED = TurnFinished(TurnState.FAILED, "error", 0.1, 1, error_reason="INTERNAL", error_text="broken")

# Every table that holds content of threads, by the column that names the thread or the turn.
CONTENT = (
    *("messages", "message_parts", "tool_calls", "turns", "actions", "history_rewrites", "compactions"),
)


def said(text: str, step: int = 1) -> ContentPart:
    """A text of the assistant."""
    return ContentPart(InputPart(kind="text", text=text), step)


def call(call_id: str, *, arguments: str = "{}", index: int = 0) -> CallPart:
    """A call of the first step."""
    return CallPart(call_id, call_id, "echo", arguments, 1, index)


async def answer(
    journal: Journal, *parts: StoredPart, message: str = "", actions: Sequence[Action] = ()
) -> str:
    """Commit a step with these parts; returns the id of the message."""
    message_id = message or uuid.uuid4().hex[:20]
    journal.begin_answer(message_id)
    calls = tuple(part.call_id for part in parts if isinstance(part, CallPart))
    committed = StepCommitted(f"{journal.key.thread.name}/messages/{message_id}", calls)
    journal.commit_step(parts, [committed], actions=actions)
    await journal.flush()
    return message_id


async def settle(journal: Journal, part: CallPart, content: str, **more: Any) -> None:
    """Start a call and give it a result."""
    done = CallPart(
        part.call_id,
        part.provider_call_id,
        part.tool_name,
        part.arguments_json,
        part.step,
        part.call_index,
        ToolOutcome.SUCCEEDED,
        content,
        **more,
    )
    journal.record_start(part, ToolCallStarted(part.call_id, part.tool_name, 1, 60.0))
    journal.record_outcome(
        done, ToolCallFinished(part.call_id, "echo", ToolOutcome.SUCCEEDED, content, False, 0.1, 1, 0)
    )
    await journal.flush()


async def turn(
    store: TurnStore, thread: str = "", *, text: str = "hello", reply: str = "hi", how: TurnFinished = DONE
) -> tuple[TurnKey, str]:
    """Run a turn with one answer; returns the turn and the id of the answer, empty without one."""
    key, journal = await begin(store, thread, text=text)
    message = await answer(journal, said(reply)) if reply else ""
    await end(journal, how)
    return key, message


async def suspended(store: TurnStore, thread: str = "", *, text: str = "hello") -> tuple[TurnKey, str]:
    """Run a turn up to a call that waits for an approval; returns the turn and the id of its message."""
    key, journal = await begin(store, thread, text=text)
    call_id = f"call-{uuid.uuid4().hex[:8]}"
    asked = action_of(key, call_id)
    message = await answer(journal, said("may I?"), call(call_id), actions=[asked])
    await journal.suspend()
    assert (await store.get_turn(key)).state is TurnState.WAITING
    return key, message


async def version(store: TurnStore, thread: ThreadKey) -> int:
    """The thread's version, of a deleted one too."""
    (found,) = await rows(
        store, "SELECT version FROM threads WHERE scope = ? AND thread_id = ?", thread.scope, thread.thread_id
    )
    return int(found[0])


async def rows(store: TurnStore, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """What a query gives."""
    return await store.read(lambda db: [tuple(row) for row in db.execute(sql, params).fetchall()])


async def counts(store: TurnStore, thread: ThreadKey) -> dict[str, int]:
    """The number of rows of a thread in each table of content."""
    found = {}
    for table in CONTENT:
        sql = f"SELECT count(*) FROM {table} WHERE scope = ? AND thread_id = ?"
        found[table] = (await rows(store, sql, thread.scope, thread.thread_id))[0][0]
    return found


async def texts(store: TurnStore, thread: ThreadKey) -> list[str]:
    """The texts of the visible messages, oldest first."""
    transcript: Sequence[Any] = await store.transcript(thread)
    return [
        "".join(p.content.text for p in message.parts if isinstance(p, ContentPart)) for message in transcript
    ]


async def visibilities(store: TurnStore, thread: ThreadKey) -> list[str]:
    """The visibility of every message, oldest first."""
    sql = "SELECT visibility FROM messages WHERE scope = ? AND thread_id = ? ORDER BY position"
    return [row[0] for row in await rows(store, sql, thread.scope, thread.thread_id)]


def regenerate(thread: ThreadKey, at: int, message: str = "", **fields: Any) -> RewriteCommand:
    """A request to have an answer made anew."""
    fields.setdefault("request_id", str(uuid.uuid4()))
    return RewriteCommand(thread, RewriteKind.REGENERATE, at, message=message, **fields)


def retry(key: TurnKey, at: int, **fields: Any) -> RewriteCommand:
    """A request to try a turn again."""
    fields.setdefault("request_id", str(uuid.uuid4()))
    return RewriteCommand(key.thread, RewriteKind.RETRY, at, turn=key.turn_id, **fields)


def hide(thread: ThreadKey, at: int, *messages: str, visibility: str = "hidden") -> RewriteCommand:
    """A request to hide messages, or to show them again."""
    return RewriteCommand(thread, RewriteKind.VISIBILITY, at, messages=messages, visibility=visibility)


async def edit(
    store: TurnStore,
    command: RewriteCommand,
    *,
    patch: MetadataPatch | None = None,
    held: Hold | None = None,
) -> Rewritten:
    """Make an edit as the engine does, with an agent that is always there."""
    edits = ThreadEdits(store)
    if command.request_id and (known := await edits.find_rewrite(command)) is not None:
        return Rewritten(0, known)
    base = await edits.study(command)
    new = None
    if base.spec is not None:
        key = TurnKey(command.thread.scope, command.thread.thread_id, uuid.uuid4().hex[:20])
        new = NewTurn(key, base.spec, base.agent, "digest", 30, 0.0)
    epoch = None if held is None else held.epoch
    return await edits.commit_rewrite(command, uuid.uuid4().hex[:20], new, patch or MetadataPatch(), epoch)


async def snapshot(store: TurnStore, thread: ThreadKey) -> queries.ThreadSnapshot:
    """The thread as a client reads it."""
    return await store.read(lambda db: queries.thread_snapshot(db, thread, 200))
