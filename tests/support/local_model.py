"""The small real model of `scripts/local_model.sh`, where it has been fetched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

__all__ = ["FETCHED", "LocalModel", "local_model"]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "local_model.sh"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
FETCHED = (CACHE / "turnwire" / "local-model" / "version").is_file()
START_SECONDS = 60


class LocalModel:
    """The model's server; `url` is what clients of chat completions are told."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self._stats = f"http://127.0.0.1:{port}/stats"

    async def aborted(self) -> int:
        """How many answers were left by their readers."""
        async with aiohttp.ClientSession() as http, http.get(self._stats) as response:
            return int((await response.json(content_type=None))["aborted"])


@asynccontextmanager
async def local_model() -> AsyncIterator[LocalModel]:
    """Serve the model on a free port."""
    process = await asyncio.create_subprocess_exec(
        str(SCRIPT), "serve", "0", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            word, port = (await process.stdout.readline()).decode().split()
        assert word == "listening"
        yield LocalModel(int(port))
    finally:
        process.kill()
        await process.wait()
