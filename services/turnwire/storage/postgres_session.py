"""One connection beside writer and readers: word to and from other processes, and names that are held.

Word may be lost, as when the connection is: whoever listens is told so and looks for himself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg import pq

from turnwire.storage.postgres import PgConnection, describe

__all__ = ["PgSession"]

logger = logging.getLogger(__name__)

# The server takes up to 7999 bytes at once.
_MOST_BYTES = 7900
_SPACING_SECONDS = 0.005
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
# How often a name that another process has taken meanwhile is asked for again.
_NAME_SECONDS = 5.0


def _lock_number(channel: str, name: str) -> int:
    digest = hashlib.sha256(f"{channel}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class PgSession:
    """A thread with its own connection, which it opens anew for as long as it lives.

    Args:
        connect: opens the connection.
        channel: what the processes of one store have in common.
        on_word: called on the loop with each payload of another process; empty = some may be lost.
    """

    def __init__(
        self, connect: Callable[[], PgConnection], channel: str, on_word: Callable[[str], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._on_word = on_word
        self._lock = threading.Lock()
        self._words: dict[str, None] = {}
        self._claims: list[tuple[str, asyncio.Future[bool]]] = []
        self._held: set[str] = set()
        self._missing: set[str] = set()
        self._retry_names_at = 0.0
        self._stop = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._signalled = False
        self._thread = threading.Thread(target=self._run, name="storage-session", daemon=True)

    def start(self) -> None:
        """Start the thread; call it on the loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        """Send what waits, give the names back and end the thread; blocks."""
        with self._lock:
            self._stop = True
        self._signal()
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def notify(self, payload: str) -> None:
        """Have a payload sent to the other processes, soon."""
        with self._lock:
            self._words[payload] = None
        self._signal()

    async def claim(self, name: str) -> bool:
        """Take a name unless another process has it; keeps it over reconnects."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._stop:
                return False
            self._claims.append((name, future))
        self._signal()
        return await future

    def _signal(self) -> None:
        if not self._signalled:
            self._signalled = True
            os.write(self._wake_write, b"x")

    def _run(self) -> None:
        wait = _FIRST_WAIT
        lost = False
        while not self._stopping():
            try:
                db = self._connect()
            except psycopg.Error as error:
                logger.warning("storage.session_failed", extra={"error": describe(error)})
                self._answer_claims(False)
                self._pause(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
                continue
            try:
                self._begin(db, lost)
                wait = _FIRST_WAIT
                self._serve(db)
            except psycopg.Error as error:
                lost = True
                logger.warning("storage.session_lost", extra={"error": describe(error)})
                self._pause(wait)
            finally:
                db.close()
        self._answer_claims(False)

    def _stopping(self) -> bool:
        with self._lock:
            return self._stop and not self._words

    def _pause(self, seconds: float) -> None:
        """Wait for a while, or until the session is to end: then nothing is sent any more."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                if self._stop:
                    self._words.clear()
                    return
            left = until - time.monotonic()
            if left <= 0:
                return
            if poll.poll(left * 1000):
                self._drain()

    def _begin(self, db: PgConnection, lost: bool) -> None:
        db.command(f'LISTEN "{self._channel}"')
        if lost:
            self._post(self._on_word, "")
        for name in sorted(self._held | self._missing):
            self._take(db, name)

    def _serve(self, db: PgConnection) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(db.pgconn.socket, select.POLLIN)
        while True:
            self._claim_asked(db)
            sent = self._send(db)
            self._hear(db)
            with self._lock:
                ending = self._stop and not self._words
            if ending:
                # At once, not when the server has noticed that the connection is gone.
                db.execute("SELECT pg_advisory_unlock_all()")
                return
            if sent:
                time.sleep(_SPACING_SECONDS)  # what comes meanwhile goes out together
            waiting = _NAME_SECONDS * 1000 if self._missing else None
            for fd, _ in poll.poll(waiting):
                if fd == self._wake_read:
                    self._drain()
                else:
                    db.pgconn.consume_input()
                    if db.pgconn.status == pq.ConnStatus.BAD:
                        raise psycopg.OperationalError("the connection is lost")
            if self._missing and time.monotonic() >= self._retry_names_at:
                for name in sorted(self._missing):
                    self._take(db, name)

    def _drain(self) -> None:
        # In this order: a signal of the moment between is not written, but what it is about is looked at.
        # The other way round its byte would be taken with the others, and no signal be written ever again.
        os.read(self._wake_read, 4096)
        self._signalled = False

    def _claim_asked(self, db: PgConnection) -> None:
        with self._lock:
            claims, self._claims = self._claims, []
        for place, (name, future) in enumerate(claims):
            try:
                taken = self._take(db, name)
            except BaseException:
                with self._lock:
                    self._claims = claims[place:] + self._claims
                raise
            self._missing.discard(name)
            self._post(_settle, future, taken)

    def _take(self, db: PgConnection, name: str) -> bool:
        number = _lock_number(self._channel, name)
        taken = bool(db.execute("SELECT pg_try_advisory_lock(?)", (number,)).fetchone()[0])
        if taken:
            self._held.add(name)
            self._missing.discard(name)
        elif name in self._held:
            self._held.discard(name)
            self._missing.add(name)
            logger.error("storage.name_lost", extra={"holder": name})
        if self._missing:
            self._retry_names_at = time.monotonic() + _NAME_SECONDS
        return taken

    def _send(self, db: PgConnection) -> bool:
        with self._lock:
            words, self._words = list(self._words), {}
        if not words:
            return False
        batch: list[str] = []
        size = 0
        for word in words:
            length = len(word.encode()) + 1
            if batch and size + length > _MOST_BYTES:
                self._notify(db, batch)
                batch, size = [], 0
            batch.append(word)
            size += length
        self._notify(db, batch)
        return True

    def _notify(self, db: PgConnection, batch: list[str]) -> None:
        db.execute("SELECT pg_notify(?, ?)", (self._channel, "\n".join(batch)))

    def _hear(self, db: PgConnection) -> None:
        own = db.backend_pid
        while (word := db.pgconn.notifies()) is not None:
            if word.be_pid != own:
                for payload in word.extra.decode().split("\n"):
                    self._post(self._on_word, payload)

    def _answer_claims(self, answer: bool) -> None:
        with self._lock:
            claims, self._claims = self._claims, []
        for _, future in claims:
            self._post(_settle, future, answer)

    def _post(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody is left to hear it
            logger.info("storage.loop_closed")


def _settle(future: asyncio.Future[bool], answer: bool) -> None:
    if not future.done():
        future.set_result(answer)
