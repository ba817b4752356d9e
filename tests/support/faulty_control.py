"""The control service with places to die at: see `fault_points`."""

from __future__ import annotations

import sys

import turnwire.control.main
from support.fault_points import control_points, install

__all__ = ["main"]


def main() -> int:
    """Run the service; `TURNWIRE_TEST_FAULT_FILE` names the shared file."""
    install(control_points)
    return turnwire.control.main.main()


if __name__ == "__main__":
    sys.exit(main())
