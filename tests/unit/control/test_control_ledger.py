"""The ledger on its file: the first outcome stands, numbers are never given twice, texts are not kept."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from turnwire.control.domain import CommandKind, CommandRow, CommandState, Outcome, OutcomeKind, Target
from turnwire.control.filters import CommandFilter
from turnwire.control.ledger import SqliteLedger
from turnwire.control.ports import Stored
from turnwire.control.supervisor import Supervisor
from turnwire.core.errors import TurnwireError
from turnwire.storage.database import Database, database_at

TURN = "threads/thread-1/turns/turn-1"
DONE = Outcome(OutcomeKind.APPLIED, turn=TURN, applied_sequence=5, message="done", decide_time=2_000)


class Book:
    """A ledger whose callbacks can be awaited."""

    def __init__(self, ledger: SqliteLedger, database: Database) -> None:
        self.ledger = ledger
        self.database = database

    async def call(self, method: Callable[[CommandRow, Stored], None], row: CommandRow) -> CommandRow | None:
        answer: asyncio.Future[CommandRow | None] = asyncio.get_running_loop().create_future()

        def done(stored: CommandRow | None, error: TurnwireError | None) -> None:
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(stored)

        method(row, done)
        async with asyncio.timeout(20):
            return await answer


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[Book]:
    failures: list[BaseException] = []
    database = database_at(tmp_path / "control.db", "turnwire.control", on_fatal=failures.append)
    await database.open()
    supervisor = Supervisor(failures.append)
    yield Book(SqliteLedger(database, supervisor), database)
    await supervisor.close()
    await database.close()
    assert not failures


def row(n: int = 1, **changes: object) -> CommandRow:
    base = CommandRow(
        scope="acme",
        command_id=f"cmd-{n:05}",
        fingerprint="f",
        kind=CommandKind.CANCEL_TURN,
        target=Target(turn=TURN),
        subject="alice",
        client_id="client",
        create_time=1_000,
        expire_time=300_000_001_000,
        entry=n,
        position=n,
        state=CommandState.ACCEPTED,
        ttl_seconds=300.0,
        clear_queue=True,
        size=4,
        offered=True,
        body=b"the encoded command",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def ended(n: int, position: int, outcome: Outcome = DONE, **changes: object) -> CommandRow:
    return row(n, state=CommandState.DONE, outcome=outcome, position=position, body=None, **changes)


async def test_a_row_comes_back_as_it_went_in(book: Book) -> None:
    assert await book.call(book.ledger.insert, row()) is None
    assert await book.ledger.find(("acme", "cmd-00001")) == row()
    assert await book.ledger.find(("other", "cmd-00001")) is None


async def test_a_taken_key_gives_the_row_that_has_it(book: Book) -> None:
    await book.call(book.ledger.insert, row())
    assert await book.call(book.ledger.insert, row(2, command_id="cmd-00001", fingerprint="g")) == row()
    assert (await book.ledger.find(("acme", "cmd-00001"))) == row()


async def test_the_first_outcome_stands_and_the_body_goes(book: Book) -> None:
    await book.call(book.ledger.insert, row())
    first = ended(1, 2, bound_turn=TURN)
    assert await book.call(book.ledger.finish, first) is None
    second = ended(1, 3, Outcome(OutcomeKind.EXPIRED, decide_time=9))
    assert await book.call(book.ledger.finish, second) == first
    assert await book.call(book.ledger.update, row(bound_turn="threads/x/turns/y")) == first
    assert await book.ledger.find(("acme", "cmd-00001")) == first


async def test_recovery_finds_open_rows_the_last_number_and_cancels(book: Book) -> None:
    for n in (1, 2, 3):
        await book.call(book.ledger.insert, row(n))
    await book.call(book.ledger.update, row(3, bound_turn=TURN, position=7, state=CommandState.DELIVERED))
    await book.call(book.ledger.finish, ended(1, 9))
    found = await book.ledger.recover()
    assert [r.command_id for r in found.open] == ["cmd-00002", "cmd-00003"]
    assert found.open[1].bound_turn == TURN
    assert found.last == 9
    assert [r.command_id for r in found.finished] == ["cmd-00001"]


async def test_outcomes_of_a_client_come_in_the_order_of_their_position(book: Book) -> None:
    for n in (1, 2, 3):
        await book.call(book.ledger.insert, row(n, client_id="client" if n != 2 else "other"))
    await book.call(book.ledger.finish, ended(3, 4))
    await book.call(book.ledger.finish, ended(2, 5, client_id="other"))
    await book.call(book.ledger.finish, ended(1, 6))
    assert [r.entry for r in await book.ledger.outcomes("acme", "client", 0, 10)] == [3, 1]
    assert [r.entry for r in await book.ledger.outcomes("acme", "client", 4, 10)] == [1]
    assert [r.entry for r in await book.ledger.changes("acme", 4, 10)] == [2, 1]
    assert [r.entry for r in await book.ledger.ended("acme", CommandFilter(), 3, 10)] == [2, 1]
    terms = CommandFilter(outcome="applied", turn=TURN, subject="alice", thread="threads/thread-1")
    assert [r.entry for r in await book.ledger.ended("acme", terms, 100, 1)] == [3]


async def test_retention_deletes_old_outcomes_only_and_numbers_go_on(book: Book) -> None:
    for n in range(1, 1203):
        book.ledger.insert(row(n), lambda stored, error: None)
    for n in range(1, 1202):
        old = n != 1201
        outcome = replace(DONE, decide_time=100 if old else 10_000)
        book.ledger.finish(ended(n, 2000 + n, outcome), lambda stored, error: None)
    assert await book.ledger.prune(5_000) == 1200
    left = await book.ledger.recover()
    assert [r.entry for r in left.open] == [1202]
    assert await book.ledger.find(("acme", "cmd-01201")) is not None
    assert await book.ledger.prune(50_000) == 1
    assert (await book.ledger.recover()).last == 3201
    assert await book.ledger.prune(50_000) == 0


async def test_no_text_of_a_command_is_in_the_file_once_it_has_ended(book: Book, tmp_path: Path) -> None:
    await book.call(book.ledger.insert, row(body=b"a secret cause"))
    await book.call(book.ledger.finish, ended(1, 2))
    with sqlite3.connect(tmp_path / "control.db") as db:
        dump = "\n".join(db.iterdump())
    db.close()
    assert "secret" not in dump
