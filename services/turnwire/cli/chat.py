"""A conversation: one thread, turn after turn, until the person leaves."""

from __future__ import annotations

import sys

from turnwire.cli.actions import whole_arguments
from turnwire.cli.attachments import attach
from turnwire.cli.connect import Connection, say_error
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.failures import UsageProblem, explain
from turnwire.cli.prompt import ask
from turnwire.cli.screen import Screen
from turnwire.cli.session import Session, default_agent
from turnwire.cli.words import clean
from turnwire_client import Client, TurnwireError
from turnwire_client.messages import Action

__all__ = ["chat", "confirm"]

# Characters of arguments that are surely shown whole with the question.
SHOWN_ARGUMENTS = 80

_HELP = """/new starts a new thread, /agent NAME changes the agent, /thread tells its name, /quit leaves.
@path attaches a file. Ctrl-C stops the turn; at the prompt, Ctrl-C twice leaves."""


def chat(connection: Connection, agent: str, thread: str, show_reasoning: bool) -> ExitCode:
    """Talk until the person leaves; without a terminal each line of stdin is one message."""
    with connection.open() as client:
        info = client.server_info()
        screen = Screen()
        session = Session(
            client,
            screen,
            agent=agent or default_agent(client),
            thread=thread,
            show_reasoning=show_reasoning,
            confirm=confirm if sys.stdin.isatty() else None,
        )
        screen.note(
            f"turnwire {info.version} at {connection.target}, {session.agent}. /help tells more.", "dim"
        )
        return _Conversation(client, session, screen).run()


class _Conversation:
    """Reads lines and runs turns; `armed` when one more Ctrl-C leaves."""

    def __init__(self, client: Client, session: Session, screen: Screen) -> None:
        self._client = client
        self._session = session
        self._screen = screen
        self._armed = False
        self._last = ExitCode.OK

    def run(self) -> ExitCode:
        interactive = sys.stdin.isatty()
        if interactive:
            import readline  # noqa: F401  gives input() a history and editing
        while True:
            try:
                line = self._read(interactive)
            except KeyboardInterrupt:
                if self._armed:
                    break
                self._armed = True
                self._screen.note("press Ctrl-C again to leave", "dim")
                continue
            if line is None:
                break
            self._armed = False
            if line.startswith("/"):
                if not self._command(line):
                    break
            elif line.strip():
                self._turn(line)
        # A person who leaves has succeeded; a script wants to know how its last turn ended.
        return ExitCode.OK if interactive else self._last

    def _read(self, interactive: bool) -> str | None:
        """Give the next line, or None at the end of input."""
        if not interactive:
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        try:
            return ask("> ")
        except EOFError:
            self._screen.note("")
            return None

    def _turn(self, line: str) -> None:
        try:
            self._last = self._session.run(line, attach(line))
        except UsageProblem as error:
            say_error(str(error))
            self._last = ExitCode.USAGE
        except TurnwireError as error:
            self._screen.end()
            say_error(explain(error))
            self._last = ExitCode.REFUSED
        self._armed = self._session.interrupted

    def _command(self, line: str) -> bool:
        """Carry out a line that begins with a slash; False = leave."""
        word, _, rest = line.partition(" ")
        match word:
            case "/quit" | "/exit" | "/q":
                return False
            case "/new":
                self._session.thread = ""
                self._screen.note("a new thread begins with your next message", "dim")
            case "/agent" if rest.strip():
                name = rest.strip()
                self._session.agent = name if "/" in name else f"agents/{name}"
                self._screen.note(f"now {self._session.agent}", "dim")
            case "/agent":
                self._screen.note("\n".join(agent.name for agent in self._client.list_agents()), "dim")
            case "/thread":
                self._screen.note(self._session.thread or "no thread yet", "dim")
            case _:
                self._screen.note(_HELP, "dim")
        return True


def confirm(action: Action) -> bool:
    """Ask the person whether a call may run; no answer means no."""
    if len(action.arguments_json) > SHOWN_ARGUMENTS:
        # The line above it shows the beginning; nobody decides about what they cannot see.
        sys.stderr.write(f"{clean(whole_arguments(action))}\n")
    try:
        return ask("allow? [y/N] ").strip().lower() in {"y", "yes"}
    except (EOFError, KeyboardInterrupt):
        return False
