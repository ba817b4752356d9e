"""A failed call in a person's words: `CODE / REASON: text`, then the way out; never a traceback."""

from __future__ import annotations

from turnwire.cli.exit_codes import ExitCode
from turnwire_client import TurnwireError, Unavailable

__all__ = ["UsageProblem", "exit_code_of", "explain", "way_out"]


class UsageProblem(Exception):
    """What was typed cannot be done; the text says what can."""


_WAYS_OUT = {
    "UNREACHABLE": "is turnwire running there? Start it with `turnwire up`, or name the address: --target",
    "CREDENTIALS_MISSING": "give a token with --token or TURNWIRE_TOKEN",
    "CREDENTIALS_INVALID": "check the token in --token or TURNWIRE_TOKEN",
    "TOKEN_EXPIRED": "get a new token, then repeat the command",
    "ROLE_MISSING": "ask an operator for the role",
    "SCOPE_REQUIRED": "name the scope with --scope or TURNWIRE_SCOPE",
    "AGENT_NOT_FOUND": "`turnwire agents` lists those there are",
    "THREAD_NOT_FOUND": "`turnwire threads` lists those there are",
    "TURN_NOT_FOUND": "`turnwire turns` lists those there are",
    "MODEL_NOT_CONFIGURED": "set the provider's key and restart the runtime, or use `--agent demo`",
    "EVENTS_EXPIRED": "the final state is still there: `turnwire turns`",
    "SEQUENCE_AHEAD": "start from a smaller number: --after 0",
    "LOG_REPLACED": "the store was replaced: start again from --after 0",
    "QUEUE_FULL": "wait for the queue to shrink, or cancel turns of the thread",
    "MESSAGE_TOO_LARGE": "send smaller files",
    "METHOD_UNKNOWN": "the server is older than this program: `turnwire doctor` shows both versions",
    "FEATURE_NOT_SERVED": "this server does not serve it",
    "DRAINING": "the server is leaving: repeat in a moment",
    "INTERNAL": "report it with the error id above; the server's log has the same id",
    "CONTROL_TARGET_UNKNOWN": "name the control service with --control-target",
}


def way_out(error: TurnwireError) -> str:
    """Say what to do about an error; empty when there is nothing better than its own text."""
    if error.reason in _WAYS_OUT:
        return _WAYS_OUT[error.reason]
    if error.retry_delay is not None:
        return f"repeat in {error.retry_delay:g} s"
    return ""


def explain(error: TurnwireError) -> str:
    """Give the lines to print for a failed call."""
    lines = [str(error)]
    lines += [f"  {violation.field}: {violation.description}" for violation in error.violations]
    if error_id := error.metadata.get("error_id"):
        lines.append(f"  error id: {error_id}")
    if hint := way_out(error):
        lines.append(f"  {hint}")
    return "\n".join(lines)


def exit_code_of(error: TurnwireError) -> ExitCode:
    """Give the exit code of a failed call."""
    return ExitCode.UNREACHABLE if isinstance(error, Unavailable) else ExitCode.REFUSED
