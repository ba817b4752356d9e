"""The versions of a thread and what watchers make of them, under random turns, queues and edits."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.postgres import Location
from support.runtime_rig import admit, command, open_store
from support.thread_view import View, follow, seen_changes, whole
from turnwire.core.errors import TurnwireError
from turnwire.core.ids import mint_id
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.extend.events import (
    ActionRequired,
    MessageOrigin,
    SteerApplied,
    StepCommitted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnEvent,
    TurnFinished,
    TurnState,
)
from turnwire.extend.lifecycle import MetadataPatch, RewriteKind
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.action import ActionAnswer, ActionKey
from turnwire.runtime.domain.admission import Admitted
from turnwire.runtime.domain.message import CallPart, ContentPart
from turnwire.runtime.domain.resumption import Progress
from turnwire.runtime.domain.rewrites import NewTurn, RewriteBase, RewriteCommand
from turnwire.runtime.domain.thread import NewThreadCommand, ThreadPatch
from turnwire.runtime.domain.turn import InputPart, ThreadKey, TurnKey
from turnwire.runtime.store import queue, rewrite_bases, rewrites, threads
from turnwire.runtime.store.deletion import begin_deletion
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection

OPERATIONS = [
    *("admit", "admit", "tokens", "tokens", "say", "call", "start", "outcome", "outcome"),
    *("finish", "finish", "finish", "cancel_queued", "edit_queued", "rename", "suspend", "answer"),
    *("claim", "claim", "hide", "show", "supersede", "take_in"),
]
# An operation, and numbers that it chooses by; then which watcher reads, and how many changes.
STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 99), st.integers(0, 4), st.integers(0, 5)),
    min_size=15,
    max_size=30,
)


@dataclass
class World:
    """A thread with what its owner has in hand."""

    store: TurnStore
    key: ThreadKey
    journal: Journal | None = None
    step: int = 0
    open_calls: list[CallPart] = field(default_factory=list)
    started: set[str] = field(default_factory=set)
    actions: list[Action] = field(default_factory=list)

    def take(self, admitted: Admitted | None) -> None:
        if admitted is None or admitted.journal is None:
            return
        assert isinstance(admitted.journal, Journal)
        self.journal = admitted.journal
        if admitted.resumption is None:
            self.step, self.open_calls, self.started = 0, [], set()
            self.journal.begin_answer(mint_id())
        else:
            self.journal.resume(admitted.resumption)
            if not admitted.resumption.message_id:
                self.journal.begin_answer(mint_id())
        self.actions = []

    def _text(self, n: int) -> ContentPart:
        return ContentPart(InputPart(kind="text", text=f"text {n}"), self.step)

    async def admit(self, n: int) -> None:
        self.take(await admit(self.store, command(self.key.thread_id, text=f"said {n}")))

    async def tokens(self, n: int) -> None:
        if self.journal is not None:
            self.journal.emit(TextDelta(f"word {n} "))
            await self.journal.flush()

    async def say(self, n: int) -> None:
        if self.journal is None or self.open_calls:
            return
        self.step += 1
        self.journal.at(step=self.step)
        self.journal.commit_step([self._text(n)], [StepCommitted("m")])
        await self.journal.flush()

    async def take_in(self, n: int) -> None:
        """A message that the running turn takes in between two steps."""
        if self.journal is None or self.open_calls:
            return
        message_id, origin = mint_id(), list(MessageOrigin)[1 + n % 4]
        applied = SteerApplied(f"{self.key.name}/messages/{message_id}", origin)
        self.journal.take_in(
            message_id, origin, [self._text(n).content], [applied], progress=Progress(taken_in=self.step)
        )
        self.journal.begin_answer(mint_id())
        await self.journal.flush()

    async def call(self, n: int) -> None:
        await self._call(n, asked=False)

    async def suspend(self, n: int) -> None:
        """A step whose call needs an approval, and the turn that waits for it."""
        if await self._call(n, asked=True):
            assert self.journal is not None
            await self.journal.suspend()
            self.journal = None

    async def _call(self, n: int, asked: bool) -> bool:
        if self.journal is None or self.open_calls:
            return False
        self.step += 1
        self.journal.at(step=self.step)
        call = CallPart(mint_id(), f"p{n}", "tool", "{}", self.step, 0)
        actions = []
        events: list[TurnEvent] = [StepCommitted("m", (call.call_id,))]
        if asked:
            name = f"{self.journal.key.name}/actions/{mint_id()}"
            action = Action(name, ActionKind.APPROVAL, call_id=call.call_id, tool_name="tool", digest="d")
            actions, self.actions = [action], [action]
            events.append(ActionRequired(action))
        self.journal.commit_step([self._text(n), call], events, actions=actions)
        await self.journal.flush()
        self.open_calls = [call]
        return True

    async def start(self, n: int) -> None:
        if self.journal is None or not self.open_calls:
            return
        call = self.open_calls[0]
        self.journal.record_start(call, ToolCallStarted(call.call_id, call.tool_name, 1, 9.0))
        await self.journal.flush()

    async def outcome(self, n: int) -> None:
        if self.journal is None or not self.open_calls:
            return
        call = self.open_calls.pop()
        done = CallPart(call.call_id, "p", "tool", "{}", call.step, 0, ToolOutcome.SUCCEEDED, f"result {n}")
        event = ToolCallFinished(call.call_id, "tool", ToolOutcome.SUCCEEDED, done.content, False, 0.0, 1, 0)
        self.journal.record_outcome(done, event)
        await self.journal.flush()

    async def finish(self, n: int) -> None:
        if self.journal is None or self.open_calls:
            return
        state = (TurnState.COMPLETED, TurnState.FAILED, TurnState.CANCELLED)[n % 3]
        end = TurnFinished(state, "completed", 0.0, self.step)
        await self.journal.finish(end, interrupted_reason="" if n % 3 == 0 else "error", applied=())
        self.journal = None

    async def claim(self, n: int) -> None:
        if self.journal is None:
            self.take(await self.store.claim(self.key))

    async def answer(self, n: int) -> None:
        if not self.actions:
            return
        turn = TurnKey(self.key.scope, self.key.thread_id, self.actions[0].name.split("/")[3])
        state = (ActionState.APPROVED, ActionState.REJECTED)[n % 2]
        await self.store.resolve_action(
            ActionAnswer(
                ActionKey(turn, self.actions[0].name.rpartition("/")[2]),
                str(uuid.uuid4()),
                "d",
                state,
                "{}",
                "someone",
                frozenset({"approver"}),
            )
        )

    async def cancel_queued(self, n: int) -> None:
        waiting = await self.store.queued_turns(self.key)
        if waiting:
            end = TurnFinished(TurnState.CANCELLED, "cancelled", 0.0, 0)
            await self.store.cancel_queued(waiting[n % len(waiting)], end, ())

    async def edit_queued(self, n: int) -> None:
        waiting = await self.store.queued_turns(self.key)
        if waiting:
            turn = await self.store.get_turn(waiting[n % len(waiting)])
            parts = [InputPart(kind="text", text=f"said better {n}")]
            await self.store.change(
                self.key, lambda db: queue.update_queued_turn(db, turn.key, turn.etag, parts)
            )

    async def rename(self, n: int) -> None:
        patch = ThreadPatch(title=f"title {n % 3}", labels={"n": str(n)} if n % 2 else None)
        await self.store.change(self.key, lambda db: threads.update_thread(db, self.key, patch, None))

    async def hide(self, n: int) -> None:
        await self._show(n, "visible", "hidden")

    async def show(self, n: int) -> None:
        await self._show(n, "hidden", "visible")

    async def _show(self, n: int, before: str, after: str) -> None:
        view = await self.store.read(lambda db: whole(db, self.key))
        known = [m.message_id for m in view.messages.values() if m.visibility == before]
        chosen = tuple(known[n % len(known) :][:3]) if known else ()
        if chosen:
            await self._rewrite(
                RewriteCommand(
                    self.key, RewriteKind.VISIBILITY, view.version, messages=chosen, visibility=after
                )
            )

    async def supersede(self, n: int) -> None:
        view = await self.store.read(lambda db: whole(db, self.key))
        known = [m.message_id for m in view.messages.values() if m.role == "assistant"]
        if known:
            message = known[n % len(known)]
            await self._rewrite(
                RewriteCommand(
                    self.key,
                    RewriteKind.REGENERATE,
                    view.version,
                    request_id=str(uuid.uuid4()),
                    message=message,
                )
            )

    async def _rewrite(self, given: RewriteCommand) -> None:
        def rewrite(db: Connection) -> RewriteBase:
            base = rewrite_bases.study(db, given)
            turn = None
            if given.kind is RewriteKind.REGENERATE:
                assert base.spec is not None
                key = TurnKey(self.key.scope, self.key.thread_id, mint_id())
                turn = NewTurn(key, base.spec, "agents/helper", "digest", 30, 0.0)
            patched = rewrites.Patched(mint_id(), turn, MetadataPatch(), None, self.store.owner)
            rewrites.commit_rewrite(db, given, patched, self.store.encode_page)
            return base

        base = await self.store.change(self.key, rewrite)
        if base.waiting is not None:
            self.actions, self.open_calls = [], []


async def _checked(world: World, operation: str, n: int, before: View) -> View:
    """Do one thing and check that the version grew by what can be seen of it."""
    act: Callable[[int], Awaitable[None]] = getattr(world, operation)
    refused = False
    try:
        await act(n)
    except TurnwireError:
        refused = True
    after = await world.store.read(lambda db: whole(db, world.key))
    grown = after.version - before.version
    assert grown == seen_changes(before, after), (operation, n, before, after)
    assert not (refused and grown)
    return after


async def _play(location: Location, steps: list[tuple[str, int, int, int]], delete: bool) -> None:
    async with asyncio.timeout(60), open_store(location) as store:
        row = await store.create_thread(NewThreadCommand("team", title="first"))
        world = World(store, row.key)
        now = await store.read(lambda db: whole(db, row.key))
        watchers = [View(), View(), View()]
        eager, snapshots = View(), [deepcopy(now)]
        for operation, n, watcher, taken in steps:
            now = await _checked(world, operation, n, now)
            await follow(store, row.key, eager, 10_000, page=50)
            assert eager == now, operation
            if watcher < len(watchers):
                await follow(store, row.key, watchers[watcher], taken)
            elif now.version != snapshots[-1].version:
                snapshots.append(deepcopy(now))
        for view in (*watchers, *snapshots):
            await follow(store, row.key, view, 10_000, page=7)
            assert view == now
        if delete:
            await store.change(row.key, lambda db: begin_deletion(db, row.key, None, store.encode_page))
            for view in (*watchers, *snapshots):
                await follow(store, row.key, view, 10_000)
                assert view.deleted


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS, delete=st.booleans())
def test_versions_count_visible_changes_and_every_watcher_ends_with_what_is_there(
    store_location: Location, steps: list[tuple[str, int, int, int]], delete: bool
) -> None:
    asyncio.run(_play(store_location, steps, delete))
