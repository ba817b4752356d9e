"""What there is: threads, turns, agents and tools, as tables for people or ProtoJSON lines for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from turnwire.cli.connect import Connection
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.json_lines import write_line
from turnwire.cli.words import clean, word
from turnwire_client.messages import Agent, ExecutionMode, RiskTier, Thread, Tool, Turn, TurnState

__all__ = ["agents", "lines", "moment", "queued", "table", "threads", "tools", "turns"]

T = TypeVar("T", bound=Message)


def threads(connection: Connection, query: str, limit: int, as_json: bool) -> ExitCode:
    """List threads, the latest changed first."""
    with connection.open() as client:
        found = islice(client.list_threads(query=query), limit)
        if as_json:
            return lines(found)
        table(("thread", "title", "agent", "live turn", "changed"), (_thread(thread) for thread in found))
    return ExitCode.OK


def turns(connection: Connection, thread: str, query: str, limit: int, as_json: bool) -> ExitCode:
    """List turns, newest first."""
    with connection.open() as client:
        found = islice(client.list_turns(thread or "-", query=query), limit)
        if as_json:
            return lines(found)
        table(("turn", "state", "why", "agent", "steps", "tokens", "begun"), (_turn(turn) for turn in found))
    return ExitCode.OK


def queued(connection: Connection, thread: str, as_json: bool) -> ExitCode:
    """List the turns that wait in a thread, first the next one."""
    with connection.open() as client:
        found = client.list_queued_turns(thread)
        if as_json:
            return lines(found)
        table(("turn", "place", "agent", "asked"), (_queued(turn) for turn in found))
    return ExitCode.OK


def agents(connection: Connection, as_json: bool) -> ExitCode:
    """List agents by name."""
    with connection.open() as client:
        found = client.list_agents()
        if as_json:
            return lines(found)
        table(("agent", "model", "tools", "what it is for"), (_agent(agent) for agent in found))
    return ExitCode.OK


def tools(connection: Connection, agent: str, as_json: bool) -> ExitCode:
    """List the tools of one agent, or of all."""
    with connection.open() as client:
        names = [agent] if agent else [each.name for each in client.list_agents()]
        found: dict[str, Tool] = {}
        for name in names:
            for tool in client.get_agent(name).tools:
                found.setdefault(tool.name, tool)
    ordered = [found[name] for name in sorted(found)]
    if as_json:
        return lines(ordered)
    table(("tool", "mode", "limit", "risk", "what it does"), (_tool(tool) for tool in ordered))
    return ExitCode.OK


def lines(messages: Iterable[Message]) -> ExitCode:
    """Print messages as ProtoJSON, one a line."""
    for message in messages:
        write_line(message)
    return ExitCode.OK


def _thread(thread: Thread) -> tuple[str, ...]:
    live = thread.live_turn.rsplit("/", 1)[-1]
    return thread.name, thread.title, thread.agent, live, moment(thread.update_time)


def _turn(turn: Turn) -> tuple[str, ...]:
    tokens = turn.usage.tokens
    total = (
        tokens.input_tokens + tokens.cache_read_tokens + tokens.cache_creation_tokens + tokens.output_tokens
    )
    state = word(TurnState, turn.state, "TURN_STATE_")
    begun = moment(turn.start_time if turn.HasField("start_time") else turn.create_time)
    return turn.name, state, turn.stop_reason, turn.agent, str(turn.step), str(total), begun


def _queued(turn: Turn) -> tuple[str, ...]:
    return turn.name, str(turn.queue_position), turn.agent, moment(turn.create_time)


def _agent(agent: Agent) -> tuple[str, ...]:
    return agent.name, agent.model, ", ".join(tool.name for tool in agent.tools), agent.description


def _tool(tool: Tool) -> tuple[str, ...]:
    seconds = tool.execution_timeout.ToTimedelta().total_seconds()
    first_line = tool.description.strip().split("\n", 1)[0]
    return (
        tool.name,
        word(ExecutionMode, tool.execution_mode, "EXECUTION_MODE_"),
        f"{seconds:g} s" if seconds else "",
        word(RiskTier, tool.risk_tier, "RISK_TIER_"),
        first_line,
    )


def moment(time: Timestamp) -> str:
    """Give a time for people, empty for none."""
    if not time.seconds:
        return ""
    return time.ToDatetime().strftime("%Y-%m-%d %H:%M:%S")


def table(headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    """Print a table; where nobody looks, the same cells between tabs, whole, without headings."""
    if not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write(
                "\t".join(clean(cell).replace("\t", " ").replace("\n", " ") for cell in row) + "\n"
            )
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console = Console()
    if table.row_count:
        console.print(table)
    else:
        console.print(f"no {headings[0]}s", style="dim")
