"""Who has a thread: one transaction decides each claim, whoever asks and however many ask at once.

A thread is held by a living owner or free to be taken. Each acquisition raises the epoch of the thread, and
of its live turn's log, so that whatever a former owner still writes is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from turnwire.core.ids import mint_id
from turnwire.extend.events import EpisodeKind, StepReset, TurnEvent, TurnResumed
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.resumption import OpenAttempt
from turnwire.runtime.domain.turn import ThreadKey, TurnKey, TurnSpec
from turnwire.runtime.store import actions
from turnwire.runtime.store.claimed import Claimant, Claimed, Start, begin, insert_page
from turnwire.runtime.store.recovery import EXHAUSTED, end_left
from turnwire.runtime.store.resumptions import Standing, open_attempt_of, resumption_of
from turnwire.runtime.store.rows import encode
from turnwire.storage.units import Connection

__all__ = [
    "MAX_DEATHS",
    "NOTHING",
    "Claim",
    "Held",
    "acquire_admin",
    "alive",
    "claim",
    "claimable",
    "holder",
    "leave_queue",
    "lock",
    "next_due",
    "owned",
    "release_admin",
    "request_stop",
    "stops",
]

# So many owners may die over a turn without a committed step in between; the last of them ends it.
MAX_DEATHS = 3

_note = msgspec.json.Decoder(StopNote)

# On PostgreSQL this is the lock of the thread: what is read after it stands until the end of the transaction.
_LOCK = (
    "UPDATE threads SET version = version WHERE scope = ? AND thread_id = ? AND delete_time IS NULL"
    " RETURNING live_turn, owner, lease, version, next_queue_position"
)
_TAKE = (
    "UPDATE threads SET owner = ?, lease = 'run', epoch = epoch + 1, version = version + 1, update_time = ?"
    " WHERE scope = ? AND thread_id = ? RETURNING epoch, version"
)
# Three changes that can be seen: the message, the turn and the queue that it leaves.
_TAKE_NEXT = (
    "UPDATE threads SET live_turn = ?, owner = ?, lease = 'run', epoch = epoch + 1, version = version + 3,"
    " queue_version = version + 3, next_position = next_position + 1, update_time = ?"
    " WHERE scope = ? AND thread_id = ? RETURNING next_position - 1, epoch, version"
)
# A turn that answers a message of the thread anew brings none of its own.
_TAKE_ANEW = (
    "UPDATE threads SET live_turn = ?, owner = ?, lease = 'run', epoch = epoch + 1, version = version + 2,"
    " queue_version = version + 2, update_time = ? WHERE scope = ? AND thread_id = ?"
    " RETURNING 0, epoch, version"
)
_FREE = "UPDATE threads SET owner = '', lease = '' WHERE scope = ? AND thread_id = ?"
_HEAD = "UPDATE turn_heads SET epoch = ?, next_sequence = ? WHERE scope = ? AND turn_id = ?"
_BEGIN_TURN = (
    "UPDATE turns SET state = 'running', episode = 1, start_time = ?, deadline = ?, wake_time = 0,"
    " input_message = ?, change_version = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
)
_RESUME_TURN = (
    "UPDATE turns SET state = 'running', episode = episode + 1, recoveries = recoveries + ?, deadline = ?,"
    " wake_time = 0, suspend_time = 0, stop_request = ?, change_version = ?"
    " WHERE scope = ? AND thread_id = ? AND turn_id = ?"
)
_LIVE = (
    "SELECT t.state, t.spec, t.agent, t.max_steps, t.episode, t.step, t.transcript_sequence, t.recoveries,"
    " t.progress, t.stop_request, t.deadline, t.wake_time, t.suspend_time, t.start_time, h.next_sequence"
    " FROM turns t JOIN turn_heads h ON h.scope = t.scope AND h.turn_id = t.turn_id"
    " WHERE t.scope = ? AND t.thread_id = ? AND t.turn_id = ?"
)
_QUEUED = (
    "SELECT q.turn_id, q.spec, q.agent, q.max_steps, q.turn_timeout, q.wake_time, q.input_message,"
    " h.next_sequence"
    " FROM turns q JOIN turn_heads h ON h.scope = q.scope AND h.turn_id = q.turn_id"
    " WHERE q.scope = ? AND q.thread_id = ? AND q.state = 'queued'"
    " ORDER BY CASE WHEN q.wake_time > ? THEN 1 ELSE 0 END, q.queue_position LIMIT 2"
)


class Held(NamedTuple):
    """The columns of a thread's row that say who has it."""

    live_turn: str
    owner: str
    lease: str
    version: int
    next_queue_position: int


