"""The commands that look after stores: their options; the work is imported when one of them runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwire.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from turnwire.cli.connect import Connection

__all__ = ["add_to"]

Data = Annotated[Path, typer.Option("--data", help="Folder of the stores.", envvar="TURNWIRE_DATA")]
Url = Annotated[
    str,
    typer.Option("--url", help="PostgreSQL store instead of a file.", envvar="TURNWIRE_RUNTIME_STORE__URL"),
]
Age = Annotated[str, typer.Option("--older-than", help="Least time since a turn's end: 7d, 36h, 90m, 0.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, and delete nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Check = Annotated[bool, typer.Option("--check", help="Only say which schema it is; 8 unless up to date.")]

CarryOut = Callable[[Callable[[], ExitCode]], None]


def add_to(app: typer.Typer, carry_out: CarryOut) -> None:
    """Add `migrate` and the group `admin`; `carry_out` runs a command's work and leaves with its code."""

    @app.command()
    def migrate(data: Data = Path(".turnwire"), url: Url = "", check: Check = False) -> None:
        """Bring stores to this version's schema; no service may have them open."""

        def work() -> ExitCode:
            from turnwire.cli import upkeep

            return upkeep.migrate(data, url, check=check)

        carry_out(work)

    app.add_typer(_admin(carry_out), name="admin")


def _admin(carry_out: CarryOut) -> typer.Typer:
    admin = typer.Typer(no_args_is_help=True, help="Look after a store.")

    @admin.command()
    def prune(
        context: typer.Context,
        data: Data = Path(".turnwire"),
        url: Url = "",
        older_than: Age = "7d",
        dry_run: DryRun = False,
        as_json: Json = False,
    ) -> None:
        """Delete the events of turns that ended long ago; through the runtime when it has the store."""

        def work() -> ExitCode:
            from turnwire.cli import upkeep

            connection: Connection = context.obj
            return upkeep.prune(
                connection, data, url, older_than=older_than, dry_run=dry_run, as_json=as_json
            )

        carry_out(work)

    @admin.command("renew-log-id")
    def renew(data: Data = Path(".turnwire"), url: Url = "") -> None:
        """Give a restored store a new identity; no runtime may have it open."""

        def work() -> ExitCode:
            from turnwire.cli import upkeep

            return upkeep.renew(data, url)

        carry_out(work)

    return admin
