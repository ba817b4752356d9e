"""The benchmarks run from end to end over real processes; how fast is not judged here."""

from __future__ import annotations

import asyncio

import pytest

from bench import cancel, models, run

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


async def test_every_contestant_does_a_turn_with_tools_exactly() -> None:
    async with asyncio.timeout(100):
        assert await run.run(run.parse(["--quick", "--workloads", "W2"])) == 0


async def test_every_cancelled_turn_ends_cancelled_and_leaves_the_model() -> None:
    async with asyncio.timeout(100):
        findings = await cancel.run_bench(4, 2)
    assert len(findings.targets) == 4
    assert cancel.gates(findings)[0].passed
    assert all(target.model_closed < float("inf") for target in findings.targets)


async def test_the_way_from_models_is_measured_and_no_stream_suffers() -> None:
    async with asyncio.timeout(100):
        assert await models.run(models.parse(["--quick"])) == 0
