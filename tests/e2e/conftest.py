"""Processes that several modules share, started once for the whole run and only where a test asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.turn_rig import TurnRig, turn_rig


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnRig]:
    """Three services and a strict provider; for tests that leave the processes as they found them."""
    async with turn_rig(tmp_path_factory.mktemp("rig")) as rig:
        yield rig
