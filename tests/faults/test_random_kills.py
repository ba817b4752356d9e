"""Random runs: three services, turns of every kind, and each service dies at any commit and any moment.

FAULTS_RUNS is the number of runs, FAULTS_SEED the seed of the first one, FAULTS_ENGINE sqlite or postgresql:
where the runtime has its store. A run that finds something names the
command that repeats it; times differ from run to run, the script and the deaths do not.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from support.fault_cluster import fault_cluster
from support.fault_rows import postgres_rows, sqlite_rows
from support.fault_run import Report, Rows, RunRules, fault_run

pytestmark = [pytest.mark.e2e]

RUNS = int(os.environ.get("FAULTS_RUNS", "10"))
ENGINE = os.environ.get("FAULTS_ENGINE", "sqlite")
SEED = int(os.environ.get("FAULTS_SEED", "1"))
POINTS = tuple(f"C{number}" for number in range(9))
# From so many runs on, each point must have been met so often.
_MANY_RUNS, _HITS = 500, 20
_INSIDE = 0.6


def summary(reports: list[Report]) -> str:
    """Who died where, and how many turns were under way then."""
    kills = [kill for report in reports for kill in report.kills]
    hits = Counter(kill.named for kill in kills)
    last = Counter(point for kill in kills if kill.fault is None for point in kill.points)
    inside = sum(report.inside for report in reports)
    return "\n".join(
        [
            f"{len(reports)} runs, {sum(r.turns for r in reports)} turns, {len(kills)} deaths:"
            f" {dict(Counter(kill.victim for kill in kills))}",
            f"ends: {dict(sum((r.states for r in reports), Counter()))}",
            f"deaths at: {dict(sorted(hits.items()))}",
            f"last commit before a random death: {dict(sorted(last.items()))}",
            f"inside a turn: {inside} of {len(kills)}; links cut: {sum(r.links_cut for r in reports)};"
            f" commits told as failed: {sum(r.lost for r in reports)}",
        ]
    )


@pytest.mark.timeout(60 + 60 * RUNS)
async def test_nothing_that_was_told_is_lost_and_nothing_is_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    reports: list[Report] = []
    rows: Rows = partial(sqlite_rows, tmp_path / "data" / "runtime.db")
    store: dict[str, str] = {}
    if ENGINE == "postgresql":
        url = request.getfixturevalue("postgres").fresh()
        rows, store = partial(postgres_rows, url), {"TURNWIRE_RUNTIME_STORE__URL": url}
    rules = RunRules(rows, waiting=True, survives=True)
    async with fault_cluster(tmp_path, runtime=store) as system:
        for seed in range(SEED, SEED + RUNS):
            reports.append(report := await fault_run(system, seed, rules))
            with capsys.disabled():
                print(f"\n{report.line()}", end="", flush=True)
            for process in system.cluster.processes:
                # Of a run that found something, its own lines are enough.
                os.truncate(process.log, 0 if not report.findings else process.log.stat().st_size)
            if report.findings:
                found = "\n".join(report.findings)
                again = f"make test-faults FAULTS_ENGINE={ENGINE} FAULTS_SEED={seed} FAULTS_RUNS=1"
                again = f"repeat with: {again} TESTS='-k told_is_lost'"
                pytest.fail(f"{report.line()}\n{found}\n{again}\nlogs: {tmp_path}")
    text = summary(reports)
    with capsys.disabled():
        print(f"\n{text}")
    kills = [kill for report in reports for kill in report.kills]
    assert sum(report.inside for report in reports) >= _INSIDE * len(kills), text
    if RUNS >= _MANY_RUNS:
        hits = Counter(kill.named for kill in kills)
        assert all(hits[point] >= _HITS for point in POINTS), text
