"""What a model is told in one episode: instructions, the summary of what was long ago, then the exchanges.

It is built once from the store and grows with each step. Sizes are sums that grow with it, so that a step
costs what it adds and not what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from turnwire.extend.events import MessageOrigin
from turnwire.extend.llm import ModelMessage, SystemMessage
from turnwire.runtime.domain.compaction import NO_SIZE, Compaction, Measure, StoredHistory
from turnwire.runtime.domain.message import StoredPart
from turnwire.runtime.engine.compaction_text import compacted_message
from turnwire.runtime.engine.estimates import message_pieces
from turnwire.runtime.engine.history import Exchange, answer_exchanges, exchanges, with_own_ids
from turnwire.runtime.engine.token_count import TokenCounter

__all__ = ["Conversation", "Placed"]


@dataclass(frozen=True, slots=True)
class Placed:
    """An exchange with its size. `old` is within the reach of the summary, and shown all the same."""

    exchange: Exchange
    size: Measure
    old: bool = False


@dataclass(slots=True)
class Conversation:
    """The messages of a model request, in order.

    Args:
        provider: only what this provider signed or encrypted is sent back to it.
        counter: counts what is added.
        instructions: text of the agent, empty = none.
    """

    provider: str
    counter: TokenCounter
    instructions: str = ""
    compaction: Compaction | None = None
    placed: list[Placed] = field(default_factory=list)
    # Of `placed` together.
    size: Measure = NO_SIZE
    _call_ids: set[str] = field(default_factory=set)
    _head_tokens: int | None = None
    # Shortens a message on its way out, once a provider has refused longer ones.
    shorten: Callable[[ModelMessage], ModelMessage] | None = None

    def load(self, history: StoredHistory) -> None:
        """Take in what the store holds of the thread."""
        self.set_compaction(history.compaction)
        made = self.compaction
        if made is None:
            self._place(exchanges(history.messages, self.provider))
            return
        kept = set(made.kept)
        old = [m for m in history.messages if m.message_id in kept]
        self._place(exchanges(old, self.provider), old=True)
        rest = [m for m in history.messages if m.message_id not in kept]
        reached = (made.through_message, made.through_step)
        found = exchanges(rest, self.provider)
        self._place(e for e in found if e.message_id != reached[0] or e.step > reached[1])

    def add_user(self, message_id: str, said: ModelMessage | None, origin: MessageOrigin) -> None:
        """Add what a user, or the runtime in their place, said; nothing for None."""
        if said is not None:
            self._place([Exchange(message_id, 0, (said,), origin)])

    def add_answer(self, message_id: str, parts: Sequence[StoredPart]) -> None:
        """Add the answer of a step, with the results of its calls."""
        self._place(answer_exchanges(message_id, parts, self.provider))

    def compact(self, made: Compaction) -> None:
        """Let a summary stand for everything up to where it reaches, but for what it keeps."""
        reached = self.reach(made)
        kept = set(made.kept)
        rest, self.placed, self.size = self.placed, [], NO_SIZE
        self.set_compaction(made)
        for index, placed in enumerate(rest):
            old = index < reached
            if not old or placed.exchange.message_id in kept:
                self._append(Placed(placed.exchange, placed.size, old))

    def set_compaction(self, made: Compaction | None) -> None:
        """Show this summary, or none, before the exchanges."""
        self.compaction = made
        self._head_tokens = None

    @property
    def head_tokens(self) -> int:
        """Tokens of what comes before the exchanges."""
        if self._head_tokens is None:
            self._head_tokens = sum(map(self.counter.message, self.head()))
        return self._head_tokens

    def reach(self, made: Compaction) -> int:
        """Return how many exchanges at the front are within the reach of a summary."""
        for index in range(len(self.placed) - 1, -1, -1):
            placed = self.placed[index]
            exchange = placed.exchange
            end = (exchange.message_id, exchange.step) == (made.through_message, made.through_step)
            if placed.old or end:
                return index + 1
        return 0

    def head(self) -> list[ModelMessage]:
        """Return what comes before the exchanges: instructions, then the summary."""
        found: list[ModelMessage] = [SystemMessage(self.instructions)] if self.instructions else []
        if self.compaction is not None:
            found.append(SystemMessage(compacted_message(self.compaction)))
        return found

    def messages(self) -> tuple[ModelMessage, ...]:
        """Return the messages of the next request."""
        told = self.head()
        for placed in self.placed:
            told.extend(placed.exchange.messages)
        return self.outgoing(told)

    def outgoing(self, told: Iterable[ModelMessage]) -> tuple[ModelMessage, ...]:
        """Return messages as they are sent."""
        return tuple(told if self.shorten is None else map(self.shorten, told))

    def measure(self, exchange: Exchange) -> Measure:
        """Return the size of an exchange."""
        characters = tokens = 0
        for message in exchange.messages:
            if self.shorten is not None:
                message = self.shorten(message)
            texts, files = message_pieces(message)
            characters += sum(map(len, texts))
            tokens += self.counter.pieces(texts, files)
        return Measure(len(exchange.messages), characters, tokens)

    def set_shorten(self, shorten: Callable[[ModelMessage], ModelMessage]) -> None:
        """Shorten what is sent from now on, and measure again."""
        self.shorten = shorten
        rest, self.placed, self.size = self.placed, [], NO_SIZE
        for placed in rest:
            self._append(Placed(placed.exchange, self.measure(placed.exchange), placed.old))

    def _place(self, found: Iterable[Exchange], old: bool = False) -> None:
        for exchange in found:
            own = with_own_ids(exchange, self._call_ids)
            self._append(Placed(own, self.measure(own), old))

    def _append(self, placed: Placed) -> None:
        self.placed.append(placed)
        a, b = self.size, placed.size
        self.size = Measure(a.messages + b.messages, a.characters + b.characters, a.tokens + b.tokens)
