"""Built-in tools keep to their bounds: numbers, files, addresses."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from turnwire.executor.inline import ToolFailed
from turnwire.executor.tools.arithmetic import add, evaluate
from turnwire.executor.tools.clock import clock_tools
from turnwire.executor.tools.files import file_tools
from turnwire.executor.tools.http import HttpSettings, check_address, http_tools
from turnwire.executor.workspace import OutsideWorkspace, Workspaces
from turnwire.extend.tools import ToolContext

HERE = ToolContext(workspace="job")


class NoonClock:
    """Stands still."""

    def now(self) -> int:
        return 1_767_268_800 * 10**9

    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("-(2 ** 10) // 3", -342),
        ("7 / 2", 3.5),
        ("sqrt(16) + max(1, 2)", 6.0),
        ("2 ** 0.5 * 2 ** 0.5", 2.0000000000000004),
        ("9007199254740993 + 0", 9007199254740993),
        (" pi > 3 ", None),
        ("'a' * 3", None),
        ("__import__('os')", None),
        ("(1).real", None),
        ("[1][0]", None),
        ("1 if 1 else 2", None),
        ("9 ** 9 ** 9", None),
        ("2 ** 4096 * 2 ** 4096", None),
        ("1 / 0", None),
        ("(-1) ** 0.5", None),
        ("sqrt(-1)", None),
        ("exp(1000)", None),
        ("(" * 300 + "1" + ")" * 300, None),
        ("-" * 200 + "1", None),
        ("1+" * 400 + "1", None),
        ("1" * 2_000, None),
        ("True + 1", None),
        ("", None),
    ],
)
def test_arithmetic_is_computed_or_refused(expression: str, value: Any) -> None:
    if value is None:
        with pytest.raises(ToolFailed):
            evaluate(expression)
    else:
        assert evaluate(expression) == value


async def test_whole_sums_look_whole() -> None:
    assert await add(2, 3.0) == "5"
    assert await add(0.1, 0.2) == "0.30000000000000004"
    arguments = add.arguments('{"a": 9007199254740993, "b": 1}')
    assert await add(**arguments) == "9007199254740994"


async def test_the_time_is_told_in_a_zone_that_exists() -> None:
    (current_time,) = clock_tools(NoonClock())
    assert await current_time() == "2026-01-01T12:00:00+00:00 (Thursday)"
    with pytest.raises(ToolFailed, match="no time zone"):
        await current_time("../etc/passwd")


def files(root: Path) -> tuple[Any, Any, Any]:
    read, list_, write = file_tools(Workspaces(root))
    return read, list_, write


async def test_files_are_written_listed_and_read_by_lines(tmp_path: Path) -> None:
    read, list_, write = files(tmp_path)
    await write(HERE, "notes/plan.md", "one\ntwo\nthree\n")
    await write(HERE, "notes/plan.md", "four\n", append=True)
    assert await list_(HERE) == "notes/"
    assert await list_(HERE, recursive=True) == "notes/\nnotes/plan.md 19"
    assert await read(HERE, "notes/plan.md") == "one\ntwo\nthree\nfour\n"
    assert await read(HERE, "notes/plan.md", 2, 2) == "two\nthree\n"
    assert await read(HERE, "notes/plan.md", 4) == "four\n"
    assert (tmp_path / "job" / "notes" / "plan.md").exists()


async def test_nothing_outside_the_workspace_can_be_reached(tmp_path: Path) -> None:
    read, list_, write = files(tmp_path)
    (tmp_path / "secret").write_text("secret")
    await write(HERE, "plain", "x")
    inside = tmp_path / "job"
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "folder").symlink_to(tmp_path)
    for path in ("../secret", "/etc/passwd", "link", "folder/secret", "a/../../secret"):
        with pytest.raises(ToolFailed, match="Refused"):
            await read(HERE, path)
        with pytest.raises(ToolFailed, match="Refused"):
            await write(HERE, path, "changed")
    with pytest.raises(ToolFailed, match="Refused"):
        await list_(HERE, "folder")
    assert "secret" not in await list_(HERE, recursive=True)
    assert (tmp_path / "secret").read_text() == "secret"


async def test_pipes_and_folders_are_not_files(tmp_path: Path) -> None:
    read, _, write = files(tmp_path)
    await write(HERE, "dir/file", "x")
    os.mkfifo(tmp_path / "job" / "pipe")
    async with asyncio.timeout(5):
        for path in ("pipe", "dir"):
            with pytest.raises(ToolFailed):
                await read(HERE, path)
        with pytest.raises(ToolFailed, match="No such file"):
            await read(HERE, "absent")


def test_a_workspace_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to("/")
    with pytest.raises(OutsideWorkspace):
        Workspaces(tmp_path).folder("away/etc")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "ff02::1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::a9fe:a9fe",
        "fec0::1",
        "5f00::1",
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(ToolFailed, match="not a public address"):
        check_address(address)


def test_public_addresses_are_taken() -> None:
    for address in (
        "93.184.216.34",
        "2606:2800:220:1:248:1893:25c8:1946",
        "::ffff:93.184.216.34",
        "64:ff9b::5db8:d822",
    ):
        check_address(address)


async def serve_pages() -> tuple[web.AppRunner, int]:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<p>hello</p>", content_type="text/html")

    async def long(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 5_000)

    async def loop(request: web.Request) -> web.Response:
        raise web.HTTPFound("/loop")

    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound("/page")

    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(3_600)
        return web.Response()

    app = web.Application()
    for path, handler in (
        ("/page", page),
        ("/long", long),
        ("/loop", loop),
        ("/away", away),
        ("/hang", hang),
    ):
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, port


async def test_pages_are_fetched_within_bounds() -> None:
    runner, port = await serve_pages()
    try:
        (fetch,) = http_tools(HttpSettings(allow_private=True, max_bytes=1_024, timeout_seconds=2))
        base = f"http://127.0.0.1:{port}"
        assert await fetch(f"{base}/page") == "HTTP 200 text/html; charset=utf-8\n\n<p>hello</p>"
        assert (await fetch(f"{base}/away")).endswith("<p>hello</p>")
        long = await fetch(f"{base}/long")
        assert "x" * 1_024 + "\n[the body is longer than 1024 bytes" in long
        with pytest.raises(ToolFailed, match="redirects"):
            await fetch(f"{base}/loop")
        (hasty,) = http_tools(HttpSettings(allow_private=True, timeout_seconds=0.2))
        with pytest.raises(ToolFailed, match="whole answer"):
            await hasty(f"{base}/hang")
    finally:
        await runner.cleanup()


async def test_the_network_around_the_executor_is_out_of_reach() -> None:
    runner, port = await serve_pages()
    try:
        (fetch,) = http_tools(HttpSettings())
        for url in (
            f"http://127.0.0.1:{port}/page",
            f"http://localhost:{port}/page",
            f"http://[::ffff:127.0.0.1]:{port}/page",
            f"http://2130706433:{port}/page",
        ):
            with pytest.raises(ToolFailed, match=r"not a public address|cannot be found"):
                await fetch(url)
        for url in ("file:///etc/passwd", "http://user:word@example.com/", "http://[", "gopher://x"):
            with pytest.raises(ToolFailed):
                await fetch(url)
    finally:
        await runner.cleanup()


def test_fetching_can_be_switched_off() -> None:
    assert http_tools(HttpSettings(enabled=False)) == []
