"""Admission and claim, as functions that run inside one write transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwire.core.errors import AlreadyExists, Conflict, Exhausted, Expired, NotFound, WrongState
from turnwire.core.ids import mint_id
from turnwire.extend.events import EpisodeKind, MessageOrigin, TurnAccepted, TurnEvent, TurnStarted
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.domain.turn import BusyPolicy, Disposition, StartCommand, TurnKey, TurnSpec
from turnwire.runtime.store.rows import encode, part_values
from turnwire.storage.units import Connection

__all__ = ["AdmitInput", "AdmittedKey", "Claimed", "admit", "claim_next", "find"]

EncodePage = Callable[[TurnKey, int, Sequence[TurnEvent]], bytes]

# A thread that comes with its first turn: already claimed for it, with its message and its place taken.
_INSERT_THREAD = (
    "INSERT INTO threads (scope, thread_id, agent, title, metadata, labels, create_time, update_time,"
    " live_turn, owner, epoch, next_position, next_queue_position)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 2, 2) ON CONFLICT DO NOTHING"
)
_INSERT_TURN = (
    "INSERT INTO turns (scope, thread_id, turn_id, state, agent, agent_digest, request_id, fingerprint, spec,"
    " subject, queue_position, max_steps, labels, metadata, cancel_on_disconnect, create_time, episode,"
    " start_time, input_message)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_HEAD = "INSERT INTO turn_heads (scope, turn_id, epoch, next_sequence) VALUES (?, ?, ?, ?)"
# One change of the thread for an admission: its place in the queue, and the claim when nothing is before it.
_QUEUE = (
    "UPDATE threads SET next_queue_position = next_queue_position + 1, version = version + 1, update_time = ?"
    " WHERE scope = ? AND thread_id = ?"
)
_QUEUE_AND_CLAIM = (
    "UPDATE threads SET next_queue_position = next_queue_position + 1, version = version + 1,"
    " update_time = ?, live_turn = ?, owner = ?, epoch = epoch + 1, next_position = next_position + 1"
    " WHERE scope = ? AND thread_id = ? RETURNING next_position - 1, epoch"
)
_CLAIM = (
    "UPDATE threads SET live_turn = ?, owner = ?, epoch = epoch + 1, version = version + 1,"
    " next_position = next_position + 1, update_time = ? WHERE scope = ? AND thread_id = ?"
    " RETURNING next_position - 1, epoch"
)
_INSERT_PAGE = (
    "INSERT INTO pages (scope, turn_id, first_sequence, last_sequence, body) VALUES (?, ?, ?, ?, ?)"
)
_INSERT_MESSAGE = (
    "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, origin,"
    " create_time, update_time) VALUES (?, ?, ?, ?, 'user', ?, 'final', ?, ?, ?)"
)
_INSERT_PART = (
    "INSERT INTO message_parts (scope, thread_id, message_id, part_index, step, kind, text, data, extra)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class AdmittedKey:
    """The turn that a request became or joined; `claimed` when this owner has it now."""

    key: TurnKey
    disposition: Disposition
    claimed: Claimed | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim: what the turn was admitted with, its epoch, the next free sequence, the claim's own page."""

    key: TurnKey
    spec: TurnSpec
    agent: str
    max_steps: int
    epoch: int
    first_sequence: int
    next_sequence: int
    page: bytes
    first: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A turn that is about to be claimed; `before` are events that the claim's page begins with."""

    key: TurnKey
    spec: TurnSpec
    agent: str
    max_steps: int
    first_sequence: int
    before: Sequence[TurnEvent]


@dataclass(frozen=True, slots=True)
class AdmitInput:
    """What an admission needs beside the command."""

    command: StartCommand
    agent: str
    agent_digest: str
    max_steps: int
    queue_limit: int
    owner: str
    # What a request gets that does not say: the agent's policy.
    busy_policy: BusyPolicy
    # The spec as it is stored, and its fingerprint.
    canonical: str
    fingerprint: str


