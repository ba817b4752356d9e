"""Edits histories: studied, prepared by the lifecycle, committed whole, and told of afterwards.

User code runs before the transaction, while the thread is held for the edit, or after it, while nothing is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from turnwire.core.errors import FieldViolation, InvalidRequest, NotFound, TurnwireError, WrongState
from turnwire.core.ids import mint_id
from turnwire.extend.errors import AgentControlError, AgentTimeoutError
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
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.rewrites import NewTurn, RewriteBase, RewriteCommand, Rewritten
from turnwire.runtime.domain.turn import StartCommand, ThreadKey, TurnKey, TurnSpec
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.engine.cancel import CancelToken
from turnwire.runtime.engine.request import resolve_model
from turnwire.runtime.ports import ModelSource

__all__ = ["HistoryEditor", "RewriteStore", "Runs", "bounded"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

CALL_SECONDS = 10.0
_ERROR_CHARS = 500


class RewriteStore(Protocol):
    """What edits need of the store."""

    async def find_rewrite(self, command: RewriteCommand) -> TurnKey | None:
        """Return the turn that the same request began. Raises AlreadyExists (REQUEST_ID_REUSED)."""
        ...

    async def study(self, command: RewriteCommand) -> RewriteBase:
        """Find what an edit is of. Raises NotFound, Conflict, WrongState."""
        ...

    async def hold(self, command: RewriteCommand) -> int:
        """Hold the thread for an edit; returns the epoch. Raises as `study`, and Unavailable."""
        ...

    async def release(self, thread: ThreadKey, epoch: int) -> None:
        """Give a thread back that was held and is not edited."""
        ...

    async def commit_rewrite(
        self,
        command: RewriteCommand,
        rewrite_id: str,
        turn: NewTurn | None,
        patch: MetadataPatch,
        epoch: int | None,
    ) -> Rewritten:
        """Make the edit in one transaction, under the lease of that epoch if one is. Raises as `hold`."""
        ...

    async def note_observed(self, thread: ThreadKey, rewrite_id: str, errors: Sequence[str]) -> None:
        """Note that the observers of an edit were told."""
        ...


class Runs(Protocol):
    """Runs turns and other work: the supervisor."""

    async def claim(self, thread: ThreadKey) -> bool:
        """Run what there is to run in a thread that nobody has; tells whether there was something."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> object:
        """Run `work` beside everything else; its failure is logged."""
        ...


async def bounded(work: Awaitable[T], /, *, seconds: float = CALL_SECONDS) -> T:
    """Await user code for so long at most; code that swallows its cancellation is left behind.

    Raises:
        TimeoutError: it took longer.
    """
    token = CancelToken()
    late = AgentTimeoutError(f"took more than {seconds:g} s")
    timer = asyncio.get_running_loop().call_later(seconds, token.fire, late)
    try:
        return await token.race(_call(work), name="lifecycle")
    except AgentTimeoutError as error:
        if error is late:
            raise TimeoutError(str(late)) from None
        raise
    finally:
        timer.cancel()
        token.close()


async def _call(work: Awaitable[T]) -> T:
    return await work


