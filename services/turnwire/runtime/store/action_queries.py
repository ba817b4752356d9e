"""Reads of actions: each function is one query set inside one short read transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnwire.extend.actions import Action
from turnwire.runtime.domain.action import ActionPlace
from turnwire.runtime.store.actions import ACTION_COLUMNS, action_row
from turnwire.runtime.store.queries import Filter
from turnwire.storage.units import Connection

__all__ = ["ActionMark", "action_marks", "list_actions", "load_actions"]


@dataclass(frozen=True, slots=True)
class ActionMark:
    """The least of an action that tells whether a watcher has news; `ref` is thread, turn and action id."""

    ref: tuple[str, str, str]
    state: str


def list_actions(
    db: Connection, place: ActionPlace, where: Filter, after: tuple[int, str] | None, count: int
) -> Sequence[Action]:
    """Return actions, oldest first; `after` is (create_time, action id) of the last one that was given."""
    narrow, values = _narrow(place, where)
    sql = f"SELECT {ACTION_COLUMNS} FROM actions WHERE {narrow}"
    if after is not None:
        sql += " AND (create_time, action_id) > (?, ?)"
        values = (*values, *after)
    sql += " ORDER BY create_time, action_id LIMIT ?"
    return [action_row(row) for row in db.execute(sql, (*values, count))]


def action_marks(
    db: Connection, place: ActionPlace, where: Filter, since: int | None
) -> tuple[Sequence[ActionMark], int]:
    """Return marks of the actions that are open or were resolved at `since` or later, and the store's time.

    The oldest come first; without `since` there are only open ones.
    """
    narrow, values = _narrow(place, where)
    columns = "thread_id, turn_id, action_id, state, create_time"
    sql = f"SELECT {columns} FROM actions WHERE {narrow} AND state = 'open'"
    if since is not None:
        sql += f" UNION ALL SELECT {columns} FROM actions WHERE {narrow} AND resolve_time >= ?"
        sql += " AND resolve_time > 0 AND state <> 'open'"
        values = (*values, *values, since)
    rows = db.execute(f"{sql} ORDER BY 5, 3", values)
    return [ActionMark((row[0], row[1], row[2]), row[3]) for row in rows], db.now_ns()


def load_actions(db: Connection, scope: str, refs: Sequence[tuple[str, str, str]]) -> Sequence[Action]:
    """Return the actions of these thread, turn and action ids, as far as they are still there."""
    sql = (
        f"SELECT {ACTION_COLUMNS} FROM actions"
        " WHERE scope = ? AND thread_id = ? AND turn_id = ? AND action_id = ?"
    )
    rows = (db.execute(sql, (scope, *ref)).fetchone() for ref in refs)
    return [action_row(row) for row in rows if row is not None]


def _narrow(place: ActionPlace, where: Filter) -> tuple[str, tuple[Any, ...]]:
    sql = "scope = ?"
    values: tuple[Any, ...] = (place.scope,)
    if place.thread_id != "-":
        sql, values = f"{sql} AND thread_id = ?", (*values, place.thread_id)
    if place.turn_id:
        sql, values = f"{sql} AND turn_id = ?", (*values, place.turn_id)
    conditions, more = where.sql()
    return sql + conditions, (*values, *more)
