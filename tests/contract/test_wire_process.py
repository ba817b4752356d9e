"""One process from its command line to its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.wire_echo import Stub, text
from turnwire.wire.channel import open_channel

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "support" / "wire_process.py"


@asynccontextmanager
async def started(*arguments: str, **variables: str) -> AsyncIterator[Process]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TURNWIRE_")}
    environment |= {"PYTHONPATH": f"{ROOT / 'services'}:{ROOT / 'tests'}", "GRPC_VERBOSITY": "NONE"}
    environment |= {f"TURNWIRE_ECHO_{key}": value for key, value in variables.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), *arguments, stdout=PIPE, stderr=PIPE, env=environment
    )
    try:
        async with asyncio.timeout(60):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def lines_until(process: Process, event: str | None) -> list[dict[str, Any]]:
    """Read log lines up to `event`, or to the end of the process."""
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    while line := await process.stdout.readline():
        lines.append(json.loads(line))
        if lines[-1]["event"] == event:
            break
    return lines


def events(lines: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


async def test_a_process_serves_reports_its_port_and_leaves_in_order(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    spans = tmp_path / "spans.jsonl"
    variables = {"TELEMETRY__FILE": str(spans), "SPELT_WRONG": "1"}
    async with started("--port", "0", "--ready-file", str(ready), **variables) as process:
        before = await lines_until(process, "server.listening")
        told = json.loads(ready.read_text())
        assert told["pid"] == process.pid
        assert before[-1]["address"] == f"127.0.0.1:{told['port']}"
        assert {"settings.unknown", "echo.opened"} <= set(events(before))
        async with open_channel(f"127.0.0.1:{told['port']}") as channel:
            assert (await Stub(channel).unary(text("hello"))).value == "hello"
        process.send_signal(signal.SIGTERM)
        after = await lines_until(process, None)
        assert await process.wait() == 0
    assert events(after)[0] == "rpc.finished"
    assert len(after[0]["trace_id"]) == 32
    order = ["drain.started", "echo.refuse", "echo.finish", "drain.finished", "echo.closed"]
    assert [event for event in events(after) if event in order] == order
    (span,) = [json.loads(line) for line in spans.read_text().splitlines()]
    assert span["name"] == "/test.Echo/Unary"
    assert span["resource"]["attributes"]["service.name"] == "turnwire-echo"


async def test_a_second_signal_ends_the_wait() -> None:
    async with started(MODE="slow") as process:
        await lines_until(process, "server.listening")
        process.send_signal(signal.SIGINT)
        await lines_until(process, "echo.finish")
        process.send_signal(signal.SIGINT)
        rest = await lines_until(process, None)
        assert await process.wait() == 1
    assert rest[0] | {"event": "drain.finished", "complete": False} == rest[0]


async def test_a_background_failure_drains_and_ends_with_one(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    async with started("--ready-file", str(ready), MODE="crash") as process:
        await lines_until(process, "server.listening")
        async with open_channel(f"127.0.0.1:{json.loads(ready.read_text())['port']}") as channel:
            assert (await Stub(channel).unary(text("last"))).value == "last"
        lines = await lines_until(process, None)
        assert await process.wait() == 1
    assert "process.failed" in events(lines)
    assert events(lines)[-1] == "echo.closed"


async def _output(*arguments: str, **variables: str) -> tuple[int | None, str, str]:
    async with started(*arguments, **variables) as process:
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


async def test_wrong_settings_are_named_by_variable_without_their_value() -> None:
    code, out, err = await _output(LISTEN__PORT="99999secret", LISTEN__HOTS="x")
    assert (code, out) == (2, "")
    assert "TURNWIRE_ECHO_LISTEN__PORT" in err
    assert "TURNWIRE_ECHO_LISTEN__HOTS" in err
    assert "secret" not in err


async def test_a_host_beyond_loopback_is_refused_in_words_and_allowed_by_name() -> None:
    code, _, err = await _output("--host", "0.0.0.0")
    assert code == 2
    assert "--insecure" in err
    code, out, _ = await _output("check-config", "--host", "0.0.0.0", "--insecure")
    assert code == 0
    assert json.loads(out)["listen"] | {"host": "0.0.0.0", "insecure": True} == json.loads(out)["listen"]


async def test_check_config_shows_effective_values_with_secrets_masked() -> None:
    code, out, _ = await _output("check-config", "--port", "7", SECRET="tell-nobody", LISTEN__PORT="8")
    assert code == 0
    assert "tell-nobody" not in out
    assert json.loads(out)["listen"]["port"] == 7


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
async def test_help_and_version_answer(arguments: tuple[str, ...]) -> None:
    code, out, _ = await _output(*arguments)
    assert code == 0
    assert "turnwire-echo" in out


async def test_a_taken_port_is_said_in_words(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    async with started("--ready-file", str(ready)) as process:
        await lines_until(process, "server.listening")
        port = str(json.loads(ready.read_text())["port"])
        code, _, err = await _output("--port", port)
        assert code == 2
        assert f"cannot listen on 127.0.0.1:{port}" in err
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_certificate_that_cannot_be_used_is_named_and_nothing_starts(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_text(content)
    async with started(LISTEN__TLS_CERT=str(path), LISTEN__TLS_KEY=str(path)) as process:
        _, told = await process.communicate()
    assert process.returncode == 2
    assert f"the certificate file {path}" in told.decode()
    assert "Traceback" not in told.decode()


async def test_a_process_tells_how_late_its_loop_was_when_asked() -> None:
    async with started(LOG__FORMAT="json", LOG__LOOP_LAG_SECONDS="0.1") as process:
        lines = await lines_until(process, "process.loop_lag")
        told = lines[-1]
        assert told["event"] == "process.loop_lag"
        assert told["samples"] > 0
        assert 0 <= told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]
        process.send_signal(signal.SIGTERM)
        await lines_until(process, None)
