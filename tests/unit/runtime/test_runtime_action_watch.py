"""Lists and watchers of actions: what is open first, then each change, from whichever process it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from support.action_rows import REQUESTS, action_of, answer_to, suspend, waiting
from support.postgres import Location
from support.runtime_rig import begin, open_store
from turnwire.core.errors import Unavailable
from turnwire.extend.actions import Action, ActionState
from turnwire.runtime.domain.action import ActionPlace
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.action_queries import list_actions
from turnwire.runtime.store.action_watch import SNAPSHOT, ActionReader
from turnwire.runtime.store.queries import Filter
from turnwire.runtime.store.turn_store import TurnStore

EVERYWHERE = ActionPlace("team")
ALL = Filter()


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


class Inbox:
    """Reads a watcher by hand."""

    def __init__(self, reader: ActionReader) -> None:
        self.reader = reader
        self._news = aiter(reader)

    async def next(self) -> object:
        async with asyncio.timeout(10):
            return await anext(self._news)

    async def snapshot(self) -> list[Action]:
        found: list[Action] = []
        while isinstance(news := await self.next(), Action):
            found.append(news)
        assert news is SNAPSHOT
        return found


async def listed(store: TurnStore, place: ActionPlace = EVERYWHERE, where: Filter = ALL) -> list[str]:
    found = await store.read(partial(list_actions, place=place, where=where, after=None, count=100))
    return [action.call_id for action in found]


async def test_a_list_is_of_a_scope_a_thread_or_a_turn_the_oldest_first(store: TurnStore) -> None:
    one, _ = await waiting(store, "call-a", "call-b")
    two, _ = await waiting(store, "call-c")
    await waiting(store, "call-d", scope="others")
    everywhere = await listed(store)
    assert sorted(everywhere[:2]) == ["call-a", "call-b"]
    assert everywhere[2:] == ["call-c"]
    assert await listed(store, ActionPlace("team", two.thread_id)) == ["call-c"]
    assert await listed(store, ActionPlace("team", one.thread_id, one.turn_id)) == everywhere[:2]
    assert await listed(store, ActionPlace("team", one.thread_id, two.turn_id)) == []


async def test_a_list_goes_on_behind_the_last_one_given(store: TurnStore) -> None:
    key, _ = await begin(store)
    asked = [action_of(key, f"call-{n}", create_time=10 + n // 2) for n in range(5)]
    await store.change(key.thread, lambda db: suspend(db, key, asked))
    seen: list[Action] = []
    while True:
        last = (seen[-1].create_time, seen[-1].name.rpartition("/")[2]) if seen else None
        page = await store.read(partial(list_actions, place=EVERYWHERE, where=ALL, after=last, count=2))
        if not page:
            break
        seen.extend(page)
    assert sorted(a.call_id for a in seen) == [f"call-{n}" for n in range(5)]
    assert [a.create_time for a in seen] == sorted(a.create_time for a in asked)


async def test_a_watcher_is_given_what_is_open_and_then_each_change(store: TurnStore) -> None:
    key, (one, two) = await waiting(store, "call-1", "call-2")
    await store.resolve_action(answer_to(key, one))
    inbox = Inbox(store.actions.reader(EVERYWHERE, ALL, ()))
    assert await inbox.snapshot() == [two]
    done = await store.resolve_action(answer_to(key, two, request_id=REQUESTS[1]))
    assert await inbox.next() == done.action
    _, (three,) = await waiting(store, "call-3")
    assert await inbox.next() == three
    inbox.reader.close()


async def test_a_watcher_of_open_actions_hears_how_they_ended(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    inbox = Inbox(store.actions.reader(EVERYWHERE, ALL, ("open",)))
    assert await inbox.snapshot() == [action]
    done = await store.resolve_action(answer_to(key, action, state=ActionState.REJECTED, answer="{}"))
    assert await inbox.next() == done.action
    inbox.reader.close()


async def test_a_watcher_sees_only_its_scope_thread_and_filter(store: TurnStore) -> None:
    _, (foreign,) = await waiting(store, "call-1", scope="others")
    _, (elsewhere,) = await waiting(store, "call-2")
    key, _ = await begin(store)
    asked = [action_of(key, "call-3"), action_of(key, "call-4", tool_name="delete")]
    stored = await store.change(key.thread, lambda db: suspend(db, key, asked))
    where = Filter((("tool_name = ?", "delete"),))
    inbox = Inbox(store.actions.reader(ActionPlace("team", key.thread_id), where, ()))
    assert await inbox.snapshot() == [stored[1]]
    inbox.reader.close()
    assert foreign.name != elsewhere.name


async def test_an_answer_of_another_process_is_seen_by_the_poll(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    inbox = Inbox(store.actions.reader(EVERYWHERE, ALL, ()))
    assert await inbox.snapshot() == [action]
    store.actions.leave(inbox.reader)  # nobody tells it
    done = await store.resolve_action(answer_to(key, action))
    assert await inbox.next() == done.action
    inbox.reader.close()


async def test_what_was_asked_and_answered_between_two_looks_is_told_once(store: TurnStore) -> None:
    inbox = Inbox(store.actions.reader(EVERYWHERE, ALL, ()))
    assert await inbox.snapshot() == []
    key, _ = await begin(store)
    now = await store.read(lambda db: db.now_ns())
    auto = action_of(key, state=ActionState.APPROVED, resolver="auto", create_time=now, resolve_time=now)
    await store.change(key.thread, lambda db: suspend(db, key, [auto]))
    first = await inbox.next()
    assert isinstance(first, Action)
    assert (first.state, first.resolver) == (ActionState.APPROVED, "auto")
    _, (later,) = await waiting(store, "call-2")
    assert await inbox.next() == later
    inbox.reader.close()


async def test_a_deleted_action_is_forgotten(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    inbox = Inbox(store.actions.reader(EVERYWHERE, ALL, ()))
    assert await inbox.snapshot() == [action]

    def delete(db: object) -> None:
        db.execute("DELETE FROM actions WHERE scope = ?", (key.scope,))  # type: ignore[attr-defined]

    await store.change(key.thread, delete)
    _, (later,) = await waiting(store, "call-2")
    assert await inbox.next() == later
    inbox.reader.close()


async def test_a_watcher_leaves_with_the_process(store: TurnStore) -> None:
    inbox = Inbox(store.actions.reader(EVERYWHERE, ALL, ()))
    assert await inbox.snapshot() == []
    store.send_away()
    with pytest.raises(Unavailable) as left:
        await inbox.next()
    assert left.value.reason == "DRAINING"
    inbox.reader.close()


async def test_a_turn_that_waits_tells_what_for(store: TurnStore) -> None:
    key, (one, two) = await waiting(store, "call-1", "call-2")

    async def open_now(key: TurnKey) -> set[str]:
        return set((await store.get_turn(key)).open_actions)

    assert await open_now(key) == {one.name, two.name}
    await store.resolve_action(answer_to(key, replace(one, digest=one.digest)))
    assert await open_now(key) == {two.name}
