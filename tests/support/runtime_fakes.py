"""Scripted stand-ins for the engine's ports: no gRPC, no SQL, no provider, and every move is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from support.history_rules import request_fault
from turnwire.core.errors import Unavailable
from turnwire.extend.actions import Action, ActionState
from turnwire.extend.events import (
    ActionResolved,
    Compacted,
    MessageOrigin,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnEvent,
    TurnFinished,
    TurnState,
    TurnSuspended,
    UsageSummary,
)
from turnwire.extend.llm import LlmEvent, ModelRequest, StreamFailure, ToolCallComplete
from turnwire.runtime.domain.action import ApprovalTerms
from turnwire.runtime.domain.admission import Admitted, AppliedCommand
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.compaction import DEFAULT_RULES, Compaction, CompactionRules, StoredHistory
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionAccepted,
    ExecutionEvent,
    ExecutionResult,
    ExecutionStarted,
    ExecutionState,
    LookupAnswer,
    ToolInfo,
)
from turnwire.runtime.domain.message import CallPart, ContentPart, StoredMessage, StoredPart
from turnwire.runtime.domain.prices import NO_PRICES, PriceTable
from turnwire.runtime.domain.resumption import Progress, Resumption
from turnwire.runtime.domain.turn import Disposition, InputPart, ThreadKey, TurnKey, TurnSpec
from turnwire.runtime.engine.cancel import CancelToken
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.turn import TurnRunner
from turnwire.runtime.ports import OwnerLost

KEY = TurnKey("team", "thread-1", "turn-1")

# What a scripted model does next: an event, a gate to wait for, or an error to raise.
Step = LlmEvent | asyncio.Event | BaseException
Behaviour = Callable[[ExecuteCall], AsyncIterator[ExecutionEvent]]


class FakeJournal:
    """Records what a turn hands in, in order; `lost_at` names the method that finds another owner."""

    def __init__(self, key: TurnKey = KEY, *, lost_at: str = "") -> None:
        self.key = key
        self.epoch = 1
        self.crowded = False
        self.events: list[TurnEvent] = []
        self.stamps: list[tuple[int, int, int]] = []
        self.committed: list[tuple[StoredPart, ...]] = []
        self.started: list[str] = []
        self.weighed: list[int] = []
        self.outcomes: list[CallPart] = []
        self.flushes = 0
        self.messages: list[str] = []
        self.resumed: list[Resumption] = []
        self.progress: list[Progress | None] = []
        self.open_actions: dict[str, Action] = {}
        self.voided: list[Action] = []
        # Messages that were added to the turn, with their origin.
        self.taken_in: list[tuple[str, MessageOrigin, tuple[InputPart, ...]]] = []
        self.compactions: list[Compaction] = []
        # How the journal was left without an end: `suspended` or `released`.
        self.left = ""
        self.end: TurnFinished | None = None
        self.interrupted_reason = ""
        self.applied: tuple[AppliedCommand, ...] = ()
        self._lost_at = lost_at
        self._stamp = (0, 0, 0)
        self._waiting: list[tuple[Callable[[TurnEvent], bool], asyncio.Event]] = []

    @property
    def next_sequence(self) -> int:
        return len(self.events) + 3

    def at(self, *, step: int, step_attempt: int = 1, turn_attempt: int = 1) -> None:
        self._stamp = (turn_attempt, step, step_attempt)

    def emit_soon(self, event: TurnEvent) -> int:
        return self.emit(event)

    def weigh(self, size: int) -> None:
        self.weighed.append(size)

    def emit(self, event: TurnEvent) -> int:
        assert self.end is None, f"{event} after the end"
        assert not self.left, f"{event} after the turn was let go of"
        self.events.append(event)
        self.stamps.append(self._stamp)
        for wanted, seen in self._waiting:
            if wanted(event):
                seen.set()
        return len(self.events) + 2

    def begin_answer(self, message_id: str) -> None:
        self.messages.append(message_id)

    def resume(self, resumption: Resumption) -> None:
        self.resumed.append(resumption)
        self._ask(*(c.action for c in resumption.calls if c.action is not None))

    def commit_step(
        self,
        parts: Sequence[StoredPart],
        events: Sequence[TurnEvent],
        *,
        progress: Progress | None = None,
        actions: Sequence[Action] = (),
    ) -> None:
        self.committed.append(tuple(parts))
        self.progress.append(progress)
        self._ask(*actions)
        self.outcomes.extend(p for p in parts if isinstance(p, CallPart) and p.outcome is not None)
        for event in events:
            self.emit(event)

    def take_in(
        self,
        message_id: str,
        origin: MessageOrigin,
        parts: Sequence[InputPart],
        events: Sequence[TurnEvent],
        *,
        progress: Progress,
    ) -> None:
        self.taken_in.append((message_id, origin, tuple(parts)))
        self.progress.append(progress)
        for event in events:
            self.emit(event)

    def compact(self, made: Compaction, usage: UsageSummary, event: Compacted) -> None:
        self.compactions.append(made)
        self.emit(event)

    def ask_again(
        self, voided: Sequence[Action], asked: Sequence[Action], events: Sequence[TurnEvent]
    ) -> None:
        self.voided.extend(voided)
        self._ask(*asked)
        for event in events:
            self.emit(event)

    def cancel_actions(self) -> None:
        open_actions, self.open_actions = self.open_actions, {}
        for action in open_actions.values():
            self.emit(ActionResolved(action.name, action.call_id, ActionState.CANCELLED, ""))

    def _ask(self, *actions: Action) -> None:
        for action in actions:
            if action.state is ActionState.OPEN:
                self.open_actions[action.name] = action

    def record_start(self, call: CallPart, event: ToolCallStarted) -> None:
        self.started.append(call.call_id)
        self.emit(event)

    def record_outcome(self, call: CallPart, event: ToolCallFinished) -> None:
        self.outcomes.append(call)
        self.emit(event)

    async def flush(self) -> None:
        self.flushes += 1
        if self._lost_at == "flush":
            raise OwnerLost(self.key.name)

    async def room(self) -> None:
        self.crowded = False

    async def suspend(self) -> None:
        if self._lost_at == "suspend":
            raise OwnerLost(self.key.name)
        self.emit(TurnSuspended(tuple(self.open_actions)))
        self.left = "suspended"

    async def release(self) -> None:
        if self._lost_at == "release":
            raise OwnerLost(self.key.name)
        self.left = "released"

    async def finish(
        self, event: TurnFinished, *, interrupted_reason: str, applied: Sequence[AppliedCommand]
    ) -> None:
        if self._lost_at == "finish":
            raise OwnerLost(self.key.name)
        self.cancel_actions()
        self.emit(event)
        self.end = event
        self.interrupted_reason = interrupted_reason
        self.applied = tuple(applied)

    # --- what tests ask ---

    def of(self, kind: type) -> list[Any]:
        """Return the events of one class."""
        return [e for e in self.events if type(e) is kind]

    async def saw(self, kind: type, count: int = 1) -> None:
        """Wait until so many events of a class were emitted."""
        left = count - len(self.of(kind))
        if left <= 0:
            return
        seen = asyncio.Event()
        remaining = [left]

        def wanted(event: TurnEvent) -> bool:
            if type(event) is kind:
                remaining[0] -= 1
            return remaining[0] <= 0

        self._waiting.append((wanted, seen))
        async with asyncio.timeout(5):
            await seen.wait()

    def finished_calls(self) -> list[tuple[str, ToolOutcome]]:
        """Return name and outcome of each call, in the order they settled."""
        return [(e.tool_name, e.outcome) for e in self.of(ToolCallFinished)]


class FakeModel:
    """Plays one list of steps per call; after the last step of a list the stream ends."""

    def __init__(self, *calls: Sequence[Step], name: str = "fake:model") -> None:
        self.name = name
        self.provider = name.partition(":")[0]
        self.requests: list[ModelRequest] = []
        # What was wrong with requests: the strictest provider would have refused them.
        self.faults: list[str] = []
        self.closed = 0
        self.on_wait: Callable[[str, float, StreamFailure], None] | None = None
        self.swallow_cancel: asyncio.Event | None = None
        self._calls = list(calls)

    async def stream(
        self,
        request: ModelRequest,
        *,
        on_sent: Callable[[], None] | None = None,
        on_wait: Callable[[str, float, StreamFailure], None] | None = None,
    ) -> AsyncIterator[LlmEvent]:
        self.requests.append(request)
        self.on_wait = on_wait
        fault = request_fault(request) if request is not None else ""
        if fault:
            self.faults.append(fault)
            raise AssertionError(fault)
        if on_sent is not None:
            on_sent()
        try:
            for step in self._calls[len(self.requests) - 1]:
                if isinstance(step, asyncio.Event):
                    await self._wait(step)
                elif isinstance(step, BaseException):
                    raise step
                else:
                    yield step
        finally:
            self.closed += 1

    async def _wait(self, gate: asyncio.Event) -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            if self.swallow_cancel is None:
                raise
            await self.swallow_cancel.wait()


class FakeModels:
    """Gives one model, whatever is asked for."""

    def __init__(self, model: FakeModel) -> None:
        self.model = model
        self.asked: list[str] = []
        self.terms: Any = None

    def resolve(self, name: str, *, from_caller: bool = False, terms: Any = None) -> FakeModel:
        self.asked.append(name)
        self.terms = terms
        return self.model

    def resolve_all(self, names: Sequence[str], *, terms: Any = None) -> FakeModel:
        self.asked.extend(names)
        self.terms = terms
        return self.model


class FakeExecutor:
    """Runs calls by the behaviour of their tool; a tool without one succeeds with its own arguments."""

    def __init__(self, *tools: ToolInfo) -> None:
        self.tools = tools
        self.behaviours: dict[str, Behaviour] = {}
        self.executed: list[ExecuteCall] = []
        self.cancelled: list[tuple[str, str]] = []
        self.looked_up: list[str] = []
        self.answers: dict[str, LookupAnswer] = {}
        self.stops: dict[str, asyncio.Event] = {}
        self.hang_list: asyncio.Event | None = None
        self.hang_cancel: asyncio.Event | None = None
        self.running = 0
        self.most_running = 0

    async def list_tools(self) -> Sequence[ToolInfo]:
        if self.hang_list is not None:
            self.hang_list.set()
            await asyncio.Event().wait()
        return self.tools

    async def execute(self, call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        self.executed.append(call)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            behaviour = self.behaviours.get(call.tool_name, succeeds)
            async for event in behaviour(call):
                yield event
        finally:
            self.running -= 1

    async def cancel(self, call: ExecuteCall, cause: str) -> None:
        self.cancelled.append((call.tool_name, cause))
        self.stop_of(call).set()
        if self.hang_cancel is not None:
            await self.hang_cancel.wait()

    async def lookup(self, call: ExecuteCall) -> LookupAnswer:
        self.looked_up.append(call.tool_name)
        answer = self.answers.get(call.tool_name)
        if answer is None:
            raise unreachable()
        return answer

    def stop_of(self, call: ExecuteCall) -> asyncio.Event:
        """Return the event that a cancel of this call sets."""
        return self.stops.setdefault(call.call_id, asyncio.Event())

    def count(self, tool: str) -> int:
        """Return how often a tool was asked to run."""
        return sum(c.tool_name == tool for c in self.executed)


async def succeeds(call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
    """A tool that answers at once."""
    yield ExecutionAccepted()
    yield ExecutionStarted(call.execution_timeout)
    yield ExecutionResult(ToolOutcome.SUCCEEDED, f"{call.tool_name} {call.arguments_json}", elapsed=0.001)


def unreachable() -> Unavailable:
    """What a link raises that cannot reach its server."""
    return Unavailable("the server cannot be reached", reason="UNREACHABLE")


def hangs(executor: FakeExecutor, *, obeys: bool = True) -> Behaviour:
    """A tool that runs until it is stopped, or for ever."""

    async def behaviour(call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        yield ExecutionAccepted()
        yield ExecutionStarted(call.execution_timeout)
        await executor.stop_of(call).wait()
        if not obeys:
            await asyncio.Event().wait()
        yield ExecutionResult(ToolOutcome.STOPPED, "so far", True, elapsed=0.5)

    return behaviour


def waits_for(gate: asyncio.Event, content: str = "done") -> Behaviour:
    """A tool that answers when the gate opens."""

    async def behaviour(call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        yield ExecutionAccepted()
        yield ExecutionStarted(call.execution_timeout)
        await gate.wait()
        yield ExecutionResult(ToolOutcome.SUCCEEDED, content)

    return behaviour


def breaks_then(*attempts: Sequence[ExecutionEvent | BaseException]) -> Behaviour:
    """A tool whose link gives, attempt by attempt, these events or errors; the last attempt repeats."""
    done: dict[str, int] = {}

    async def behaviour(call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        index = done.get(call.call_id, 0)
        done[call.call_id] = index + 1
        for item in attempts[min(index, len(attempts) - 1)]:
            if isinstance(item, BaseException):
                raise item
            yield item

    return behaviour


class FakeStore:
    """Gives a transcript; the engine of one turn needs no more."""

    def __init__(self, *messages: StoredMessage) -> None:
        self.messages = messages
        self.compaction: Compaction | None = None
        self.terms = ApprovalTerms(1_700_000_000_000_000_000)

    async def history(self, thread: ThreadKey) -> StoredHistory:
        return StoredHistory(self.messages, self.compaction)

    async def approval_terms(self, thread: ThreadKey) -> ApprovalTerms:
        return self.terms


def user(text: str = "hello", position: int = 1) -> StoredMessage:
    """A user message of the transcript."""
    part = ContentPart(InputPart(kind="text", text=text))
    return StoredMessage(f"user-{position}", position, "user", "turn-0", (part,))


def tool(name: str, *, parallel: bool = False, timeout: float = 540.0) -> ToolInfo:
    """A tool that the executor offers."""
    return ToolInfo(
        name, f"the tool {name}", '{"type":"object"}', parallel=parallel, execution_timeout=timeout
    )


def call(name: str, arguments: str = "{}", call_id: str = "", error: str = "") -> ToolCallComplete:
    """A call as a model makes it."""
    return ToolCallComplete(call_id or f"p-{name}", name, arguments, error=error)


def agent(**fields: Any) -> AgentDefinition:
    """An agent with every tool."""
    return AgentDefinition.model_validate({"name": "helper", "model": "fake:model", "tools": ["*"], **fields})


def spec(**fields: Any) -> TurnSpec:
    """A spec with a text."""
    parts = [{"kind": "text", "text": "hello"}]
    return TurnSpec.model_validate({"thread": "threads/thread-1", "parts": parts, **fields})


class Turn:
    """One turn over fakes."""

    def __init__(
        self,
        model: FakeModel,
        *tools: ToolInfo,
        agent: AgentDefinition = agent(),  # noqa: B008 - frozen
        spec: TurnSpec = spec(),  # noqa: B008 - frozen
        transcript: Sequence[StoredMessage] = (user(),),
        max_steps: int = 30,
        first_feedback: float = 0.0,
        lost_at: str = "",
        resumption: Resumption | None = None,
        time_left: float | None = None,
        prices: PriceTable = NO_PRICES,
        bytes_per_token: float = 4.0,
        compaction: CompactionRules = DEFAULT_RULES,
        first: bool = False,
    ) -> None:
        self.model = model
        self.executor = FakeExecutor(*tools)
        self.journal = FakeJournal(lost_at=lost_at)
        self.token = CancelToken()
        self.store = FakeStore(*transcript)
        context = TurnContext(
            self.store,  # type: ignore[arg-type]
            FakeModels(model),
            self.executor,
            first_feedback,
            prices=prices,
            bytes_per_token=bytes_per_token,
            compaction=compaction,
        )
        admitted = Admitted(
            self.journal.key,
            spec,
            Disposition.STARTED,
            self.journal,
            agent.resource_name,
            max_steps,
            time_left,
            resumption,
            first,
            input_message="user-1" if first else "",
        )
        self.runner = TurnRunner(context, agent, admitted, self.journal, self.token)

    async def run(self) -> TurnState | None:
        """Run it to its end."""
        async with asyncio.timeout(10):
            state = await self.runner.run()
        assert not getattr(self.model, "faults", ())
        return state

    async def run_while(self, act: Callable[[], Awaitable[None]]) -> TurnState | None:
        """Run it to its end while `act` does something to it."""
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            running = group.create_task(self.runner.run())
            await act()
        assert not getattr(self.model, "faults", ())
        return running.result()

    @property
    def end(self) -> TurnFinished:
        """How it ended."""
        assert self.journal.end is not None
        return self.journal.end

    def story(self) -> list[str]:
        """Return the classes of its events, in order."""
        return [type(e).__name__ for e in self.journal.events]


LOST = LookupAnswer(ExecutionState.LOST)
NOT_FOUND = LookupAnswer(ExecutionState.NOT_FOUND)
STARTED = LookupAnswer(ExecutionState.STARTED)

__all__ = [
    "KEY",
    "LOST",
    "NOT_FOUND",
    "STARTED",
    "FakeExecutor",
    "FakeJournal",
    "FakeModel",
    "FakeModels",
    "FakeStore",
    "Turn",
    "agent",
    "breaks_then",
    "call",
    "hangs",
    "spec",
    "succeeds",
    "tool",
    "unreachable",
    "user",
    "waits_for",
]
