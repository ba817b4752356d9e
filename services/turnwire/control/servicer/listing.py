"""Pages of the ledger: what has no outcome yet comes from memory, the rest from the store."""

from __future__ import annotations

from turnwire.control.domain import CommandRow
from turnwire.control.filters import CommandFilter
from turnwire.control.hub import Hub
from turnwire.control.ledger import SqliteLedger
from turnwire.core.errors import FieldViolation, InvalidRequest

__all__ = ["list_rows", "page_size"]

_DEFAULT, _LARGEST = 50, 200
_NEWEST = 2**62


def page_size(asked: int) -> int:
    """Return the number of rows of a page. Raises: InvalidRequest, when it is negative."""
    if asked < 0:
        description = "must not be negative"
        raise InvalidRequest(
            f"page_size {description}", violations=(FieldViolation("page_size", description),)
        )
    return min(asked or _DEFAULT, _LARGEST)


async def list_rows(
    hub: Hub, ledger: SqliteLedger, scope: str, terms: CommandFilter, before: int | None, size: int
) -> tuple[list[CommandRow], bool]:
    """Return the newest rows older than entry `before`, and whether there are more."""
    limit = _NEWEST if before is None else before
    found: dict[int, CommandRow] = {}
    # Memory first: a row that ends meanwhile is then in the store, and none is missed.
    if terms.wants_open:
        found = {row.entry: row for row in hub.open_rows(scope) if row.entry < limit and terms.matches(row)}
    if terms.wants_done:
        found.update({row.entry: row for row in await ledger.ended(scope, terms, limit, size + 1)})
    rows = [found[entry] for entry in sorted(found, reverse=True)]
    return rows[:size], len(rows) > size
