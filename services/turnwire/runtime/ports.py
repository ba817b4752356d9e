"""What the engine needs from outside, as protocols; nothing here knows gRPC, SQL or HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from turnwire.extend.actions import Action
from turnwire.extend.events import (
    Compacted,
    MessageOrigin,
    ToolCallFinished,
    ToolCallStarted,
    TurnEvent,
    TurnFinished,
    UsageSummary,
)
from turnwire.extend.llm import LlmEvent, ModelRequest, StreamFailure, TokenUsage
from turnwire.runtime.domain.action import ApprovalTerms
from turnwire.runtime.domain.admission import Admitted, AppliedCommand, StopNote
from turnwire.runtime.domain.call_terms import CallTerms
from turnwire.runtime.domain.compaction import Compaction, StoredHistory
from turnwire.runtime.domain.execution import ExecuteCall, ExecutionEvent, LookupAnswer, ToolInfo
from turnwire.runtime.domain.message import CallPart, StoredPart
from turnwire.runtime.domain.resumption import Progress, Resumption
from turnwire.runtime.domain.turn import BusyPolicy, InputPart, StartCommand, ThreadKey, TurnKey, TurnRow

__all__ = [
    "ChecksRequests",
    "Model",
    "ModelSource",
    "OwnerLost",
    "RequestRefusal",
    "Store",
    "ToolExecutor",
    "TurnJournal",
    "WaitObserver",
]


class OwnerLost(Exception):
    """Another owner has taken the turn: whoever sees this stops at once and writes nothing more."""


class WaitObserver(Protocol):
    """Hears why a model call takes longer than its answer."""

    def __call__(
        self,
        what: str,
        seconds: float,
        failure: StreamFailure | None,
        usage: TokenUsage | None = None,
        following: Model | None = None,
    ) -> None:
        """Hear of a wait, and of the end of an attempt.

        Args:
            what: `model.slot`; after the end of an attempt `model.retry`, `model.circuit` or
                `model.fallback:NAME`: whatever the stream gave before is void then.
            seconds: how long the wait will be, 0 when nobody knows or there is none.
            failure: what ended the attempt, None for a wait before one.
            usage: what the provider had reported of the attempt and the stream has not given.
            following: the model that is asked from now on, when it is another one.
        """
        ...


class Model(Protocol):
    """A model of some provider."""

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    @property
    def provider(self) -> str:
        """Name of the provider, for what must be replayed to it later."""
        ...

    def stream(
        self,
        request: ModelRequest,
        *,
        on_sent: Callable[[], None] | None = None,
        on_wait: WaitObserver | None = None,
    ) -> AsyncIterator[LlmEvent]:
        """Yield events; the last one, and only it, is a Finish or a StreamFailure. Never raises for trouble.

        Closing the iterator, or cancelling its consumer, closes the connection at once. `on_wait` is told of
        each wait and of each repeat; without it nothing is repeated once something of it was given.
        """
        ...


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """Why a model cannot be asked something: the field of the turn's spec, and what to do about it."""

    field: str
    why: str


