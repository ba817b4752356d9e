"""One turn from its claim to its one end, or to where it is let go: model calls and their tool calls.

An episode goes on from what is committed, whatever became of the ones before it: what has a result keeps it,
what may have been begun is heard out, and only what never entered the transcript is done anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from opentelemetry import trace

from turnwire.core.errors import TurnwireError, Unavailable
from turnwire.core.ids import mint_id
from turnwire.core.text import cut
from turnwire.extend.actions import Action
from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import (
    EpisodeKind,
    Notice,
    NoticeSeverity,
    StepCommitted,
    StepSettled,
    StepStarted,
    TurnEvent,
    TurnFinished,
    TurnState,
)
from turnwire.extend.llm import Finish, ModelMessage, ModelRequest, StreamFailure, SystemMessage
from turnwire.runtime.domain.admission import Admitted, AppliedCommand
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.message import CallPart, StoredPart
from turnwire.runtime.domain.resumption import Progress, Resumption
from turnwire.runtime.domain.stop import state_of
from turnwire.runtime.domain.turn import MAX_FINISHED_TEXT_BYTES
from turnwire.runtime.engine.approvals import EXPIRY_SECONDS, Asker, action_events
from turnwire.runtime.engine.cancel import CancelToken, HandOver
from turnwire.runtime.engine.ending import End, after_step, stopped
from turnwire.runtime.engine.history import assistant_messages, model_messages, user_message
from turnwire.runtime.engine.model_step import Answer, ModelCall
from turnwire.runtime.engine.parts import answer_parts, interrupted_parts
from turnwire.runtime.engine.plan import PlannedCall, plan_call, refusal_notice, refused_at_once
from turnwire.runtime.engine.request import model_options, resolve_model, tool_choice, tool_definitions
from turnwire.runtime.engine.standing import calls_left, outdated, renew
from turnwire.runtime.engine.tools import CallRules, Suspended, ToolBatch
from turnwire.runtime.engine.usage import UsageMeter
from turnwire.runtime.ports import Model, ModelSource, OwnerLost, Store, ToolExecutor, TurnJournal

__all__ = ["TurnContext", "TurnRunner"]

logger = logging.getLogger(__name__)
tracer = trace.get_tracer("turnwire.runtime")

# How long a turn that goes on waits for an executor that starts beside it.
TOOLS_PATIENCE_SECONDS = 30.0
_TOOLS_DELAY = 0.5


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What the turns of one runtime share."""

    store: Store
    models: ModelSource
    executor: ToolExecutor
    first_feedback: float = 8.0
    # Seconds after which a question that nobody answers is answered with no.
    approval_timeout: float = EXPIRY_SECONDS


