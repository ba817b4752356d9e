"""The stores that the benchmark makes are ones that the runtime can work on, and its measurements end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bench import append, store_files
from bench.flat_turns import measure_steps, measure_turns


async def test_turns_and_steps_run_on_a_store_that_was_made(tmp_path: Path) -> None:
    store_files.build(tmp_path / "made.db", 3, 4)
    with closing(sqlite3.connect(tmp_path / "made.db")) as db:
        counts = [
            db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("threads", "messages", "pages")
        ]
        assert counts == [3, 12, 6]
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()[0] == 4
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert await measure_turns(tmp_path / "made.db", 3, 2) > 0
    assert await measure_steps(tmp_path / "made.db", 2) > 0


async def test_units_are_appended_and_paced(tmp_path: Path) -> None:
    for name in ("units", "paced", "bare"):
        (tmp_path / name).mkdir()
    assert await append.unit_cpu(5, 3, tmp_path / "units") > 0
    rate, slow = await append.paced(0.2, tmp_path / "paced")
    assert rate > 0
    assert slow[0] <= slow[1]
    assert append.bare(5, tmp_path / "bare") > 0