@runtime_checkable
class ChecksRequests(Protocol):
    """A model that knows beforehand what it cannot be asked."""

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model; None where it can."""
        ...


class ModelSource(Protocol):
    """Gives models by name."""

    def resolve(self, name: str, *, from_caller: bool = False, terms: CallTerms | None = None) -> Model:
        """Return the model `provider:model`; names from a request never reach files of this machine.

        `terms` are what the agent says of its calls.

        Raises:
            InvalidRequest: MODEL_UNKNOWN, no provider has that prefix.
            WrongState: MODEL_NOT_CONFIGURED, credentials or address are missing.
        """
        ...

    def resolve_all(self, names: Sequence[str], *, terms: CallTerms | None = None) -> Model:
        """Return the first model with the others as its fallbacks. Raises as `resolve`."""
        ...


class ToolExecutor(Protocol):
    """The tool executor service."""

    async def list_tools(self) -> Sequence[ToolInfo]:
        """Return the tools there are. Raises Unavailable (EXECUTOR_UNAVAILABLE)."""
        ...

    def execute(self, call: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        """Run or join one call; the last event is its result. Raises TurnwireError when the link breaks."""
        ...

    async def cancel(self, call: ExecuteCall, cause: str) -> None:
        """Ask for the call to be stopped; returns when the request is taken."""
        ...

    async def lookup(self, call: ExecuteCall) -> LookupAnswer:
        """Tell what the executor knows of the call."""
        ...


class TurnJournal(Protocol):
    """The owner's handle on one turn: the only way to write its state and its log.

    Everything handed in commits in the order it was handed in; a state change and the events that report it
    are in one transaction. After the ownership is lost each awaited method raises OwnerLost.
    """

    key: TurnKey
    epoch: int

    @property
    def next_sequence(self) -> int:
        """The sequence that the next event gets."""
        ...

    @property
    def crowded(self) -> bool:
        """Whether more waits to be committed than should: then wait for `room` before going on."""
        ...

    def at(self, *, step: int, step_attempt: int = 1, turn_attempt: int = 1) -> None:
        """Set what later events carry as their step and attempts."""
        ...

    def emit(self, event: TurnEvent) -> int:
        """Append an event that changes no state; returns its sequence."""
        ...

    def emit_soon(self, event: TurnEvent) -> int:
        """Append an event that changes no state and may wait a moment for company; returns its sequence."""
        ...

    def weigh(self, size: int) -> None:
        """Count the bytes of an event that is much larger than most; may make the journal `crowded`."""
        ...

    def begin_answer(self, message_id: str) -> None:
        """Name the message that this turn's next parts go to."""
        ...

    def resume(self, resumption: Resumption) -> None:
        """Go on where an earlier episode stopped: its open message, its calls and what it asked."""
        ...

    def commit_step(
        self,
        parts: Sequence[StoredPart],
        events: Sequence[TurnEvent],
        *,
        progress: Progress | None = None,
        actions: Sequence[Action] = (),
    ) -> None:
        """Hand in the model's answer of a step: its parts and calls enter the transcript.

        A call with an outcome is final at once, one with an open action waits for its answer.
        """
        ...

    def take_in(
        self,
        message_id: str,
        origin: MessageOrigin,
        parts: Sequence[InputPart],
        events: Sequence[TurnEvent],
        *,
        progress: Progress,
    ) -> None:
        """Hand in a user message that is added to the turn after a settled step.

        In one unit the open answer is closed, the message is appended behind it and `events` report it, with
        SteerApplied among them; the next parts go to a message that `begin_answer` names first.
        """
        ...

    def compact(self, made: Compaction, usage: UsageSummary, event: Compacted) -> None:
        """Hand in a summary of the older part of the thread; `usage` is what the turn has used with it."""
        ...

    def ask_again(
        self, voided: Sequence[Action], asked: Sequence[Action], events: Sequence[TurnEvent]
    ) -> None:
        """Hand in that answers no longer hold, with the new questions in their place."""
        ...

    def cancel_actions(self) -> None:
        """Append that what is still asked needs no answer any more; the state changes with the turn's end."""
        ...

    def record_start(self, call: CallPart, event: ToolCallStarted) -> None:
        """Hand in that a call has started at the executor."""
        ...

    def record_outcome(self, call: CallPart, event: ToolCallFinished) -> None:
        """Hand in the one result of a call."""
        ...

    async def flush(self) -> None:
        """Wait until everything handed in so far is committed."""
        ...

    async def room(self) -> None:
        """Wait until there is room for more uncommitted events; returns at once while there is."""
        ...

    async def suspend(self) -> None:
        """Commit that the turn waits for its open actions, and let go of it; nothing is written after it."""
        ...

    async def release(self) -> None:
        """Let go of the turn as it stands, for whoever takes it next; nothing is written after it."""
        ...

    async def finish(
        self, event: TurnFinished, *, interrupted_reason: str, applied: Sequence[AppliedCommand]
    ) -> None:
        """Commit the end of the turn: state, usage, closed message, TurnFinished, effects of commands."""
        ...


class Store(Protocol):
    """Threads, turns and their logs."""

    @property
    def healthy(self) -> bool:
        """False while nothing can be written: new turns would wait, and may wait in vain."""
        ...

    async def admit(
        self,
        command: StartCommand,
        agent: str,
        agent_digest: str,
        max_steps: int,
        busy_policy: BusyPolicy = BusyPolicy.QUEUE,
        turn_timeout: float = 0.0,
    ) -> Admitted:
        """Admit a turn in one transaction, and claim it when its thread is idle.

        `turn_timeout` is what the turn may take in seconds, 0 = no limit.

        Raises:
            NotFound: THREAD_NOT_FOUND. AlreadyExists: REQUEST_ID_REUSED, THREAD_ID_USED.
            WrongState: THREAD_BUSY. Conflict: THREAD_CHANGED. Exhausted: QUEUE_FULL.
        """
        ...

    async def find(self, command: StartCommand) -> Admitted | None:
        """Return the turn that the same request made before, None when there is none.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED.
        """
        ...

    async def claim_next(self, thread: ThreadKey) -> Admitted | None:
        """Claim what is next in a thread whose turn has just ended here, if there is anything."""
        ...

    async def claim(self, thread: ThreadKey, stop: tuple[TurnKey, StopNote] | None = None) -> Admitted | None:
        """Claim what is to be run in a thread that nobody has, or whose owner is dead, if there is anything.

        With `stop` only that turn is taken, and only to end it.
        """
        ...

    async def abandon(self, key: TurnKey, epoch: int, text: str, reason: str = "INTERNAL") -> None:
        """End a turn that its runner left without an end, as failed; unless it is another owner's by now."""
        ...

    def hint(self, thread: ThreadKey) -> None:
        """Have other processes on the same store look soon whether there is something for them to do."""
        ...

    def lose(self, key: TurnKey, epoch: int) -> None:
        """Shut out the writer of a turn that was owned here at this epoch: it is somebody else's."""
        ...

    def let_go(self, key: TurnKey, epoch: int) -> None:
        """Hear that a turn owned at this epoch does not run here any more; it may go on somewhere."""
        ...

    async def cancel_queued(
        self, key: TurnKey, event: TurnFinished, applied: Sequence[AppliedCommand]
    ) -> int | None:
        """End a turn that still waits in the queue; its last sequence, or None when it waits no more."""
        ...

    async def history(self, thread: ThreadKey) -> StoredHistory:
        """Return what of a thread a model is told: its newest summary and the messages that it leaves."""
        ...

    async def request_stop(self, key: TurnKey, note: StopNote) -> bool:
        """Have whoever runs a live turn, or takes it next, end it; False when it is not live, or was told."""
        ...

    async def approval_terms(self, thread: ThreadKey) -> ApprovalTerms:
        """Return by what a thread asks for approvals now."""
        ...

    async def get_turn(self, key: TurnKey) -> TurnRow:
        """Read a turn. Raises NotFound (TURN_NOT_FOUND)."""
        ...
