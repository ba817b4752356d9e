"""One turn from its claim to its one end: model calls and their tool calls, until there is an answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opentelemetry import trace

from turnwire.core.errors import TurnwireError
from turnwire.core.ids import mint_id
from turnwire.core.text import cut
from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import (
    Notice,
    NoticeSeverity,
    StepCommitted,
    StepSettled,
    StepStarted,
    TurnFinished,
    TurnState,
)
from turnwire.extend.llm import Finish, FinishReason, ModelMessage, ModelRequest, StreamFailure, SystemMessage
from turnwire.runtime.domain.admission import Admitted, AppliedCommand
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.message import BegunTools, CallPart, ContentPart, ReasoningText, StoredPart
from turnwire.runtime.domain.stop import state_of
from turnwire.runtime.domain.turn import MAX_FINISHED_TEXT_BYTES, InputPart
from turnwire.runtime.engine.cancel import CancelToken
from turnwire.runtime.engine.history import assistant_messages, model_messages, user_message
from turnwire.runtime.engine.model_step import Answer, ModelCall
from turnwire.runtime.engine.plan import PlannedCall, plan_call, refusal_notice
from turnwire.runtime.engine.request import model_options, resolve_model, tool_choice, tool_definitions
from turnwire.runtime.engine.tools import CallRules, ToolBatch
from turnwire.runtime.engine.usage import UsageMeter
from turnwire.runtime.ports import Model, ModelSource, OwnerLost, Store, ToolExecutor, TurnJournal

__all__ = ["TurnContext", "TurnRunner"]

logger = logging.getLogger(__name__)
tracer = trace.get_tracer("turnwire.runtime")


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What the turns of one runtime share."""

    store: Store
    models: ModelSource
    executor: ToolExecutor
    first_feedback: float = 8.0


@dataclass(frozen=True, slots=True)
class _End:
    """How the turn is to end."""

    stop_reason: str
    text: str = ""
    error_reason: str = ""
    error_text: str = ""
    interrupted_reason: str = ""


