"""Where the command line finds its server, and how it reports what went wrong there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.failures import UsageProblem, exit_code_of, explain
from turnwire_client import Client, Patience, Tls, TurnwireError

__all__ = ["Connection", "Leave", "reported"]


class Leave(Exception):
    """Ends the program with an exit code; whatever there was to say has been said."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True, slots=True)
class Connection:
    """The options that all commands which talk to a server share."""

    target: str
    control_target: str = ""
    token: str = ""
    scope: str = ""
    tls: bool = False
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False

    def open(self, connect_time: float = 2.0) -> Client:
        """Give a client.

        Args:
            connect_time: seconds during which an unavailable server is asked again.

        Raises:
            UsageProblem: the options do not fit together, or the certificate cannot be read.
        """
        try:
            return Client(
                self.target,
                control_target=self.control_target or None,
                token=self.token or None,
                tls=self._tls(),
                scope=self.scope,
                insecure=self.insecure,
                patience=Patience(connect_time=connect_time),
            )
        except (ValueError, OSError) as error:
            raise UsageProblem(str(error)) from error

    def _tls(self) -> Tls | None:
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if not self.tls and not any(files):
            return None
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageProblem("--tls-cert and --tls-key come together: give both or neither")
        ca, cert, key = (path.read_bytes() if path else None for path in files)
        return Tls(ca=ca, cert=cert, key=key)


@contextmanager
def reported() -> Iterator[None]:
    """Print what goes wrong inside, and turn it into an exit code.

    Raises:
        Leave: whenever something went wrong.
    """
    try:
        yield
    except TurnwireError as error:
        say_error(explain(error))
        raise Leave(exit_code_of(error)) from error
    except UsageProblem as error:
        say_error(str(error))
        raise Leave(ExitCode.USAGE) from error
    except KeyboardInterrupt as error:
        raise Leave(ExitCode.INTERRUPTED) from error
    except BrokenPipeError as error:
        # The reader of our output has gone, as `head` does; what is still buffered must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Leave(ExitCode.OK) from error


def say_error(text: str) -> None:
    """Print an error, red on a terminal."""
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, soft_wrap=True).print(Text(text, style="red"))
