"""Store files of any size, made fast: rows as turns leave them, in the order of the keys."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from turnwire.storage.migrate import load_migrations, migrate
from turnwire.storage.sqlite import connect

SCOPE = "bench-org"
AGENT = "agents/bench"
PAGES = 2
PAGE_BYTES = 1500
TEXT_BYTES = 200


def thread_id(number: int) -> str:
    """The id of a thread."""
    return f"thread-{number:012d}"


def build(path: Path, threads: int, messages: int) -> None:
    """Make a runtime's store in which each thread has so many messages and a turn with its log.

    Args:
        path: the file to be made.
        threads: how many threads.
        messages: of each; users' and the assistant's in turn.
    """
    with closing(connect(path)) as db:
        migrate(db, load_migrations("turnwire.runtime"))
        triggers = [row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        # A file that is lost halfway is simply made again.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "foreign_keys=OFF", "cache_size=-200000"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("BEGIN")
        _fill(db, threads, messages)
        for trigger in triggers:
            db.execute(trigger)
        db.execute("COMMIT")


def _fill(db: sqlite3.Connection, threads: int, messages: int) -> None:
    now = time.time_ns()
    db.executemany(
        "INSERT INTO threads (scope, thread_id, agent, version, next_position, create_time, update_time)"
        f" VALUES ('{SCOPE}', ?, '{AGENT}', {messages + 2}, {messages + 1}, ?, ?)",
        ((thread_id(n), now - n, now - n) for n in range(threads)),
    )
    db.executemany(
        "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, create_time,"
        f" update_time, change_version) VALUES ('{SCOPE}', ?, ?, ?, ?, ?, 'final', ?, ?, ?)",
        _messages(threads, messages, now),
    )
    db.executemany(
        "INSERT INTO message_parts (scope, thread_id, message_id, part_index, step, kind, text)"
        f" VALUES ('{SCOPE}', ?, ?, 0, 1, 'text', ?)",
        _parts(threads, messages),
    )
    db.executemany(
        "INSERT INTO turns (scope, thread_id, turn_id, state, agent, agent_digest, request_id, fingerprint,"
        " spec, max_steps, stop_reason, create_time, start_time, finish_time)"
        f" VALUES ('{SCOPE}', ?, ?, 'completed', '{AGENT}', ?, ?, ?, ?, 30, 'completed', ?, ?, ?)",
        _turns(threads, now),
    )
    db.executemany(
        f"INSERT INTO turn_heads (scope, turn_id, epoch, next_sequence) VALUES ('{SCOPE}', ?, 1, ?)",
        ((f"turn-{n:012d}", PAGES * 8 + 1) for n in range(threads)),
    )
    body = random.Random(1).randbytes(PAGE_BYTES)
    db.executemany(
        "INSERT INTO pages (scope, turn_id, first_sequence, last_sequence, flags, body)"
        f" VALUES ('{SCOPE}', ?, ?, ?, ?, ?)",
        (
            (f"turn-{n:012d}", p * 8 + 1, p * 8 + 8, int(p == PAGES - 1), body)
            for n in range(threads)
            for p in range(PAGES)
        ),
    )


def _messages(threads: int, messages: int, now: int) -> Iterator[tuple[Any, ...]]:
    for n in range(threads):
        thread, turn = thread_id(n), f"turn-{n:012d}"
        for m in range(messages):
            role = "assistant" if m % 2 else "user"
            yield thread, m + 1, f"message-{m:08d}", role, turn, now, now, m + 1


def _parts(threads: int, messages: int) -> Iterator[tuple[Any, ...]]:
    text = "what was said, " * (TEXT_BYTES // 15)
    for n in range(threads):
        thread = thread_id(n)
        for m in range(messages):
            yield thread, f"message-{m:08d}", text


def _turns(threads: int, now: int) -> Iterator[tuple[Any, ...]]:
    digest = "d" * 64
    for n in range(threads):
        thread = thread_id(n)
        spec = json.dumps({"thread": f"threads/{thread}", "parts": [{"kind": "text", "text": "hello"}]})
        yield thread, f"turn-{n:012d}", digest, f"request-{n:029d}", digest, spec, now, now, now