class _Live(NamedTuple):
    state: str
    spec: str
    agent: str
    max_steps: int
    episode: int
    step: int
    transcript_sequence: int
    recoveries: int
    progress: str
    stop_request: str
    deadline: int
    wake_time: int
    suspend_time: int
    start_time: int
    next_sequence: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What became of a claim.

    Args:
        claimed: the turn that the claimant has now.
        ended: a turn that was taken over too often, with its last page: the claim ended it.
        more: whether turns may still wait in the queue.
    """

    claimed: Claimed | None = None
    ended: tuple[TurnKey, tuple[int, int, bytes]] | None = None
    more: bool = False


NOTHING = Claim()


def lock(db: Connection, thread: ThreadKey) -> Held | None:
    """Lock a thread for the rest of the transaction; None when it is not there or is deleted."""
    row = db.execute(_LOCK, (thread.scope, thread.thread_id)).fetchone()
    return None if row is None else Held(*row)


def alive(db: Connection, owner: str, mine: str) -> bool:
    """Tell whether the owner in a thread's row still has it."""
    if owner == mine:
        return True
    row = db.execute("SELECT expire_time FROM owners WHERE owner = ?", (owner,)).fetchone()
    return row is not None and bool(row[0] > db.now_ns())


def claim(
    db: Connection, thread: ThreadKey, by: Claimant, stop: tuple[TurnKey, StopNote] | None = None
) -> Claim:
    """Take a thread that is free or whose owner is dead, and what is to be run in it.

    That is its live turn, if there is one (a waiting one only when its time has come), else the head of the
    queue. With `stop` only that turn is taken, and only to end it.
    """
    held = lock(db, thread)
    if held is None or (held.owner and alive(db, held.owner, by.owner)):
        return NOTHING
    now = db.now_ns()
    if held.live_turn:
        return _claim_live(db, TurnKey(thread.scope, thread.thread_id, held.live_turn), held, by, now, stop)
    found = NOTHING if stop is not None else _claim_queued(db, thread, by, now)
    if held.owner and found.claimed is None:
        db.execute(_FREE, (thread.scope, thread.thread_id))
    return found


def _claim_queued(db: Connection, thread: ThreadKey, by: Claimant, now: int) -> Claim:
    rows = db.execute(_QUEUED, (thread.scope, thread.thread_id, now)).fetchall()
    if not rows or rows[0][5] > now:
        return Claim(more=bool(rows))
    turn_id, spec, agent, max_steps, timeout, _, message_id, sequence = rows[0]
    key = TurnKey(thread.scope, thread.thread_id, turn_id)
    place = (key.scope, key.thread_id)
    take = _TAKE_ANEW if message_id else _TAKE_NEXT
    position, epoch, version = db.execute(take, (turn_id, by.owner, now, *place)).fetchone()
    message_id = message_id or mint_id()
    deadline = now + int(timeout * 1e9) if timeout else 0
    db.execute(_BEGIN_TURN, (now, deadline, message_id, version - 1, *place, turn_id))
    known = TurnSpec.model_validate_json(spec)
    start = Start(key, known, agent, max_steps, epoch, sequence, position, message_id, version - 2, timeout)
    claimed = begin(db, start, by.encode_page, now)
    db.execute(_HEAD, (epoch, claimed.next_sequence, key.scope, turn_id))
    return Claim(claimed, more=len(rows) > 1)


