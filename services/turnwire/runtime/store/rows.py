"""Between rows and domain values. Every column of a row is read in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.extend.events import MessageOrigin, Overflow, ResultPart, ToolOutcome, TurnState, UsageSummary
from turnwire.runtime.domain.message import (
    BegunTools,
    CallPart,
    ContentPart,
    ReasoningText,
    StoredMessage,
    StoredPart,
)
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import InputPart, ThreadKey, TurnKey, TurnRow
from turnwire.storage.units import Connection

__all__ = [
    "CALL_COLUMNS",
    "THREAD_COLUMNS",
    "TURN_COLUMNS",
    "call_extra",
    "call_part",
    "decode",
    "encode",
    "load_messages",
    "overflow_of",
    "part_values",
    "thread_row",
    "turn_row",
    "without_handles",
]

THREAD_COLUMNS = (
    "scope, thread_id, agent, version, title, live_turn, metadata, labels, create_time, update_time,"
    " (SELECT count(*) FROM turns q"
    " WHERE q.scope = t.scope AND q.thread_id = t.thread_id AND q.state = 'queued'), permission_mode,"
    " forked_from"
)

TURN_COLUMNS = (
    "t.scope, t.thread_id, t.turn_id, t.state, t.agent, t.agent_digest, t.request_id, t.fingerprint,"
    " t.create_time, h.epoch, h.next_sequence, h.first_kept_sequence, t.stop_reason, t.error_reason,"
    " t.error_text, t.final_message, t.usage, t.step, t.max_steps,"
    " CASE t.state WHEN 'queued' THEN (SELECT count(*) FROM turns q WHERE q.scope = t.scope"
    " AND q.thread_id = t.thread_id AND q.state = 'queued' AND q.queue_position <= t.queue_position)"
    " ELSE 0 END, t.start_time, t.finish_time, t.labels, t.metadata, t.cancel_on_disconnect,"
    " t.change_version, t.retry_of"
)

CALL_COLUMNS = (
    "part_index, call_id, provider_call_id, tool_name, arguments, step, call_index, outcome, content,"
    " is_error, extra"
)

_encoder = msgspec.json.Encoder()


class _CallExtra(msgspec.Struct, omit_defaults=True):
    overflow: Overflow | None = None
    parts: tuple[ResultPart, ...] = ()
    exit_code: int | None = None
    elapsed: float = 0.0


class _PartExtra(msgspec.Struct, omit_defaults=True):
    names: tuple[str, ...] = ()
    media_type: str = ""
    uri: str = ""
    filename: str = ""
    replay_json: str = ""
    provider: str = ""


_call_extra = msgspec.json.Decoder(_CallExtra)
_part_extra = msgspec.json.Decoder(_PartExtra)
_texts = msgspec.json.Decoder(dict[str, str])
_usage = msgspec.json.Decoder(UsageSummary)


def encode(value: Any) -> str:
    """Return a value as JSON text."""
    return _encoder.encode(value).decode()


def decode(text: str) -> dict[str, str]:
    """Read a JSON object of texts."""
    return {} if text == "{}" else _texts.decode(text)


def thread_row(row: Sequence[Any]) -> ThreadRow:
    """Read a row of THREAD_COLUMNS."""
    return ThreadRow(
        key=ThreadKey(row[0], row[1]),
        agent=row[2],
        version=row[3],
        title=row[4],
        live_turn=row[5],
        metadata=decode(row[6]),
        labels=decode(row[7]),
        create_time=row[8],
        update_time=row[9],
        queue_length=row[10],
        permission_mode=row[11],
        forked_from=row[12],
    )


def turn_row(row: Sequence[Any]) -> TurnRow:
    """Read a row of TURN_COLUMNS."""
    return TurnRow(
        key=TurnKey(row[0], row[1], row[2]),
        state=TurnState(row[3]),
        agent=row[4],
        agent_digest=row[5],
        request_id=row[6],
        fingerprint=row[7],
        create_time=row[8],
        epoch=row[9],
        last_sequence=row[10] - 1,
        first_kept_sequence=row[11],
        stop_reason=row[12],
        error_reason=row[13],
        error_text=row[14],
        final_message=row[15],
        usage=UsageSummary() if row[16] == "{}" else _usage.decode(row[16]),
        step=row[17],
        max_steps=row[18],
        queue_position=row[19],
        start_time=row[20],
        finish_time=row[21],
        labels=decode(row[22]),
        metadata=decode(row[23]),
        cancel_on_disconnect=row[24],
        change_version=row[25],
        retry_of=row[26],
    )


def part_values(part: ContentPart | ReasoningText | BegunTools) -> tuple[int, str, str, bytes | None, str]:
    """Return step, kind, text, data and extra of a part that is no call."""
    if isinstance(part, ReasoningText):
        extra = _PartExtra(replay_json=part.replay_json, provider=part.provider)
        return part.step, "reasoning", part.text, None, encode(extra)
    if isinstance(part, BegunTools):
        return part.step, "begun", "", None, encode(_PartExtra(names=part.names))
    content = part.content
    extra = _PartExtra(media_type=content.media_type, uri=content.uri, filename=content.filename)
    return part.step, content.kind, content.text, content.data or None, encode(extra)


def call_extra(call: CallPart, exit_code: int | None = None, elapsed: float = 0.0) -> str:
    """Return the JSON of what a finished call has beside its text."""
    return encode(_CallExtra(call.overflow, call.parts, exit_code, elapsed))


def overflow_of(extra: str) -> Overflow | None:
    """Return where a call's whole result is kept, from its `extra` JSON."""
    return _call_extra.decode(extra).overflow


