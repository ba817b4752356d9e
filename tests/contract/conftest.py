"""What several files of contract tests share because it is slow to start."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.bad_input_rig import Rig, running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def bad_input_rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """The three services, for tests that leave them running as they are."""
    async with running(tmp_path_factory.mktemp("bad-input")) as rig:
        yield rig
