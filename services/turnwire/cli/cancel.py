"""The command that stops a turn, and what became of it."""

from __future__ import annotations

import sys

from turnwire.cli.connect import Connection, say_error
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.json_lines import write_line
from turnwire.cli.words import word
from turnwire_client.messages import OutcomeKind

__all__ = ["cancel"]

# The turn is over, or on its way there: what was wanted is so.
_DONE = {
    OutcomeKind.OUTCOME_KIND_APPLIED,
    OutcomeKind.OUTCOME_KIND_DUPLICATE,
    OutcomeKind.OUTCOME_KIND_ALREADY_FINISHED,
}


def cancel(
    connection: Connection, turn: str, *, cause: str, clear_queue: bool, wait: float, as_json: bool
) -> ExitCode:
    """Stop a turn, or what is live on a thread; print the command's outcome."""
    with connection.open() as client:
        outcome = client.cancel(turn, cause=cause, clear_queue=clear_queue, wait=wait)
    if outcome is None:
        say_error(f"the command was taken and has no outcome after {wait:g} s: it may still take effect")
        return ExitCode.WAITING
    if as_json:
        write_line(outcome)
    else:
        kind = word(OutcomeKind, outcome.kind, "OUTCOME_KIND_").replace("_", " ")
        where = f" at {outcome.applied_sequence}" if outcome.applied_sequence else ""
        sys.stdout.write(f"{kind}{where} {outcome.turn or turn} {outcome.message}".rstrip() + "\n")
    return ExitCode.OK if outcome.kind in _DONE else ExitCode.REFUSED