def admit(db: Connection, given: AdmitInput, encode_page: EncodePage) -> AdmittedKey:
    """Admit a turn, and claim it when its thread is idle. See `Store.admit` for what it raises."""
    command = given.command
    scope, spec = command.scope, command.spec
    fingerprint = given.fingerprint
    known = find(db, command, fingerprint)
    if known is not None:
        return AdmittedKey(known, Disposition.ATTACHED)
    if command.after_sequence:
        raise Expired(
            f"after_sequence {command.after_sequence} is of a turn that is not known here: begin at 0",
            reason="SEQUENCE_AHEAD",
            last_sequence="0",
        )
    now = time.time_ns()
    if spec.new_thread is not None:
        key = _new_thread(db, given, now)
        return AdmittedKey(key, Disposition.STARTED, _begin(db, given, key, (1, 1, 1), encode_page, now))
    key = TurnKey(scope, _known_thread(db, scope, spec), mint_id())
    live, queued, position = _place(db, key)
    _check_busy(spec.busy_policy or given.busy_policy, live, queued, given.queue_limit, key)
    if not live and not queued:
        message_position, epoch = db.execute(
            _QUEUE_AND_CLAIM, (now, key.turn_id, given.owner, scope, key.thread_id)
        ).fetchone()
        taken = (position, message_position, epoch)
        return AdmittedKey(key, Disposition.STARTED, _begin(db, given, key, taken, encode_page, now))
    accepted = TurnAccepted(given.agent, command.request_id, queued + 1)
    _insert_turn(db, given, key, position, now, "")
    db.execute(_QUEUE, (now, scope, key.thread_id))
    db.execute(_INSERT_HEAD, (scope, key.turn_id, 0, 2))
    db.execute(_INSERT_PAGE, (scope, key.turn_id, 1, 1, encode_page(key, 1, [accepted])))
    return AdmittedKey(key, Disposition.QUEUED)


def _begin(
    db: Connection,
    given: AdmitInput,
    key: TurnKey,
    taken: tuple[int, int, int],
    encode_page: EncodePage,
    now: int,
) -> Claimed:
    """Write a turn as running. `taken`: its place in the queue, the position of its message, the epoch."""
    place, position, epoch = taken
    message_id = mint_id()
    _insert_turn(db, given, key, place, now, message_id)
    accepted = TurnAccepted(given.agent, given.command.request_id, 0)
    waiting = _Waiting(key, given.command.spec, given.agent, given.max_steps, 1, [accepted])
    claimed = _claimed(waiting, epoch, position, message_id, encode_page)
    db.execute(_INSERT_HEAD, (key.scope, key.turn_id, epoch, claimed.next_sequence))
    _write_claim(db, claimed, position, message_id, now)
    return claimed


def find(db: Connection, command: StartCommand, fingerprint: str = "") -> TurnKey | None:
    """Return the turn that the same request made before. Raises AlreadyExists (REQUEST_ID_REUSED)."""
    known = db.execute(
        "SELECT thread_id, turn_id, fingerprint FROM turns WHERE scope = ? AND request_id = ?",
        (command.scope, command.request_id),
    ).fetchone()
    if known is None:
        return None
    key = TurnKey(command.scope, known[0], known[1])
    if known[2] != (fingerprint or command.spec.fingerprint()):
        raise AlreadyExists(
            f"request_id {command.request_id} came before with another spec: use a new one",
            reason="REQUEST_ID_REUSED",
            turn=key.name,
        )
    return key


def _new_thread(db: Connection, given: AdmitInput, now: int) -> TurnKey:
    """Create the thread that a turn comes with, claimed for it. Raises AlreadyExists (THREAD_ID_USED)."""
    scope, new = given.command.scope, given.command.spec.new_thread
    assert new is not None
    key = TurnKey(scope, new.thread_id or mint_id(), mint_id())
    metadata = encode(new.metadata) if new.metadata else "{}"
    labels = encode(new.labels) if new.labels else "{}"
    values = (
        scope,
        key.thread_id,
        given.agent,
        new.title,
        metadata,
        labels,
        now,
        now,
        key.turn_id,
        given.owner,
    )
    if db.execute(_INSERT_THREAD, values).rowcount != 1:
        raise AlreadyExists(
            f"{key.thread.name} is or was in use: choose another id",
            reason="THREAD_ID_USED",
            thread=key.thread.name,
        )
    return key


