"""A reader at one process of a turn that another one runs: tokens reach it by word, not by the next look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support.postgres import Location, PostgresServer
from support.runtime_rig import begin, end, events, open_store
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.store.following import Following
from turnwire.runtime.store.log import TurnLog
from turnwire.runtime.store.turn_store import TurnStore


class Looks:
    """The dispatcher of a process: it looks after what is read there on word alone, never by the clock."""

    def __init__(self, store: TurnStore) -> None:
        self._store = store
        self._moved = asyncio.Event()
        store.listen(self)

    def wake(self, thread: ThreadKey) -> None:
        """Nothing is to be run here."""

    def moved(self) -> None:
        """Word of a turn."""
        self._moved.set()

    look = moved

    async def run(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            await self._store.look_after_watched()


@pytest.fixture
async def pair(postgres: PostgresServer) -> AsyncIterator[tuple[TurnStore, TurnStore]]:
    url: Location = postgres.fresh()
    async with open_store(url) as owner, open_store(url) as other:
        yield owner, other
    postgres.drop(url)


async def test_tokens_reach_a_reader_elsewhere_by_word(pair: tuple[TurnStore, TurnStore]) -> None:
    owner, other = pair
    Looks(owner)
    looks = Looks(other)
    async with asyncio.timeout(30):
        key, journal = await begin(owner)
        following = asyncio.create_task(looks.run())
        row, log = await other.follow(key)
        reading = other.reader(key, log, 0, row.last_sequence)
        pages = aiter(reading)
        got = events([await anext(pages)])
        for number in range(5):
            # The owner hears of the reader by word too, so the first token may have to wait for that.
            while not owned(owner, key).followed_until:
                await asyncio.sleep(0)
            journal.emit(TextDelta(f"token {number}"))
            got += events([await anext(pages)])
            assert got[-1].llm.text_delta.text == f"token {number}"
        await end(journal)
        got += events([page async for page in pages])
    assert [event.sequence for event in got] == list(range(1, len(got) + 1))
    assert got[-1].HasField("turn_finished")
    following.cancel()
    await asyncio.wait({following})
    reading.close()


def owned(store: TurnStore, key: TurnKey) -> TurnLog:
    log = store.log_of(key)
    assert log is not None
    return log


class Clock:
    """The running loop with a time of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self.later.append((self.now + delay, callback))
        return object()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [callback for at, callback in self.later if at <= self.now]
        self.later = [(at, callback) for at, callback in self.later if at > self.now]
        for callback in due:
            callback()


KEY = TurnKey("org", "thread-1", "turn-0001")


def log_at(epoch: int) -> TurnLog:
    writer: Any = None
    return TurnLog(writer, lambda turn, record: b"", KEY, epoch, 1)


def test_word_is_asked_for_once_a_second_and_never_of_an_own_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Clock(monkeypatch), list[TurnKey]()
    following = Following(asked.append, lambda key: None)
    log = log_at(0)
    for _ in range(21):
        following.ask(log)
        clock.advance(0.125)
    following.ask(log_at(1))
    assert len(asked) == 3


def test_word_goes_out_while_somebody_has_asked_lately_and_at_a_distance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, told = Clock(monkeypatch), list[TurnKey]()
    following = Following(lambda key: None, told.append)
    log = log_at(1)
    following.asked(log)
    for _ in range(5):
        following.progress(log)
        clock.advance(0.005)
    # The first at once, the others together.
    assert told == [KEY]
    clock.advance(0.01)
    assert told == [KEY, KEY]
    clock.advance(4.0)
    following.progress(log)
    clock.advance(1.0)
    assert told == [KEY, KEY]
    assert log.followed_until == 0.0
    following.asked(None)
    following.asked(log_at(0))
