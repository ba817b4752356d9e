"""What the command line's exit codes mean; scripts may rely on them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode", "HELP"]


class ExitCode(IntEnum):
    """Each end that a script may want to tell apart."""

    OK = 0
    TURN_FAILED = 1
    USAGE = 2
    CANCELLED = 3
    UNREACHABLE = 4
    REFUSED = 5
    WAITING = 6
    SERVICE_DIED = 7
    CHECK_FAILED = 8
    INTERRUPTED = 130


HELP = """Exit codes: 0 done, 1 the turn failed, 2 wrong usage, 3 the turn was cancelled, 4 nothing answers
at the address, 5 the server refused, 6 the turn waits for somebody, 7 a service of `up` died, 8 a check
found something wrong, 130 interrupted."""
