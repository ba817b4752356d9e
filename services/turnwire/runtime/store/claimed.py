"""What a claim gives, and the rows that each first claim of a turn writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwire.extend.events import EpisodeKind, MessageOrigin, TurnEvent, TurnStarted
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.domain.resumption import OpenAttempt, Resumption
from turnwire.runtime.domain.turn import TurnKey, TurnSpec
from turnwire.runtime.store.rows import part_values
from turnwire.storage.units import Connection

__all__ = ["Claimant", "Claimed", "EncodePage", "ReadTail", "Start", "begin", "insert_page"]

# Encodes events as a page whose first event has that sequence.
EncodePage = Callable[[TurnKey, int, Sequence[TurnEvent]], bytes]
# Reads stored pages: what is open after that sequence.
ReadTail = Callable[[Sequence[bytes], int], OpenAttempt]

_INSERT_PAGE = (
    "INSERT INTO pages (scope, turn_id, first_sequence, last_sequence, body) VALUES (?, ?, ?, ?, ?)"
)
_INSERT_MESSAGE = (
    "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, origin,"
    " create_time, update_time, create_version, change_version)"
    " VALUES (?, ?, ?, ?, 'user', ?, 'final', ?, ?, ?, ?, ?)"
)
_INSERT_PART = (
    "INSERT INTO message_parts (scope, thread_id, message_id, part_index, step, kind, text, data, extra)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims, and what of the codec a claim needs."""

    owner: str
    encode_page: EncodePage
    read_tail: ReadTail


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim: what the turn was admitted with, its epoch, the next free sequence, the claim's own page.

    `first` tells that the turn's message, `input_message`, is all that the thread holds. `time_left` is in
    seconds.
    """

    key: TurnKey
    spec: TurnSpec
    agent: str
    max_steps: int
    epoch: int
    first_sequence: int
    next_sequence: int
    page: bytes
    first: bool = False
    input_message: str = ""
    time_left: float | None = None
    resumption: Resumption | None = None
    stop: StopNote | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A turn whose first episode begins.

    Args:
        first_sequence: of the claim's page; `before` are events that it begins with.
        position: of the user message, whose id is `message_id` and whose change is `version`; 0 when the
            thread has it already.
        timeout: seconds that the turn may take, 0 without a limit.
    """

    key: TurnKey
    spec: TurnSpec
    agent: str
    max_steps: int
    epoch: int
    first_sequence: int
    position: int
    message_id: str
    version: int
    timeout: float
    before: Sequence[TurnEvent] = ()


def begin(db: Connection, start: Start, encode_page: EncodePage, now: int) -> Claimed:
    """Write the claim's page and the user message; the rows of thread, turn and head are the caller's."""
    key = start.key
    place = (key.scope, key.thread_id)
    started = TurnStarted(1, EpisodeKind.START, start.epoch, f"{key.thread.name}/messages/{start.message_id}")
    events = [*start.before, started]
    page = encode_page(key, start.first_sequence, events)
    insert_page(db, key, start.first_sequence, len(events), page)
    if start.position:
        values = (start.position, start.message_id, key.turn_id, MessageOrigin.REQUEST.value, now, now)
        db.execute(_INSERT_MESSAGE, (*place, *values, start.version, start.version))
        for index, part in enumerate(start.spec.said):
            db.execute(_INSERT_PART, (*place, start.message_id, index, *part_values(ContentPart(part))))
    return Claimed(
        key,
        start.spec,
        start.agent,
        start.max_steps,
        start.epoch,
        start.first_sequence,
        start.first_sequence + len(events),
        page,
        first=start.position == 1,
        input_message=start.message_id,
        time_left=start.timeout or None,
    )


def insert_page(db: Connection, key: TurnKey, first: int, count: int, page: bytes) -> None:
    """Store a page of `count` events."""
    db.execute(_INSERT_PAGE, (key.scope, key.turn_id, first, first + count - 1, page))
