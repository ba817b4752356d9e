"""Keeps what a model is told within what the model takes, before each call and after it was too much.

The stored transcript is never changed. A summary that was had is stored and holds for later turns; where none
can be had, truncated pieces stand in for one request. A pass that frees too little is not repeated until the
conversation has grown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from turnwire.core.ids import mint_id
from turnwire.core.text import cut
from turnwire.extend.events import Compacted, Notice, NoticeSeverity
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    ModelMessage,
    StreamFailure,
    SystemMessage,
    TokenUsage,
)
from turnwire.runtime.domain.compaction import SHORTEST_INPUT, Compaction, CompactionRules, Measure
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.engine.compaction_plan import Cut, plan_cut
from turnwire.runtime.engine.compaction_text import (
    constraints_in,
    open_question,
    shortened,
    truncated_pieces,
)
from turnwire.runtime.engine.conversation import Conversation
from turnwire.runtime.engine.request import tool_definitions
from turnwire.runtime.engine.summariser import SummariserPorts, SummaryFailed, summarise

__all__ = ["Compactor"]

LEAST_KEPT = 4
# Passes of an episode that may end above the limit, and summaries of one that may fail.
MOST_PASSES = 2
MOST_FAILURES = 3
# Repeats of a step whose request was too long for its model.
MOST_REPEATS = 2
MAX_EVENT_SUMMARY = 32 * 1024
_SHORTEST_SUMMARY = 400


class Compactor:
    """Compacts one conversation of one episode.

    Args:
        schema_json: of the answer, which is a part of each request.
    """

    def __init__(
        self,
        conversation: Conversation,
        rules: CompactionRules,
        ports: SummariserPorts,
        schema_json: str = "",
    ) -> None:
        self.conversation = conversation
        self._rules = rules
        self._ports = ports
        self._schema = schema_json
        self._tools: Mapping[str, ToolInfo] | None = None
        self._overhead = 0
        # What is sent in this request in place of the conversation, None = the conversation.
        self._instead: tuple[ModelMessage, ...] | None = None
        self._sent = 0
        self._repeats = 0
        # Tokens of a request that a provider refused: the window is smaller, whatever is said of it.
        self._refused: int | None = None
        self._passes = 0
        self._failures = 0
        self._failed_at: Measure | None = None
        self._told_full = False

    def messages(self) -> tuple[ModelMessage, ...]:
        """Return the messages of the request that is made now."""
        counter = self.conversation.counter
        if self._instead is not None:
            self._sent = self._overhead + sum(map(counter.message, self._instead))
            return self._instead
        self._sent = self._size()
        return self.conversation.messages()

    def heard(self, end: Finish | StreamFailure | None, usage: TokenUsage | None) -> None:
        """Take in how long the provider found the request that was made."""
        if isinstance(end, Finish):
            self.conversation.counter.calibrate(self._sent, usage)

    async def make_room(self, tools: Mapping[str, ToolInfo]) -> None:
        """Compact the conversation if it is due, before a step's request is made."""
        self._instead = None
        self._repeats = 0
        if tools is not self._tools:
            self._tools = tools
            self._overhead = self._fixed(tools)
        trigger = self._due()
        if trigger:
            await self._compact(trigger)

    async def recover(self, end: Finish | StreamFailure | None) -> bool:
        """Shorten a request that was too long for the model; False when it was not, or cannot be."""
        if not isinstance(end, StreamFailure) or end.kind is not FailureKind.CONTEXT_OVERFLOW:
            return False
        if not self._rules.enabled:
            return False
        before = self._sent
        self._refused = self._calibrated(before)
        while self._repeats < MOST_REPEATS:
            self._repeats += 1
            await self._compact_harder(self._repeats == MOST_REPEATS)
            self.messages()
            if self._sent < before:
                return True
        return False

    def overflow_text(self) -> str:
        """Return why a request that is too long for the model cannot be shortened any more."""
        rest = self._calibrated(max(0, self._sent - self._overhead))
        return (
            "the conversation does not fit the model's context window, and no more of it can be left out:"
            f" instructions and tools take about {self._calibrated(self._overhead)} tokens, the rest {rest}"
        )

    # --- when ---

    def _due(self) -> str:
        """Return which limit is passed, empty while none is."""
        rules, size = self._rules, self.conversation.size
        if not rules.enabled:
            return ""
        limit = self._token_limit()
        if limit is not None and self._calibrated(self._size()) > limit:
            return "tokens"
        if rules.message_limit is not None and size.messages > rules.message_limit:
            return "messages"
        if rules.character_limit is not None and size.characters > rules.character_limit:
            return "characters"
        return ""

    def _token_limit(self) -> int | None:
        limit = self._rules.token_limit
        if self._refused is None:
            return limit
        seen = int(self._refused * self._rules.threshold)
        return seen if limit is None else min(limit, seen)

    def _grown(self, since: Measure | None, trigger: str) -> bool:
        """Whether the rest has grown by its share since then, in what the trigger counts."""
        if since is None:
            return True
        then, now = getattr(since, trigger), getattr(self.conversation.size, trigger)
        return bool(now > then * (1 + self._rules.growth))

    # --- how ---

    async def _compact(self, trigger: str) -> None:
        conversation = self.conversation
        made = conversation.compaction
        if self._passes >= MOST_PASSES or not self._grown(made.after if made else None, trigger):
            return
        found = self._plan()
        if found is None or (trigger != "messages" and found.size.characters < SHORTEST_INPUT):
            if trigger == "tokens":
                self._tell_full()
            return
        if self._failures >= MOST_FAILURES or not self._grown(self._failed_at, trigger):
            self._leave_out(found, trigger)
            return
        await self._summarise(found, trigger)
        limit = self._token_limit()
        if self._instead is not None:
            return
        if limit is None or self._calibrated(self._size()) <= limit:
            self._passes = 0
            return
        self._passes += 1
        if self._passes >= MOST_PASSES:
            self._tell_full()

    def _plan(self) -> Cut | None:
        """Return the cut that keeps as many messages as the rules say, or fewer where those are too many."""
        found = plan_cut(self.conversation, self._rules.keep_messages)
        limit = self._token_limit()
        if limit is None:
            return found
        summary = self.conversation.counter.texts(["x" * self._rules.summary_characters])
        if found is None or self._calibrated(self._overhead + summary + found.left.tokens) > limit:
            return plan_cut(self.conversation, LEAST_KEPT) or found
        return found

    async def _compact_harder(self, hardest: bool) -> None:
        if hardest:
            self.conversation.set_shorten(shortened)
        found = plan_cut(self.conversation, 1 if hardest else LEAST_KEPT)
        if found is None:
            self._instead = None
        elif self._failures >= MOST_FAILURES:
            self._leave_out(found, "overflow")
        else:
            self._instead = None
            await self._summarise(found, "overflow")

    async def _summarise(self, found: Cut, trigger: str) -> None:
        """Put a summary in the place of what is cut off, or truncated pieces for this request."""
        conversation, rules = self.conversation, self._rules
        earlier = conversation.compaction
        known = earlier.summary if earlier else ""
        limit = min(rules.summary_characters, max(_SHORTEST_SUMMARY, found.size.characters // 2 + len(known)))
        try:
            summary = await summarise(found.covered, known, rules, limit, self._ports)
        except SummaryFailed as error:
            self._failures += 1
            self._failed_at = conversation.size
            text = f"The older part of the conversation could not be summarised: {error}"[:1000]
            self._ports.journal.emit(Notice(NoticeSeverity.WARNING, "summary-failed", text))
            self._leave_out(found, trigger)
            return
        before = self._calibrated(self._size())
        made = Compaction(
            mint_id(),
            found.through_message,
            found.through_step,
            (earlier.count if earlier else 0) + found.size.messages,
            summary,
            constraints_in(found.covered, earlier.constraints if earlier else ()),
            open_question(found.covered, earlier.question if earlier else ""),
            found.kept,
        )
        conversation.compact(made)
        conversation.set_compaction(made := replace(made, after=conversation.size))
        after = self._calibrated(self._size())
        event = Compacted(made.count, cut(summary, MAX_EVENT_SUMMARY), trigger, before, after)
        self._ports.journal.compact(made, self._ports.meter.summary(), event)
        self._failures, self._failed_at = 0, None

    def _leave_out(self, found: Cut, trigger: str) -> None:
        """Put truncated pieces in the place of what is cut off, for this request alone."""
        conversation = self.conversation
        earlier = conversation.compaction
        count = (earlier.count if earlier else 0) + found.size.messages
        text = truncated_pieces(
            earlier,
            found.covered,
            count,
            constraints_in(found.covered, earlier.constraints if earlier else ()),
            open_question(found.covered, earlier.question if earlier else ""),
        )
        told: list[ModelMessage] = []
        if conversation.instructions:
            told.append(SystemMessage(conversation.instructions))
        told.append(SystemMessage(text))
        for exchange in (*found.pinned, *found.tail):
            told.extend(exchange.messages)
        before = self._calibrated(self._size())
        self._instead = conversation.outgoing(told)
        self.messages()
        after = self._calibrated(self._sent)
        event = Compacted(count, cut(text, MAX_EVENT_SUMMARY), trigger, before, after, fallback=True)
        self._ports.journal.emit(event)

    # --- sizes ---

    def _fixed(self, tools: Mapping[str, ToolInfo]) -> int:
        counter = self.conversation.counter
        return counter.tools(tool_definitions(tools)) + counter.texts([self._schema])

    def _size(self) -> int:
        """Return the tokens of a request with the whole conversation, not calibrated."""
        return self._overhead + self.conversation.head_tokens + self.conversation.size.tokens

    def _calibrated(self, counted: int) -> int:
        return self.conversation.counter.calibrated(counted)

    def _tell_full(self) -> None:
        """Tell once that nothing more can be left out, and what takes the room."""
        if self._told_full:
            return
        self._told_full = True
        fixed = self._calibrated(self._overhead + self.conversation.head_tokens)
        rest = self._calibrated(self.conversation.size.tokens)
        text = (
            f"Compacting frees too little: instructions, tools and summary take about {fixed} tokens and what"
            f" must stay {rest}, of {self._token_limit()} that a request should have at most."
        )
        self._ports.journal.emit(Notice(NoticeSeverity.WARNING, "context-overhead", text))
