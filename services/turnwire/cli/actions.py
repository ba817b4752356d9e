"""What turns wait for: shown, followed and answered."""

from __future__ import annotations

import sys
from itertools import islice

from turnwire.cli.connect import Connection
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.json_lines import write_line
from turnwire.cli.lists import lines, moment, table
from turnwire.cli.words import clean, word
from turnwire_client.messages import Action, ActionKind, ActionState, RiskTier

__all__ = ["answer", "follow", "listed", "show", "whole_arguments"]

_KIND, _STATE = "ACTION_KIND_", "ACTION_STATE_"


def listed(connection: Connection, parent: str, query: str, limit: int, as_json: bool) -> ExitCode:
    """List actions, oldest first."""
    with connection.open() as client:
        found = islice(client.list_actions(parent or "-", query=query), limit)
        if as_json:
            return lines(found)
        table(("action", "state", "kind", "tool", "risk", "asked", "expires"), (_row(a) for a in found))
    return ExitCode.OK


def follow(connection: Connection, parent: str, query: str, as_json: bool) -> ExitCode:
    """Print what is open, then each change, until Ctrl-C."""
    with connection.open() as client:
        try:
            for action in client.watch_actions(parent or "-", query=query):
                if as_json:
                    write_line(action)
                else:
                    sys.stdout.write("\t".join(clean(cell) for cell in _row(action)) + "\n")
                sys.stdout.flush()
        except KeyboardInterrupt:
            return ExitCode.OK
    return ExitCode.OK


def show(connection: Connection, name: str, as_json: bool) -> ExitCode:
    """Print all there is to know before one decides."""
    with connection.open() as client:
        action = client.get_action(name)
    if as_json:
        write_line(action)
        return ExitCode.OK
    facts = {
        "action": action.name,
        "state": word(ActionState, action.state, _STATE),
        "kind": word(ActionKind, action.kind, _KIND).replace("_", " "),
        "question": action.question,
        "agent": action.agent,
        "tool": action.tool_name,
        "arguments": whole_arguments(action),
        "risk": word(RiskTier, action.risk_tier, "RISK_TIER_"),
        "digest": action.digest,
        "may answer": action.required_role,
        "asked": moment(action.create_time),
        "expires": moment(action.expire_time),
        "answered": moment(action.resolve_time),
        "answered by": action.resolver,
    }
    for label, value in facts.items():
        if value:
            sys.stdout.write(f"{label + ':':<13}{clean(value)}\n")
    return ExitCode.OK


def answer(
    connection: Connection, name: str, *, approve: bool, comment: str, digest: str, as_json: bool
) -> ExitCode:
    """Approve or reject an action; without a digest, as it is shown at this moment."""
    with connection.open() as client:
        action = client.get_action(name)
        if digest:
            action.digest = digest
        done = client.decide(action, approve=approve, comment=comment)
    if as_json:
        write_line(done)
    else:
        state = word(ActionState, done.state, _STATE)
        sys.stdout.write(clean(f"{state} {done.name}: {done.tool_name} {whole_arguments(done)}") + "\n")
    return ExitCode.OK


def whole_arguments(action: Action) -> str:
    """Give the arguments as the tool gets them: read and written anew, they might say something else."""
    return action.arguments_json or "{}"


def _row(action: Action) -> tuple[str, ...]:
    return (
        action.name,
        word(ActionState, action.state, _STATE),
        word(ActionKind, action.kind, _KIND).replace("_", " "),
        action.tool_name,
        word(RiskTier, action.risk_tier, "RISK_TIER_"),
        moment(action.create_time),
        moment(action.expire_time),
    )
