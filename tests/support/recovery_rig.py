"""Turns that live through deaths: stores in one place, one after another, over an executor with a ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from support.history_rules import chat_fault
from support.ledger_executor import LedgerExecutor
from support.mortal_store import mortal
from support.postgres import Location, plain_connection
from support.runtime_fakes import FakeModels, agent
from support.runtime_rig import command, events, open_store, pages, take
from turnwire.api.runtime.v1 import turn_event_pb2 as pb
from turnwire.extend.actions import Action, ActionState
from turnwire.extend.events import TurnState
from turnwire.extend.llm import AssistantMessage, LlmEvent, ModelRequest, StreamFailure
from turnwire.runtime.domain.action import ActionAnswer, ActionKey
from turnwire.runtime.domain.admission import Admitted
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.message import CallPart, ContentPart, StoredMessage
from turnwire.runtime.domain.turn import StartCommand, TurnKey
from turnwire.runtime.engine.cancel import CancelToken
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.turn import TurnRunner
from turnwire.runtime.models.openai_request import encode_chat
from turnwire.runtime.models.settings import ProviderProfile
from turnwire.runtime.store.actions import ACTION_COLUMNS, action_row
from turnwire.runtime.store.turn_store import TurnStore

__all__ = ["StepModel", "World", "answer_to", "check_told", "folded", "invariants", "spin"]

# Rounds of the loop in which whatever can still happen happens.
_ROUNDS = 300


class StepModel:
    """Says the same in a step however often it is asked; takes no history that a provider would refuse."""

    name = "fake:model"
    provider = "fake"

    def __init__(self, *steps: Sequence[LlmEvent]) -> None:
        self.steps = steps
        self.requests: list[ModelRequest] = []

    async def stream(
        self,
        request: ModelRequest,
        *,
        on_sent: Callable[[], None] | None = None,
        on_wait: Callable[[str, float, StreamFailure], None] | None = None,
    ) -> AsyncIterator[LlmEvent]:
        self.requests.append(request)
        wire = json.loads(encode_chat(request, ProviderProfile(), stream=True))
        fault = chat_fault(wire["messages"])
        assert not fault, fault
        step = sum(isinstance(m, AssistantMessage) for m in request.messages)
        for event in self.steps[step]:
            await asyncio.sleep(0)
            yield event


class World:
    """What outlives every process: the store, the executor, and who answers."""

    def __init__(
        self,
        location: Location,
        model: StepModel,
        executor: LedgerExecutor,
        *,
        answer: ActionState = ActionState.APPROVED,
        given: StartCommand | None = None,
        definition: AgentDefinition | None = None,
    ) -> None:
        self.location = location
        self.model = model
        self.executor = executor
        self.answer = answer
        self.given = given or command(text="go")
        self.agent = definition or agent()
        self.key: TurnKey | None = None
        self.states: list[TurnState | None] = []
        self.commits = 0

    async def live(
        self,
        commits: int | None = None,
        *,
        lingers: bool = False,
        while_running: Callable[[CancelToken], Any] | None = None,
        before: Callable[[CancelToken], None] | None = None,
    ) -> bool:
        """Run a process until its turn ends, waits or is let go, or until it dies; tells whether it lived."""
        async with asyncio.timeout(20), open_store(self.location) as store:
            process = mortal(store, commits, lingers=lingers)
            token = CancelToken()
            if before is not None:
                before(token)
            task = asyncio.create_task(self._process(store, token))
            death = asyncio.create_task(process.dead.wait())
            if while_running is not None:
                await while_running(token)
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
            lived = not process.dead.is_set()
            if lived:
                await task
            elif lingers:
                await spin()
            self.commits = process.commits
            death.cancel()
            task.cancel()
            await asyncio.wait({task, death})
            await spin(20)
        invariants(self.location)
        return lived

    async def _process(self, store: TurnStore, token: CancelToken) -> None:
        admitted = await self._owned(store)
        if admitted is None or admitted.journal is None:
            return
        self.key = admitted.key
        context = TurnContext(store, FakeModels(self.model), self.executor, 0.0)  # type: ignore[arg-type]
        runner = TurnRunner(context, self.agent, admitted, admitted.journal, token)
        state = await runner.run()
        self.states.append(state)
        if state is TurnState.WAITING:
            await self._answer(store, admitted.key)

    async def _owned(self, store: TurnStore) -> Admitted | None:
        # The request comes again after each death: it joins the turn, if the turn was stored.
        admitted = await store.admit(self.given, self.agent.resource_name, "digest", 30)
        if admitted.journal is not None:
            return admitted
        self.key = admitted.key
        if (await store.get_turn(admitted.key)).state is TurnState.WAITING:
            await self._answer(store, admitted.key)
        taken = await take(store)
        return taken[0] if taken else None

    async def _answer(self, store: TurnStore, key: TurnKey) -> None:
        for action in await self.actions(store):
            if action.state is ActionState.OPEN:
                await store.resolve_action(answer_to(action, key.scope, self.answer))

    async def actions(self, store: TurnStore) -> Sequence[Action]:
        """Return every action of the turn."""
        assert self.key is not None
        return await store.read(lambda db: actions_of(db, self.key))  # type: ignore[arg-type]

    async def finish(self) -> None:
        """Let processes live until the turn has ended."""
        for _ in range(20):
            await self.live()
            if self.states and self.states[-1] is not None and self.states[-1].terminal:
                return
            if await self.ended():
                return
        raise AssertionError(f"the turn does not end: {self.states}")

    async def ended(self) -> bool:
        """Tell whether the turn is at its end."""
        async with open_store(self.location) as store:
            assert self.key is not None
            return (await store.get_turn(self.key)).state.terminal

    async def told(self) -> tuple[list[pb.TurnEvent], list[StoredMessage]]:
        """Return the whole log and the transcript of a turn that has ended."""
        async with open_store(self.location) as store:
            assert self.key is not None
            log = events(await pages(store, self.key))
            return log, list(await store.transcript(self.key.thread))


def actions_of(db: Any, key: TurnKey) -> Sequence[Action]:
    """Read the actions of a turn, oldest first."""
    rows = db.execute(
        f"SELECT {ACTION_COLUMNS} FROM actions WHERE scope = ? AND thread_id = ? AND turn_id = ?"
        " ORDER BY create_time, action_id",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchall()
    return [action_row(row) for row in rows]


def answer_to(action: Action, scope: str, state: ActionState) -> ActionAnswer:
    """Return an answer of an approver."""
    _, thread_id, _, turn_id, _, action_id = action.name.split("/")
    reason = '{"reason":"not today"}' if state is ActionState.REJECTED else "{}"
    return ActionAnswer(
        ActionKey(TurnKey(scope, thread_id, turn_id), action_id),
        f"answer-{action_id}",
        action.digest,
        state,
        reason,
        "ann",
        frozenset({"approver"}),
    )


async def spin(rounds: int = _ROUNDS) -> None:
    """Let everything happen that needs no time."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def folded(log: Sequence[pb.TurnEvent]) -> dict[int, str]:
    """Return the text of each committed step by the rule that consumers are told."""
    pieces: dict[int, str] = {}
    texts: dict[int, str] = {}
    for event in log:
        kind = event.WhichOneof("event")
        if kind == "llm":
            pieces[event.sequence] = event.llm.text_delta.text
        elif kind == "step_reset":
            for sequence in range(event.step_reset.from_sequence, event.step_reset.to_sequence + 1):
                pieces.pop(sequence, None)
        elif kind == "step_committed":
            texts[event.step] = "".join(pieces.values())
            pieces.clear()
    assert not pieces, "model output that no step has committed"
    return {step: text for step, text in texts.items() if text}


