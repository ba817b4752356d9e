"""One turn from arguments or stdin."""

from __future__ import annotations

import sys

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

__all__ = ["run", "start"]


def run(
    connection: Connection,
    words: list[str],
    *,
    agent: str,
    thread: str,
    task: bool,
    as_json: bool,
    show_reasoning: bool,
) -> ExitCode:
    """Run a turn and show it; the answer alone goes to stdout.

    Raises:
        UsageProblem: there is nothing to say, or a file cannot be attached.
    """
    text = _text(words)
    parts = attach(text)
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
        if task:
            return session.run(None, [], task=Task(description=text, parts=parts))
        return session.run(text, parts)


def start(
    connection: Connection, words: list[str], *, agent: str, thread: str, task: bool, as_json: bool
) -> ExitCode:
    """Admit a turn and print its name, or with `as_json` the whole answer.

    Raises:
        UsageProblem: there is nothing to say, or a file cannot be attached.
    """
    text = _text(words)
    parts = attach(text)
    with connection.open() as client:
        chosen = agent or ("" if thread else default_agent(client))
        work = {"task": Task(description=text, parts=parts)} if task else {"text": text, "parts": parts}
        spec = turn_spec(agent=chosen, thread=thread, **work)
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
