"""What a turn may use: steps, tokens, cost and time. When four fifths of one are gone, that is told once."""

from __future__ import annotations

from collections.abc import Iterator

from turnwire.extend.events import Notice, NoticeSeverity
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.turn import TurnLimits
from turnwire.runtime.engine.cancel import CancelToken
from turnwire.runtime.engine.usage import UsageMeter
from turnwire.runtime.ports import TurnJournal

__all__ = ["Budgets", "narrower"]

WARN_AT = 0.8
_MICRO = 1_000_000


def narrower(asked: int | None, own: int | None) -> int | None:
    """Return the lower of two limits, None when there is neither."""
    return min((limit for limit in (asked, own) if limit is not None), default=None)


class Budgets:
    """Watches what a turn uses.

    Args:
        limits: what the request asks for; an agent's own limits hold where they are lower.
        step: the last step that began before this episode.
        token: knows what is left of the turn's time.
    """

    def __init__(
        self,
        agent: AgentDefinition,
        limits: TurnLimits,
        max_steps: int,
        step: int,
        meter: UsageMeter,
        token: CancelToken,
    ) -> None:
        self._tokens = narrower(limits.tokens, agent.limits.tokens)
        self._cost = narrower(limits.cost_micro_usd, agent.limits.cost_micro_usd)
        self._max_steps = max_steps
        self._meter = meter
        self._token = token
        # What an earlier episode has used was told by it, or is no news any more.
        self._told = {name for name, share, _ in self._shares(step) if share >= WARN_AT}

    def passed(self) -> str:
        """Return which budget of tokens or cost is used up, in a sentence; empty while none is."""
        if self._tokens is not None and self._meter.total_tokens > self._tokens:
            return f"the turn used up its {self._tokens} tokens"
        if self._cost is not None and (self._meter.cost_micro_usd or 0) > self._cost:
            return f"the turn used up its {_usd(self._cost)}"
        return ""

    def note_time(self) -> None:
        """Take in that the clock of the turn runs: what an earlier episode used of it is not told again."""
        self._told.update(name for name, share, _ in self._time() if share >= WARN_AT)

    def warn(self, journal: TurnJournal, step: int) -> None:
        """Tell what is nearly used up, each budget once; for a turn that goes on after `step`."""
        for name, share, text in self._shares(step):
            if share >= WARN_AT and name not in self._told:
                self._told.add(name)
                journal.emit(Notice(NoticeSeverity.WARNING, "budget-warning", text))

    def _shares(self, step: int) -> Iterator[tuple[str, float, str]]:
        if step < self._max_steps:
            text = f"The turn has used {step} of its {self._max_steps} steps."
            yield "steps", step / self._max_steps, text
        if self._tokens is not None:
            used = self._meter.total_tokens
            yield "tokens", used / self._tokens, f"The turn has used {used} of its {self._tokens} tokens."
        if self._cost is not None:
            cost = self._meter.cost_micro_usd or 0
            yield "cost", cost / self._cost, f"The turn has cost {_usd(cost)} of its {_usd(self._cost)}."
        yield from self._time()

    def _time(self) -> Iterator[tuple[str, float, str]]:
        left, limit = self._token.time_left, self._token.time_limit
        if left is not None and limit is not None:
            yield "time", 1 - left / limit, f"The turn has {left:.0f} s left of its {limit:g} s."


def _usd(micro: int) -> str:
    return f"{micro / _MICRO:.6f}".rstrip("0").rstrip(".") + " USD"
