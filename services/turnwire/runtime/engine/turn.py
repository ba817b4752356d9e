"""One turn from its claim to its one end, or to where it is let go: its steps, and what ends them.

An episode goes on from what is committed, whatever became of the ones before it: what has a result keeps it,
what may have been begun is heard out, and only what never entered the transcript is done anew.
"""

from __future__ import annotations

import logging
import time

from opentelemetry import trace

from turnwire.core.errors import TurnwireError
from turnwire.core.ids import mint_id
from turnwire.core.text import cut
from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import MessageOrigin, TurnFinished, TurnState
from turnwire.runtime.domain.admission import Admitted, AppliedCommand
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.stop import state_of
from turnwire.runtime.domain.turn import MAX_FINISHED_TEXT_BYTES
from turnwire.runtime.engine.cancel import CancelToken, HandOver
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.conversation import Conversation
from turnwire.runtime.engine.ending import End, stopped
from turnwire.runtime.engine.history import user_message
from turnwire.runtime.engine.request import resolve_model
from turnwire.runtime.engine.step import StepRunner
from turnwire.runtime.engine.token_count import TokenCounter
from turnwire.runtime.engine.toolbox import PATIENCE_SECONDS, Toolbox
from turnwire.runtime.engine.tools import Suspended
from turnwire.runtime.ports import Model, OwnerLost, TurnJournal

__all__ = ["TurnRunner"]

logger = logging.getLogger(__name__)
tracer = trace.get_tracer("turnwire.runtime")


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
        self._context = context
        self._agent = agent
        self._key = journal.key
        self._max_steps = admitted.max_steps
        self._spec = admitted.spec
        self._first = admitted.first and resumption is None
        self._input_message = admitted.input_message
        self._time_left = admitted.time_left
        self._resumption = resumption
        self._journal = journal
        self._token = token
        patience = PATIENCE_SECONDS if resumption is not None else 0.0
        self._toolbox = Toolbox(context.executor, agent, admitted.spec, patience)
        self._steps = StepRunner(context, agent, admitted, journal, token, self._toolbox)
        self._began = time.monotonic() - (resumption.elapsed if resumption is not None else 0.0)

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
            logger.info("turn.suspended", extra={"turn": self._key.name, "steps": self._steps.step})
            return TurnState.WAITING
        except HandOver:
            await self._journal.release()
            logger.info("turn.released", extra={"turn": self._key.name, "steps": self._steps.step})
            return None

    async def _ended(self) -> End:
        """Run the steps; whatever ends them becomes data."""
        try:
            limit = self._spec.limits.turn_timeout or self._agent.limits.turn_timeout
            left = limit if self._time_left is None else self._time_left
            if left is not None:
                self._token.fire_at(left, limit or left)
                self._steps.budgets.note_time()
            return await self._run_steps()
        except AgentControlError as error:
            self._steps.keep_interrupted()
            return stopped(error, self._steps.last_text)
        except (OwnerLost, HandOver, Suspended):
            raise
        except TurnwireError as error:
            self._steps.keep_interrupted()
            return End("error", self._steps.last_text, error.reason, error.message, "error")
        except Exception:
            # A defect of ours ends this turn alone; the text stays in the log, the id leads there.
            error_id = mint_id()
            logger.exception("turn.failed", extra={"turn": self._key.name, "error_id": error_id})
            self._steps.keep_interrupted()
            return End("error", self._steps.last_text, "INTERNAL", f"internal error {error_id}", "error")

    async def _run_steps(self) -> End:
        if self._resumption is not None:
            end = await self._steps.finish_left(self._resumption)
            if end is not None:
                return end
        self._token.check()
        model = resolve_model(self._context.models, self._agent, self._spec)
        tools = (
            await self._token.race(self._toolbox.offered(), name="turn.tools.list")
            if self._agent.tools
            else {}
        )
        conversation = await self._conversation(model)
        while self._steps.step < self._max_steps:
            self._token.check()
            end = await self._steps.run(model, conversation, tools)
            if end is not None:
                return end
        text = f"the turn used up its {self._max_steps} steps"
        return End("max-steps", self._steps.last_text, "STEPS_EXHAUSTED", text)

    async def _conversation(self, model: Model) -> Conversation:
        """Return what the model is told of before this episode's steps."""
        counter = TokenCounter(self._context.bytes_per_token, self._context.tokenizer_of(model.name))
        conversation = Conversation(model.provider, counter, self._agent.system_text())
        if self._first:
            said = user_message(self._spec.said)
            conversation.add_user(self._input_message, said, MessageOrigin.REQUEST)
            return conversation
        if self._resumption is not None:
            await self._journal.flush()
        conversation.load(await self._context.store.history(self._key.thread))
        return conversation

    async def _finish(self, end: End) -> TurnState:
        state = state_of(end.stop_reason)
        text = cut(end.text, MAX_FINISHED_TEXT_BYTES)
        self._journal.at(step=0, step_attempt=0)
        event = TurnFinished(
            state=state,
            stop_reason=end.stop_reason,
            elapsed=time.monotonic() - self._began,
            steps=self._steps.step,
            usage=self._steps.meter.summary(),
            final_message=self._steps.message_name,
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
                "steps": self._steps.step,
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
