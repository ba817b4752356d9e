"""Filters over the ledger: terms joined by ` AND `, the same for listings, open rows and followers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from turnwire.control.domain import CommandKind, CommandRow, CommandState, OutcomeKind, thread_of
from turnwire.core.errors import FieldViolation, InvalidRequest
from turnwire.core.text import require_clean

__all__ = ["CommandFilter", "parse_filter"]

_MAX_LENGTH = 1024
_WORDS = {
    "state": frozenset(item.value for item in CommandState),
    "outcome": frozenset(item.value for item in OutcomeKind),
    "type": frozenset(item.value for item in CommandKind),
}


@dataclass(frozen=True, slots=True)
class CommandFilter:
    """Terms that a row must meet; an empty one is met by every row."""

    state: str = ""
    outcome: str = ""
    type: str = ""
    thread: str = ""
    turn: str = ""
    subject: str = ""

    @property
    def wants_open(self) -> bool:
        """Whether a row without an outcome can meet the filter."""
        return self.state != CommandState.DONE and not self.outcome

    @property
    def wants_done(self) -> bool:
        """Whether a row with an outcome can meet the filter."""
        return self.state in ("", CommandState.DONE)

    def matches(self, row: CommandRow) -> bool:
        """Tell whether a row meets every term."""
        outcome = row.outcome
        turns = {row.target.turn, row.bound_turn, outcome.turn if outcome else ""}
        threads = {row.target.thread, thread_of(row.target.turn)}
        return (
            self.state in ("", row.state)
            and self.outcome in ("", outcome.kind if outcome else None)
            and self.type in ("", row.kind)
            and (not self.thread or self.thread in threads)
            and (not self.turn or self.turn in turns)
            and self.subject in ("", row.subject)
        )

    def where(self) -> tuple[str, tuple[str, ...]]:
        """Return ` AND ...` for rows with an outcome, and its values."""
        clauses: list[str] = []
        values: list[str] = []
        columns = {"outcome": "outcome", "type": "kind", "thread": "thread", "subject": "subject"}
        for name, column in columns.items():
            if value := getattr(self, name):
                clauses.append(f" AND {column} = ?")
                values.append(value)
        if self.turn:
            clauses.append(" AND (target_turn = ? OR bound_turn = ? OR outcome_turn = ?)")
            values += [self.turn] * 3
        return "".join(clauses), tuple(values)


def parse_filter(text: str) -> CommandFilter:
    """Read a filter such as `outcome=EXPIRED AND subject=ops`; words of enums go in any case.

    Raises:
        InvalidRequest: an unknown or repeated term, or a word that the term does not know.
    """
    if len(text) > _MAX_LENGTH:
        raise _invalid(f"is longer than {_MAX_LENGTH} characters")
    require_clean(text, "filter")
    terms: dict[str, str] = {}
    for term in text.split(" AND ") if text.strip() else ():
        name, equals, value = (part.strip() for part in term.partition("="))
        if not equals or not value or name not in _NAMES:
            raise _invalid(f"has a term that is none of {', '.join(f'{n}=' for n in _NAMES)}")
        if name in terms:
            raise _invalid(f"names {name} twice")
        if name in _WORDS and (value := value.lower()) not in _WORDS[name]:
            raise _invalid(f"has an unknown {name}; known are {', '.join(sorted(_WORDS[name]))}")
        terms[name] = value
    return CommandFilter(**terms)


_NAMES = tuple(field.name for field in fields(CommandFilter))


def _invalid(description: str) -> InvalidRequest:
    text = f"filter {description}"
    return InvalidRequest(text, violations=(FieldViolation("filter", description),), field="filter")
