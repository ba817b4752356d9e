"""The work that is measured: each workload is a script for the mock model and a number of turns at once."""

from __future__ import annotations

from dataclasses import dataclass

TOKEN_CHARS = 6


@dataclass(frozen=True)
class Workload:
    """One kind of work.

    `script` goes into the model's name; `turns` run at once, and that is repeated `repeats` times for one
    measurement; `tokens` are the text deltas of one turn over all its model calls; `rounds` are its rounds of
    tool calls; with `cancel_after` the turn is cancelled when its reader has seen so many deltas.
    """

    name: str
    title: str
    script: str
    tokens: int
    turns: int = 1
    repeats: int = 1
    rounds: int = 0
    cancel_after: int = 0

    @property
    def model_calls(self) -> int:
        """Model calls of one measurement."""
        return self.turns * self.repeats * (self.rounds + 1)

    def text(self) -> str:
        """The whole text of one turn."""
        calls = self.rounds + 1
        return "".join(token(index) for index in range(self.tokens // calls)) * calls


def token(index: int) -> str:
    """The text of one token: always six characters."""
    return f" w{index % 10_000:04d}"


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", "one turn, 500 tokens at once", "w:tokens=500", tokens=500, repeats=10),
        Workload("W1r", "one turn, 500 tokens at 500 a second", "w:tokens=500:rate=500", tokens=500),
        Workload("W2", "one turn, 10 tool rounds", "w:tokens=20:rounds=10", tokens=220, repeats=5, rounds=10),
        Workload("W3", "50 turns at once, 500 tokens each", "w:tokens=500", tokens=500, turns=50),
        Workload("W4", "200 turns at once, 20 tokens a second", "w:tokens=20:rate=20", tokens=20, turns=200),
        Workload("W5", "cancel after 50 tokens", "w:tokens=500:rate=100", tokens=500, cancel_after=50),
    )
}
