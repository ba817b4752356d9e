"""One turn from arguments or stdin."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwire.cli.attachments import attach
from turnwire.cli.chat import confirm
from turnwire.cli.connect import Connection
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.failures import UsageProblem
from turnwire.cli.json_lines import write_line
from turnwire.cli.screen import Screen
from turnwire.cli.session import Session, default_agent
from turnwire_client import turn_spec
from turnwire_client.messages import Task

__all__ = ["Work", "run", "start"]


@dataclass(frozen=True, slots=True)
class Work:
    """How the words of a command are meant.

    Args:
        task: they are the description of a task; so they are with `expect`, its expected output.
        schema: file of the JSON Schema that the answer must fit.
    """

    task: bool = False
    expect: str = ""
    schema: Path | None = None

    def asked(self, words: list[str]) -> dict[str, Any]:
        """Return the work as `turn_spec` takes it. Raises UsageProblem."""
        text = _text(words)
        found: dict[str, Any] = {"parts": attach(text)}
        if self.task or self.expect:
            found = {"task": Task(description=text, expected_output=self.expect, **found)}
        else:
            found["text"] = text
        if self.schema is not None:
            found["schema"] = _read(self.schema)
        return found


def run(
    connection: Connection,
    words: list[str],
    *,
    agent: str,
    thread: str,
    work: Work,
    as_json: bool,
    show_reasoning: bool,
) -> ExitCode:
    """Run a turn and show it; the answer alone goes to stdout.

    Raises:
        UsageProblem: there is nothing to say, or a file cannot be read.
    """
    asked = work.asked(words)
    with connection.open() as client:
        session = Session(
            client,
            Screen(),
            agent=agent or ("" if thread else default_agent(client)),
            thread=thread,
            as_json=as_json,
            show_reasoning=show_reasoning,
            confirm=confirm if sys.stdin.isatty() and not as_json else None,
        )
        return session.run(**asked)


def start(
    connection: Connection, words: list[str], *, agent: str, thread: str, work: Work, as_json: bool
) -> ExitCode:
    """Admit a turn and print its name, or with `as_json` the whole answer.

    Raises:
        UsageProblem: there is nothing to say, or a file cannot be read.
    """
    asked = work.asked(words)
    with connection.open() as client:
        chosen = agent or ("" if thread else default_agent(client))
        spec = turn_spec(agent=chosen, thread=thread, **asked)
        answer = client.start_turn(spec=spec)
    if as_json:
        write_line(answer)
    else:
        sys.stdout.write(answer.turn.name + "\n")
    return ExitCode.OK


def _text(words: list[str]) -> str:
    if words and words != ["-"]:
        return " ".join(words)
    if sys.stdin.isatty():
        raise UsageProblem("what shall the agent do? Give a text, or pipe one in: echo hello | turnwire run")
    text = sys.stdin.read().strip()
    if not text:
        raise UsageProblem("stdin is empty: there is nothing to say")
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageProblem(f"the schema cannot be read: {error}") from error
