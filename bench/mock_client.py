"""The mock model as a benchmark sees it: a process of its own, asked over HTTP outside the measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from bench.process import Process, module


class Mock:
    """The mock model's process."""

    def __init__(self, folder: Path) -> None:
        self._process = Process("mock-model", folder)
        self._http: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """Base URL for clients of the OpenAI API."""
        return f"http://{self._process.target}/v1"

    async def start(self) -> None:
        """Start the process."""
        await self._process.start(module("bench.mock_model"))
        self._http = aiohttp.ClientSession(f"http://{self._process.target}")

    async def reset(self) -> None:
        """Begin to count anew."""
        assert self._http is not None
        async with self._http.post("/reset") as response:
            response.raise_for_status()

    async def stats(self) -> dict[str, Any]:
        """What has been counted since the last reset."""
        return dict(await self._get("/stats"))

    async def times(self) -> list[list[float]]:
        """When each chunk was sent, by request, for rated answers since the last reset."""
        return list(await self._get("/times"))

    async def _get(self, path: str) -> Any:
        assert self._http is not None
        async with self._http.get(path) as response:
            response.raise_for_status()
            return await response.json()

    async def stop(self) -> None:
        """End the process."""
        if self._http is not None:
            await self._http.close()
        self._process.kill()
