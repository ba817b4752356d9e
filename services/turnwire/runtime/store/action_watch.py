"""Watchers of actions: an approver's inbox over threads. Woken by this process, and by a poll for others.

A watcher keeps the state of what it has sent and is still open, never a queue of what happened: an action
that changed more than once between two looks is sent once, as it is now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

from turnwire.extend.actions import Action
from turnwire.runtime.domain.action import ActionPlace
from turnwire.runtime.store.action_queries import ActionMark, action_marks, load_actions
from turnwire.runtime.store.attached import AttachedReader, ReaderTicker
from turnwire.runtime.store.queries import Filter
from turnwire.runtime.store.thread_watch import ReadStore

__all__ = ["SNAPSHOT", "ActionReader", "ActionWatch"]

POLL_SECONDS = 1.0
# Least time between two looks of a watcher.
LEAST_SECONDS = 0.1
# Commits of other processes come in another order than their times: each look goes back so far.
_OVERLAP_NS = 10 * 10**9
_LOADED_AT_ONCE = 20

_Ref = tuple[str, str, str]


class _Snapshot:
    """Says that everything that was open at the beginning has been given."""


SNAPSHOT = _Snapshot()


class ActionWatch:
    """Knows the watchers of actions.

    Args:
        read: runs a query.
        ticker: gives silent watchers their heartbeat.
        poll: seconds between two looks of each watcher.
    """

    def __init__(self, read: ReadStore, ticker: ReaderTicker, *, poll: float = POLL_SECONDS) -> None:
        self.read = read
        self.ticker = ticker
        self.poll = poll
        self._readers: dict[str, set[ActionReader]] = {}

    def changed(self, scope: str) -> None:
        """Have the watchers of a scope look again; to be called after the commit of a change."""
        for reader in self._readers.get(scope, ()):
            reader.look_again()

    def reader(self, place: ActionPlace, where: Filter, states: Sequence[str]) -> ActionReader:
        """Return a watcher, to be closed.

        Args:
            where: which actions, by what never changes in one.
            states: what an action is in when it is first sent, all of these; what was sent is followed on.
        """
        reader = ActionReader(self, place, where, frozenset(states))
        self._readers.setdefault(place.scope, set()).add(reader)
        return reader

    def leave(self, reader: ActionReader) -> None:
        """Forget a watcher."""
        readers = self._readers.get(reader.place.scope, set())
        readers.discard(reader)
        if not readers:
            self._readers.pop(reader.place.scope, None)


class ActionReader(AttachedReader):
    """Iterates over actions as they are now, SNAPSHOT once, and None when a heartbeat is due."""

    def __init__(self, watch: ActionWatch, place: ActionPlace, where: Filter, states: frozenset[str]) -> None:
        super().__init__(watch.ticker)
        self.place = place
        self._watch = watch
        self._where = where
        self._states = states
        self._sent: dict[_Ref, str] = {}
        self._since: int | None = None
        self._changed = False

    def close(self) -> None:
        """Let go; may be called from any task, also after the end."""
        super().close()
        self._watch.leave(self)

    def look_again(self) -> None:
        """Look, at once or when the look that is under way is done."""
        self._changed = True
        self.wake()

    def __aiter__(self) -> AsyncIterator[Action | _Snapshot | None]:
        """Iterate. Raises Unavailable (DRAINING, STORE_UNAVAILABLE)."""
        return self._actions()

    async def _actions(self) -> AsyncIterator[Action | _Snapshot | None]:
        loop = asyncio.get_running_loop()
        complete = False
        while True:
            self._changed = False
            looked = loop.time()
            news = await self._look()
            for first in range(0, len(news), _LOADED_AT_ONCE):
                chosen = news[first : first + _LOADED_AT_ONCE]
                for action in await self._load(chosen):
                    self._sent_at = loop.time()
                    yield action
            if not complete:
                complete = True
                self._sent_at = loop.time()
                yield SNAPSHOT
            self.leave_if_asked()
            if not self._changed:
                await self._wait()
            # A busy scope changes all the time, and few of its changes are actions.
            await asyncio.sleep(looked + LEAST_SECONDS - loop.time())
            if self._beat:
                self._beat = False
                self._sent_at = loop.time()
                yield None

    async def _look(self) -> list[_Ref]:
        """Return what has to be sent, and forget what ended long ago."""
        query = partial(action_marks, place=self.place, where=self._where, since=self._since)
        marks, now = await self._watch.read(query)
        if self._since is None:
            self._since = now
        seen = {mark.ref for mark in marks}
        gone = [ref for ref, state in self._sent.items() if ref not in seen and state == "open"]
        self._sent = {ref: state for ref, state in self._sent.items() if ref in seen or state == "open"}
        self._since = max(self._since, now - _OVERLAP_NS)
        return [mark.ref for mark in marks if self._is_news(mark)] + gone

    def _is_news(self, mark: ActionMark) -> bool:
        known = self._sent.get(mark.ref)
        if known is None:
            return self._states <= {mark.state}
        return known != mark.state

    async def _load(self, refs: Sequence[_Ref]) -> Sequence[Action]:
        found = await self._watch.read(partial(load_actions, scope=self.place.scope, refs=refs))
        there = {_ref(action): action for action in found}
        for ref in refs:
            if ref in there:
                self._sent[ref] = there[ref].state.value
            else:
                self._sent.pop(ref, None)  # deleted with its thread
        return found

    async def _wait(self) -> None:
        """Wait for a change, a heartbeat or the next look of the poll."""
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch.poll):
                    await self._waiting
        finally:
            self._waiting = None


def _ref(action: Action) -> _Ref:
    _, thread_id, _, turn_id, _, action_id = action.name.split("/")
    return thread_id, turn_id, action_id
