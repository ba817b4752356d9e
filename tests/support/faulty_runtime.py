"""The runtime service with places to die at: see `fault_points`."""

from __future__ import annotations

import sys

import turnwire.runtime.main
from support.fault_points import install, runtime_points

__all__ = ["main"]


def main() -> int:
    """Run the service; `TURNWIRE_TEST_FAULT_FILE` names the shared file."""
    install(runtime_points)
    return turnwire.runtime.main.main()


if __name__ == "__main__":
    sys.exit(main())
