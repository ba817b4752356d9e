"""What readers of streams have in common: a heartbeat when they are silent, an end when nothing is taken."""

from __future__ import annotations

import asyncio
import time

from turnwire.core.errors import Unavailable

__all__ = ["AttachedReader", "ReaderTicker"]

# How long a reader may take nothing before its stream ends.
STALL_SECONDS = 300.0


class ReaderTicker:
    """Looks after attached readers by one timer for all.

    Silent ones get their heartbeat, stuck ones their end, and all are woken when the process leaves.
    """

    def __init__(self, heartbeat: float, stall: float = STALL_SECONDS) -> None:
        self.heartbeat = heartbeat
        # A reader is never taken for stuck between two of its heartbeats.
        self.stall = max(stall, 2 * heartbeat)
        self._readers: set[AttachedReader] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.leaving = False

    @property
    def readers(self) -> int:
        """Readers attached now."""
        return len(self._readers)

    def wall_time(self) -> int:
        """Return nanoseconds since the epoch."""
        return time.time_ns()

    def add(self, reader: AttachedReader) -> None:
        """Begin to look after a reader."""
        self._readers.add(reader)
        if self._timer is None:
            self._arm()

    def remove(self, reader: AttachedReader) -> None:
        """Forget a reader."""
        self._readers.discard(reader)

    def send_away(self) -> None:
        """End every reader that has all there is: nothing more comes from this process."""
        self.leaving = True
        for reader in tuple(self._readers):
            reader.wake()

    def _arm(self) -> None:
        delay = self.heartbeat / 4
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._readers:
            return
        now = asyncio.get_running_loop().time()
        for reader in tuple(self._readers):
            if not reader.beat_if_silent_since(now - self.heartbeat):
                reader.end_if_stuck_since(now - self.stall)
        self._arm()


class AttachedReader:
    """A stream's place among the readers of this process; made by the task that writes the stream.

    A subclass sets `_sent_at` before each item that it yields and waits only through `_waiting`.
    """

    def __init__(self, ticker: ReaderTicker) -> None:
        self._ticker = ticker
        self._sent_at = asyncio.get_running_loop().time()
        self._waiting: asyncio.Future[None] | None = None
        self._beat = False
        self._task = asyncio.current_task()
        self._stalled = False
        ticker.add(self)

    def close(self) -> None:
        """Let go; may be called from any task, also after the end."""
        self._ticker.remove(self)

    def beat_if_silent_since(self, due: float) -> bool:
        """Wake the reader for a heartbeat when it has been waiting since before `due`; returns whether so."""
        if self._sent_at > due or not self.wake():
            return False
        self._beat = True
        return True

    def end_if_stuck_since(self, due: float) -> None:
        """Interrupt the write that has not ended since before `due`: see `raise_if_stalled`."""
        if self._sent_at > due or self._waiting is not None or self._stalled or self._task is None:
            return
        self._stalled = True
        self._task.cancel("the reader takes nothing")

    def raise_if_stalled(self) -> None:
        """Say why the stream's task was interrupted, if it was because nothing was taken.

        Raises:
            Unavailable: READER_STALLED.
        """
        if not self._stalled:
            return
        if self._task is not None:
            self._task.uncancel()
        raise Unavailable(
            f"the reader took nothing for {self._ticker.stall:g} s: attach again",
            reason="READER_STALLED",
            retry_after=0.1,
        )

    def wake(self) -> bool:
        """Have a waiting reader look again; returns whether it was waiting."""
        waiting = self._waiting
        if waiting is None or waiting.done():
            return False
        waiting.set_result(None)
        return True

    def leave_if_asked(self) -> None:
        """End a reader that has all there is when the process leaves. Raises Unavailable (DRAINING)."""
        if self._ticker.leaving:
            text = "this runtime is about to leave: attach again"
            raise Unavailable(text, reason="DRAINING", retry_after=0.5)
