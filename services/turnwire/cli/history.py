"""What has been said, edited: answers made anew, turns tried again, threads copied and deleted."""

from __future__ import annotations

import sys

from turnwire.cli.connect import Connection, say_error
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.json_lines import write_line
from turnwire.cli.screen import Screen
from turnwire.cli.session import Session
from turnwire_client import Client

__all__ = ["delete", "fork", "regenerate", "retry"]


def regenerate(connection: Connection, thread: str, message: str, as_json: bool) -> ExitCode:
    """Have an answer made anew, of the thread as it is now, and show it."""
    with connection.open() as client:
        turn = client.regenerate_turn(thread, message, expected_version=_version(client, thread))
        return _show(client, turn.name, as_json)


def retry(connection: Connection, turn: str, as_json: bool) -> ExitCode:
    """Try a turn again, of the thread as it is now, and show it."""
    with connection.open() as client:
        again = client.retry_turn(turn, expected_version=_version(client, turn.partition("/turns/")[0]))
        return _show(client, again.name, as_json)


def fork(connection: Connection, thread: str, message: str, as_json: bool) -> ExitCode:
    """Copy a thread and print the name of the copy."""
    with connection.open() as client:
        copy = client.fork_thread(thread, message)
    if as_json:
        write_line(copy)
    else:
        sys.stdout.write(f"{copy.name}\n")
    return ExitCode.OK


def delete(connection: Connection, thread: str, *, sure: bool) -> ExitCode:
    """Delete a thread; a person is asked first, a program has to say that it is sure."""
    if not sure:
        if not sys.stdin.isatty():
            say_error("nothing was deleted: say --yes when nobody can be asked")
            return ExitCode.USAGE
        sys.stderr.write(f"delete {thread} and all that is in it, for ever? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return ExitCode.OK
    with connection.open() as client:
        client.delete_thread(thread)
    return ExitCode.OK


def _version(client: Client, thread: str) -> int:
    return client.get_thread(thread, message_count=-1).thread.version


def _show(client: Client, turn: str, as_json: bool) -> ExitCode:
    return Session(client, Screen(), as_json=as_json).watch(turn, 0, False)
