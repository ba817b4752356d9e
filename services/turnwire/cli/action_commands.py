"""The arguments of `turnwire actions ...`; the work is imported when a command needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from turnwire.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from turnwire.cli.connect import Connection

__all__ = ["add_to"]

Name = Annotated[str, typer.Argument(help="Name of the action; `turnwire actions list` tells it.")]
Parent = Annotated[str, typer.Option("--in", help="Name of a turn or thread; none = all threads.")]
Filter = Annotated[str, typer.Option("--filter", help="Terms such as state=OPEN, tool=shell, joined by AND.")]
Json = Annotated[bool, typer.Option("--json", help="Print ProtoJSON, one message a line.")]
Comment = Annotated[str, typer.Option("--comment", "-m", help="Why; the model reads it when you reject.")]
Digest = Annotated[str, typer.Option("--digest", help="What you were shown; refused when it is another now.")]

CarryOut = Callable[[Callable[[], ExitCode]], None]


def add_to(app: typer.Typer, carry_out: CarryOut) -> None:
    """Add the commands to the program; `carry_out` does the work of one and leaves with its exit code."""
    actions = typer.Typer(no_args_is_help=True, help="What turns wait for: list it, show it, answer it.")
    app.add_typer(actions, name="actions")
    _add_lists(actions, carry_out)
    _add_show(actions, carry_out)
    _add_answers(actions, carry_out)


def _add_lists(actions: typer.Typer, carry_out: CarryOut) -> None:
    @actions.command("list")
    def _list(
        context: typer.Context,
        parent: Parent = "",
        query: Filter = "state=OPEN",
        limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows.")] = 50,
        as_json: Json = False,
    ) -> None:
        """List actions, oldest first; by default those that are open."""

        def work() -> ExitCode:
            from turnwire.cli.actions import listed

            return listed(_connection(context), parent, query, limit, as_json)

        carry_out(work)

    @actions.command("watch")
    def _watch(
        context: typer.Context, parent: Parent = "", query: Filter = "", as_json: Json = False
    ) -> None:
        """Print what is open, then each change as it comes, until Ctrl-C."""

        def work() -> ExitCode:
            from turnwire.cli.actions import follow

            return follow(_connection(context), parent, query, as_json)

        carry_out(work)


def _add_show(actions: typer.Typer, carry_out: CarryOut) -> None:
    @actions.command("show")
    def _show(context: typer.Context, name: Name, as_json: Json = False) -> None:
        """Print an action with the whole of what would run."""

        def work() -> ExitCode:
            from turnwire.cli.actions import show

            return show(_connection(context), name, as_json)

        carry_out(work)


def _add_answers(actions: typer.Typer, carry_out: CarryOut) -> None:
    @actions.command("approve")
    def _approve(
        context: typer.Context, name: Name, comment: Comment = "", digest: Digest = "", as_json: Json = False
    ) -> None:
        """Let the call run."""
        carry_out(lambda: _answer(context, name, True, comment, digest, as_json))

    @actions.command("reject")
    def _reject(
        context: typer.Context, name: Name, comment: Comment = "", digest: Digest = "", as_json: Json = False
    ) -> None:
        """Keep the call from running; the turn goes on with that as its result."""
        carry_out(lambda: _answer(context, name, False, comment, digest, as_json))


def _answer(
    context: typer.Context, name: str, approve: bool, comment: str, digest: str, as_json: bool
) -> ExitCode:
    from turnwire.cli.actions import answer

    return answer(
        _connection(context), name, approve=approve, comment=comment, digest=digest, as_json=as_json
    )


def _connection(context: typer.Context) -> Connection:
    connection: Connection = context.obj
    return connection
