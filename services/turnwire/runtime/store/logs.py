"""The logs in memory: of turns that this process owns, and of turns that somebody here only waits on.

A log that is only waited on lives as long as somebody holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from weakref import WeakValueDictionary

from turnwire.extend.events import TurnState
from turnwire.runtime.domain.turn import TurnKey, TurnRow
from turnwire.runtime.store.claimed import Claimed
from turnwire.runtime.store.log import Page, TurnLog
from turnwire.storage.units import Connection, UnitFenced

__all__ = ["Logs", "read_heads"]

# Turns asked for in one query.
_TURNS_AT_ONCE = 100


class Logs:
    """Finds the log of a turn. `make` makes one of a turn, an epoch (0 = not owned) and a next sequence."""

    def __init__(self, make: Callable[[TurnKey, int, int], TurnLog]) -> None:
        self._make = make
        self._owned: dict[TurnKey, TurnLog] = {}
        self._watched: WeakValueDictionary[TurnKey, TurnLog] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._owned) + len(self._watched)

    def __iter__(self) -> Iterator[TurnLog]:
        return iter((*self._owned.values(), *self._watched.values()))

    def get(self, key: TurnKey) -> TurnLog | None:
        """Return the log of a turn, owned or watched."""
        return self._owned.get(key) or self._watched.get(key)

    def own(self, claimed: Claimed) -> TurnLog:
        """Return the log to write a claimed turn with; whoever waits on the turn goes on with it."""
        key = claimed.key
        # What an earlier claim left is of an epoch that is over: it takes nothing more, its readers leave.
        self.lose(key, claimed.epoch)
        log = self._watched.pop(key, None)
        if log is None:
            log = self._make(key, claimed.epoch, claimed.next_sequence)
        else:
            log = log.owned_anew(claimed.epoch, claimed.next_sequence)
        self._owned[key] = log
        log.committed_page((claimed.first_sequence, claimed.next_sequence - 1, claimed.page))
        return log

    def watch(self, row: TurnRow) -> TurnLog:
        """Return a log to wait on, of a turn that is not at its end."""
        log = self.get(row.key)
        if log is None:
            log = self._make(row.key, 0, row.last_sequence + 1)
            log.waiting = row.state is TurnState.WAITING
            self._watched[row.key] = log
        return log

    def rest(self, log: TurnLog) -> None:
        """Hear that a log is written no more here: who waits on it goes on waiting, if its turn may go on."""
        if self._owned.get(log.turn) is not log:
            return
        del self._owned[log.turn]
        if log.error is None and not log.finished:
            self._watched[log.turn] = log

    def lose(self, key: TurnKey, epoch: int) -> None:
        """Let go of a turn that is owned at an epoch below this one: its writer and its readers hear so."""
        log = self._owned.get(key)
        if log is None or log.epoch >= epoch:
            return
        del self._owned[key]
        if log.error is None:
            log.refuse(UnitFenced(f"{key.name} was taken over", log.key))

    def let_go(self, key: TurnKey, epoch: int) -> None:
        """Hear that a turn is no longer run at this epoch, however that came."""
        log = self._owned.get(key)
        if log is not None and log.epoch == epoch:
            self.rest(log)

    def ended(self, key: TurnKey, page: Page) -> None:
        """Hear that a turn has ended by a transaction that was not its own log's; `page` is its last one."""
        log = self._owned.pop(key, None) or self._watched.pop(key, None)
        if log is not None:
            log.finished = True
            log.committed_page(page)

    def watched(self) -> Sequence[TurnKey]:
        """Return the turns that somebody waits on and nobody here owns."""
        return tuple(self._watched)

    def moved(self, key: TurnKey, last_sequence: int, state: TurnState) -> None:
        """Hear how far a watched turn has come; its readers are woken when that is news."""
        log = self._watched.get(key)
        waiting = state is TurnState.WAITING
        # Each change of the state comes with an event, so an older read is known by its sequence.
        if log is None or (last_sequence < log.committed and not state.terminal):
            return
        if not (state.terminal or last_sequence > log.committed or waiting != log.waiting):
            return
        log.committed = max(log.committed, last_sequence)
        log.next_sequence = log.committed + 1
        log.waiting = waiting
        if state.terminal:
            log.finished = True
            del self._watched[key]
        log.wake()


def read_heads(db: Connection, keys: Sequence[TurnKey]) -> Sequence[tuple[TurnKey, int, TurnState]]:
    """Return last sequence and state of each turn; one that is gone counts as cancelled."""
    found: dict[TurnKey, tuple[int, TurnState]] = {}
    for start in range(0, len(keys), _TURNS_AT_ONCE):
        some = keys[start : start + _TURNS_AT_ONCE]
        # One text for any number of turns, so that it is prepared once.
        filled = [*some, *[some[0]] * (_TURNS_AT_ONCE - len(some))] if len(some) > 1 else some
        rows = db.execute(
            "SELECT t.scope, t.thread_id, t.turn_id, h.next_sequence, t.state FROM turns t"
            " JOIN turn_heads h ON h.scope = t.scope AND h.turn_id = t.turn_id WHERE "
            + " OR ".join(["(t.scope = ? AND t.thread_id = ? AND t.turn_id = ?)"] * len(filled)),
            tuple(value for key in filled for value in (key.scope, key.thread_id, key.turn_id)),
        )
        for row in rows:
            found[TurnKey(*row[:3])] = (row[3] - 1, TurnState(row[4]))
    return [(key, *found.get(key, (0, TurnState.CANCELLED))) for key in keys]