class TurnRunner:
    """Runs one episode of a claimed turn.

    `run` returns when the end of the turn, its wait or its hand-over is committed, and never raises for it.
    """

    def __init__(
        self,
        context: TurnContext,
        agent: AgentDefinition,
        admitted: Admitted,
        journal: TurnJournal,
        token: CancelToken,
    ) -> None:
        resumption = admitted.resumption
        left = resumption or Resumption(0, EpisodeKind.START)
        self._context = context
        self._agent = agent
        self._key = journal.key
        self._max_steps = admitted.max_steps
        self._spec = admitted.spec
        self._first = admitted.first and resumption is None
        self._time_left = admitted.time_left
        self._resumption = resumption
        self._journal = journal
        self._token = token
        self._meter = UsageMeter(left.progress.usage)
        self._has_message = bool(left.message_id)
        self._message_id = left.message_id or mint_id()
        self._step = left.step
        self._step_attempt = left.next_attempt
        self._answer: Answer | None = None
        self._batch: ToolBatch | None = None
        self._last_text = left.last_text
        self._began = time.monotonic() - left.elapsed

    async def run(self) -> TurnState | None:
        """Run the turn to its end, or until it waits; None when it is another owner's, now or next."""
        span = tracer.start_span("turn", attributes={"turnwire.turn": self._key.name})
        try:
            with trace.use_span(span, end_on_exit=False, record_exception=False):
                return await self._run()
        except OwnerLost:
            logger.warning("turn.owner_lost", extra={"turn": self._key.name})
            return None
        finally:
            self._token.close()
            span.end()

    async def _run(self) -> TurnState | None:
        try:
            return await self._finish(await self._ended())
        except Suspended:
            logger.info("turn.suspended", extra={"turn": self._key.name, "steps": self._step})
            return TurnState.WAITING
        except HandOver:
            await self._journal.release()
            logger.info("turn.released", extra={"turn": self._key.name, "steps": self._step})
            return None

    async def _ended(self) -> End:
        """Run the steps; whatever ends them becomes data."""
        try:
            limit = self._spec.limits.turn_timeout or self._agent.limits.turn_timeout
            left = limit if self._time_left is None else self._time_left
            if left is not None:
                self._token.fire_at(left, limit or left)
            return await self._steps()
        except AgentControlError as error:
            self._keep_interrupted()
            return stopped(error, self._last_text)
        except (OwnerLost, HandOver, Suspended):
            raise
        except TurnwireError as error:
            self._keep_interrupted()
            return End("error", self._last_text, error.reason, error.message, "error")
        except Exception:
            # A defect of ours ends this turn alone; the text stays in the log, the id leads there.
            error_id = mint_id()
            logger.exception("turn.failed", extra={"turn": self._key.name, "error_id": error_id})
            self._keep_interrupted()
            return End("error", self._last_text, "INTERNAL", f"internal error {error_id}", "error")

    async def _steps(self) -> End:
        if self._resumption is not None:
            end = await self._go_on(self._resumption)
            if end is not None:
                return end
        self._token.check()
        model = resolve_model(self._context.models, self._agent, self._spec)
        tools = await self._token.race(self._tools(), name="turn.tools.list") if self._agent.tools else {}
        history = await self._history(model.provider)
        system = self._agent.system_text()
        if system:
            history.insert(0, SystemMessage(system))
        max_steps = self._max_steps
        while self._step < max_steps:
            self._token.check()
            self._step += 1
            self._journal.at(step=self._step, step_attempt=self._step_attempt)
            self._journal.emit_soon(StepStarted(self._step, max_steps, model.name))
            answer = await self._call_model(model, history, tools)
            end = await self._settle_step(model, answer, history, tools)
            if end is not None:
                return end
            self._step_attempt = 1
        text = f"the turn used up its {max_steps} steps"
        return End("max-steps", self._last_text, "STEPS_EXHAUSTED", text)

    async def _go_on(self, left: Resumption) -> End | None:
        """Bring the last committed step to where it would be had nobody died or waited."""
        self._journal.resume(left)
        if not left.step:
            return None
        self._journal.at(step=left.step, step_attempt=left.progress.step_attempt)
        await self._finish_calls(left)
        self._token.check()
        if not left.settled:
            self._journal.emit(StepSettled(self._meter.summary()))
        return self._transition(left.progress, bool(left.calls))

    async def _finish_calls(self, left: Resumption) -> None:
        known = calls_left(left, {})
        if not known.open:
            return
        # Whatever ends the turn before its tools are known still finds the calls.
        self._batch = self._batch_of(known.calls, known.results)
        found: Mapping[str, ToolInfo] = {}
        # A stop needs no tools: what was begun is only looked up.
        with suppress(AgentControlError):
            found = await self._token.race(self._all_tools(), name="turn.tools.list")
        known = calls_left(left, found)
        calls, old = known.calls, outdated(known.calls, self._key.scope)
        if old and not self._token.fired:
            renewal = renew(calls, old, await self._asker())
            calls = renewal.calls
            self._journal.ask_again(renewal.voided, renewal.asked, renewal.events)
        self._batch = self._batch_of(calls, known.results)
        await self._batch.run()

    async def _asker(self) -> Asker:
        terms = await self._context.store.approval_terms(self._key.thread)
        timeout = self._context.approval_timeout
        return Asker(self._key, self._agent.resource_name, terms, timeout)

    async def _history(self, provider: str) -> list[ModelMessage]:
        if self._first:
            said = user_message(self._spec.parts)
            return [] if said is None else [said]
        if self._resumption is not None:
            await self._journal.flush()
        return model_messages(await self._context.store.transcript(self._key.thread), provider)

    async def _tools(self) -> Mapping[str, ToolInfo]:
        allowed = set(self._spec.allowed_tools)
        return {
            name: tool
            for name, tool in (await self._all_tools()).items()
            if self._agent.allows_tool(name) and (not allowed or name in allowed)
        }

    async def _all_tools(self) -> Mapping[str, ToolInfo]:
        until = time.monotonic() + (TOOLS_PATIENCE_SECONDS if self._resumption is not None else 0.0)
        while True:
            try:
                return {t.name: t for t in await self._context.executor.list_tools()}
            except Unavailable:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(_TOOLS_DELAY)

    async def _call_model(
        self, model: Model, history: Sequence[ModelMessage], tools: Mapping[str, ToolInfo]
    ) -> Answer:
        request = ModelRequest(
            model=model.name.partition(":")[2],
            messages=tuple(history),
            tools=tool_definitions(tools),
            tool_choice=tool_choice(self._spec, self._step),
            options=model_options(self._spec.options),
        )
        call = ModelCall(model, request, self._journal, self._context.first_feedback)
        self._answer = call.answer
        with tracer.start_as_current_span("model.call", attributes={"gen_ai.request.model": model.name}):
            try:
                await self._token.race(call.run(), name="turn.model")
            finally:
                self._meter.add_model_call(call.answer.usage)
        return call.answer

    async def _settle_step(
        self, model: Model, answer: Answer, history: list[ModelMessage], tools: Mapping[str, ToolInfo]
    ) -> End | None:
        """Take the answer into the transcript, run its calls, and tell how the turn goes on."""
        self._last_text = answer.whole_text or self._last_text
        if isinstance(answer.end, StreamFailure):
            self._keep_interrupted()
            return End("model-error", self._last_text, "MODEL_FAILED", answer.end.message, "error")
        assert isinstance(answer.end, Finish)
        plan, asked = await self._plan(answer, tools)
        refused, events = refused_at_once(plan)
        calls = [refused.get(c.part.call_id, c.part) for c in plan]
        parts = answer_parts(answer, calls, self._step, model.provider)
        self._meter.tool_calls += len(plan)
        progress = self._progress(answer.end)
        self._commit(parts, calls, [*events, *action_events(asked)], progress, asked)
        self._answer = None
        if plan:
            done = await self._run_tools(plan, refused)
            parts = [*(p for p in parts if not isinstance(p, CallPart)), *done]
        self._journal.emit(StepSettled(self._meter.summary()))
        history.extend(assistant_messages(parts, model.provider))
        return self._transition(progress, bool(plan))

    def _progress(self, finish: Finish | None = None) -> Progress:
        reason, refusal = (finish.reason.value, finish.refusal) if finish is not None else ("", "")
        return Progress(self._meter.summary(), reason, refusal, self._step_attempt)

    def _transition(self, progress: Progress, has_calls: bool) -> End | None:
        budget = self._spec.limits.tokens or self._agent.limits.tokens
        over = budget if budget is not None and self._meter.total_tokens > budget else None
        end = after_step(progress, has_calls, over, self._last_text)
        if end is not None and end.notice:
            self._journal.emit(Notice(NoticeSeverity.WARNING, "answer-truncated", end.notice))
        return end

    async def _plan(
        self, answer: Answer, tools: Mapping[str, ToolInfo]
    ) -> tuple[list[PlannedCall], tuple[Action, ...]]:
        """Decide about each call, and ask about those that somebody has to allow."""
        plan = [plan_call(c, tools, self._step, i) for i, c in enumerate(answer.calls)]
        for planned in plan:
            if planned.refusal:
                self._journal.emit(refusal_notice(planned))
        if not any(c.asks for c in plan):
            return plan, ()
        renewal = renew(plan, [c for c in plan if c.asks], await self._asker())
        return renewal.calls, renewal.asked

    def _commit(
        self,
        parts: Sequence[StoredPart],
        calls: Sequence[CallPart],
        events: Sequence[TurnEvent],
        progress: Progress,
        asked: Sequence[Action] = (),
    ) -> None:
        if parts and not self._has_message:
            self._journal.begin_answer(self._message_id)
            self._has_message = True
        name = f"{self._key.thread.name}/messages/{self._message_id}"
        committed = StepCommitted(name, tuple(c.call_id for c in calls))
        self._journal.commit_step(parts, [committed, *events], progress=progress, actions=asked)

    async def _run_tools(
        self, plan: Sequence[PlannedCall], refused: Mapping[str, CallPart]
    ) -> Sequence[CallPart]:
        self._batch = self._batch_of(plan, refused)
        # No tool starts before the intent to run it is durable.
        await self._journal.flush()
        with tracer.start_as_current_span("tool.batch", attributes={"turnwire.calls": len(plan)}):
            settled = await self._batch.run()
        self._token.check()
        return settled

    def _batch_of(self, calls: Sequence[PlannedCall], results: Mapping[str, CallPart]) -> ToolBatch:
        limit = self._spec.limits.tool_timeout or self._agent.limits.tool_timeout
        rules = CallRules(self._agent.resource_name, limit, _traceparent())
        return ToolBatch(self._context.executor, self._journal, self._token, rules, calls, results)

    def _keep_interrupted(self) -> None:
        """Keep what was streamed before the stop, once, and give each call of the step its one result."""
        if self._batch is not None:
            self._batch.close_rest()
        answer, self._answer = self._answer, None
        parts = interrupted_parts(answer, self._step) if answer is not None else []
        if parts and answer is not None:
            self._last_text = answer.whole_text or self._last_text
            self._commit(parts, (), (), self._progress())

    async def _finish(self, end: End) -> TurnState:
        state = state_of(end.stop_reason)
        text = cut(end.text, MAX_FINISHED_TEXT_BYTES)
        self._journal.at(step=0, step_attempt=0)
        event = TurnFinished(
            state=state,
            stop_reason=end.stop_reason,
            elapsed=time.monotonic() - self._began,
            steps=self._step,
            usage=self._meter.summary(),
            final_message=f"{self._key.thread.name}/messages/{self._message_id}" if self._has_message else "",
            text=text,
            text_truncated=len(text) < len(end.text),
            error_reason=end.error_reason,
            error_text=end.error_text if state is TurnState.FAILED else "",
        )
        await self._journal.finish(
            event, interrupted_reason=end.interrupted_reason, applied=self._applied(end)
        )
        logger.info(
            "turn.finished",
            extra={
                "turn": self._key.name,
                "state": state.value,
                "stop_reason": end.stop_reason,
                "steps": self._step,
                "duration_ms": round((time.monotonic() - self._began) * 1000, 1),
            },
        )
        return state

    def _applied(self, end: End) -> tuple[AppliedCommand, ...]:
        """Return the commands that took effect: none when the turn had come to its end before them."""
        error = self._token.error
        if not isinstance(error, AgentControlError) or error.stop_reason != end.stop_reason:
            return ()
        return tuple(self._token.commands)


def _traceparent() -> str:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
