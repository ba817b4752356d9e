"""Actions in the store: who may answer what, which answer wins, and when the log is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from support.action_rows import REQUESTS, action_of, answer_to, key_of, suspend, waiting
from support.postgres import Location
from support.runtime_rig import begin, open_store
from turnwire.core.errors import AlreadyExists, Forbidden, NotFound, TurnwireError, WrongState
from turnwire.extend.actions import Action, ActionState
from turnwire.extend.events import ActionResolved, TurnState
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store import actions
from turnwire.runtime.store.actions import close_statement, expire, get_action, wake_statement
from turnwire.runtime.store.turn_store import TurnStore


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


async def stored(store: TurnStore, key: TurnKey, action: Action) -> Action:
    return await store.read(lambda db: get_action(db, key_of(key, action)))


async def column(store: TurnStore, key: TurnKey, name: str) -> int:
    sql = f"SELECT {name} FROM turns WHERE scope = ? AND thread_id = ? AND turn_id = ?"
    place = (key.scope, key.thread_id, key.turn_id)
    found = await store.read(lambda db: db.execute(sql, place).fetchone())
    return int(found[0])


async def told(store: TurnStore, key: TurnKey) -> list[ActionResolved]:
    """What a claim of this moment would tell the log."""
    return await store.change(key.thread, lambda db: expire(db, key, db.now_ns()))


async def test_an_answer_is_stored_with_who_gave_it_and_wakes_the_turn(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    assert await column(store, key, "wake_time") == action.expire_time
    before = (await store.get_turn(key)).open_actions
    resolution = await store.resolve_action(answer_to(key, action))
    assert before == (action.name,)
    assert resolution.changed
    assert resolution.action.state is ActionState.APPROVED
    assert resolution.action.resolver == "ann"
    assert await stored(store, key, action) == resolution.action
    assert await column(store, key, "wake_time") == resolution.action.resolve_time
    assert (await store.get_turn(key)).open_actions == ()


async def test_an_answer_is_one_visible_change_of_its_turn(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    sql = "SELECT version FROM threads WHERE thread_id = ?"
    (before,) = await store.read(lambda db: db.execute(sql, (key.thread_id,)).fetchone())
    await store.resolve_action(answer_to(key, action))
    await store.resolve_action(answer_to(key, action))
    assert await column(store, key, "change_version") == before + 1
    assert await store.read(lambda db: db.execute(sql, (key.thread_id,)).fetchone()) == (before + 1,)


async def test_the_same_request_gets_the_first_result_again(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    first = await store.resolve_action(answer_to(key, action))
    again = await store.resolve_action(answer_to(key, action))
    assert again == replace(first, changed=False)


@pytest.mark.parametrize(
    "other", [{"state": ActionState.REJECTED, "answer": '{"reason":""}'}, {"digest": "e" * 64}]
)
async def test_the_same_request_with_another_answer_is_refused(
    store: TurnStore, other: dict[str, str]
) -> None:
    key, (action,) = await waiting(store)
    await store.resolve_action(answer_to(key, action))
    with pytest.raises(AlreadyExists) as refused:
        await store.resolve_action(answer_to(key, action, **other))  # type: ignore[arg-type]
    assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_the_request_of_another_action_is_refused(store: TurnStore) -> None:
    key, (one, two) = await waiting(store, "call-1", "call-2")
    await store.resolve_action(answer_to(key, one))
    with pytest.raises(AlreadyExists):
        await store.resolve_action(answer_to(key, two))
    assert (await stored(store, key, two)).state is ActionState.OPEN


async def test_of_two_answers_at_once_one_wins_and_the_other_is_told_who_did(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    given = [
        answer_to(key, action, request_id=REQUESTS[1], resolver="ann"),
        answer_to(
            key, action, request_id=REQUESTS[2], resolver="bob", state=ActionState.REJECTED, answer="{}"
        ),
    ]
    refusals: list[TurnwireError] = []

    async def give(number: int) -> None:
        try:
            await store.resolve_action(given[number])
        except TurnwireError as error:
            refusals.append(error)

    async with asyncio.TaskGroup() as tasks:
        for number in range(2):
            tasks.create_task(give(number))
    (refusal,) = refusals
    won = await stored(store, key, action)
    assert refusal.reason == "ACTION_RESOLVED"
    assert refusal.metadata == {"action": action.name, "state": won.state.name, "resolver": won.resolver}
    assert len(await told(store, key)) == 1


async def test_an_answer_needs_the_role_that_the_action_asks_for(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    with pytest.raises(Forbidden) as refused:
        await store.resolve_action(answer_to(key, action, roles=("caller",)))
    assert refused.value.reason == "ROLE_MISSING"
    await store.resolve_action(answer_to(key, action, roles=("operator",)))


async def test_an_answer_to_something_else_than_was_shown_is_refused(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    with pytest.raises(WrongState) as refused:
        await store.resolve_action(answer_to(key, action, digest="e" * 64))
    assert refused.value.reason == "DIGEST_MISMATCH"
    assert (await stored(store, key, action)).state is ActionState.OPEN


async def test_an_action_of_another_scope_is_not_found(store: TurnStore) -> None:
    key, (action,) = await waiting(store)
    foreign = TurnKey("others", key.thread_id, key.turn_id)
    with pytest.raises(NotFound) as refused:
        await store.resolve_action(answer_to(foreign, action))
    assert refused.value.reason == "ACTION_NOT_FOUND"


async def test_an_answer_that_comes_too_late_finds_the_action_expired(store: TurnStore) -> None:
    key, _ = await begin(store)
    action = action_of(key, create_time=1, expire_time=2)
    await store.change(key.thread, lambda db: suspend(db, key, [action]))
    resolution = await store.resolve_action(answer_to(key, action))
    assert resolution.error is not None
    assert resolution.error.reason == "ACTION_RESOLVED"
    assert resolution.error.metadata["state"] == "EXPIRED"
    assert (await stored(store, key, action)).resolver == "expiry"
    (event,) = await told(store, key)
    assert event == ActionResolved(action.name, action.call_id, ActionState.EXPIRED, "expiry")


async def test_an_action_that_was_replaced_names_the_one_to_answer(store: TurnStore) -> None:
    key, (first,) = await waiting(store)
    await store.resolve_action(answer_to(key, first))
    second = action_of(key)
    await store.change(key.thread, lambda db: suspend(db, key, [second]))
    with pytest.raises(WrongState) as refused:
        await store.resolve_action(answer_to(key, first, request_id=REQUESTS[1]))
    assert refused.value.reason == "ACTION_STALE"
    assert refused.value.metadata["action"] == second.name


async def test_expiry_tells_each_end_once_in_the_order_of_the_ends(store: TurnStore) -> None:
    key, (one, two, three) = await waiting(store, "call-1", "call-2", "call-3")
    await store.resolve_action(answer_to(key, two, state=ActionState.REJECTED, answer='{"reason":"no"}'))
    late = three.expire_time
    first = await store.change(key.thread, lambda db: expire(db, key, db.now_ns()))
    then = await store.change(key.thread, lambda db: expire(db, key, late))
    assert [(e.call_id, e.state, e.resolver) for e in first] == [("call-2", ActionState.REJECTED, "ann")]
    assert {(e.call_id, e.state, e.resolver) for e in then} == {
        (a.call_id, ActionState.EXPIRED, "expiry") for a in (one, three)
    }
    assert await told(store, key) == []


async def test_an_answer_that_came_before_the_turn_waits_wakes_it_at_once(store: TurnStore) -> None:
    key, _ = await begin(store)
    one, two = action_of(key, "call-1"), action_of(key, "call-2")

    def ask(db: object) -> None:
        for action in (one, two):
            for statement in actions.insert_statements(key.scope, replace(action, expire_time=2**62)):
                db.execute(statement.sql, statement.params)  # type: ignore[attr-defined]

    await store.change(key.thread, ask)
    assert (await store.get_turn(key)).state is TurnState.RUNNING
    await store.resolve_action(answer_to(key, two))
    assert await column(store, key, "wake_time") == 0
    wake = wake_statement(key)
    await store.change(key.thread, lambda db: db.execute(wake.sql, wake.params).rowcount)
    assert await column(store, key, "wake_time") == 1


async def test_the_end_of_a_turn_closes_what_is_open_and_leaves_answers_alone(store: TurnStore) -> None:
    key, (one, two) = await waiting(store, "call-1", "call-2")
    await store.resolve_action(answer_to(key, two))
    close = close_statement(key, 99)
    await store.change(key.thread, lambda db: db.execute(close.sql, close.params).rowcount)
    assert await stored(store, key, one) == replace(one, state=ActionState.CANCELLED, resolve_time=99)
    assert (await stored(store, key, two)).state is ActionState.APPROVED
    assert await told(store, key) == []
    with pytest.raises(WrongState) as refused:
        await store.resolve_action(answer_to(key, one, request_id=REQUESTS[1]))
    assert refused.value.metadata["state"] == "CANCELLED"
