"""The writer: order, grouping, isolation, cancellation, bounds, end."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwire.storage.units import Connection, Statement, StoreUnavailable, Unit, UnitFenced, UnitRejected
from turnwire.storage.worker import Committer
from unit.storage.storage_rig import INSERT, Gate, Gathering, Place, advance, entries, insert, running


@pytest.fixture
def path(fresh_location: Callable[..., Place]) -> Place:
    """Each test runs on each engine."""
    return fresh_location("")


async def test_a_unit_is_readable_from_elsewhere_when_done_is_called(path: Place) -> None:
    async with running(path) as rig:
        await rig.unit("a", insert("a", 1), insert("a", 2))
        assert entries(path) == [("a", 1), ("a", 2)]


async def test_what_one_turn_of_the_loop_hands_in_is_one_group(path: Place) -> None:
    async with running(path) as rig:
        futures = [rig.unit(f"k{n}", insert(f"k{n}", 1)) for n in range(7)]
        for future in futures:
            await future
        assert rig.stats.groups == 1
        assert rig.stats.largest_group == rig.stats.units == 7


async def test_what_comes_during_a_commit_forms_the_next_group(path: Place) -> None:
    gates: list[Gate] = []

    def wrap(committer: Committer) -> Gate:
        gates.append(Gate(committer))
        return gates[0]

    async with running(path, wrap=wrap) as rig:
        first = rig.unit("a", insert("a", 1))
        gate = gates[0]
        await gate.reached()
        source = Gathering(rig, "b")
        for _ in range(5):
            source.add()
        later = [rig.unit("c", insert("c", 1)), rig.unit("c", insert("c", 2))]
        gate.go.release()
        await first
        await gate.reached()
        gate.go.release()
        await later[1]
        assert later[0].done()
        assert gate.groups == [1, 3]
        assert source.units == 1
        assert source.committed == [1, 2, 3, 4, 5]


async def test_a_source_may_mark_itself_again_while_it_is_taken(path: Place) -> None:
    class Paged(Gathering):
        def take(self) -> Unit | None:
            rest, self.gathered = self.gathered[1:], self.gathered[:1]
            unit = super().take()
            self.gathered = rest
            if rest:
                self.rig.writer.mark(self)
            return unit

    async with running(path) as rig:
        source = Paged(rig, "a")
        for _ in range(4):
            source.add()
        await source.settled.wait()
        assert source.units == 4
        assert entries(path) == [("a", n) for n in (1, 2, 3, 4)]


async def test_a_source_with_nothing_to_give_makes_no_group(path: Place) -> None:
    async with running(path) as rig:
        source = Gathering(rig, "a")
        rig.writer.mark(source, size=100)
        assert rig.writer.pending_bytes == 100
        await rig.unit("b", insert("b", 1))
        assert rig.writer.pending_bytes == 0
        assert rig.stats.units == 1


async def test_only_urgent_groups_ignore_the_minimum_distance(path: Place) -> None:
    async with running(path, spacing=3600) as rig:
        await rig.unit("a", insert("a", 1), urgent=False)
        waiting = rig.unit("a", insert("a", 2), urgent=False)
        source = Gathering(rig, "b")
        source.add()
        await rig.writer.commit([insert("c", 1)])
        assert waiting.done()
        assert source.committed == [1]
        assert rig.stats.groups == 2


async def test_a_unit_that_is_not_urgent_waits_for_the_distance_and_no_longer(path: Place) -> None:
    async with running(path, spacing=0.05) as rig:
        source = Gathering(rig, "a")
        for _ in range(2):
            source.add()
            await source.settled.wait()
        assert source.taken_at[1] - source.taken_at[0] >= 0.05


async def test_a_fence_refuses_its_unit_alone_and_without_a_second_transaction(path: Place) -> None:
    async with running(path, keys=["a", "b"]) as rig:
        good = rig.unit("a", advance("a", 1), insert("a", 1))
        late = rig.unit("b", advance("b", 7), insert("b", 7))
        await good
        with pytest.raises(UnitFenced) as caught:
            await late
        assert caught.value.key == "b"
        assert entries(path) == [("a", 1)]
        # The file is asked before anything of the unit is written; a server is sent all of it at once.
        assert rig.stats.isolated_groups == (0 if isinstance(path, Path) else 1)
        assert rig.stats.fenced == 1


async def test_a_fence_behind_a_write_undoes_that_write(path: Place) -> None:
    async with running(path, keys=["a", "b"]) as rig:
        outcomes = [
            rig.unit("a", insert("a", 1), advance("a", 1)),
            rig.unit("b", insert("b", 7), advance("b", 7)),
            rig.unit("c", insert("c", 1)),
        ]
        await outcomes[0]
        await outcomes[2]
        with pytest.raises(UnitFenced):
            await outcomes[1]
        assert entries(path) == [("a", 1), ("c", 1)]
        assert rig.stats.isolated_groups == 1


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(Statement(INSERT, ("x", 1, None)), id="constraint"),
        pytest.param(Statement(INSERT, ("x", 2**70, "")), id="number-too-large"),
        pytest.param(Statement(INSERT, ("x", 1, "\ud800")), id="encoding"),
        pytest.param(Statement(INSERT, ("x", 1)), id="missing-value"),
        pytest.param(Statement("INSERT INTO nowhere VALUES (1)"), id="unknown-table"),
        pytest.param(Statement("INSERT OR ROLLBACK INTO heads VALUES ('a', 1)"), id="rolls-back-by-itself"),
    ],
)
@pytest.mark.parametrize("leading", [0, 1])
async def test_data_that_cannot_be_stored_rejects_its_unit_alone(
    path: Place, bad: Statement, leading: int
) -> None:
    async with running(path, keys=["a"]) as rig:
        before = rig.unit("a", insert("a", 1))
        failing = rig.unit("x", *[insert("x", 9)] * leading, bad)
        after = rig.unit("b", insert("b", 1))
        await before
        await after
        with pytest.raises(UnitRejected) as caught:
            await failing
        assert caught.value.__cause__ is not None
        assert entries(path) == [("a", 1), ("b", 1)]
        assert rig.health == []
        assert rig.stats.rejected == 1


async def test_a_constraint_that_shows_at_the_commit_rejects_its_unit_alone(path: Place) -> None:
    deferred = "CREATE TABLE child (key TEXT REFERENCES heads (key) DEFERRABLE INITIALLY DEFERRED)"
    async with running(path, keys=["a"]) as rig:
        await rig.writer.run(lambda db: db.execute(deferred) and None)
        good = rig.unit("a", insert("a", 1))
        orphan = rig.unit("b", Statement("INSERT INTO child VALUES ('nobody')"))
        await good
        with pytest.raises(UnitRejected):
            await orphan
        assert entries(path) == [("a", 1)]


async def test_run_reads_and_writes_in_the_order_of_the_group(path: Place) -> None:
    def claim(db: Connection) -> int:
        (number,) = db.execute("SELECT max(number) FROM entries").fetchone()
        db.execute(INSERT, ("run", number + 1, "body"))
        return int(number)

    async with running(path) as rig:
        first = rig.unit("a", insert("a", 41))
        running_call = asyncio.ensure_future(rig.writer.run(claim))
        assert await running_call == 41
        assert first.done()
        assert entries(path) == [("a", 41), ("run", 42)]


async def test_what_run_raises_undoes_only_its_own_writes_and_reaches_the_caller(path: Place) -> None:
    class Refusal(Exception):
        pass

    def refuse(db: Connection) -> None:
        db.execute(INSERT, ("run", 1, "body"))
        raise Refusal

    def duplicate(db: Connection) -> None:
        db.execute(INSERT, ("a", 1, "body"))

    async with running(path) as rig:
        good = rig.unit("a", insert("a", 1))
        with pytest.raises(Refusal):
            await rig.writer.run(refuse)
        with pytest.raises(UnitRejected):
            await rig.writer.run(duplicate)
        await good
        assert entries(path) == [("a", 1)]
        assert rig.stats.isolated_groups == 0


async def test_a_cancel_during_a_commit_waits_for_its_result(path: Place) -> None:
    gates: list[Gate] = []

    def wrap(committer: Committer) -> Gate:
        gates.append(Gate(committer))
        return gates[0]

    async with running(path, wrap=wrap) as rig:
        task = asyncio.ensure_future(rig.writer.commit([insert("a", 1)], "a"))
        await gates[0].reached()
        task.cancel()
        turn_of_the_loop = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn_of_the_loop.set_result, None)
        await turn_of_the_loop
        assert not task.done()
        gates[0].go.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert entries(path) == [("a", 1)]


async def test_a_timeout_that_meets_a_commit_is_raised_after_it(path: Place) -> None:
    gates: list[Gate] = []

    def wrap(committer: Committer) -> Gate:
        gates.append(Gate(committer))
        gates[0].go.release()
        return gates[0]

    async with running(path, wrap=wrap) as rig:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await rig.writer.commit([insert("a", 1)])
        assert entries(path) == [("a", 1)]


async def test_room_ends_at_the_limits_and_comes_back_with_the_commit(path: Place) -> None:
    async with running(path, key_limit=100, total_limit=150) as rig:
        writer = rig.writer
        first = rig.unit("a", insert("a", 1), size=99)
        assert writer.has_room("a")
        rig.unit("a", insert("a", 2), size=1)
        assert not writer.has_room("a")
        assert writer.has_room("b")
        rig.unit("b", insert("b", 1), size=50)
        assert not writer.has_room("c")
        await writer.room("a")
        assert first.done()
        assert writer.pending_bytes == 0


async def test_stop_commits_what_waits(path: Place) -> None:
    async with running(path, spacing=3600) as rig:
        await rig.unit("a", insert("a", 1), urgent=False)
        waiting = rig.unit("a", insert("a", 2), urgent=False)
        await rig.writer.stop()
        await waiting
        with pytest.raises(StoreUnavailable):
            await rig.writer.commit([insert("a", 3)])
        source = Gathering(rig, "s")
        source.add()
        await source.settled.wait()
        assert isinstance(source.refused[0], StoreUnavailable)
    assert entries(path) == [("a", 1), ("a", 2)]
    assert rig.fatal == []


async def test_a_source_whose_take_raises_hears_so_and_harms_nobody(path: Place) -> None:
    class Broken(Gathering):
        def take(self) -> Unit | None:
            raise ValueError("an event that cannot be encoded")

    async with running(path) as rig:
        broken = Broken(rig, "broken")
        broken.add(size=10)
        await rig.unit("a", insert("a", 1))
        assert isinstance(broken.refused[0], ValueError)
        assert rig.writer.pending_bytes == 0


async def test_a_listener_that_raises_keeps_nobody_from_hearing(path: Place) -> None:
    def bad(error: BaseException | None) -> None:
        raise RuntimeError("a defect")

    async with running(path) as rig:
        rig.writer.submit(Unit("a", [insert("a", 1)], True, bad))
        await rig.unit("b", insert("b", 1))
        assert entries(path) == [("a", 1), ("b", 1)]


async def test_a_periodic_transaction_runs_on_the_writers_thread_without_the_loop(path: Place) -> None:
    seen: list[int] = []
    thrice = threading.Event()

    def renew(db: Connection) -> None:
        db.execute(INSERT, ("lease", len(seen), "body"))
        seen.append(threading.get_ident())
        if len(seen) == 3:
            thrice.set()

    async with running(path, prepare=lambda writer: writer.every(0.01, renew, "lease")) as rig:
        assert thrice.wait(10)  # blocks the loop on purpose
        assert await rig.writer.run(lambda db: threading.get_ident()) == seen[0] != threading.get_ident()
    assert entries(path)[:3] == [("lease", n) for n in range(3)]


async def test_a_periodic_transaction_that_fails_is_tried_again_and_harms_nobody(path: Place) -> None:
    again = threading.Event()
    tries: list[int] = []

    def fail(db: Connection) -> None:
        tries.append(1)
        if len(tries) == 2:
            again.set()
        raise ValueError("a defect")

    async with running(path, prepare=lambda writer: writer.every(0.01, fail, "lease")) as rig:
        assert await asyncio.to_thread(again.wait, 10)
        await rig.unit("a", insert("a", 1))


async def test_a_writer_that_cannot_open_its_file_does_not_start(tmp_path: Place) -> None:
    (tmp_path / "store.db").write_text("this is not a database, but it is long enough to be looked at" * 20)
    with pytest.raises(sqlite3.DatabaseError):
        async with running(tmp_path / "store.db"):
            pass


async def test_latency_percentiles_are_of_the_kept_values(path: Place) -> None:
    async with running(path) as rig:
        assert rig.stats.latency.percentile(0.99) == 0.0
        await rig.unit("a", insert("a", 1))
        assert 0 < rig.stats.latency.percentile(0.5) < 30
        assert rig.stats.seconds > 0
