"""Owns every turn of this process: admits, runs, stops and drains them. RPC handlers only watch."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from turnwire.core.errors import TurnwireError, Unavailable
from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import TurnFinished, TurnState
from turnwire.runtime.domain.admission import Admitted, AppliedCommand, StopNote
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.turn import StartCommand, ThreadKey, TurnKey
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.engine.cancel import CancelToken, StopRequest
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.request import check_served, resolve_model
from turnwire.runtime.engine.turn import TurnRunner
from turnwire.runtime.ports import TurnJournal

__all__ = ["LiveTurn", "Supervisor", "TurnObserver"]

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(slots=True)
class LiveTurn:
    """A turn that this process runs."""

    key: TurnKey
    epoch: int
    agent: str
    token: CancelToken
    # Done when the turn does not run here any more: it ended, waits for somebody, was handed over or lost.
    finished: asyncio.Future[None]


class TurnObserver(Protocol):
    """Hears of turns that this process begins and ends to own; the control link is one."""

    def turn_opened(self, key: TurnKey, epoch: int) -> None:
        """A turn was claimed."""
        ...

    def turn_closed(self, key: TurnKey, epoch: int) -> None:
        """A turn ended, waits for somebody, was handed over or lost."""
        ...


class Supervisor:
    """Starts, finds, stops and drains turns.

    Args:
        context: what the turns share.
        agents: the agents of this deployment.
        observer: hears of ownership.
        max_live: most turns that run at once; beyond it new ones are refused.
    """

    def __init__(
        self, context: TurnContext, agents: AgentCatalog, observer: TurnObserver, *, max_live: int = 2000
    ) -> None:
        self._context = context
        self._agents = agents
        self._observer = observer
        self._max_live = max_live
        self._live: dict[TurnKey, LiveTurn] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining = False
        self._starting = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def live(self) -> dict[TurnKey, LiveTurn]:
        """The turns that run here now."""
        return self._live

    def refuse_new(self) -> None:
        """Refuse new turns from now on: the process is about to leave."""
        self._draining = True

    async def start(self, command: StartCommand, known: Callable[[TurnKey], None] | None = None) -> Admitted:
        """Admit a turn, or join the one that the same request made; a cancelled caller changes nothing.

        `known` is told of the turn as soon as it is admitted, also when the caller has left by then.

        Raises:
            Unavailable: DRAINING, OVERLOADED, STORE_UNAVAILABLE.
            NotFound: AGENT_NOT_FOUND, THREAD_NOT_FOUND.
            WrongState: MODEL_NOT_CONFIGURED, THREAD_BUSY.
            InvalidRequest: a limit above the agent's, a model or tool that the agent does not have.
            AlreadyExists, Conflict, Exhausted: see `Store.admit`.
        """
        return await self._whole(self._start(command, known), "turn.start")

    async def _whole(self, work: Coroutine[Any, Any, _T], name: str) -> _T:
        """Run `work` to its end even when the caller leaves: what is claimed must also be run."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _start(self, command: StartCommand, known: Callable[[TurnKey], None] | None) -> Admitted:
        self._starting += 1
        try:
            admitted = await self._admit(command)
            if known is not None:
                known(admitted.key)
            return admitted
        finally:
            self._starting -= 1
            self._settle_idle()

    async def _admit(self, command: StartCommand) -> Admitted:
        agent = await self._agent(command)
        if isinstance(agent, TurnwireError):
            # A repeat joins its turn whatever has changed since.
            joined = await self._context.store.find(command)
            if joined is None:
                raise agent
            return joined
        limits = command.spec.limits
        admitted = await self._context.store.admit(
            command,
            agent.resource_name,
            agent.digest,
            limits.steps or agent.limits.steps,
            agent.busy_policy,
            limits.turn_timeout or agent.limits.turn_timeout or 0.0,
        )
        if admitted.journal is not None:
            self._run(agent, admitted, admitted.journal)
        elif admitted.superseded is not None:
            self._supersede(admitted.superseded)
        elif admitted.idle:
            self.wake(admitted.key.thread)
        return admitted

    def _supersede(self, key: TurnKey) -> None:
        """End a turn that another one replaces; its row says so already, for whoever else may run it."""
        live = self._live.get(key)
        if live is None:
            self._context.store.hint(key.thread)
            self.wake(key.thread)
        else:
            live.token.fire(StopRequest("superseded", "another turn took its place"))

    def wake(self, thread: ThreadKey) -> None:
        """Look at a thread where something may wait that nobody runs; never waits itself."""
        if not self._draining:
            self.spawn(self.claim(thread), "turn.claim", contextvars.Context())

    @property
    def room(self) -> int:
        """Turns that may still be taken."""
        return 0 if self._draining else max(0, self._max_live - len(self._live))

    async def _agent(self, command: StartCommand) -> AgentDefinition | TurnwireError:
        """Return the agent of a new turn, or why there can be none now."""
        if self._draining:
            return Unavailable("this runtime is about to leave: repeat", reason="DRAINING", retry_after=1.0)
        if not self._context.store.healthy:
            text = "the store cannot be written now: repeat"
            return Unavailable(text, reason="STORE_UNAVAILABLE", retry_after=1.0)
        if len(self._live) >= self._max_live:
            text = f"{self._max_live} turns run here: repeat"
            return Unavailable(text, reason="OVERLOADED", retry_after=1.0)
        try:
            agent = await self._agents.for_command(command)
            model = resolve_model(self._context.models, agent, command.spec)
            check_served(model, command.spec)
        except TurnwireError as error:
            return error
        return agent

    def _run(
        self,
        agent: AgentDefinition,
        admitted: Admitted,
        journal: TurnJournal,
        context: contextvars.Context | None = None,
    ) -> None:
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        live = LiveTurn(admitted.key, journal.epoch, agent.resource_name, CancelToken(), finished)
        if admitted.stop is not None:
            _fire(live.token, admitted.stop)
        self._live[admitted.key] = live
        self._observer.turn_opened(admitted.key, journal.epoch)
        runner = TurnRunner(self._context, agent, admitted, journal, live.token)
        self.spawn(self._live_turn(live, runner), f"turn {admitted.key.turn_id}", context)

    async def _live_turn(self, live: LiveTurn, runner: TurnRunner) -> None:
        state = None
        try:
            state = await runner.run()
        except Exception:
            # A defect at the very end: the turn still ends, once, and its thread goes on.
            logger.exception("turn.abandoned", extra={"turn": live.key.name})
            await self._abandon(live.key, live.epoch, "the turn could not be ended the regular way")
            state = TurnState.FAILED
        finally:
            self._context.store.let_go(live.key, live.epoch)
            if self._live.get(live.key) is live:
                del self._live[live.key]
            live.finished.set_result(None)
            self._observer.turn_closed(live.key, live.epoch)
            self._settle_idle()
        if state is TurnState.WAITING and live.token.fired:
            await self._stop_at_rest(live)
        await self._go_on(live.key.thread, state is not None and state.terminal)

    async def _stop_at_rest(self, live: LiveTurn) -> None:
        """Note a stop that came in the moment in which the turn began to wait, for whoever takes it next."""
        error = live.token.error
        if isinstance(error, AgentControlError):
            command_id = live.token.commands[0].command_id if live.token.commands else ""
            note = StopNote(error.stop_reason, str(error), command_id)
            await self._context.store.request_stop(live.key, note)

    async def _abandon(self, key: TurnKey, epoch: int, text: str, reason: str = "INTERNAL") -> None:
        await self._context.store.abandon(key, epoch, text, reason)

    async def _go_on(self, thread: ThreadKey, ended: bool) -> None:
        """Run what is next in a thread: behind a turn that ended, or that turn if it was woken meanwhile."""
        if ended and not self._draining:
            self._take(await self._context.store.claim_next(thread))
        elif not ended:
            await self.claim(thread)

    async def claim(self, thread: ThreadKey, stop: tuple[TurnKey, StopNote] | None = None) -> bool:
        """Run what there is to run in a thread that nobody has; tells whether there was something.

        With `stop` only that turn is taken, and only to end it.
        """
        if self._draining:
            return False
        return await self._whole(self._claim(thread, stop), "turn.claim")

    async def _claim(self, thread: ThreadKey, stop: tuple[TurnKey, StopNote] | None) -> bool:
        return self._take(await self._context.store.claim(thread, stop))

    def _take(self, admitted: Admitted | None) -> bool:
        if admitted is None or admitted.journal is None:
            return False
        key, epoch = admitted.key, admitted.journal.epoch
        try:
            agent = self._agents.get(key.scope, admitted.agent)
        except TurnwireError as error:
            self.spawn(self._unrunnable(key, epoch, error), "turn.unrunnable", contextvars.Context())
            return True
        # Nothing of the turn that ended before, such as its trace or its caller, belongs to this one.
        self._run(agent, admitted, admitted.journal, contextvars.Context())
        return True

    async def _unrunnable(self, key: TurnKey, epoch: int, error: TurnwireError) -> None:
        await self._abandon(key, epoch, error.message, error.reason)
        await self._go_on(key.thread, True)

    def running(self) -> Mapping[TurnKey, int]:
        """Return the turns that run here, with their epochs."""
        return {key: live.epoch for key, live in self._live.items()}

    def lose(self, lost: Mapping[TurnKey, int]) -> None:
        """Stop what runs here at these epochs: somebody else has it."""
        for key, epoch in lost.items():
            live = self._live.get(key)
            if live is not None and live.epoch == epoch:
                logger.warning("turn.lost", extra={"turn": key.name, "epoch": epoch})
                self._context.store.lose(key, epoch)
                live.token.hand_over()

    def stop(self, key: TurnKey, note: StopNote) -> None:
        """End a turn that runs here because its row says so."""
        live = self._live.get(key)
        if live is not None:
            _fire(live.token, note)

    def spawn(
        self, work: Coroutine[Any, Any, object], name: str, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        """Run `work` beside everything else; its failure is logged."""
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("task.failed", extra={"task": task.get_name()}, exc_info=task.exception())

    async def cancel_queued(self, key: TurnKey, cause: str, command_id: str) -> int | None:
        """End a turn that waits in the queue; returns its last sequence, None when it waits no more."""
        return await self._whole(self._cancel_queued(key, cause, command_id), "turn.cancel_queued")

    async def _cancel_queued(self, key: TurnKey, cause: str, command_id: str) -> int | None:
        event = TurnFinished(TurnState.CANCELLED, "cancelled", 0.0, 0)
        applied = (AppliedCommand(command_id, "applied"),) if command_id else ()
        logger.info("turn.cancel_queued", extra={"turn": key.name, "cause": cause})
        return await self._context.store.cancel_queued(key, event, applied)

    async def drain(self, seconds: float) -> None:
        """Refuse new turns, wait for the running ones, and hand over what is left: it goes on elsewhere."""
        self._draining = True
        if not await self._wait_idle(seconds):
            for live in tuple(self._live.values()):
                live.token.hand_over()
            await self._wait_idle(10.0)

    async def _wait_idle(self, seconds: float) -> bool:
        if self._live or self._starting:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._idle}, timeout=seconds)
        return not (self._live or self._starting)

    def _settle_idle(self) -> None:
        if not (self._live or self._starting) and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def _fire(token: CancelToken, note: StopNote) -> None:
    if note.stop_reason == "cancelled":
        token.cancel(note.cause, note.command_id)
    else:
        token.fire(StopRequest(note.stop_reason, note.cause))
