"""Before a call goes to a provider: its circuit has to be closed, and there has to be room for one more."""

from __future__ import annotations

from contextlib import aclosing

from turnwire.extend.llm import Finish, ModelRequest, StreamFailure
from turnwire.runtime.models.base import BatchedModel, Batches, OnSent, OnWait, has_visible
from turnwire.runtime.models.breaker import Breaker
from turnwire.runtime.models.slots import Slots
from turnwire.runtime.ports import RequestRefusal

__all__ = ["Gate", "GuardedModel"]


class Gate:
    """What all calls to one provider with one key share."""

    def __init__(self, breaker: Breaker, slots: Slots) -> None:
        self.breaker = breaker
        self.slots = slots


class GuardedModel(BatchedModel):
    """A model whose calls go through a gate, each attempt anew."""

    def __init__(self, inner: BatchedModel, gate: Gate) -> None:
        super().__init__(inner.name, inner.provider)
        self._inner = inner
        self.gate = gate

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model."""
        return self._inner.refusal(request)

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Yield the answer, or a failure at once while the circuit is open."""
        breaker, slots = self.gate.breaker, self.gate.slots

        def waits() -> None:
            if on_wait is not None:
                on_wait("model.slot", 0.0, None)

        if breaker.refusing_for > 0:
            yield [breaker.refusal(self.provider)]
            return
        await slots.take(waits)
        try:
            # The circuit may have opened during the wait.
            passage = breaker.enter()
            if passage is None:
                yield [breaker.refusal(self.provider)]
                return
            begun = ended = False
            try:
                async with aclosing(self._inner.batches(request, on_sent=on_sent, on_wait=on_wait)) as answer:
                    async for batch in answer:
                        if not begun and has_visible(batch):
                            begun = True
                            breaker.answers(passage)
                        last = type(batch[-1])
                        if last is Finish or last is StreamFailure:
                            # Before anybody hears of it: whoever repeats the call asks the circuit first.
                            ended = True
                            breaker.leave(passage, batch[-1])
                        yield batch
            finally:
                if not ended:
                    breaker.leave(passage, None)
        finally:
            slots.give_back()
