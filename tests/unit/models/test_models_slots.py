"""So many calls of one provider run at once; the others wait, first come, first served."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from turnwire.extend.llm import ModelRequest, StreamFailure, TextPart, UserMessage
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.breaker import Breaker
from turnwire.runtime.models.guard import Gate, GuardedModel
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.scripted import ScriptedModel
from turnwire.runtime.models.settings import BreakerSettings, ModelSettings, ProviderProfile
from turnwire.runtime.models.slots import Slots

REQUEST = ModelRequest("m", (UserMessage((TextPart("Hi"),)),))


def nobody() -> None:
    """Nobody listens."""


async def turns(count: int = 5) -> None:
    """Let everybody run who can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_first_to_come_is_the_first_to_go() -> None:
    slots, order = Slots(1), list[int]()

    async def call(number: int) -> None:
        await slots.take(nobody)
        order.append(number)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        await slots.take(nobody)
        for number in range(5):
            group.create_task(call(number))
            await turns()
        for _ in range(5):
            slots.give_back()
            await turns()
    assert order == list(range(5))


async def test_a_place_that_is_given_back_is_not_taken_by_who_comes_later() -> None:
    slots, order = Slots(1), list[str]()

    async def call(name: str) -> None:
        await slots.take(nobody)
        order.append(name)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        await slots.take(nobody)
        group.create_task(call("first"))
        await turns()
        slots.give_back()
        # Before the one who waits has run.
        group.create_task(call("later"))
        await turns()
        assert order == ["first"]
        slots.give_back()


async def test_a_wait_is_told_once_and_no_wait_is_not_told() -> None:
    slots, told = Slots(1), list[int]()
    await slots.take(lambda: told.append(0))
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(slots.take(lambda: told.append(1)))
        await turns()
        slots.give_back()
    assert told == [1]


async def test_a_cancel_in_the_moment_of_the_grant_passes_the_place_on() -> None:
    slots = Slots(1)
    await slots.take(nobody)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        first, second = group.create_task(slots.take(nobody)), group.create_task(slots.take(nobody))
        await turns()
        slots.give_back()
        first.cancel()
        await second
    assert (slots.taken, slots.waiting) == (1, 0)


@given(st.integers(0, 3), st.lists(st.sampled_from(["come", "go", "cancel"]), max_size=30))
def test_never_more_than_the_limit_and_nothing_is_lost(limit: int, story: list[str]) -> None:
    async def play() -> None:
        slots = Slots(limit)
        callers: list[asyncio.Task[None]] = []
        inside: list[asyncio.Task[None]] = []
        for move in story:
            waiting = [t for t in callers if not t.done()]
            inside += [t for t in callers if t.done() and not t.cancelled() and t not in inside]
            if move == "come":
                callers.append(asyncio.create_task(slots.take(nobody)))
            elif move == "go" and inside:
                callers.remove(inside.pop(0))
                slots.give_back()
            elif move == "cancel" and waiting:
                waiting[-1].cancel()
            await turns(3)
            assert not limit or slots.taken <= limit
            assert slots.waiting == sum(not t.done() for t in callers)
        for caller in callers:
            caller.cancel()
        await turns(3)
        for _ in range(sum(not t.cancelled() for t in callers)):
            slots.give_back()
        assert (slots.taken, slots.waiting) == (0, 0)

    asyncio.run(play())


async def test_a_place_is_given_back_whatever_becomes_of_the_call() -> None:
    slots = Slots(1)
    hangs = [{"text": "a"}, {"hang": True}]
    calls = {"calls": [{"attempts": [hangs, hangs, [{"fail": {"kind": "server"}}], [{"text": "b"}]]}]}
    model = GuardedModel(ScriptedModel(calls), Gate(Breaker("x", BreakerSettings()), slots))
    async with aclosing(model.stream(REQUEST)) as left:
        await anext(left)
        assert slots.taken == 1
    assert slots.taken == 0
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        begun = asyncio.Event()
        reader = group.create_task(read(model, begun))
        await begun.wait()
        reader.cancel()
    assert slots.taken == 0
    for _ in range(2):
        await read(model, asyncio.Event())
        assert slots.taken == 0


async def read(model: BatchedModel, begun: asyncio.Event) -> None:
    async with aclosing(model.stream(REQUEST)) as stream:
        async for _ in stream:
            begun.set()


async def test_a_refused_call_gives_its_place_back() -> None:
    slots, circuit = Slots(1), Breaker("x", BreakerSettings(failures=1))
    script = {"calls": [{"attempts": [[{"fail": {"kind": "server"}}]]}]}
    model = GuardedModel(ScriptedModel(script), Gate(circuit, slots))
    for _ in range(3):
        assert isinstance([event async for event in model.stream(REQUEST)][-1], StreamFailure)
    assert slots.taken == 0


def test_models_of_one_address_and_key_share_a_gate_and_others_do_not() -> None:
    def profile(url: str, key: str, **more: Any) -> ProviderProfile:
        return ProviderProfile(base_url=url, api_key=SecretStr(key), **more)

    registry = ModelRegistry(
        ModelSettings(
            providers={
                "one": profile("http://a.example", "k1"),
                "same": profile("http://a.example", "k1"),
                "key": profile("http://a.example", "k2"),
                "host": profile("http://b.example", "k1", max_concurrent_calls=2),
            },
            max_concurrent_calls=7,
        )
    )
    gates = [registry.gate_of(name) for name in ("one:a", "one:b", "same:a", "key:a", "host:a", "demo:")]
    assert gates[0] is gates[1] is gates[2]
    assert len({id(gate) for gate in gates}) == 4
    assert gates[-1] is None
    assert [gate and gate.slots.limit for gate in gates[:5]] == [7, 7, 7, 7, 2]
