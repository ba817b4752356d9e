"""Readers of a turn: wherever and whenever they attach, and however slow they are, all get the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.postgres import Location
from support.runtime_rig import DONE, begin, events, open_store, pages, reader
from turnwire.extend.events import Notice, NoticeSeverity, TurnEvent
from turnwire.extend.llm import ReasoningDelta, TextDelta
from turnwire.runtime.event_codec import trim_page
from turnwire.runtime.store import log as log_module
from turnwire.runtime.store import reader as reader_module
from turnwire.runtime.store.log import TurnLog
from turnwire.runtime.store.turn_store import TurnStore

EVENTS: st.SearchStrategy[TurnEvent] = st.one_of(
    st.builds(TextDelta, st.text(max_size=40)),
    st.builds(ReasoningDelta, st.text(max_size=400)),
    st.builds(Notice, st.sampled_from(NoticeSeverity), st.just("reason"), st.text(max_size=10)),
)


@dataclass(frozen=True)
class Plan:
    """Groups of events, each committed on its own; readers by (after which group, from where, how slow)."""

    groups: list[list[TurnEvent]]
    readers: list[tuple[int, float, int]]
    page_events: int
    page_bytes: int
    kept_bytes: int


PLANS = st.builds(
    Plan,
    st.lists(st.lists(EVENTS, min_size=1, max_size=12), max_size=8),
    st.lists(st.tuples(st.integers(0, 8), st.floats(0, 1), st.integers(0, 3)), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(40, 600),
    st.integers(1, 1500),
)


class Limits:
    """Small limits for a while, so that small streams meet them."""

    def __init__(self, plan: Plan) -> None:
        self._values = {
            (log_module, "MAX_PAGE_EVENTS"): plan.page_events,
            (log_module, "MAX_PAGE_BYTES"): plan.page_bytes,
            (log_module, "MAX_KEPT_BYTES"): plan.kept_bytes,
            (reader_module, "MAX_PAGE_EVENTS"): plan.page_events,
            (reader_module, "MAX_PAGE_BYTES"): plan.page_bytes,
        }

    def __enter__(self) -> None:
        self._before = {key: getattr(*key) for key in self._values}
        for (module, name), value in self._values.items():
            setattr(module, name, value)

    def __exit__(self, *_: object) -> None:
        for (module, name), value in self._before.items():
            setattr(module, name, value)


async def _read(store: TurnStore, key: object, after: int, slowness: int) -> list[bytes]:
    reading = await reader(store, key, after)  # type: ignore[arg-type]
    got = []
    try:
        async for page in reading:
            got.append(page)
            for _ in range(slowness * 3):
                await asyncio.sleep(0)
    finally:
        reading.close()
    return got


async def _play(location: Location, plan: Plan) -> None:
    async with open_store(location) as store:
        key, journal = await begin(store)
        attached: list[tuple[int, asyncio.Task[list[bytes]]]] = []
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            for index in range(len(plan.groups) + 1):
                log = store.log_of(key)
                assert isinstance(log, TurnLog)
                for at, share, slowness in plan.readers:
                    if min(at, len(plan.groups)) == index:
                        after = round(share * log.committed)
                        task = tasks.create_task(_read(store, key, after, slowness))
                        attached.append((after, task))
                await asyncio.sleep(0)
                for event in plan.groups[index] if index < len(plan.groups) else ():
                    journal.emit(event)
                await journal.flush()
            await journal.finish(DONE, interrupted_reason="", applied=())
        whole = b"".join(await pages(store, key))
        assert [e.sequence for e in events(whole)] == list(range(1, 4 + sum(map(len, plan.groups))))
        for after, task in attached:
            assert b"".join(task.result()) == trim_page(whole, after)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLANS)
def test_every_reader_gets_the_same_bytes_without_gap_or_repeat(
    fresh_location: Callable[..., Location], plan: Plan
) -> None:
    with Limits(plan):
        asyncio.run(_play(fresh_location(), plan))


async def test_an_attach_after_any_event_gives_the_rest_of_the_same_bytes(store_location: Location) -> None:
    async with open_store(store_location) as store:
        key, journal = await begin(store)
        for n in range(30):
            journal.emit(TextDelta(f"word {n} "))
            if n % 7 == 0:
                await journal.flush()
        await journal.finish(DONE, interrupted_reason="", applied=())
        whole = b"".join(await pages(store, key))
        last = events(whole)[-1].sequence
        for after in range(last + 1):
            assert b"".join(await pages(store, key, after)) == trim_page(whole, after)