def _claim_live(
    db: Connection,
    key: TurnKey,
    held: Held,
    by: Claimant,
    now: int,
    stop: tuple[TurnKey, StopNote] | None,
) -> Claim:
    turn = _Live(*db.execute(_LIVE, (key.scope, key.thread_id, key.turn_id)).fetchone())
    note = _note.decode(turn.stop_request) if turn.stop_request else None
    if stop is not None:
        note = note or stop[1]
    wanted = stop is None or stop[0] == key
    due = turn.state == "running" or note is not None or 0 < turn.wake_time <= now
    if not (wanted and due):
        if held.owner and turn.state == "waiting":
            db.execute(_FREE, (key.scope, key.thread_id))
        return NOTHING
    # A turn that was handed over belongs to nobody; only a death counts.
    died = turn.state == "running" and held.owner != ""
    if died and turn.recoveries + 1 >= MAX_DEATHS:
        void = _void(open_attempt_of(db, key, turn.transcript_sequence, by.read_tail))
        return Claim(ended=(key, end_left(db, key, EXHAUSTED, by.encode_page, void)), more=True)
    return Claim(_resume(db, key, turn, by, now, note, int(died)), more=True)


def _resume(
    db: Connection, key: TurnKey, turn: _Live, by: Claimant, now: int, note: StopNote | None, died: int
) -> Claimed:
    """Take over, or wake, a turn: the epochs, the episode and the count of takeovers change together."""
    place = (key.scope, key.thread_id)
    kind = EpisodeKind.RECOVERY if turn.state == "running" else EpisodeKind.RESUME
    episode = turn.episode + 1
    # The time that it waited for somebody is not the turn's own.
    deadline = (
        turn.deadline + now - turn.suspend_time if turn.deadline and turn.suspend_time else turn.deadline
    )
    epoch, version = db.execute(_TAKE, (by.owner, now, *place)).fetchone()
    values = (died, deadline, encode(note) if note else "", version)
    db.execute(_RESUME_TURN, (*values, *place, key.turn_id))
    attempt = open_attempt_of(db, key, turn.transcript_sequence, by.read_tail)
    # Whoever answered, or the time that ran out, is told before the turn goes on.
    events: list[TurnEvent] = [*actions.expire(db, key, now), TurnResumed(episode, kind, epoch)]
    events += _void(attempt)
    page = by.encode_page(key, turn.next_sequence, events)
    insert_page(db, key, turn.next_sequence, len(events), page)
    following = turn.next_sequence + len(events)
    elapsed = max(0.0, (now - turn.start_time) / 1e9)
    standing = Standing(key, episode, kind, turn.step, turn.progress, elapsed)
    db.execute(_HEAD, (epoch, following, key.scope, key.turn_id))
    return Claimed(
        key,
        TurnSpec.model_validate_json(turn.spec),
        turn.agent,
        turn.max_steps,
        epoch,
        turn.next_sequence,
        following,
        page,
        time_left=(deadline - now) / 1e9 if deadline else None,
        resumption=resumption_of(db, standing, attempt),
        stop=note,
    )


def _void(attempt: OpenAttempt) -> Sequence[StepReset]:
    """Return what takes back the model output that belongs to no committed step: no message holds it."""
    return [StepReset(attempt.first_llm, attempt.last_llm, "recovery")] if attempt.first_llm else []


def claimable(db: Connection, limit: int, mine: str = "") -> Sequence[ThreadKey]:
    """Return threads to look at: something may be taken there. `mine` is an owner that is not dead."""
    now = db.now_ns()
    # From the few turns to their threads, never the other way round: SQLite takes a cross join as that order.
    free = "FROM turns t CROSS JOIN threads h"
    there = "h.scope = t.scope AND h.thread_id = t.thread_id AND h.owner = '' AND"
    rows = db.execute(
        "SELECT scope, thread_id FROM threads WHERE owner <> '' AND owner <> ? AND delete_time IS NULL"
        " AND owner NOT IN (SELECT owner FROM owners WHERE expire_time > ?)"
        f" UNION SELECT t.scope, t.thread_id {free} WHERE {there}"
        " t.state = 'queued' AND t.wake_time <= ? AND h.live_turn = '' AND h.delete_time IS NULL"
        f" UNION SELECT t.scope, t.thread_id {free} WHERE {there}"
        " t.wake_time > 0 AND t.wake_time <= ? AND t.state IN ('running', 'waiting')"
        f" UNION SELECT t.scope, t.thread_id {free} WHERE {there}"
        " t.stop_request <> '' AND t.state NOT IN ('completed', 'failed', 'cancelled') LIMIT ?",
        (mine, now, now, now, limit),
    ).fetchall()
    return [ThreadKey(*row) for row in rows]