def without_handles(extra: str) -> str:
    """Return a call's `extra` JSON without what only its own thread's results can be read by."""
    found = _call_extra.decode(extra)
    parts = tuple(part for part in found.parts if part.data)
    return encode(_CallExtra(None, parts, found.exit_code, found.elapsed))


def load_messages(
    db: Connection, thread: ThreadKey, where: str, params: tuple[Any, ...]
) -> list[StoredMessage]:
    """Read messages with their parts, oldest first. `where` narrows the messages, as in `m.position > ?`."""
    key = (thread.scope, thread.thread_id)
    rows = db.execute(
        "SELECT m.message_id, m.position, m.role, m.turn_id, m.status, m.visibility, m.origin,"
        " m.interrupted_reason, m.create_time, m.update_time FROM messages m"
        f" WHERE m.scope = ? AND m.thread_id = ? AND {where} ORDER BY m.position",
        (*key, *params),
    ).fetchall()
    return [_message(row, _parts(db, key, row[0])) for row in rows]


def _parts(db: Connection, key: tuple[str, str], message_id: str) -> tuple[StoredPart, ...]:
    found: list[tuple[int, StoredPart]] = []
    for row in db.execute(
        "SELECT part_index, step, kind, text, data, extra FROM message_parts"
        " WHERE scope = ? AND thread_id = ? AND message_id = ?",
        (*key, message_id),
    ):
        found.append((row[0], _part(row)))
    for row in db.execute(
        f"SELECT {CALL_COLUMNS} FROM tool_calls WHERE scope = ? AND thread_id = ? AND message_id = ?",
        (*key, message_id),
    ):
        found.append((row[0], call_part(row)))
    found.sort(key=lambda item: item[0])
    return tuple(part for _, part in found)


def _part(row: Sequence[Any]) -> StoredPart:
    extra = _part_extra.decode(row[5])
    if row[2] == "reasoning":
        return ReasoningText(row[3], row[1], extra.replay_json, extra.provider)
    if row[2] == "begun":
        return BegunTools(extra.names, row[1])
    content = InputPart(
        kind=row[2],
        text=row[3],
        data=row[4] or b"",
        uri=extra.uri,
        media_type=extra.media_type,
        filename=extra.filename,
    )
    return ContentPart(content, row[1])


def call_part(row: Sequence[Any]) -> CallPart:
    """Read a row that begins with CALL_COLUMNS."""
    extra = _call_extra.decode(row[10])
    return CallPart(
        call_id=row[1],
        provider_call_id=row[2],
        tool_name=row[3],
        arguments_json=row[4],
        step=row[5],
        call_index=row[6],
        outcome=ToolOutcome(row[7]) if row[7] else None,
        content=row[8],
        is_error=bool(row[9]),
        overflow=extra.overflow,
        parts=extra.parts,
    )


def _message(row: Sequence[Any], parts: tuple[StoredPart, ...]) -> StoredMessage:
    return StoredMessage(
        message_id=row[0],
        position=row[1],
        role=row[2],
        turn_id=row[3],
        parts=parts,
        open=row[4] == "open",
        visibility=row[5],
        origin=MessageOrigin(row[6]) if row[6] else None,
        interrupted_reason=row[7],
        create_time=row[8],
        update_time=row[9],
    )