def _known_thread(db: Connection, scope: str, spec: TurnSpec) -> str:
    """Return the id of the thread that a turn is for. Raises NotFound, Conflict (THREAD_CHANGED)."""
    thread_id = spec.thread.rpartition("/")[2]
    row = db.execute(
        "SELECT version FROM threads WHERE scope = ? AND thread_id = ? AND delete_time IS NULL",
        (scope, thread_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no {spec.thread}", reason="THREAD_NOT_FOUND", thread=spec.thread)
    if spec.expected_version is not None and spec.expected_version != row[0]:
        raise Conflict(
            f"{spec.thread} is at version {row[0]}, not {spec.expected_version}: read it again",
            reason="THREAD_CHANGED",
            version=str(row[0]),
        )
    return thread_id


def _place(db: Connection, key: TurnKey) -> tuple[str, int, int]:
    """Return the live turn, the number of queued turns and the next queue position."""
    live, position = db.execute(
        "SELECT live_turn, next_queue_position FROM threads WHERE scope = ? AND thread_id = ?",
        (key.scope, key.thread_id),
    ).fetchone()
    queued = 0
    if position > 1:
        (queued,) = db.execute(
            "SELECT count(*) FROM turns WHERE scope = ? AND thread_id = ? AND state = 'queued'",
            (key.scope, key.thread_id),
        ).fetchone()
    return live, queued, position


def _check_busy(policy: BusyPolicy, live: str, queued: int, limit: int, key: TurnKey) -> None:
    if (live or queued) and policy is BusyPolicy.REJECT:
        turn = f"{key.thread.name}/turns/{live}" if live else ""
        raise WrongState(
            f"another turn of {key.thread.name} is live: wait for it or use another busy_policy",
            reason="THREAD_BUSY",
            turn=turn,
        )
    if queued >= limit:
        raise Exhausted(
            f"{limit} turns already wait in {key.thread.name}: wait for one to begin",
            reason="QUEUE_FULL",
            limit=str(limit),
        )


def _insert_turn(
    db: Connection, given: AdmitInput, key: TurnKey, position: int, now: int, input_message: str
) -> None:
    """Insert a turn: running when it has its input message, else queued."""
    command = given.command
    spec = command.spec
    running = bool(input_message)
    db.execute(
        _INSERT_TURN,
        (
            key.scope,
            key.thread_id,
            key.turn_id,
            "running" if running else "queued",
            given.agent,
            given.agent_digest,
            command.request_id,
            given.fingerprint,
            given.canonical,
            command.subject,
            position,
            given.max_steps,
            encode(spec.labels) if spec.labels else "{}",
            encode(spec.metadata) if spec.metadata else "{}",
            command.cancel_on_disconnect,
            now,
            int(running),
            now if running else 0,
            input_message,
        ),
    )


def claim_next(
    db: Connection, scope: str, thread_id: str, owner: str, encode_page: EncodePage
) -> tuple[Claimed | None, bool]:
    """Claim the first queued turn of a thread that has no live one, and tell whether more wait."""
    rows = db.execute(
        "SELECT q.turn_id, q.spec, q.agent, q.max_steps, h.next_sequence, t.live_turn FROM turns q"
        " JOIN turn_heads h ON h.scope = q.scope AND h.turn_id = q.turn_id"
        " JOIN threads t ON t.scope = q.scope AND t.thread_id = q.thread_id"
        " WHERE q.scope = ? AND q.thread_id = ? AND q.state = 'queued' ORDER BY q.queue_position LIMIT 2",
        (scope, thread_id),
    ).fetchall()
    if not rows or rows[0][5]:
        return None, bool(rows)
    turn_id, spec, agent, max_steps, sequence, _ = rows[0]
    key = TurnKey(scope, thread_id, turn_id)
    waiting = _Waiting(key, TurnSpec.model_validate_json(spec), agent, max_steps, sequence, [])
    return _claim(db, waiting, owner, encode_page, time.time_ns()), len(rows) > 1


def _claim(db: Connection, waiting: _Waiting, owner: str, encode_page: EncodePage, now: int) -> Claimed:
    """Take the thread for a queued turn: epoch, state, user message and TurnStarted in one transaction."""
    key = waiting.key
    place = (key.scope, key.thread_id)
    message_id = mint_id()
    position, epoch = db.execute(_CLAIM, (key.turn_id, owner, now, *place)).fetchone()
    claimed = _claimed(waiting, epoch, position, message_id, encode_page)
    db.execute(
        "UPDATE turns SET state = 'running', episode = 1, start_time = ?, input_message = ?"
        " WHERE scope = ? AND thread_id = ? AND turn_id = ?",
        (now, message_id, *place, key.turn_id),
    )
    db.execute(
        "UPDATE turn_heads SET epoch = ?, next_sequence = ? WHERE scope = ? AND turn_id = ?",
        (epoch, claimed.next_sequence, key.scope, key.turn_id),
    )
    _write_claim(db, claimed, position, message_id, now)
    return claimed


def _claimed(
    waiting: _Waiting, epoch: int, position: int, message_id: str, encode_page: EncodePage
) -> Claimed:
    key, first_sequence = waiting.key, waiting.first_sequence
    started = TurnStarted(1, EpisodeKind.START, epoch, f"{key.thread.name}/messages/{message_id}")
    events = [*waiting.before, started]
    return Claimed(
        key,
        waiting.spec,
        waiting.agent,
        waiting.max_steps,
        epoch,
        first_sequence,
        first_sequence + len(events),
        encode_page(key, first_sequence, events),
        first=position == 1,
    )


def _write_claim(db: Connection, claimed: Claimed, position: int, message_id: str, now: int) -> None:
    """Write the claim's page and the user message."""
    key = claimed.key
    place = (key.scope, key.thread_id)
    page = (key.scope, key.turn_id, claimed.first_sequence, claimed.next_sequence - 1, claimed.page)
    db.execute(_INSERT_PAGE, page)
    origin = MessageOrigin.REQUEST.value
    db.execute(_INSERT_MESSAGE, (*place, position, message_id, key.turn_id, origin, now, now))
    for index, part in enumerate(claimed.spec.parts):
        db.execute(_INSERT_PART, (*place, message_id, index, *part_values(ContentPart(part))))