class HistoryEditor:
    """Makes edits of histories and has the turns run that they begin.

    Args:
        store: studies and commits.
        agents: the agents of this deployment.
        runs: runs the new turns.
        models: must know the model that an edit asks for.
        lifecycles: take part in each edit, in their order.
    """

    def __init__(
        self,
        store: RewriteStore,
        agents: AgentCatalog,
        runs: Runs,
        models: ModelSource,
        lifecycles: Sequence[Lifecycle] = (),
    ) -> None:
        self._store = store
        self._agents = agents
        self._runs = runs
        self._models = models
        self._lifecycle = compose_lifecycle(*lifecycles, guard=bounded) if lifecycles else None

    async def edit(self, command: RewriteCommand) -> Rewritten:
        """Make an edit; with a request id that came before, return what it made then.

        A caller that leaves meanwhile changes nothing: the edit is made, or refused, as it would have been.

        Raises:
            InvalidRequest: a model or an agent that is not known here.
            NotFound: MESSAGE_NOT_FOUND, TURN_NOT_FOUND; also when the thread is not there.
            AlreadyExists: REQUEST_ID_REUSED.
            WrongState: TURN_RUNNING, TURN_NOT_RETRYABLE, MESSAGE_OPEN; REWRITE_REFUSED by a lifecycle.
            Conflict: THREAD_CHANGED. Unavailable: THREAD_HELD.
            LifecycleFailed: a lifecycle broke; nothing was changed.
        """
        done: asyncio.Future[Rewritten] = asyncio.get_running_loop().create_future()
        self._runs.spawn(self._edit_into(done, command), "thread.rewrite")
        return await asyncio.shield(done)

    async def _edit_into(self, done: asyncio.Future[Rewritten], command: RewriteCommand) -> None:
        try:
            done.set_result(await self._edit(command))
        except Exception as error:
            done.set_exception(error)
            # Somebody who left does not ask for it.
            done.exception()

    async def _edit(self, command: RewriteCommand) -> Rewritten:
        if command.request_id:
            known = await self._store.find_rewrite(command)
            if known is not None:
                return Rewritten(0, known)
        base = await self._store.study(command)
        turn = None if command.kind is RewriteKind.VISIBILITY else await self._new_turn(command, base)
        if turn is None and not base.messages:
            return Rewritten(base.version)
        rewrite_id = mint_id()
        if self._lifecycle is None:
            done = await self._store.commit_rewrite(command, rewrite_id, turn, MetadataPatch(), None)
        else:
            rewrite = _rewrite(command, base, rewrite_id)
            done = await self._edit_prepared(command, rewrite, turn, self._lifecycle)
        fields = {"thread_name": command.thread.name, "kind": command.kind.value}
        logger.info("thread.rewritten", extra=fields)
        if done.turn is not None:
            await self._runs.claim(command.thread)
        return done

    async def _edit_prepared(
        self, command: RewriteCommand, rewrite: HistoryRewrite, turn: NewTurn | None, lifecycle: Lifecycle
    ) -> Rewritten:
        """Hold the thread, ask the lifecycle, commit, and have the observers told."""
        epoch = await self._store.hold(command)
        try:
            patch = await _prepared(lifecycle, rewrite)
            done = await self._store.commit_rewrite(command, rewrite.rewrite_id, turn, patch, epoch)
        except Exception:
            await self._store.release(command.thread, epoch)
            await self._runs.claim(command.thread)
            raise
        if done.turn is None or turn is None or done.turn == turn.key:
            told = HistoryRewritten(rewrite, done.version, patch, done.turn.name if done.turn else "")
            self._runs.spawn(self._tell(lifecycle, command.thread, told), "thread.rewritten")
        return done

    async def _tell(self, lifecycle: Lifecycle, thread: ThreadKey, rewritten: HistoryRewritten) -> None:
        errors: list[str] = []
        try:
            await lifecycle.history_rewritten(rewritten)
        except ObserversFailed as group:
            for failure in group.exceptions:
                errors.append(f"{failure}: {failure.__cause__!r}"[:_ERROR_CHARS])
            fields = {"thread_name": thread.name, "rewrite": rewritten.rewrite.rewrite_id}
            logger.warning("thread.observers_failed", extra=fields, exc_info=group)
        await self._store.note_observed(thread, rewritten.rewrite.rewrite_id, errors)

    async def _new_turn(self, command: RewriteCommand, base: RewriteBase) -> NewTurn:
        """Return the turn that an edit begins: asked for the same, with the agent as it is now."""
        assert base.spec is not None
        changes: dict[str, Any] = {
            "thread": command.thread.name,
            "new_thread": None,
            "agent": base.agent.removeprefix("agents/"),
            "busy_policy": None,
            "expected_version": None,
        }
        if command.options is not None:
            changes["options"] = command.options
        spec = base.spec.model_copy(update=changes)
        start = StartCommand(command.thread.scope, command.request_id, spec, command.subject)
        agent = await self._agent(command, start)
        if command.options is not None and command.options.model:
            self._check_model(agent, spec)
        return NewTurn(
            TurnKey(command.thread.scope, command.thread.thread_id, mint_id()),
            spec,
            agent.resource_name,
            agent.digest,
            spec.limits.steps or agent.limits.steps,
            spec.limits.turn_timeout or agent.limits.turn_timeout or 0.0,
        )

    async def _agent(self, command: RewriteCommand, start: StartCommand) -> AgentDefinition:
        try:
            return await self._agents.for_command(start)
        except NotFound as error:
            # The turn is of an agent that this deployment does not have any more.
            if command.kind is RewriteKind.RETRY:
                name = f"{command.thread.name}/turns/{command.turn}"
                raise WrongState(
                    error.message, reason="TURN_NOT_RETRYABLE", turn=name, state="FAILED"
                ) from error
            raise InvalidRequest(
                error.message, violations=[FieldViolation("thread", error.message)]
            ) from error

    def _check_model(self, agent: AgentDefinition, spec: TurnSpec) -> None:
        try:
            resolve_model(self._models, agent, spec)
        except TurnwireError as error:
            field = "model_options.model"
            raise InvalidRequest(error.message, violations=[FieldViolation(field, error.message)]) from error


def _rewrite(command: RewriteCommand, base: RewriteBase, rewrite_id: str) -> HistoryRewrite:
    thread = command.thread
    return HistoryRewrite(
        rewrite_id,
        command.kind,
        thread.scope,
        thread.name,
        tuple(f"{thread.name}/messages/{message}" for message in base.messages),
        base.version,
        command.subject,
        command.visibility,
        MappingProxyType(dict(base.public)),
        MappingProxyType(dict(base.private)),
    )


async def _prepared(lifecycle: Lifecycle, rewrite: HistoryRewrite) -> MetadataPatch:
    """Ask the lifecycle. Raises WrongState (REWRITE_REFUSED) when it says why, else LifecycleFailed."""
    try:
        return await lifecycle.prepare_history_rewrite(rewrite) or MetadataPatch()
    except LifecycleFailed as failure:
        cause = failure.__cause__
        if isinstance(cause, AgentControlError):
            text = cause.user_content or str(cause) or "a rule forbids it"
            raise WrongState(
                f"the edit was refused: {text}", reason="REWRITE_REFUSED", thread=rewrite.thread
            ) from failure
        raise