class TurnRunner:
    """Runs one claimed turn. `run` returns when the end of the turn is committed, and never raises for it."""

    def __init__(
        self,
        context: TurnContext,
        agent: AgentDefinition,
        admitted: Admitted,
        journal: TurnJournal,
        token: CancelToken,
    ) -> None:
        self._context = context
        self._agent = agent
        self._key = journal.key
        self._max_steps = admitted.max_steps
        self._spec = admitted.spec
        self._first = admitted.first
        self._journal = journal
        self._token = token
        self._meter = UsageMeter()
        self._message_id = mint_id()
        self._has_message = False
        self._step = 0
        self._answer: Answer | None = None
        self._last_text = ""
        self._began = time.monotonic()

    async def run(self) -> TurnState | None:
        """Run the turn to its end; None when another owner has it."""
        span = tracer.start_span("turn", attributes={"turnwire.turn": self._key.name})
        try:
            with trace.use_span(span, end_on_exit=False, record_exception=False):
                end = await self._ended()
                return await self._finish(end)
        except OwnerLost:
            logger.warning("turn.owner_lost", extra={"turn": self._key.name})
            return None
        finally:
            self._token.close()
            span.end()

    async def _ended(self) -> _End:
        """Run the steps; whatever ends them becomes data."""
        try:
            limit = self._spec.limits.turn_timeout or self._agent.limits.turn_timeout
            if limit is not None:
                self._token.fire_at(limit)
            return await self._steps()
        except AgentControlError as error:
            self._keep_interrupted()
            failed = state_of(error.stop_reason) is TurnState.FAILED
            return _End(
                error.stop_reason,
                error.user_content or self._last_text,
                _reason_word(error.stop_reason) if failed else "",
                str(error),
                error.stop_reason,
            )
        except OwnerLost:
            raise
        except TurnwireError as error:
            self._keep_interrupted()
            return _End("error", self._last_text, error.reason, error.message, "error")
        except Exception:
            # A defect of ours ends this turn alone; the text stays in the log, the id leads there.
            error_id = mint_id()
            logger.exception("turn.failed", extra={"turn": self._key.name, "error_id": error_id})
            self._keep_interrupted()
            return _End("error", self._last_text, "INTERNAL", f"internal error {error_id}", "error")

    async def _steps(self) -> _End:
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
            self._journal.at(step=self._step)
            self._journal.emit_soon(StepStarted(self._step, max_steps, model.name))
            answer = await self._call_model(model, history, tools)
            end = await self._settle_step(model, answer, history, tools)
            if end is not None:
                return end
        text = f"the turn used up its {max_steps} steps"
        return _End("max-steps", self._last_text, "STEPS_EXHAUSTED", text)

    async def _history(self, provider: str) -> list[ModelMessage]:
        if self._first:
            said = user_message(self._spec.parts)
            return [] if said is None else [said]
        return model_messages(await self._context.store.transcript(self._key.thread), provider)

    async def _tools(self) -> Mapping[str, ToolInfo]:
        if not self._agent.tools:
            return {}
        known = await self._context.executor.list_tools()
        allowed = set(self._spec.allowed_tools)
        return {
            t.name: t for t in known if self._agent.allows_tool(t.name) and (not allowed or t.name in allowed)
        }

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
    ) -> _End | None:
        """Take the answer into the transcript, run its calls, and tell how the turn goes on."""
        self._last_text = answer.whole_text or self._last_text
        if isinstance(answer.end, StreamFailure):
            self._keep_interrupted()
            failure = answer.end
            return _End("model-error", self._last_text, "MODEL_FAILED", failure.message, "error")
        assert isinstance(answer.end, Finish)
        plan = self._plan(answer, tools)
        parts = self._parts(model, answer, [c.part for c in plan])
        self._commit(parts, tuple(c.part.call_id for c in plan))
        self._answer = None
        if plan:
            parts = [*(p for p in parts if not isinstance(p, CallPart)), *await self._run_tools(plan)]
        self._journal.emit(StepSettled(self._meter.summary()))
        history.extend(assistant_messages(parts, model.provider))
        return self._transition(answer.end, bool(plan))

    def _transition(self, finish: Finish, has_calls: bool) -> _End | None:
        budget = self._spec.limits.tokens or self._agent.limits.tokens
        over = budget is not None and self._meter.total_tokens > budget
        if has_calls or finish.reason is FinishReason.PAUSE:
            if over:
                return _End(
                    "budget", self._last_text, "BUDGET_EXHAUSTED", f"the turn used up {budget} tokens"
                )
            return None
        if finish.reason is FinishReason.CONTENT_FILTER:
            text = "the provider's filter cut the answer"
            return _End("model-error", self._last_text, "MODEL_FAILED", text)
        if finish.reason is FinishReason.LENGTH:
            text = "The model's output limit cut the answer."
            self._journal.emit(Notice(NoticeSeverity.WARNING, "answer-truncated", text))
        return _End("completed", self._last_text or finish.refusal)

    def _plan(self, answer: Answer, tools: Mapping[str, ToolInfo]) -> list[PlannedCall]:
        plan = [plan_call(c, tools, self._step, i) for i, c in enumerate(answer.calls)]
        for planned in plan:
            if planned.refusal:
                self._journal.emit(refusal_notice(planned))
        return plan

    def _parts(self, model: Model, answer: Answer, calls: Sequence[CallPart]) -> list[StoredPart]:
        parts: list[StoredPart] = []
        replay = answer.end.replay_json if isinstance(answer.end, Finish) else ""
        reasoning = "".join(answer.reasoning)
        if reasoning or replay:
            parts.append(ReasoningText(reasoning, self._step, replay, model.provider))
        text = answer.whole_text
        if not text and isinstance(answer.end, Finish) and answer.end.refusal:
            text = answer.end.refusal
        if text:
            parts.append(ContentPart(InputPart(kind="text", text=text), self._step))
        parts.extend(calls)
        return parts

    def _commit(self, parts: Sequence[StoredPart], call_ids: tuple[str, ...]) -> None:
        if parts and not self._has_message:
            self._journal.begin_answer(self._message_id)
            self._has_message = True
        name = f"{self._key.thread.name}/messages/{self._message_id}"
        self._journal.commit_step(parts, [StepCommitted(name, call_ids)])

    async def _run_tools(self, plan: Sequence[PlannedCall]) -> Sequence[CallPart]:
        # No tool starts before the intent to run it is durable.
        await self._journal.flush()
        self._meter.tool_calls += len(plan)
        limit = self._spec.limits.tool_timeout or self._agent.limits.tool_timeout
        rules = CallRules(self._agent.resource_name, limit, _traceparent())
        batch = ToolBatch(self._context.executor, self._journal, self._token, rules, plan)
        with tracer.start_as_current_span("tool.batch", attributes={"turnwire.calls": len(plan)}):
            settled = await batch.run()
        self._token.check()
        return settled

    def _keep_interrupted(self) -> None:
        """Keep what was streamed before the stop, once; nothing when nothing was streamed."""
        answer, self._answer = self._answer, None
        if answer is None or not (answer.text or answer.reasoning or answer.begun_tools or answer.calls):
            return
        text = answer.whole_text
        self._last_text = text or self._last_text
        names = tuple(dict.fromkeys([*answer.begun_tools, *(c.tool_name for c in answer.calls)]))
        if not text and not names:
            return
        parts: list[StoredPart] = []
        if answer.reasoning:
            parts.append(ReasoningText("".join(answer.reasoning), self._step))
        if text:
            parts.append(ContentPart(InputPart(kind="text", text=text), self._step))
        if names:
            parts.append(BegunTools(names, self._step))
        self._commit(parts, ())

    async def _finish(self, end: _End) -> TurnState:
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

    def _applied(self, end: _End) -> tuple[AppliedCommand, ...]:
        """Return the commands that took effect: none when the turn had come to its end before them."""
        error = self._token.error
        if error is None or error.stop_reason != end.stop_reason:
            return ()
        return tuple(self._token.commands)


def _reason_word(stop_reason: str) -> str:
    return stop_reason.upper().replace("-", "_")


def _traceparent() -> str:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
