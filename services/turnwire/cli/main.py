"""The `turnwire` program: reads arguments and environment; the rest is imported when a command needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwire.cli import action_commands, history_commands, thread_commands, upkeep_commands
from turnwire.cli.exit_codes import HELP, ExitCode

if TYPE_CHECKING:
    from turnwire.cli.connect import Connection

__all__ = ["app", "main"]

app = typer.Typer(
    name="turnwire",
    help="Agent turns as a gRPC service.",
    epilog=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print ProtoJSON, one message a line.")]
Agent = Annotated[str, typer.Option("--agent", "-a", help="Agent to ask; `turnwire agents` lists them.")]
Thread = Annotated[str, typer.Option("--thread", "-t", help="Thread to go on with; none = a new one.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows.")]
Filter = Annotated[str, typer.Option("--filter", help="Terms such as state=RUNNING, joined by AND.")]
Quiet = Annotated[bool, typer.Option("--no-reasoning", help="Leave the model's thought out.")]
Data = Annotated[Path, typer.Option("--data", help="Folder of the stores.", envvar="TURNWIRE_DATA")]


@app.callback()
def options(
    context: typer.Context,
    target: Annotated[
        str, typer.Option(envvar="TURNWIRE_TARGET", help="Address of the runtime.")
    ] = "127.0.0.1:50051",
    control_target: Annotated[
        str, typer.Option(envvar="TURNWIRE_CONTROL_TARGET", help="Address of the control service.")
    ] = "",
    token: Annotated[str, typer.Option(envvar="TURNWIRE_TOKEN", help="Bearer token.", show_envvar=True)] = "",
    scope: Annotated[str, typer.Option(envvar="TURNWIRE_SCOPE", help="Scope, for tokens with several.")] = "",
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS, with the system's authorities.")] = False,
    tls_ca: Annotated[
        Path | None, typer.Option(envvar="TURNWIRE_TLS_CA", help="Speak TLS; PEM file of the authority.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(envvar="TURNWIRE_TLS_CERT", help="PEM file that proves who you are.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="TURNWIRE_TLS_KEY", help="PEM file with the key to it.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let a token travel in clear beyond this machine.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    from turnwire.cli.connect import Connection

    context.obj = Connection(target, control_target, token, scope, tls, tls_ca, tls_cert, tls_key, insecure)


@app.command()
def up(
    data: Data = Path(".turnwire"),
    host: Annotated[str, typer.Option(help="Address to bind; loopback needs no credentials.")] = "127.0.0.1",
    runtime_port: Annotated[int, typer.Option(min=0, max=65535, help="0 = the system chooses.")] = 50051,
    control_port: Annotated[int, typer.Option(min=0, max=65535, help="0 = the system chooses.")] = 50052,
    executor_port: Annotated[int, typer.Option(min=0, max=65535, help="0 = the system chooses.")] = 50053,
    agents: Annotated[Path | None, typer.Option(help="Folder of agent files; none = built-in.")] = None,
    tools: Annotated[list[Path] | None, typer.Option(help="Python file with tools; repeatable.")] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Written once all serve: addresses, pids.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Leave the services' log lines out.")] = False,
) -> None:
    """Start control, executor and runtime here; Ctrl-C drains them, Ctrl-C twice ends them."""
    import asyncio

    from turnwire.cli.up import UpOptions
    from turnwire.cli.up import up as start

    chosen = UpOptions(
        environment=dict(os.environ),
        data=data,
        host=host,
        runtime_port=runtime_port,
        control_port=control_port,
        executor_port=executor_port,
        agents=agents,
        tools=tuple(tools or ()),
        ready_file=ready_file,
        quiet=quiet,
    )
    _carry_out(lambda: asyncio.run(start(chosen)))


@app.command()
def chat(context: typer.Context, agent: Agent = "", thread: Thread = "", no_reasoning: Quiet = False) -> None:
    """Talk to an agent; @path attaches a file, Ctrl-C stops the turn."""

    def work() -> ExitCode:
        from turnwire.cli.chat import chat as talk

        return talk(_connection(context), agent, thread, not no_reasoning)

    _carry_out(work)


@app.command()
def run(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(help="What to do; none or - = stdin.")] = None,
    agent: Agent = "",
    thread: Thread = "",
    task: Annotated[bool, typer.Option("--task", help="Send the text as a task.")] = False,
    expect: Annotated[str, typer.Option("--expect", help="What a task's answer should be like.")] = "",
    schema: Annotated[
        Path | None, typer.Option("--schema", help="File of the JSON Schema that the answer must fit.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Only start it; print the turn's name.")] = False,
    as_json: Json = False,
    no_reasoning: Quiet = False,
) -> None:
    """Run one turn; the answer goes to stdout, all else to stderr. @path attaches a file."""

    def work() -> ExitCode:
        from turnwire.cli import run as one_turn

        connection, said = _connection(context), words or []
        asked = one_turn.Work(task, expect, schema)
        if detach:
            return one_turn.start(connection, said, agent=agent, thread=thread, work=asked, as_json=as_json)
        return one_turn.run(
            connection,
            said,
            agent=agent,
            thread=thread,
            work=asked,
            as_json=as_json,
            show_reasoning=not no_reasoning,
        )

    _carry_out(work)


@app.command()
def watch(
    context: typer.Context,
    turn: Annotated[str, typer.Argument(help="Name of the turn.")],
    after: Annotated[int, typer.Option(min=0, help="Last sequence already seen.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on while the turn waits.")] = False,
    as_json: Json = False,
    no_reasoning: Quiet = False,
) -> None:
    """Show a turn from any point on, running or long ended; Ctrl-C leaves it alone."""

    def work() -> ExitCode:
        from turnwire.cli.screen import Screen
        from turnwire.cli.session import Session

        with _connection(context).open() as client:
            session = Session(client, Screen(), as_json=as_json, show_reasoning=not no_reasoning)
            return session.watch(turn, after, follow)

    _carry_out(work)


@app.command()
def cancel(
    context: typer.Context,
    turn: Annotated[str, typer.Argument(help="Name of the turn, or of a thread.")],
    cause: Annotated[str, typer.Option(help="Why; shown in the turn.")] = "",
    clear_queue: Annotated[bool, typer.Option("--clear-queue", help="Cancel what waits, too.")] = False,
    wait: Annotated[float, typer.Option(min=0, max=300, help="Seconds to wait for the outcome.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Stop a turn and print what became of the command."""

    def work() -> ExitCode:
        from turnwire.cli.cancel import cancel as stop

        return stop(
            _connection(context), turn, cause=cause, clear_queue=clear_queue, wait=wait, as_json=as_json
        )

    _carry_out(work)


