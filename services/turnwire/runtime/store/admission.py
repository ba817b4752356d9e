"""Admission: a request becomes a turn, which begins at once when nothing is before it. One transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from turnwire.core.errors import AlreadyExists, Conflict, Exhausted, Expired, NotFound, WrongState
from turnwire.core.ids import mint_id
from turnwire.extend.events import TurnAccepted
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.turn import (
    BusyPolicy,
    Disposition,
    StartCommand,
    TurnKey,
    TurnSpec,
    WaitingPolicy,
)
from turnwire.runtime.store.claimed import Claimed, EncodePage, Start, begin, insert_page
from turnwire.runtime.store.claims import Held, lock, request_stop
from turnwire.runtime.store.rows import encode
from turnwire.storage.units import Connection

__all__ = ["AdmitInput", "AdmittedKey", "Claimed", "EncodePage", "Raced", "admit", "find"]

SUPERSEDED = StopNote("superseded", "another turn took its place")

# A thread that comes with its first turn: claimed for it, with its message and its place taken, or with
# the turn in its queue. Its own creation is version 1, each change beside it one more.
_INSERT_THREAD = (
    "INSERT INTO threads (scope, thread_id, agent, title, metadata, labels, create_time, update_time,"
    " live_turn, owner, lease, epoch, next_position, version, queue_version, next_queue_position)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2) ON CONFLICT DO NOTHING"
)
_INSERT_TURN = (
    "INSERT INTO turns (scope, thread_id, turn_id, state, agent, agent_digest, request_id, fingerprint, spec,"
    " subject, queue_position, max_steps, labels, metadata, cancel_on_disconnect, create_time, turn_timeout,"
    " wake_time, episode, start_time, deadline, input_message, change_version)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (scope, request_id) DO NOTHING"
)
_INSERT_HEAD = "INSERT INTO turn_heads (scope, turn_id, epoch, next_sequence) VALUES (?, ?, ?, ?)"
# One change of the thread for an admission: its place in the queue, or the claim when nothing is before it.
_QUEUE = (
    "UPDATE threads SET next_queue_position = next_queue_position + 1, version = version + 1,"
    " queue_version = version + 1, update_time = ? WHERE scope = ? AND thread_id = ? RETURNING version"
)
_QUEUE_AND_CLAIM = (
    "UPDATE threads SET next_queue_position = next_queue_position + 1, version = version + 2,"
    " update_time = ?, live_turn = ?, owner = ?, lease = 'run', epoch = epoch + 1,"
    " next_position = next_position + 1"
    " WHERE scope = ? AND thread_id = ? RETURNING next_position - 1, epoch, version"
)


class Raced(Exception):
    """Another admission of the same request was committed meanwhile: look again."""


@dataclass(frozen=True, slots=True)
class AdmittedKey:
    """The turn that a request became or joined.

    Args:
        claimed: set when this owner has it now.
        superseded: the live turn that was told to end for it.
        idle: whether nothing runs in the thread, so that somebody has to look at its queue.
    """

    key: TurnKey
    disposition: Disposition
    claimed: Claimed | None = None
    superseded: TurnKey | None = None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class AdmitInput:
    """What an admission needs beside the command."""

    command: StartCommand
    agent: str
    agent_digest: str
    max_steps: int
    # Seconds, 0 without a limit.
    turn_timeout: float
    queue_limit: int
    owner: str
    # What a request gets that does not say: the agent's policy.
    busy_policy: BusyPolicy
    # The spec as it is stored, and its fingerprint.
    canonical: str
    fingerprint: str


class _Queue(NamedTuple):
    """The turns that wait in a thread, those that might begin now, and the place before the first."""

    length: int
    due: int
    head: int


class _Row(NamedTuple):
    """What an admission decides of the row of its turn; `message` is empty while it waits in the queue."""

    place: int
    version: int
    wake_time: int = 0
    message: str = ""


def admit(db: Connection, given: AdmitInput, encode_page: EncodePage) -> AdmittedKey:
    """Admit a turn, and claim it when its thread is idle. See `Store.admit` for what it raises.

    Raises:
        Raced: the same request was admitted by another process in this moment.
    """
    command = given.command
    known = find(db, command, given.fingerprint)
    if known is not None:
        return AdmittedKey(known, Disposition.ATTACHED)
    if command.after_sequence:
        raise Expired(
            f"after_sequence {command.after_sequence} is of a turn that is not known here: begin at 0",
            reason="SEQUENCE_AHEAD",
            last_sequence="0",
        )
    if command.spec.new_thread is not None:
        return _admit_with_thread(db, given, encode_page)
    return _admit_to_thread(db, given, encode_page)


def _admit_with_thread(db: Connection, given: AdmitInput, encode_page: EncodePage) -> AdmittedKey:
    now = db.now_ns()
    later = given.command.not_before > now
    key = _new_thread(db, given, later, now)
    if later:
        _wait(db, given, key, _Row(1, 2, given.command.not_before), 1, encode_page, now)
        return AdmittedKey(key, Disposition.QUEUED)
    return AdmittedKey(key, Disposition.STARTED, _begin(db, given, key, (1, 1, 1, 3), encode_page, now))


def _admit_to_thread(db: Connection, given: AdmitInput, encode_page: EncodePage) -> AdmittedKey:
    command, spec = given.command, given.command.spec
    key = TurnKey(command.scope, spec.thread.rpartition("/")[2], mint_id())
    held = _locked(db, key, spec)
    now = db.now_ns()
    queue = _queue(db, key, now) if held.next_queue_position > 1 else _Queue(0, 0, 1)
    later = command.not_before > now
    policy = spec.busy_policy or given.busy_policy
    _check_busy(policy, held, queue, given.queue_limit, key)
    if not (later or held.live_turn or held.owner or queue.due):
        position, epoch, version = db.execute(
            _QUEUE_AND_CLAIM, (now, key.turn_id, given.owner, key.scope, key.thread_id)
        ).fetchone()
        taken = (held.next_queue_position, position, epoch, version)
        return AdmittedKey(key, Disposition.STARTED, _begin(db, given, key, taken, encode_page, now))
    superseded = None if later else _superseded(db, key, held, policy, spec.on_waiting)
    first = superseded is not None or (policy is BusyPolicy.INTERRUPT and not later)
    (version,) = db.execute(_QUEUE, (now, key.scope, key.thread_id)).fetchone()
    place = queue.head if first and queue.length else held.next_queue_position
    row = _Row(place, version, command.not_before if later else 0)
    _wait(db, given, key, row, 1 if first else queue.length + 1, encode_page, now)
    idle = not (later or held.live_turn or held.owner)
    return AdmittedKey(key, Disposition.QUEUED, superseded=superseded, idle=idle)


def _superseded(
    db: Connection, key: TurnKey, held: Held, policy: BusyPolicy, on_waiting: WaitingPolicy
) -> TurnKey | None:
    """Tell the live turn to end if the new one takes its place; its owner, or the next claim, sees to it."""
    if not held.live_turn:
        return None
    live = TurnKey(key.scope, key.thread_id, held.live_turn)
    if policy is not BusyPolicy.INTERRUPT:
        if on_waiting is not WaitingPolicy.CANCEL:
            return None
        (state,) = db.execute(
            "SELECT state FROM turns WHERE scope = ? AND thread_id = ? AND turn_id = ?",
            (live.scope, live.thread_id, live.turn_id),
        ).fetchone()
        if state != "waiting":
            return None
    request_stop(db, live, SUPERSEDED)
    return live


def _wait(
    db: Connection,
    given: AdmitInput,
    key: TurnKey,
    row: _Row,
    queue_position: int,
    encode_page: EncodePage,
    now: int,
) -> None:
    """Write a turn that waits in the queue."""
    _insert_turn(db, given, key, row, now)
    accepted = TurnAccepted(given.agent, given.command.request_id, queue_position)
    db.execute(_INSERT_HEAD, (key.scope, key.turn_id, 0, 2))
    insert_page(db, key, 1, 1, encode_page(key, 1, [accepted]))


def _begin(
    db: Connection,
    given: AdmitInput,
    key: TurnKey,
    taken: tuple[int, int, int, int],
    encode_page: EncodePage,
    now: int,
) -> Claimed:
    """Write a turn as running.

    `taken`: its place in the queue, the position of its message, the epoch, the version of the turn's change.
    """
    place, position, epoch, version = taken
    message_id = mint_id()
    _insert_turn(db, given, key, _Row(place, version, 0, message_id), now)
    start = Start(
        key=key,
        spec=given.command.spec,
        agent=given.agent,
        max_steps=given.max_steps,
        epoch=epoch,
        first_sequence=1,
        position=position,
        message_id=message_id,
        version=version - 1,
        timeout=given.turn_timeout,
        before=[TurnAccepted(given.agent, given.command.request_id, 0)],
    )
    claimed = begin(db, start, encode_page, now)
    db.execute(_INSERT_HEAD, (key.scope, key.turn_id, epoch, claimed.next_sequence))
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


def _new_thread(db: Connection, given: AdmitInput, later: bool, now: int) -> TurnKey:
    """Create the thread that a turn comes with, claimed for it unless it is to begin later.

    Raises:
        AlreadyExists: THREAD_ID_USED.
    """
    scope, new = given.command.scope, given.command.spec.new_thread
    assert new is not None
    key = TurnKey(scope, new.thread_id or mint_id(), mint_id())
    metadata = encode(new.metadata) if new.metadata else "{}"
    labels = encode(new.labels) if new.labels else "{}"
    values = (scope, key.thread_id, given.agent, new.title, metadata, labels, now, now)
    taken = ("", "", "", 0, 1, 2, 2) if later else (key.turn_id, given.owner, "run", 1, 2, 3, 0)
    if db.execute(_INSERT_THREAD, (*values, *taken)).rowcount != 1:
        raise AlreadyExists(
            f"{key.thread.name} is or was in use: choose another id",
            reason="THREAD_ID_USED",
            thread=key.thread.name,
        )
    return key


def _locked(db: Connection, key: TurnKey, spec: TurnSpec) -> Held:
    """Lock the thread that a turn is for. Raises NotFound, Conflict (THREAD_CHANGED)."""
    held = lock(db, key.thread)
    if held is None:
        raise NotFound(f"there is no {spec.thread}", reason="THREAD_NOT_FOUND", thread=spec.thread)
    if spec.expected_version is not None and spec.expected_version != held.version:
        raise Conflict(
            f"{spec.thread} is at version {held.version}, not {spec.expected_version}: read it again",
            reason="THREAD_CHANGED",
            version=str(held.version),
        )
    return held


def _queue(db: Connection, key: TurnKey, now: int) -> _Queue:
    row = db.execute(
        "SELECT count(*), coalesce(sum(CASE WHEN wake_time <= ? THEN 1 ELSE 0 END), 0),"
        " coalesce(min(queue_position), 1) - 1"
        " FROM turns WHERE scope = ? AND thread_id = ? AND state = 'queued'",
        (now, key.scope, key.thread_id),
    ).fetchone()
    return _Queue(int(row[0]), int(row[1]), int(row[2]))


def _check_busy(policy: BusyPolicy, held: Held, queue: _Queue, limit: int, key: TurnKey) -> None:
    if (held.live_turn or held.owner or queue.due) and policy is BusyPolicy.REJECT:
        turn = f"{key.thread.name}/turns/{held.live_turn}" if held.live_turn else ""
        raise WrongState(
            f"another turn of {key.thread.name} is live: wait for it or use another busy_policy",
            reason="THREAD_BUSY",
            turn=turn,
        )
    if queue.length >= limit:
        raise Exhausted(
            f"{limit} turns already wait in {key.thread.name}: wait for one to begin",
            reason="QUEUE_FULL",
            limit=str(limit),
        )


def _insert_turn(db: Connection, given: AdmitInput, key: TurnKey, row: _Row, now: int) -> None:
    """Insert a turn: running when it has its input message, else queued. Raises Raced."""
    command, spec = given.command, given.command.spec
    running = bool(row.message)
    start = (
        (1, now, now + int(given.turn_timeout * 1e9) if given.turn_timeout else 0) if running else (0, 0, 0)
    )
    inserted = db.execute(
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
            row.place,
            given.max_steps,
            encode(spec.labels) if spec.labels else "{}",
            encode(spec.metadata) if spec.metadata else "{}",
            command.cancel_on_disconnect,
            now,
            given.turn_timeout,
            row.wake_time,
            *start,
            row.message,
            row.version,
        ),
    )
    if inserted.rowcount != 1:
        raise Raced
