"""How lifecycles compose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from turnwire.extend.lifecycle import (
    HistoryRewrite,
    HistoryRewritten,
    Lifecycle,
    LifecycleFailed,
    MetadataPatch,
    ObserversFailed,
    RewriteKind,
    compose_lifecycle,
)

T = TypeVar("T")
REWRITE = HistoryRewrite("r-1", RewriteKind.REGENERATE, "team", "threads/t-1", ("threads/t-1/messages/m",), 7)


class Part(Lifecycle):
    """Keeps what it saw, and gives or raises what it is told to."""

    def __init__(self, patch: MetadataPatch | None = None, error: Exception | None = None) -> None:
        self.patch = patch
        self.error = error
        self.prepared: list[HistoryRewrite] = []
        self.told: list[HistoryRewritten] = []

    async def prepare_history_rewrite(self, rewrite: HistoryRewrite) -> MetadataPatch | None:
        self.prepared.append(rewrite)
        if self.error is not None:
            raise self.error
        return self.patch

    async def history_rewritten(self, rewritten: HistoryRewritten) -> None:
        self.told.append(rewritten)
        if self.error is not None:
            raise self.error


async def test_patches_merge_in_order_and_shallowly_over_the_same_frozen_input() -> None:
    parts = (
        Part(MetadataPatch({"title": "a"}, {"k": "1", "n": '{"x":1}'})),
        Part(MetadataPatch(private={"n": '{"y":2}'})),
        Part(MetadataPatch({"title": "c,edited"})),
        Part(None),
    )
    patch = await compose_lifecycle(*parts).prepare_history_rewrite(REWRITE)
    assert patch == MetadataPatch({"title": "c,edited"}, {"k": "1", "n": '{"y":2}'})
    assert all(part.prepared == [REWRITE] for part in parts)


async def test_a_later_patch_brings_back_what_an_earlier_one_deletes() -> None:
    parts = (Part(MetadataPatch({"a": None, "b": None})), Part(MetadataPatch({"a": "again"})))
    patch = await compose_lifecycle(*parts).prepare_history_rewrite(REWRITE)
    assert patch == MetadataPatch({"a": "again", "b": None})


async def test_the_first_part_that_raises_ends_the_preparation() -> None:
    error = ValueError("no")
    parts = (Part(), Part(error=error), Part())
    with pytest.raises(LifecycleFailed) as caught:
        await compose_lifecycle(*parts).prepare_history_rewrite(REWRITE)
    assert caught.value.__cause__ is error
    assert (caught.value.phase, caught.value.part) == ("prepare_history_rewrite", "Part")
    assert [len(part.prepared) for part in parts] == [1, 1, 0]


async def test_all_observers_run_and_their_failures_are_told_together() -> None:
    parts = (Part(), Part(error=ValueError("no")), Part())
    with pytest.raises(ObserversFailed) as caught:
        await compose_lifecycle(*parts).history_rewritten(HistoryRewritten(REWRITE, 8))
    assert [failure.part for failure in caught.value.exceptions] == ["Part"]
    assert [len(part.told) for part in parts] == [1, 1, 1]


async def test_the_end_of_the_process_is_no_failure_of_an_observer() -> None:
    class Leaving(Lifecycle):
        async def history_rewritten(self, rewritten: HistoryRewritten) -> None:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await compose_lifecycle(Leaving(), Part()).history_rewritten(HistoryRewritten(REWRITE, 8))


async def test_only_parts_that_override_a_phase_are_called_and_each_call_is_guarded() -> None:
    calls = 0

    async def guard(work: Awaitable[T]) -> T:
        nonlocal calls
        calls += 1
        return await work

    composed = compose_lifecycle(Lifecycle(), Part(), Lifecycle(), guard=guard)
    assert await composed.prepare_history_rewrite(REWRITE) == MetadataPatch()
    await composed.history_rewritten(HistoryRewritten(REWRITE, 8))
    assert calls == 2


async def test_composed_lifecycles_compose_again() -> None:
    inner = compose_lifecycle(Part(MetadataPatch({"a": "1"})), Part(MetadataPatch({"b": "2"})))
    patch = await compose_lifecycle(inner, Part(MetadataPatch({"b": "3"}))).prepare_history_rewrite(REWRITE)
    assert patch == MetadataPatch({"a": "1", "b": "3"})