@app.command()
def threads(context: typer.Context, query: Filter = "", limit: Limit = 50, as_json: Json = False) -> None:
    """List threads, the latest changed first."""

    def work() -> ExitCode:
        from turnwire.cli.lists import threads as found

        return found(_connection(context), query, limit, as_json)

    _carry_out(work)


@app.command()
def turns(
    context: typer.Context,
    thread: Thread = "",
    query: Filter = "",
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List turns, newest first."""

    def work() -> ExitCode:
        from turnwire.cli.lists import turns as found

        return found(_connection(context), thread, query, limit, as_json)

    _carry_out(work)


@app.command()
def agents(context: typer.Context, as_json: Json = False) -> None:
    """List the agents of the deployment."""

    def work() -> ExitCode:
        from turnwire.cli.lists import agents as found

        return found(_connection(context), as_json)

    _carry_out(work)


@app.command()
def tools(context: typer.Context, agent: Agent = "", as_json: Json = False) -> None:
    """List the tools of an agent, or of all."""

    def work() -> ExitCode:
        from turnwire.cli.lists import tools as found

        return found(_connection(context), agent, as_json)

    _carry_out(work)


@app.command()
def doctor(context: typer.Context, data: Data = Path(".turnwire")) -> None:
    """Look for what could be wrong, and say what to do about it."""

    def work() -> ExitCode:
        from turnwire.cli.doctor import doctor as look

        return look(_connection(context), data, dict(os.environ))

    _carry_out(work)


@app.command()
def version() -> None:
    """Print the version of this program."""
    from turnwire.core.version import version as own

    sys.stdout.write(f"turnwire {own()}\n")


def _connection(context: typer.Context) -> Connection:
    connection: Connection = context.obj
    return connection


def _carry_out(work: Callable[[], ExitCode]) -> None:
    """Do the work and leave with its exit code; errors are printed, never traced."""
    from turnwire.cli.connect import Leave, reported

    try:
        with reported():
            code = work()
    except Leave as leave:
        raise typer.Exit(leave.code) from None
    raise typer.Exit(code)


action_commands.add_to(app, _carry_out)
history_commands.add_to(app, _carry_out)
thread_commands.add_to(app, _carry_out)
upkeep_commands.add_to(app, _carry_out)


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        app()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else ExitCode.USAGE
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
