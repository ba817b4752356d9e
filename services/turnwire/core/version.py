"""The version of the installed distribution, read where it is kept: in the package metadata."""

from __future__ import annotations

from functools import cache
from importlib import metadata

__all__ = ["version"]


@cache
def version() -> str:
    """Return the version, or `0+unknown` when turnwire runs from a source tree that is not installed."""
    try:
        return metadata.version("turnwire")
    except metadata.PackageNotFoundError:
        return "0+unknown"
