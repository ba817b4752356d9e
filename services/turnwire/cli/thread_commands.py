"""The commands that follow a thread and look after its queue: their options; the work comes when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from turnwire.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from turnwire.cli.connect import Connection

__all__ = ["add_to"]

Json = Annotated[bool, typer.Option("--json", help="Print ProtoJSON, one message a line.")]
Name = Annotated[str, typer.Argument(help="Name of the thread.")]
CarryOut = Callable[[Callable[[], ExitCode]], None]


def add_to(app: typer.Typer, carry_out: CarryOut) -> None:
    """Add `follow` and the group `queue`; `carry_out` runs a command's work and leaves with its code."""

    @app.command()
    def follow(
        context: typer.Context,
        thread: Name,
        after: Annotated[int, typer.Option(min=0, help="Last version already seen.")] = 0,
        as_json: Json = False,
    ) -> None:
        """Show the changes of a thread as they are made; Ctrl-C leaves it alone."""

        def work() -> ExitCode:
            from turnwire.cli.following import follow as changes

            return changes(_connection(context), thread, after, as_json)

        carry_out(work)

    app.add_typer(_queue(carry_out), name="queue")


def _queue(carry_out: CarryOut) -> typer.Typer:
    queue = typer.Typer(no_args_is_help=True, help="Look after what waits in a thread.")

    @queue.command("list")
    def waiting(context: typer.Context, thread: Name, as_json: Json = False) -> None:
        """List the turns that wait, first the next one."""

        def work() -> ExitCode:
            from turnwire.cli.lists import queued

            return queued(_connection(context), thread, as_json)

        carry_out(work)

    @queue.command()
    def edit(
        context: typer.Context,
        turn: Annotated[str, typer.Argument(help="Name of a turn that waits.")],
        words: Annotated[list[str], typer.Argument(help="What it is to be asked instead.")],
        as_json: Json = False,
    ) -> None:
        """Give a turn that waits another text; `turnwire cancel` takes it out of the queue."""

        def work() -> ExitCode:
            from turnwire.cli.following import edit as change

            return change(_connection(context), turn, " ".join(words), as_json)

        carry_out(work)

    return queue


def _connection(context: typer.Context) -> Connection:
    connection: Connection = context.obj
    return connection
