"""Removes what has outlived its retention: pages of turns that ended long ago, and keys of old requests.

A transaction deletes a few pages and moves the turn's first kept sequence with them, so a reader is told what
is gone and never meets a hole. Turns, messages and results stay; an unfinished turn loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from turnwire.core.errors import TurnwireError
from turnwire.storage.reader import Reader
from turnwire.storage.units import Connection, StorageError, UnitWriter

__all__ = ["Pruned", "Pruner", "count_pages", "forget_keys", "prune_pages"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Pages and turns of one transaction: 10 ms of the writer's time, whatever the pages hold.
CHUNK_PAGES = 500
CHUNK_TURNS = 200
# Free pages of the file given back at once: 10 ms.
RECLAIM_PAGES = 200
# What others get of the writer between two transactions of a pass.
PAUSE_SECONDS = 0.02

_HOUR_NS = 3600 * 1_000_000_000
REQUESTS_KEPT_NS = 24 * _HOUR_NS
COMMANDS_KEPT_NS = 7 * 24 * _HOUR_NS

_ENDED = (
    "SELECT t.finish_time, t.scope, t.thread_id, t.turn_id FROM turns t"
    " WHERE t.finish_time > 0 AND t.pruned = 0 AND t.finish_time <= ?"
    " AND t.state IN ('completed', 'failed', 'cancelled')"
)
_ORDER = " ORDER BY t.finish_time, t.scope, t.turn_id LIMIT ?"


@dataclass(frozen=True, slots=True)
class Pruned:
    """Turns that have no pages any more, their pages, and the encoded bytes of these."""

    turns: int = 0
    pages: int = 0
    bytes: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(self.turns + other.turns, self.pages + other.pages, self.bytes + other.bytes)

    def __bool__(self) -> bool:
        return self.turns > 0 or self.pages > 0


def prune_pages(db: Connection, ended_before: int, scope: str = "", pages: int = CHUNK_PAGES) -> Pruned:
    """Delete at most so many pages of turns that ended up to a time, the oldest first; nothing = all done.

    Args:
        db: in a transaction.
        ended_before: nanoseconds of the store's clock.
        scope: only turns of this scope; empty = of all.
        pages: most pages to delete.
    """
    done = Pruned()
    for _, turn_scope, thread_id, turn_id in _ended(db, ended_before, scope, None, CHUNK_TURNS):
        done += _prune_turn(db, (turn_scope, thread_id, turn_id), pages - done.pages)
        if done.pages >= pages:
            break
    return done


def _ended(
    db: Connection, before: int, scope: str, after: tuple[int, str, str] | None, count: int
) -> list[tuple[int, str, str, str]]:
    sql = _ENDED
    values: list[int | str] = [before]
    if scope:
        sql += " AND t.scope = ?"
        values.append(scope)
    if after is not None:
        sql += " AND (t.finish_time, t.scope, t.turn_id) > (?, ?, ?)"
        values.extend(after)
    return db.execute(sql + _ORDER, (*values, count)).fetchall()


def _prune_turn(db: Connection, turn: tuple[str, str, str], most: int) -> Pruned:
    scope, _, turn_id = turn
    key = (scope, turn_id)
    # Another process may prune the same turn: its row is the lock.
    db.execute(
        "UPDATE turn_heads SET first_kept_sequence = first_kept_sequence WHERE scope = ? AND turn_id = ?", key
    )
    found = db.execute(
        "SELECT first_sequence, last_sequence, length(body) FROM pages WHERE scope = ? AND turn_id = ?"
        " ORDER BY first_sequence LIMIT ?",
        (*key, most + 1),
    ).fetchall()
    doomed = found[:most]
    size = sum(row[2] for row in doomed)
    if doomed:
        first, last, _ = doomed[-1]
        db.execute(
            "UPDATE turn_heads SET first_kept_sequence = ? WHERE scope = ? AND turn_id = ?", (last + 1, *key)
        )
        db.execute("DELETE FROM pages WHERE scope = ? AND turn_id = ? AND first_sequence <= ?", (*key, first))
    if len(found) > most:
        return Pruned(0, len(doomed), size)
    db.execute(
        "UPDATE turn_heads SET first_kept_sequence = next_sequence WHERE scope = ? AND turn_id = ?", key
    )
    marked = db.execute(
        "UPDATE turns SET pruned = 1 WHERE scope = ? AND thread_id = ? AND turn_id = ? AND pruned = 0", turn
    ).rowcount
    return Pruned(marked, len(doomed), size)


def count_pages(
    db: Connection, ended_before: int, scope: str, after: tuple[int, str, str] | None
) -> tuple[Pruned, tuple[int, str, str] | None]:
    """Count what `prune_pages` would delete in some turns; returns where to go on, too, None at the end."""
    rows = _ended(db, ended_before, scope, after, CHUNK_TURNS)
    total = Pruned(len(rows))
    for _, turn_scope, _, turn_id in rows:
        pages, size = db.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM pages WHERE scope = ? AND turn_id = ?",
            (turn_scope, turn_id),
        ).fetchone()
        total += Pruned(0, pages, int(size))
    last = rows[-1] if len(rows) == CHUNK_TURNS else None
    return total, None if last is None else (last[0], last[1], last[3])


def forget_keys(db: Connection) -> int:
    """Delete some keys of requests (after 24 h) and of commands (after 7 days); returns how many."""
    now = db.now_ns()
    requests = db.execute(
        "DELETE FROM requests WHERE (scope, operation, request_id) IN (SELECT scope, operation, request_id"
        " FROM requests WHERE create_time < ? ORDER BY create_time LIMIT ?)",
        (now - REQUESTS_KEPT_NS, CHUNK_PAGES),
    ).rowcount
    commands = db.execute(
        "DELETE FROM applied_commands WHERE (scope, command_id) IN (SELECT scope, command_id"
        " FROM applied_commands WHERE create_time < ? ORDER BY create_time LIMIT ?)",
        (now - COMMANDS_KEPT_NS, CHUNK_PAGES),
    ).rowcount
    return requests + commands


class Pruner:
    """Prunes a store a little at a time; several may work on one store, in this process and in others.

    Args:
        writer: of the store.
        reader: of the store.
        retention: seconds for which the events of an ended turn are kept.
        pause: seconds between two transactions of a pass.
    """

    def __init__(
        self, writer: UnitWriter, reader: Reader, retention: float, *, pause: float = PAUSE_SECONDS
    ) -> None:
        self.retention = retention
        self._writer = writer
        self._reader = reader
        self._pause = pause

    async def run(self, interval: float) -> None:
        """Remove what has outlived its retention, now and every `interval` seconds, until cancelled."""
        while True:
            try:
                await self.prune()
                while await self._paced(forget_keys):
                    pass
            except (TurnwireError, StorageError) as error:
                logger.warning("store.prune_failed", exc_info=error)
            await asyncio.sleep(interval)

    async def prune(self, older_than: float | None = None, scope: str = "") -> Pruned:
        """Delete the pages of turns that ended so long ago, and give their room in the file back.

        Args:
            older_than: seconds since the end; None = the retention.
            scope: only turns of this scope; empty = of all.

        Raises:
            StoreUnavailable: the writer has ended; what was deleted until then is.
        """
        before = self._before(await self._writer.run(_now), older_than)
        total = Pruned()
        while chunk := await self._paced(partial(_prune_chunk, before=before, scope=scope)):
            total += chunk
        if total:
            while await self._paced(_reclaim):
                pass
            fields = {"turns": total.turns, "pages": total.pages, "size_bytes": total.bytes}
            logger.info("store.pruned", extra=fields)
        return total

    async def count(self, older_than: float | None = None, scope: str = "") -> Pruned:
        """Say what `prune` would delete now, and delete nothing."""
        before = self._before(await self._reader.read(_now), older_than)
        total, after, more = Pruned(), None, True
        while more:
            read = partial(count_pages, ended_before=before, scope=scope, after=after)
            found, after = await self._reader.read(read)
            total += found
            more = after is not None
        return total

    def _before(self, now: int, older_than: float | None) -> int:
        return now - round((self.retention if older_than is None else older_than) * 1e9)

    async def _paced(self, fn: Callable[[Connection], T]) -> T:
        result = await self._writer.run(fn, "prune")
        if result:
            await asyncio.sleep(self._pause)
        return result


def _prune_chunk(db: Connection, before: int, scope: str) -> Pruned:
    return prune_pages(db, before, scope)


def _now(db: Connection) -> int:
    return db.now_ns()


def _reclaim(db: Connection) -> int:
    return db.reclaim(RECLAIM_PAGES)
