"""Lifecycles decide: each phase is a method to override, and several lifecycles compose in their order.

A phase sees frozen values and returns what it wants; it never changes what it is given, and what it returns
is taken whole or, when it raises, not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol, TypeVar

__all__ = [
    "Guard",
    "HistoryRewrite",
    "HistoryRewritten",
    "Lifecycle",
    "LifecycleFailed",
    "MetadataPatch",
    "ObserversFailed",
    "RewriteKind",
    "compose_lifecycle",
]

T = TypeVar("T")


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


class RewriteKind(Enum):
    """What is done to a thread's history."""

    REGENERATE = "regenerate"
    RETRY = "retry"
    VISIBILITY = "visibility"


@dataclass(frozen=True, slots=True)
class MetadataPatch:
    """Changes of a thread's metadata: a text sets a key, None deletes it, other keys stay as they are.

    Args:
        public: what clients see.
        private: what only extensions and the server see.
    """

    public: Mapping[str, str | None] = field(default_factory=dict)
    private: Mapping[str, str | None] = field(default_factory=dict)

    def merged(self, later: MetadataPatch | None) -> MetadataPatch:
        """Return this patch and then `later`: per key the later one counts, whole."""
        if later is None:
            return self
        return MetadataPatch({**self.public, **later.public}, {**self.private, **later.private})

    def __bool__(self) -> bool:
        """Say whether there is anything in it."""
        return bool(self.public or self.private)


@dataclass(frozen=True, slots=True)
class HistoryRewrite:
    """An edit of a thread's history that is about to be made.

    Args:
        rewrite_id: the same in `HistoryRewritten`.
        scope: whose thread it is.
        thread: `threads/{thread}`.
        messages: names of the messages that leave or enter the view, oldest first.
        base_version: the thread's version that the edit is of.
        subject: who asks, empty when nobody is named.
        visibility: for VISIBILITY, `visible` or `hidden`.
        public, private: the thread's metadata as it is; not to be changed.
    """

    rewrite_id: str
    kind: RewriteKind
    scope: str
    thread: str
    messages: tuple[str, ...]
    base_version: int
    subject: str = ""
    visibility: str = ""
    public: Mapping[str, str] = field(default_factory=_nothing)
    private: Mapping[str, str] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class HistoryRewritten:
    """An edit that is committed.

    Args:
        rewrite: what was asked, with the metadata as it was before.
        new_version: the thread's version right after it.
        patch: what was changed of the metadata.
        turn: name of the turn that was begun, empty for VISIBILITY.
    """

    rewrite: HistoryRewrite
    new_version: int
    patch: MetadataPatch = field(default_factory=MetadataPatch)
    turn: str = ""


class Lifecycle:
    """Base of lifecycles: override the phases you decide; all others do nothing.

    One object serves all turns and threads, so it holds no state of one of them.
    """

    async def prepare_history_rewrite(self, rewrite: HistoryRewrite) -> MetadataPatch | None:
        """Return what to change of the thread's metadata in the transaction of the edit, None = nothing.

        Raising refuses the edit: nothing is stored. Raise an `AgentControlError`, as PolicyViolationError, to
        tell the caller why. May be called more than once for one edit, so it has no effects of its own. It
        has ten seconds.
        """
        return None

    async def history_rewritten(self, rewritten: HistoryRewritten) -> None:
        """Learn of an edit after its commit, to bring the world outside into line.

        Called at most once, perhaps never if the process dies: key effects by `rewrite_id`. Raising is noted
        and undoes nothing; it has ten seconds.
        """


class LifecycleFailed(Exception):
    """A phase raised; `part` is the class of the lifecycle, the cause is what it raised."""

    def __init__(self, phase: str, part: str) -> None:
        super().__init__(f"{part}.{phase} failed")
        self.phase = phase
        self.part = part


class ObserversFailed(ExceptionGroup[LifecycleFailed]):
    """Some observers raised; all of them ran."""


class Guard(Protocol):
    """Runs one call of user code, under a deadline for instance."""

    async def __call__(self, work: Awaitable[T], /) -> T:
        """Return what the call returns, or raise what it raises."""
        ...


async def _unguarded(work: Awaitable[T], /) -> T:
    return await work


def compose_lifecycle(*parts: Lifecycle, guard: Guard = _unguarded) -> Lifecycle:
    """Return one lifecycle out of several, in their order; `guard` runs each call of a part.

    Each phase says how its results combine. A failure comes as LifecycleFailed, of observers as
    ObserversFailed.
    """
    return _Composed(parts, guard)


class _Composed(Lifecycle):
    def __init__(self, parts: tuple[Lifecycle, ...], guard: Guard) -> None:
        self._guard = guard
        # Only who overrides a phase takes part in it: a phase that nobody wants costs one look.
        self._preparing = _overriding(parts, "prepare_history_rewrite")
        self._observing = _overriding(parts, "history_rewritten")

    async def prepare_history_rewrite(self, rewrite: HistoryRewrite) -> MetadataPatch | None:
        """Each part sees the same input; patches merge in order, shallowly. The first failure ends it."""
        patch = MetadataPatch()
        for part in self._preparing:
            try:
                patch = patch.merged(await self._guard(part.prepare_history_rewrite(rewrite)))
            except Exception as error:
                raise LifecycleFailed("prepare_history_rewrite", type(part).__name__) from error
        return patch

    async def history_rewritten(self, rewritten: HistoryRewritten) -> None:
        """Every part hears of it, whatever becomes of the others."""
        failed: list[LifecycleFailed] = []
        for part in self._observing:
            try:
                await self._guard(part.history_rewritten(rewritten))
            except Exception as error:
                failure = LifecycleFailed("history_rewritten", type(part).__name__)
                failure.__cause__ = error
                failed.append(failure)
        if failed:
            raise ObserversFailed("observers of an edit failed", failed)


def _overriding(parts: tuple[Lifecycle, ...], phase: str) -> tuple[Lifecycle, ...]:
    return tuple(p for p in parts if getattr(type(p), phase) is not getattr(Lifecycle, phase))
