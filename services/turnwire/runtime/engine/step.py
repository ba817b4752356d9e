"""The steps of a turn: a model call, the calls that it asked for, and how the turn goes on after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from opentelemetry import trace

from turnwire.core.ids import mint_id
from turnwire.extend.actions import Action
from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import (
    EpisodeKind,
    MessageOrigin,
    Notice,
    NoticeSeverity,
    StepCommitted,
    StepSettled,
    StepStarted,
    TurnEvent,
)
from turnwire.extend.llm import FailureKind, Finish, ModelRequest, StreamFailure, TextPart, UserMessage
from turnwire.runtime.domain.admission import Admitted
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.message import CallPart, StoredPart
from turnwire.runtime.domain.resumption import Progress, Resumption
from turnwire.runtime.engine.answers import AnswerRules
from turnwire.runtime.engine.approvals import Asker, action_events
from turnwire.runtime.engine.budget import Budgets
from turnwire.runtime.engine.cancel import CancelToken
from turnwire.runtime.engine.compaction import Compactor
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.conversation import Conversation
from turnwire.runtime.engine.ending import End, after_step, refused
from turnwire.runtime.engine.estimates import estimated_usage
from turnwire.runtime.engine.model_step import Answer, ModelCall, StepPlace
from turnwire.runtime.engine.parts import answer_parts, interrupted_parts
from turnwire.runtime.engine.plan import PlannedCall, plan_call, refusal_notice, refused_at_once
from turnwire.runtime.engine.request import model_options, tool_choice, tool_definitions
from turnwire.runtime.engine.standing import calls_left, outdated, renew
from turnwire.runtime.engine.summariser import SummariserPorts
from turnwire.runtime.engine.toolbox import Toolbox
from turnwire.runtime.engine.tools import CallRules, ToolBatch
from turnwire.runtime.engine.usage import UsageMeter
from turnwire.runtime.ports import Model, TurnJournal

__all__ = ["StepRunner"]

tracer = trace.get_tracer("turnwire.runtime")


class StepRunner:
    """Runs the steps of one episode, one after the other, and knows what they have come to."""

    def __init__(
        self,
        context: TurnContext,
        agent: AgentDefinition,
        admitted: Admitted,
        journal: TurnJournal,
        token: CancelToken,
        toolbox: Toolbox,
    ) -> None:
        left = admitted.resumption or Resumption(0, EpisodeKind.START)
        self._context = context
        self._agent = agent
        self._key = journal.key
        self._spec = admitted.spec
        self._max_steps = admitted.max_steps
        self._journal = journal
        self._token = token
        self._toolbox = toolbox
        self._answers = AnswerRules(
            admitted.spec.response_schema_json,
            agent.limits.max_retry_limit,
            left.progress.answer_retries,
            token,
        )
        # The message that the latest answer is in, and the one that the next goes to; "" = none yet.
        self._answer_id = left.message_id or left.answer_id
        self._message_id = left.message_id
        self._step_attempt = left.next_attempt
        self._answer: Answer | None = None
        self._compactor: Compactor | None = None
        self._first_feedback = agent.model_call.first_feedback_seconds or context.first_feedback
        self._batch: ToolBatch | None = None
        prices = context.prices.with_prices(agent.prices)
        self.meter = UsageMeter(left.progress.usage, prices.cost_micro_usd)
        self.budgets = Budgets(agent, admitted.spec.limits, admitted.max_steps, left.step, self.meter, token)
        # Attempts at the next step that an owner began and did not live to count.
        self._lost_attempts = left.next_attempt - 1
        # The last step that began, from 1 through the whole turn.
        self.step = left.step
        self.last_text = left.last_text

    @property
    def message_name(self) -> str:
        """Full name of the message that holds the latest answer; empty while there is none."""
        return f"{self._key.thread.name}/messages/{self._answer_id}" if self._answer_id else ""

    async def run(
        self, model: Model, conversation: Conversation, tools: Mapping[str, ToolInfo]
    ) -> End | None:
        """Run the next step and add what it gave to `conversation`; None when the turn goes on after it."""
        self.step += 1
        self._journal.at(step=self.step, step_attempt=self._step_attempt)
        self._journal.emit_soon(StepStarted(self.step, self._max_steps, model.name))
        answer = await self._call_model(model, conversation, tools)
        end = await self._settle(answer, conversation, tools)
        self._step_attempt = 1
        if end is None:
            self.budgets.warn(self._journal, self.step)
        return end

    async def finish_left(self, left: Resumption) -> End | None:
        """Bring the last committed step to where it would be had nobody died or waited."""
        self._journal.resume(left)
        if not left.step or left.progress.taken_in == left.step:
            return None
        self._journal.at(step=left.step, step_attempt=left.progress.step_attempt)
        await self._finish_calls(left)
        self._token.check()
        if not left.settled:
            self._journal.emit(StepSettled(self.meter.summary()))
        return await self._transition(left.progress, bool(left.calls), None)

    def keep_interrupted(self) -> None:
        """Keep what was streamed before the stop, once, and give each call of the step its one result."""
        if self._batch is not None:
            self._batch.close_rest()
        answer, self._answer = self._answer, None
        parts = interrupted_parts(answer, self.step) if answer is not None else []
        if parts and answer is not None:
            self.last_text = answer.whole_text or self.last_text
            self._commit(parts, (), (), self._progress())

    async def _finish_calls(self, left: Resumption) -> None:
        known = calls_left(left, {})
        if not known.open:
            return
        # Whatever ends the turn before its tools are known still finds the calls.
        self._batch = self._batch_of(known.calls, known.results)
        found: Mapping[str, ToolInfo] = {}
        # A stop needs no tools: what was begun is only looked up.
        with suppress(AgentControlError):
            found = await self._token.race(self._toolbox.known(), name="turn.tools.list")
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

    async def _call_model(
        self, model: Model, conversation: Conversation, tools: Mapping[str, ToolInfo]
    ) -> Answer:
        if self._compactor is None:
            self._compactor = self._compactor_of(model, conversation)
        compactor = self._compactor
        await compactor.make_room(tools)
        request = ModelRequest(
            model=model.name.partition(":")[2],
            messages=compactor.messages(),
            tools=tool_definitions(tools),
            tool_choice=tool_choice(self._spec, self.step),
            options=model_options(self._spec.options),
            response_schema_json=self._spec.response_schema_json,
            metadata={"thread": f"{self._key.scope}/{self._key.thread.name}"},
        )
        self._count_lost(model, request)
        place = StepPlace(self.step, self._max_steps, self._step_attempt)
        size = self._context.bytes_per_token
        call = ModelCall(model, request, self._journal, self._first_feedback, place, size)
        self._answer = call.answer
        with tracer.start_as_current_span("model.call", attributes={"gen_ai.request.model": model.name}):
            try:
                await self._token.race(call.run(), name="turn.model")
                while await compactor.recover(call.answer.end):
                    request = replace(request, messages=compactor.messages())
                    call.shorten(request, "the request was too long for the model: it is made anew, shorter")
                    await self._token.race(call.run(), name="turn.model")
            finally:
                self._step_attempt = place.attempt
                for spent in call.spent():
                    self.meter.add_model_call(spent.usage, spent.model)
        compactor.heard(call.answer.end, call.answer.usage)
        call.tell()
        return call.answer

    def _compactor_of(self, model: Model, conversation: Conversation) -> Compactor:
        """Return what keeps the requests of this episode within the model's window."""
        context, agent = self._context, self._agent
        asked = self._spec.options.model
        window = agent.context_window if asked in ("", agent.model) else None
        rules = agent.compaction.over(context.compaction, window, model.name)
        if self._spec.options.max_output_tokens:
            rules = replace(rules, output_reserve=self._spec.options.max_output_tokens)
        ports = SummariserPorts(
            lambda: context.models.resolve(rules.model, terms=agent.model_call) if rules.model else model,
            self._journal,
            self._token,
            self.meter,
            self._first_feedback,
            context.bytes_per_token,
        )
        return Compactor(conversation, rules, ports, self._spec.response_schema_json)

    def _count_lost(self, model: Model, request: ModelRequest) -> None:
        """Count what attempts have used whose owner died with their figures: at least the request."""
        size = self._context.bytes_per_token
        lost = estimated_usage(None, request, (), size) if self._lost_attempts and size else None
        for _ in range(self._lost_attempts):
            self.meter.add_model_call(lost, model.name)
        self._lost_attempts = 0

    async def _settle(
        self, answer: Answer, conversation: Conversation, tools: Mapping[str, ToolInfo]
    ) -> End | None:
        """Take the answer into the transcript, run its calls, and tell how the turn goes on."""
        self.last_text = answer.whole_text or self.last_text
        if isinstance(answer.end, StreamFailure):
            self.keep_interrupted()
            text = answer.end.message
            if answer.end.kind is FailureKind.CONTEXT_OVERFLOW and self._compactor is not None:
                text = f"{self._compactor.overflow_text()}: {text}"
            return End("model-error", self.last_text, "MODEL_FAILED", text, "error")
        assert isinstance(answer.end, Finish)
        plan, asked = await self._plan(answer, tools)
        refused, events = refused_at_once(plan)
        calls = [refused.get(c.part.call_id, c.part) for c in plan]
        parts = answer_parts(answer, calls, self.step, answer.provider)
        self.meter.tool_calls += len(plan)
        progress = self._progress(answer.end)
        self._commit(parts, calls, [*events, *action_events(asked)], progress, asked)
        self._answer = None
        if plan:
            done = await self._run_tools(plan, refused)
            parts = [*(p for p in parts if not isinstance(p, CallPart)), *done]
        self._journal.emit(StepSettled(self.meter.summary()))
        conversation.add_answer(self._message_id, parts)
        return await self._transition(progress, bool(plan), conversation)

    def _progress(self, finish: Finish | None = None) -> Progress:
        reason, refusal = (finish.reason.value, finish.refusal) if finish is not None else ("", "")
        return Progress(
            self.meter.summary(), reason, refusal, self._step_attempt, answer_retries=self._answers.retries
        )

    async def _transition(
        self, progress: Progress, has_calls: bool, conversation: Conversation | None
    ) -> End | None:
        """Tell how the turn goes on after a settled step; `conversation` gets what is added to the turn."""
        over = self.budgets.passed()
        end = after_step(progress, has_calls, over, self.last_text)
        if end is None:
            return None
        end, wrong = await self._answers.judge(end, refused(progress))
        if end is not None:
            if end.notice:
                self._journal.emit(Notice(NoticeSeverity.WARNING, "answer-truncated", end.notice))
            return end
        if over or self.step >= self._max_steps:
            # There is no step left for another answer, and this one is none.
            return after_step(replace(progress, finish_reason=""), has_calls, over, self.last_text)
        added, said = self._answers.ask_again(
            self._journal, self._key.thread.name, progress, self.step, wrong
        )
        self._message_id = ""
        if conversation is not None:
            conversation.add_user(added, UserMessage((TextPart(said.text),)), MessageOrigin.REMINDER)
        return None

    async def _plan(
        self, answer: Answer, tools: Mapping[str, ToolInfo]
    ) -> tuple[list[PlannedCall], tuple[Action, ...]]:
        """Decide about each call, and ask about those that somebody has to allow."""
        plan = [plan_call(c, tools, self.step, i) for i, c in enumerate(answer.calls)]
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
        if parts and not self._message_id:
            self._message_id = self._answer_id = mint_id()
            self._journal.begin_answer(self._message_id)
        name = self.message_name if self._message_id else ""
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


def _traceparent() -> str:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
