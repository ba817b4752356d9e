"""The arguments of the commands that edit threads; the work is imported when a command needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from turnwire.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from turnwire.cli.connect import Connection

__all__ = ["add_to"]

Thread = Annotated[str, typer.Argument(help="Name or id of the thread.")]
Message = Annotated[str, typer.Option("--message", help="Name of a message; none = the latest.")]
Json = Annotated[bool, typer.Option("--json", help="Print ProtoJSON, one message a line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]

CarryOut = Callable[[Callable[[], ExitCode]], None]


def add_to(app: typer.Typer, carry_out: CarryOut) -> None:
    """Add the commands to the program; `carry_out` does the work of one and leaves with its exit code."""
    _add_edits(app, carry_out)
    _add_copies(app, carry_out)


def _add_edits(app: typer.Typer, carry_out: CarryOut) -> None:
    @app.command("regenerate")
    def _regenerate(
        context: typer.Context, thread: Thread, message: Message = "", as_json: Json = False
    ) -> None:
        """Have an answer made anew and show it; the answer and all after it leave the thread's view."""

        def work() -> ExitCode:
            from turnwire.cli.history import regenerate

            return regenerate(_connection(context), thread, message, as_json)

        carry_out(work)

    @app.command("retry")
    def _retry(
        context: typer.Context,
        turn: Annotated[str, typer.Argument(help="Name of a turn that failed or was cancelled.")],
        as_json: Json = False,
    ) -> None:
        """Try a turn again and show it."""

        def work() -> ExitCode:
            from turnwire.cli.history import retry

            return retry(_connection(context), turn, as_json)

        carry_out(work)


def _add_copies(app: typer.Typer, carry_out: CarryOut) -> None:
    @app.command("fork")
    def _fork(context: typer.Context, thread: Thread, message: Message = "", as_json: Json = False) -> None:
        """Copy a thread, up to a message or whole, and print the name of the copy."""

        def work() -> ExitCode:
            from turnwire.cli.history import fork

            return fork(_connection(context), thread, message, as_json)

        carry_out(work)

    @app.command("delete")
    def _delete(context: typer.Context, thread: Thread, yes: Yes = False) -> None:
        """Delete a thread and what is in it, for ever."""

        def work() -> ExitCode:
            from turnwire.cli.history import delete

            return delete(_connection(context), thread, sure=yes)

        carry_out(work)


def _connection(context: typer.Context) -> Connection:
    connection: Connection = context.obj
    return connection
