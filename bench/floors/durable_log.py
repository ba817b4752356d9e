"""The writer of the durable floor: one transaction a group, at least `spacing` apart, in a thread of its own.

An event is visible to its reader only after its commit. A page is encoded once: what is stored is sent.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from bench.floors.gen import floor_pb2 as pb

PAGES_A_MESSAGE = 8
# One page of a turn on its way to the disk: the turn's log, the last sequence in it, the encoded page.
Entry = tuple["TurnLog", int, bytes]


class TurnLog:
    """The log of one turn: events that wait for a commit, and pages that are committed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: list[pb.Event] = []
        self.pages: list[bytes] = []
        self.next_sequence = 1
        self.committed = 0
        self.last_sequence: int | None = None
        self._changed: asyncio.Future[None] | None = None

    def take(self) -> int:
        """The next sequence."""
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        return sequence

    def publish(self, sequence: int, page: bytes) -> None:
        """Show a committed page to the reader."""
        self.pages.append(page)
        self.committed = sequence
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def read(self) -> AsyncIterator[bytes]:
        """Yield committed pages, several as one when the reader lags: joined encodings are a longer page."""
        at = 0
        while True:
            while at < len(self.pages):
                group = self.pages[at : at + PAGES_A_MESSAGE]
                at += len(group)
                yield b"".join(group) if len(group) > 1 else group[0]
            if self.last_sequence is not None and self.committed >= self.last_sequence:
                return
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed


class GroupWriter:
    """Commits what all turns have appended, one group at a time; `spacing` is in seconds."""

    def __init__(self, path: Path, spacing: float, synchronous: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._spacing = spacing
        self._dirty: dict[TurnLog, None] = {}
        self._busy = False
        self._timer: asyncio.Handle | None = None
        self._last_flush = 0.0
        self._groups: queue.SimpleQueue[list[Entry]] = queue.SimpleQueue()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("pragma journal_mode=wal")
        self._database.execute(f"pragma synchronous={synchronous}")
        self._database.execute("pragma wal_autocheckpoint=1000")
        self._database.execute(
            "create table log(turn text, sequence integer, page blob, primary key(turn, sequence))"
            " without rowid"
        )
        threading.Thread(target=self._commit_groups, name="log-writer", daemon=True).start()

    def append(self, log: TurnLog, event: pb.Event) -> None:
        """Take an event for the next group."""
        log.waiting.append(event)
        if log not in self._dirty:
            self._dirty[log] = None
            if not self._busy and self._timer is None:
                self._arm()

    def _arm(self) -> None:
        wait = self._last_flush + self._spacing - self._loop.time()
        if wait > 0:
            self._timer = self._loop.call_later(wait, self._flush)
        else:
            self._timer = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._timer = None
        group: list[Entry] = []
        for log in self._dirty:
            events, log.waiting = log.waiting, []
            group.append((log, events[-1].sequence, pb.Page(events=events).SerializeToString()))
        self._dirty = {}
        self._last_flush = self._loop.time()
        self._busy = True
        self._groups.put(group)

    def _commit_groups(self) -> None:
        while True:
            group = self._groups.get()
            self._database.execute("begin immediate")
            rows = [(log.name, sequence, page) for log, sequence, page in group]
            self._database.executemany("insert into log values(?, ?, ?)", rows)
            self._database.execute("commit")
            self._loop.call_soon_threadsafe(self._committed, group)

    def _committed(self, group: list[Entry]) -> None:
        self._busy = False
        for log, sequence, page in group:
            log.publish(sequence, page)
        if self._dirty and self._timer is None:
            self._arm()
