"""The mock model says exactly what its script says."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from bench.floors.reader import open_session, read_answer, run_turn
from bench.mock_answers import STAMP_MARK, call_deltas
from bench.mock_model import Connection, MockModel, Script, parse_script
from bench.workloads import TOKEN_CHARS, WORKLOADS, token


@pytest.fixture
async def mock() -> AsyncIterator[tuple[MockModel, str]]:
    """A mock on a port of its own, with its base URL."""
    model = MockModel()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(model), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield model, f"http://127.0.0.1:{port}/v1"


async def read(url: str, script: str) -> list[str]:
    texts: list[str] = []
    async with asyncio.timeout(10), open_session() as http:
        await run_turn(http, url, script, "go", texts.append)
    return texts


async def get_stats(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{url.removesuffix('/v1')}/stats") as response:
        return dict(await response.json())


def test_the_script_is_read_from_the_name_and_the_rest_has_defaults() -> None:
    assert parse_script("openai/w:tokens=5:rate=2:delay=1500:silent=1") == Script(5, 0, 2.0, 1.5, True)
    assert parse_script("w:args=9:piece=4:stamp=1") == Script(args=9, piece=4, stamp=True)
    assert parse_script("some-model") == Script()


def test_every_token_has_six_characters() -> None:
    assert {len(token(index)) for index in (0, 9_999, 10_000)} == {TOKEN_CHARS}


@pytest.mark.parametrize("name", ["W1", "W2"])
async def test_a_workload_reads_as_its_text(mock: tuple[MockModel, str], name: str) -> None:
    workload = WORKLOADS[name]
    texts = await read(mock[1], workload.script)
    assert "".join(texts) == workload.text()
    assert len(texts) == workload.tokens
    assert mock[0].requests == workload.rounds + 1
    assert (mock[0].active, mock[0].aborts) == (0, [])


async def test_a_rated_answer_tells_when_each_chunk_was_sent(mock: tuple[MockModel, str]) -> None:
    begin = time.monotonic()
    await read(mock[1], "w:tokens=20:rate=1000")
    (times,) = mock[0].times
    assert len(times) == 20
    assert times == sorted(times)
    assert times[-1] - begin >= 20 / 1000 - 0.002


async def test_a_stamped_chunk_says_when_it_was_sent(mock: tuple[MockModel, str]) -> None:
    texts = await read(mock[1], "w:tokens=5:rate=1000:stamp=1")
    (times,) = mock[0].times
    assert [float(text) for text in texts] == pytest.approx(times, abs=1e-6)
    assert {len(text) for text in texts} == {len(STAMP_MARK)}


@pytest.mark.parametrize("size", [0, 10, 1000])
async def test_a_call_has_arguments_of_the_size_that_the_script_says(
    mock: tuple[MockModel, str], size: int
) -> None:
    async with open_session() as http:
        messages = [{"role": "user", "content": "go"}]
        script = f"w:tokens=1:rounds=1:args={size}:piece=4"
        _, ((_, name, arguments),) = await read_answer(http, mock[1], script, messages, lambda text: None)
    assert name == "add"
    assert json.loads(arguments).keys() - {"note"} == {"a", "b"}
    assert len(arguments) == (size if size > 100 else len('{"a":0,"b":1}'))


def test_pieces_of_arguments_are_as_long_as_asked() -> None:
    name, *pieces = call_deltas('{"a":0,"b":1}', 4)
    assert name["tool_calls"][0]["function"] == {"name": "add", "arguments": ""}
    told = [piece["tool_calls"][0]["function"]["arguments"] for piece in pieces]
    assert told == ['{"a"', ':0,"', 'b":1', "}"]


async def test_a_silent_stream_stays_open_until_the_reader_leaves(mock: tuple[MockModel, str]) -> None:
    seen = asyncio.Event()

    def take(_: str) -> None:
        if mock[0].times and len(mock[0].times[0]) == 3:
            seen.set()

    async with asyncio.timeout(10), open_session() as http:
        reading = asyncio.create_task(run_turn(http, mock[1], "w:tokens=3:silent=1", "go", take))
        await seen.wait()
        assert mock[0].active == 1
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    async with asyncio.timeout(10):
        while not (stats := await get_stats(mock[1]))["aborts"]:
            continue
    assert stats["active"] == 0
    assert [chunks for _, chunks in stats["aborts"]] == [3]


async def test_an_answer_in_one_piece_holds_the_same_text(mock: tuple[MockModel, str]) -> None:
    body = {"model": "w:tokens=2", "messages": []}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{mock[1]}/chat/completions", json=body) as response,
    ):
        answer = await response.json()
    assert answer["choices"][0]["message"]["content"] == token(0) + token(1)


async def test_a_request_that_is_none_is_refused_and_not_counted(mock: tuple[MockModel, str]) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{mock[1]}/chat/completions", data=b"[]") as response,
    ):
        assert response.status == 400
        assert "error" in json.loads(await response.read())
    assert mock[0].requests == 0
