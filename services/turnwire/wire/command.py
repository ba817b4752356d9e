"""The command line that the three processes share: a few overrides, and `check-config`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwire.core.version import version

__all__ = ["CommandLine", "parse_command"]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What the operator asked for; `overrides` goes before environment and defaults."""

    check_config: bool
    overrides: dict[str, Any]
    ready_file: Path | None


def parse_command(name: str, argv: Sequence[str]) -> CommandLine:
    """Parse the arguments after the program's name.

    Raises:
        SystemExit: after --help, --version, or a wrong argument, as argparse does.
    """
    parser = argparse.ArgumentParser(name, description=f"Serves {name}; settings come from the environment.")
    parser.add_argument("--version", action="version", version=f"{name} {version()}")
    parser.add_argument(
        "command", nargs="?", choices=["serve", "check-config"], default="serve", help="default: serve"
    )
    parser.add_argument("--host", help="address to bind, over listen.host")
    parser.add_argument("--port", type=int, help="port to bind, over listen.port; 0 lets the system choose")
    parser.add_argument("--data", help="where the process keeps its data, over data")
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond loopback without TLS and tokens"
    )
    parser.add_argument(
        "--ready-file", type=Path, metavar="PATH", help='written once it serves: {"port": ..., "pid": ...}'
    )
    arguments = parser.parse_args(argv)
    listen: dict[str, Any] = {
        key: value for key in ("host", "port") if (value := getattr(arguments, key)) is not None
    }
    if arguments.insecure:
        listen["insecure"] = True
    overrides: dict[str, Any] = {"listen": listen} if listen else {}
    if arguments.data is not None:
        overrides["data"] = arguments.data
    return CommandLine(arguments.command == "check-config", overrides, arguments.ready_file)