def check_told(log: Sequence[pb.TurnEvent], transcript: Sequence[StoredMessage]) -> None:
    """Check what holds of every turn that has ended."""
    assert [e.sequence for e in log] == list(range(1, len(log) + 1))
    kinds = [e.WhichOneof("event") for e in log]
    assert kinds.count("turn_finished") == 1
    assert kinds[-1] == "turn_finished"
    parts = [p for m in transcript if m.role == "assistant" for p in m.parts]
    assert folded(log) == {p.step: p.content.text for p in parts if isinstance(p, ContentPart)}
    calls = [p for p in parts if isinstance(p, CallPart)]
    finished = [e.tool_call_finished for e in log if e.HasField("tool_call_finished")]
    assert sorted(f.call_id for f in finished) == sorted(c.call_id for c in calls)
    assert all(c.outcome is not None for c in calls)
    starts = [e.tool_call_started for e in log if e.HasField("tool_call_started")]
    begun = [(s.call_id, s.attempt) for s in starts]
    assert len(begun) == len(set(begun))
    for step in {c.step for c in calls}:
        ids = {c.call_id for c in calls if c.step == step}
        orders = [f.settle_order for f in finished if f.call_id in ids]
        assert orders == list(range(1, len(orders) + 1))
    added = [m.message_id for m in transcript if m.role == "user"][1:]
    applied = [e.steer_applied.message for e in log if e.HasField("steer_applied")]
    assert [name.rpartition("/")[2] for name in applied] == added
    asked = [e.action_required.action.name for e in log if e.HasField("action_required")]
    resolved = [e.action_resolved.action for e in log if e.HasField("action_resolved")]
    assert sorted(asked) == sorted(resolved)


def invariants(location: Location) -> None:
    """Check the tail of every thread, which holds at each moment, also right after a death."""
    db = plain_connection(location)
    try:
        behind = db.execute(
            "SELECT count(*) FROM messages o JOIN messages m ON m.scope = o.scope"
            " AND m.thread_id = o.thread_id AND m.position > o.position WHERE o.status = 'open'"
        ).fetchone()
        assert behind == (0,), "a message behind an open one"
        loose = db.execute(
            "SELECT count(*) FROM tool_calls c JOIN messages m ON m.scope = c.scope"
            " AND m.thread_id = c.thread_id AND m.message_id = c.message_id"
            " WHERE c.state <> 'finished' AND m.status = 'final'"
        ).fetchone()
        assert loose == (0,), "an open call in a closed message"
        held = db.execute(
            "SELECT count(*) FROM turns t JOIN threads h ON h.scope = t.scope AND h.thread_id = t.thread_id"
            " WHERE t.state = 'waiting' AND (h.owner <> '' OR h.lease <> '' OR h.live_turn <> t.turn_id)"
        ).fetchone()
        assert held == (0,), "a turn that waits and is held"
        late = db.execute(
            "SELECT count(*) FROM messages m JOIN threads h ON h.scope = m.scope"
            " AND h.thread_id = m.thread_id WHERE m.change_version > h.version OR m.change_version = 0"
        ).fetchone()
        assert late == (0,), "a message without the version of its change"
        open_actions = db.execute(
            "SELECT count(*) FROM actions a JOIN turns t ON t.scope = a.scope AND t.thread_id = a.thread_id"
            " AND t.turn_id = a.turn_id WHERE a.state = 'open' AND t.finish_time > 0"
        ).fetchone()
        assert open_actions == (0,), "an open action of a turn that has ended"
    finally:
        db.close()
