"""What must hold in the rows of the runtime's store at any moment, also right after a crash.

T1 one open message a thread, the highest. T2 calls without a result only in it. T3 while a turn is live and
has an answer, the tail is its own. T4 nothing behind an open message; a turn that ended left nothing open.
T5 open actions are of calls that wait in the tail. T6 a thread cut at any closed message is whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Query", "postgres_rows", "row_findings", "sqlite_rows"]

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_RECENT = "JOIN threads h ON h.scope = x.scope AND h.thread_id = x.thread_id AND h.create_time >= ?"
_TAIL = "(SELECT max(y.position) FROM messages y WHERE y.scope = x.scope AND y.thread_id = x.thread_id)"
_LIVE = "('running', 'waiting')"
_ENDED = "('completed', 'failed', 'cancelled')"

# Each finds rows that must not be; the words say what they are.
_RULES: tuple[tuple[str, str], ...] = (
    (
        "T1 two open messages in a thread",
        f"SELECT x.thread_id FROM messages x {_RECENT} WHERE x.status = 'open'"
        " GROUP BY x.scope, x.thread_id HAVING count(*) > 1",
    ),
    (
        "T1/T4 a message behind an open one",
        f"SELECT x.thread_id, x.message_id FROM messages x {_RECENT}"
        f" WHERE x.status = 'open' AND x.position <> {_TAIL}",
    ),
    (
        "T2/T6 a call without a result outside the open message",
        f"SELECT x.thread_id, x.call_id, x.state FROM tool_calls x {_RECENT} JOIN messages m"
        " ON m.scope = x.scope AND m.thread_id = x.thread_id AND m.message_id = x.message_id"
        " WHERE x.state <> 'finished' AND m.status <> 'open'",
    ),
    (
        "T3 a live turn with an answer that is not the tail",
        f"SELECT x.thread_id, x.turn_id FROM turns x {_RECENT} WHERE x.state IN {_LIVE}"
        " AND EXISTS (SELECT 1 FROM messages m WHERE m.scope = x.scope AND m.thread_id = x.thread_id"
        " AND m.turn_id = x.turn_id AND m.role = 'assistant')"
        " AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.scope = x.scope AND m.thread_id = x.thread_id"
        f" AND m.turn_id = x.turn_id AND m.position = {_TAIL})",
    ),
    (
        "T4 an open message of a turn that has ended",
        f"SELECT x.thread_id, x.turn_id, x.state FROM turns x {_RECENT} JOIN messages m"
        " ON m.scope = x.scope AND m.thread_id = x.thread_id AND m.turn_id = x.turn_id"
        f" WHERE x.state IN {_ENDED} AND m.status = 'open'",
    ),
    (
        "T4 a message of a turn that waits in the queue",
        f"SELECT x.thread_id, x.turn_id FROM turns x {_RECENT} JOIN messages m"
        " ON m.scope = x.scope AND m.thread_id = x.thread_id AND m.turn_id = x.turn_id"
        " WHERE x.state = 'queued'",
    ),
    (
        "T5 an open action whose call does not wait in the open message",
        f"SELECT x.thread_id, x.action_id FROM actions x {_RECENT} WHERE x.state = 'open' AND x.call_id <> ''"
        " AND NOT EXISTS (SELECT 1 FROM tool_calls c JOIN messages m ON m.scope = c.scope"
        " AND m.thread_id = c.thread_id AND m.message_id = c.message_id WHERE c.scope = x.scope"
        " AND c.thread_id = x.thread_id AND c.call_id = x.call_id AND c.state = 'waiting'"
        " AND m.status = 'open')",
    ),
    (
        "a live turn that its thread does not name",
        f"SELECT x.thread_id, x.turn_id, x.state FROM turns x {_RECENT} WHERE x.state IN {_LIVE}"
        " AND h.live_turn <> x.turn_id",
    ),
    (
        "a thread that names a turn which is not live",
        "SELECT h.thread_id, h.live_turn, x.state FROM turns x"
        " JOIN threads h ON h.scope = x.scope AND h.live_turn = x.turn_id AND h.create_time >= ?"
        f" WHERE x.state NOT IN {_LIVE}",
    ),
    (
        "a waiting turn that somebody holds",
        f"SELECT x.thread_id, x.turn_id, h.owner FROM turns x {_RECENT} WHERE x.state = 'waiting'"
        " AND h.live_turn = x.turn_id AND h.owner <> ''",
    ),
)


@contextmanager
def sqlite_rows(path: Path) -> Iterator[Query]:
    """Read a file beside the process that has it, without changing what that process will find."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
    try:
        yield lambda sql, params: db.execute(sql, params).fetchall()
    finally:
        db.close()


@contextmanager
def postgres_rows(url: str) -> Iterator[Query]:
    """Read a database on a server, each statement by itself."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        yield lambda sql, params: db.execute(sql.replace("?", "%s").encode(), params).fetchall()


def row_findings(query: Query, since: int) -> list[str]:
    """Return what must not be in threads made since a time (nanoseconds since 1970)."""
    findings = [f"{words}: {row}" for words, sql in _RULES for row in query(sql, (since,))]
    return findings + _log_findings(query, since)


def _log_findings(query: Query, since: int) -> list[str]:
    """Each log is whole: pages follow each other up to the head, the last one of an ended turn is marked."""
    findings: list[str] = []
    turns = query(
        "SELECT x.turn_id, x.state, t.next_sequence FROM turns x JOIN turn_heads t ON t.scope = x.scope"
        f" AND t.turn_id = x.turn_id {_RECENT}",
        (since,),
    )
    pages: dict[str, list[tuple[int, int, int]]] = {}
    for turn_id, first, last, flags in query(
        "SELECT p.turn_id, p.first_sequence, p.last_sequence, p.flags FROM turns x JOIN pages p"
        f" ON p.scope = x.scope AND p.turn_id = x.turn_id {_RECENT} ORDER BY p.turn_id, p.first_sequence",
        (since,),
    ):
        pages.setdefault(turn_id, []).append((first, last, flags))
    for turn_id, state, next_sequence in turns:
        due, ends = 1, []
        for first, last, flags in pages.get(turn_id, []):
            if first != due:
                findings.append(f"log of {turn_id}: page {first} where {due} is due")
            due = last + 1
            ends += [last] if flags & 1 else []
        if due != next_sequence:
            findings.append(f"log of {turn_id}: its head says {next_sequence}, its pages {due}")
        ended = state in ("completed", "failed", "cancelled")
        if ends != ([next_sequence - 1] if ended else []):
            findings.append(f"log of {turn_id} ({state}): ends at {ends}, its last is {next_sequence - 1}")
    return findings