def next_due(db: Connection, mine: str = "") -> float | None:
    """Return the seconds until the next lease runs out or the next turn is to be woken; None without one."""
    now = db.now_ns()
    (due,) = db.execute(
        "SELECT min(due) FROM (SELECT min(expire_time) AS due FROM owners"
        " WHERE owner <> ? AND expire_time > ?"
        " UNION ALL SELECT min(wake_time) AS due FROM turns WHERE wake_time > 0 AND wake_time > ?) AS dues",
        (mine, now, now),
    ).fetchone()
    return None if due is None else (due - now) / 1e9


def holder(db: Connection, thread: ThreadKey) -> str:
    """Return the owner in a thread's row, dead or alive; empty when it is free or there is no such thread."""
    row = db.execute(
        "SELECT owner FROM threads WHERE scope = ? AND thread_id = ?", (thread.scope, thread.thread_id)
    ).fetchone()
    return "" if row is None else str(row[0])


def owned(db: Connection, owner: str) -> dict[TurnKey, int]:
    """Return the turns that an owner has, with the epochs it has them at."""
    rows = db.execute(
        "SELECT scope, thread_id, live_turn, epoch FROM threads WHERE owner = ? AND owner <> ''"
        " AND lease = 'run'",
        (owner,),
    ).fetchall()
    return {TurnKey(scope, thread_id, turn_id): epoch for scope, thread_id, turn_id, epoch in rows}


def leave_queue(db: Connection, key: TurnKey) -> int | None:
    """Return the next sequence of a queued turn that is to end in this transaction, None if it left."""
    lock(db, key.thread)
    row = db.execute(
        "SELECT h.next_sequence FROM turns t JOIN turn_heads h"
        " ON h.scope = t.scope AND h.turn_id = t.turn_id"
        " WHERE t.scope = ? AND t.thread_id = ? AND t.turn_id = ? AND t.state = 'queued'",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    return None if row is None else int(row[0])


def request_stop(db: Connection, key: TurnKey, note: StopNote) -> bool:
    """Have whoever runs a live turn, or takes it next, end it; False when it is not live, or was told."""
    changed = db.execute(
        "UPDATE turns SET stop_request = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
        " AND stop_request = '' AND state IN ('running', 'waiting')",
        (encode(note), key.scope, key.thread_id, key.turn_id),
    )
    return changed.rowcount == 1


def stops(db: Connection, owner: str) -> Sequence[tuple[TurnKey, StopNote]]:
    """Return the turns of an owner that somebody wants to end."""
    rows = db.execute(
        "SELECT t.scope, t.thread_id, t.turn_id, t.stop_request FROM turns t JOIN threads h"
        " ON h.scope = t.scope AND h.thread_id = t.thread_id"
        " WHERE t.stop_request <> '' AND t.state = 'running' AND h.owner = ?",
        (owner,),
    ).fetchall()
    return [(TurnKey(*row[:3]), _note.decode(row[3])) for row in rows]


def acquire_admin(db: Connection, thread: ThreadKey, owner: str) -> int | None:
    """Hold a thread for a change of its history; returns the epoch, None while it is held or a turn runs."""
    held = lock(db, thread)
    if held is None or (held.owner and alive(db, held.owner, owner)):
        return None
    if held.live_turn:
        (state,) = db.execute(
            "SELECT state FROM turns WHERE scope = ? AND thread_id = ? AND turn_id = ?",
            (thread.scope, thread.thread_id, held.live_turn),
        ).fetchone()
        if state == "running":
            return None
    (epoch,) = db.execute(
        "UPDATE threads SET owner = ?, lease = 'admin', epoch = epoch + 1"
        " WHERE scope = ? AND thread_id = ? RETURNING epoch",
        (owner, thread.scope, thread.thread_id),
    ).fetchone()
    return int(epoch)


def release_admin(db: Connection, thread: ThreadKey, owner: str, epoch: int) -> bool:
    """Give a thread back; False when another owner has it by now."""
    changed = db.execute(
        "UPDATE threads SET owner = '', lease = '' WHERE scope = ? AND thread_id = ? AND owner = ?"
        " AND epoch = ? AND lease = 'admin'",
        (thread.scope, thread.thread_id, owner, epoch),
    )
    return changed.rowcount == 1
