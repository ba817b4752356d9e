"""Log lines: one JSON object each, fields of the task in it, text for people on a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from turnwire.core.logs import JsonFormatter, TextFormatter, bind, bound_fields, configure_logging
from turnwire.core.settings import LogSettings


def record(message: str, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("test").makeRecord("test", 20, "f", 1, message, (), None, extra=extra)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    flags = (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    handlers, level = list(logger.handlers), logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logging.captureWarnings(False)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags


def test_a_line_has_time_level_event_logger_and_fields() -> None:
    line = json.loads(JsonFormatter(lambda: "ab" * 16).format(record("turn.finished", turn="t", n=2, x={1})))
    assert line["event"] == "turn.finished"
    assert (line["level"], line["logger"], line["turn"], line["n"], line["x"]) == (
        "INFO",
        "test",
        "t",
        2,
        "{1}",
    )
    assert line["trace_id"] == "ab" * 16
    assert line["time"].endswith("Z")


def test_no_text_can_break_a_line() -> None:
    out = JsonFormatter().format(record("a.b", value="line\nbreak \ud800 \0"))
    assert "\n" not in out
    assert json.loads(out)["value"] == "line\nbreak \ud800 \0"
    assert "\n" not in TextFormatter().format(record("a.b", value="line\nbreak \ud800"))


async def test_bound_fields_follow_the_task_and_stay_in_it() -> None:
    async def work(turn: str) -> str:
        bind(turn=turn)
        await asyncio.sleep(0)
        return str(json.loads(JsonFormatter().format(record("a.b")))["turn"])

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(name)) for name in ("one", "two")]
    assert [task.result() for task in tasks] == ["one", "two"]
    assert bound_fields() == {}


def test_a_traceback_is_part_of_its_line() -> None:
    try:
        raise KeyError("x")
    except KeyError as error:
        entry = record("a.failed")
        entry.exc_info = (KeyError, error, error.__traceback__)
    assert "KeyError" in json.loads(JsonFormatter().format(entry))["exception"]
    assert "KeyError" in TextFormatter().format(entry)


def test_people_get_the_text_and_programs_the_event() -> None:
    entry = record("server.listening", text="turnwire-runtime listening on 127.0.0.1:50051", port=50051)
    assert TextFormatter().format(entry).endswith("turnwire-runtime listening on 127.0.0.1:50051")
    assert "text" not in json.loads(JsonFormatter().format(entry))
    assert TextFormatter().format(record("a.b", n=1.5, s="x y")).endswith('a.b n=1.5 s="x y"')


@pytest.mark.parametrize(("chosen", "json_lines"), [("json", True), ("text", False), ("auto", True)])
def test_the_format_follows_the_settings(root: logging.Logger, chosen: Any, json_lines: bool) -> None:
    out = io.StringIO()
    configure_logging(LogSettings(format=chosen, level="WARNING"), out)
    root.info("not.this")
    root.warning("but.this")
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("{") is json_lines
