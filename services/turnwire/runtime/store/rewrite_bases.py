"""What an edit of a thread's history is of: looked up at one version, before the edit and again in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from turnwire.core.errors import AlreadyExists, Conflict, NotFound, WrongState
from turnwire.extend.lifecycle import RewriteKind
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.domain.rewrites import RewriteBase, RewriteCommand
from turnwire.runtime.domain.turn import ThreadKey, TurnKey, TurnSpec
from turnwire.runtime.store.rows import decode, load_messages
from turnwire.storage.units import Connection

__all__ = ["find_rewrite", "missing_thread", "study"]

_OF_THREAD = "scope = ? AND thread_id = ?"
_OF_TURN = f"{_OF_THREAD} AND turn_id = ?"
# A user message that a running turn took in.
_ADDED = "origin IN ('steer', 'reminder', 'continuation', 'inbox')"


@dataclass(frozen=True, slots=True)
class _Live:
    key: TurnKey
    state: str


def find_rewrite(db: Connection, command: RewriteCommand) -> TurnKey | None:
    """Return the turn that the same request began. Raises AlreadyExists (REQUEST_ID_REUSED)."""
    row = db.execute(
        "SELECT thread_id, turn_id, fingerprint FROM turns WHERE scope = ? AND request_id = ?",
        (command.thread.scope, command.request_id),
    ).fetchone()
    if row is None:
        return None
    key = TurnKey(command.thread.scope, row[0], row[1])
    if row[2] != command.fingerprint():
        raise AlreadyExists(
            f"request_id {command.request_id} came before with another request: use a new one",
            reason="REQUEST_ID_REUSED",
            turn=key.name,
        )
    return key


def study(db: Connection, command: RewriteCommand) -> RewriteBase:
    """Find what an edit is of, and whether it can be made at all.

    Raises:
        NotFound: MESSAGE_NOT_FOUND, TURN_NOT_FOUND; also when the thread is not there.
        Conflict: THREAD_CHANGED.
        WrongState: TURN_RUNNING, TURN_NOT_RETRYABLE, MESSAGE_OPEN.
    """
    thread = command.thread
    row = db.execute(
        "SELECT version, live_turn, metadata, private_metadata, agent FROM threads"
        f" WHERE {_OF_THREAD} AND delete_time IS NULL",
        (thread.scope, thread.thread_id),
    ).fetchone()
    if row is None:
        missing_thread(command)
    version, live_turn, public, private, agent = row
    if version != command.expected_version:
        raise Conflict(
            f"{thread.name} is at version {version}, not {command.expected_version}: read it again",
            reason="THREAD_CHANGED",
            version=str(version),
        )
    live = _live(db, thread, live_turn)
    if live is not None and live.state != "waiting":
        raise WrongState(
            f"{live.key.name} is running: cancel it or wait for its end",
            reason="TURN_RUNNING",
            turn=live.key.name,
        )
    metadata = (decode(public), decode(private))
    if command.kind is RewriteKind.VISIBILITY:
        return RewriteBase(version, _to_show_or_hide(db, command), public=metadata[0], private=metadata[1])
    found = _retried(db, command) if command.kind is RewriteKind.RETRY else _regenerated(db, command)
    messages = _from_position(db, thread, found.position)
    return RewriteBase(
        version,
        messages,
        waiting=live.key if live is not None else None,
        input_message=found.input_message,
        spec=found.spec or _spec_of_message(db, thread, found.input_message),
        agent=found.agent or agent,
        retry_of=command.turn,
        public=metadata[0],
        private=metadata[1],
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """Where an edit begins: all from `position` on goes, 0 = nothing; the rest is of the turn to be made."""

    position: int
    input_message: str
    spec: TurnSpec | None
    agent: str


def _live(db: Connection, thread: ThreadKey, turn_id: str) -> _Live | None:
    if not turn_id:
        return None
    key = TurnKey(thread.scope, thread.thread_id, turn_id)
    row = db.execute(
        f"SELECT state FROM turns WHERE {_OF_TURN}", (key.scope, key.thread_id, turn_id)
    ).fetchone()
    return _Live(key, row[0])


def _regenerated(db: Connection, command: RewriteCommand) -> _Target:
    thread = command.thread
    wanted = ("m.message_id = ?", (command.message,)) if command.message else ("1 = 1", ())
    row = db.execute(
        "SELECT m.position, m.message_id, m.turn_id FROM messages m"
        f" WHERE {_OF_THREAD} AND m.role = 'assistant'"
        f" AND m.visibility = 'visible' AND {wanted[0]} ORDER BY m.position DESC LIMIT 1",
        (thread.scope, thread.thread_id, *wanted[1]),
    ).fetchone()
    if row is None:
        _missing_message(thread, command.message, "no visible answer")
    first = _begin_of_answer(db, thread, row[0], row[2])
    said = db.execute(
        f"SELECT message_id, turn_id, role FROM messages WHERE {_OF_THREAD} AND visibility = 'visible'"
        f" AND NOT {_ADDED} AND position < ? ORDER BY position DESC LIMIT 1",
        (thread.scope, thread.thread_id, first),
    ).fetchone()
    # Behind another answer it is that one's question, and its own is hidden.
    if said is None or said[2] != "user":
        _missing_message(thread, row[1], "no visible user message before the answer")
    spec, agent = _spec_of_turn(db, thread, said[1])
    return _Target(first, said[0], spec, agent)


def _begin_of_answer(db: Connection, thread: ThreadKey, position: int, turn_id: str) -> int:
    """Return where the turn of an answer begins to answer: what was added to it on the way is part of it."""
    place = (thread.scope, thread.thread_id)
    if turn_id:
        (first,) = db.execute(
            f"SELECT min(position) FROM messages WHERE {_OF_TURN} AND (role = 'assistant' OR {_ADDED})"
            " AND visibility <> 'superseded'",
            (*place, turn_id),
        ).fetchone()
        return int(first)
    # It came with a copy, whose turns stayed behind: an added message stands between two answers of a turn.
    first, follows_added = position, False
    for at, role, added in db.execute(
        f"SELECT position, role, CASE WHEN {_ADDED} THEN 1 ELSE 0 END FROM messages WHERE {_OF_THREAD}"
        " AND visibility = 'visible' AND position < ? ORDER BY position DESC",
        (*place, position),
    ):
        if not added and not (role == "assistant" and follows_added):
            break
        first, follows_added = at, bool(added)
    return int(first)


def _retried(db: Connection, command: RewriteCommand) -> _Target:
    thread = command.thread
    key = TurnKey(thread.scope, thread.thread_id, command.turn)
    place = (key.scope, key.thread_id)
    row = db.execute(
        f"SELECT state, input_message FROM turns WHERE {_OF_TURN}", (*place, key.turn_id)
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no {key.name}", reason="TURN_NOT_FOUND", turn=key.name)
    state, input_message = row
    if state not in ("failed", "cancelled"):
        _not_retryable(key, state, f"it is {state}")
    spec, agent = _spec_of_turn(db, thread, key.turn_id)
    if not input_message:
        # It was cancelled in the queue: what the user said has not entered the thread yet.
        return _Target(0, "", spec, agent)
    said = db.execute(
        f"SELECT position FROM messages WHERE {_OF_THREAD} AND message_id = ? AND visibility = 'visible'",
        (*place, input_message),
    ).fetchone()
    if said is None:
        _not_retryable(key, state, "what the user said is not in the view any more")
    return _Target(said[0] + 1, input_message, spec, agent)


def _spec_of_turn(db: Connection, thread: ThreadKey, turn_id: str) -> tuple[TurnSpec | None, str]:
    """Return what a turn was asked to do and its agent; nothing for messages that came with a copy."""
    row = db.execute(
        f"SELECT spec, agent FROM turns WHERE {_OF_TURN}", (thread.scope, thread.thread_id, turn_id)
    ).fetchone()
    return (None, "") if row is None else (TurnSpec.model_validate_json(row[0]), row[1])


def _spec_of_message(db: Connection, thread: ThreadKey, message_id: str) -> TurnSpec:
    (message,) = load_messages(db, thread, "m.message_id = ?", (message_id,))
    said = tuple(part.content for part in message.parts if isinstance(part, ContentPart))
    return TurnSpec(thread=thread.name, parts=said)


def _from_position(db: Connection, thread: ThreadKey, position: int) -> tuple[str, ...]:
    if not position:
        return ()
    rows = db.execute(
        f"SELECT message_id FROM messages WHERE {_OF_THREAD} AND position >= ?"
        " AND visibility <> 'superseded' ORDER BY position",
        (thread.scope, thread.thread_id, position),
    ).fetchall()
    return tuple(row[0] for row in rows)


def _to_show_or_hide(db: Connection, command: RewriteCommand) -> tuple[str, ...]:
    """Return the messages that change, oldest first. Raises NotFound, WrongState (MESSAGE_OPEN)."""
    thread = command.thread
    changed: list[tuple[int, str]] = []
    for message_id in dict.fromkeys(command.messages):
        row = db.execute(
            f"SELECT position, status, visibility FROM messages WHERE {_OF_THREAD} AND message_id = ?"
            " AND visibility <> 'superseded'",
            (thread.scope, thread.thread_id, message_id),
        ).fetchone()
        if row is None:
            _missing_message(thread, message_id, "no such message")
        if row[1] == "open":
            name = f"{thread.name}/messages/{message_id}"
            raise WrongState(
                f"{name} is still being written: wait for the end of its turn",
                reason="MESSAGE_OPEN",
                message=name,
            )
        if row[2] != command.visibility:
            changed.append((row[0], message_id))
    return tuple(message_id for _, message_id in sorted(changed))


def missing_thread(command: RewriteCommand) -> NoReturn:
    """Raise NotFound for an edit of a thread that is not there: what it names is not, either."""
    thread = command.thread
    if command.kind is RewriteKind.RETRY:
        key = TurnKey(thread.scope, thread.thread_id, command.turn)
        raise NotFound(f"there is no {key.name}", reason="TURN_NOT_FOUND", turn=key.name)
    names = (*command.messages, command.message)
    name = f"{thread.name}/messages/{names[0]}" if names[0] else thread.name
    raise NotFound(f"there is no {thread.name}", reason="MESSAGE_NOT_FOUND", message=name)


def _missing_message(thread: ThreadKey, message_id: str, what: str) -> NoReturn:
    name = f"{thread.name}/messages/{message_id}" if message_id else ""
    raise NotFound(
        f"{thread.name} has {what}{f': {name}' if name else ''}", reason="MESSAGE_NOT_FOUND", message=name
    )


def _not_retryable(key: TurnKey, state: str, why: str) -> NoReturn:
    raise WrongState(
        f"{key.name} cannot be tried again: {why}",
        reason="TURN_NOT_RETRYABLE",
        turn=key.name,
        state=state.upper(),
    )
