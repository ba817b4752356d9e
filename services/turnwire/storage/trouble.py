"""What kinds of trouble a driver's errors are: the store's, which pass or do not, or the data's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Trouble"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """How one engine's errors are classed.

    Args:
        is_driver: an error that the driver raises, rather than the code that uses it.
        is_transient: the same transaction may succeed later.
        is_corruption: the store is damaged, so that nothing read or written is to be trusted.
        wants_reconnect: the connection may be the broken part.
        describe: names an error without its text, which may quote values.
    """

    is_driver: Callable[[BaseException], bool]
    is_transient: Callable[[BaseException], bool]
    is_corruption: Callable[[BaseException], bool]
    wants_reconnect: Callable[[BaseException], bool]
    describe: Callable[[BaseException], str]
