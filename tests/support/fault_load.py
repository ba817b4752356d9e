"""What the turns of a fault run are to do: scripts made from a seed, and the provider that plays them.

The provider's answer is a function of the request alone, so a model call that is made again after a crash is
answered as the first one was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.strict_provider import Hold, Reply, StrictProvider, says

__all__ = ["NOT_REPEATABLE", "Call", "FaultProvider", "Script", "Step", "fault_provider", "make_scripts"]

NOT_REPEATABLE = ("once", "once_beside", "once_blocking", "once_command", "careful")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script; its tag is in the arguments and in the trace outside."""

    tool: str
    tag: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model: words with a pause before each, then calls."""

    words: tuple[str, ...]
    pause: float
    calls: tuple[Call, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.words)


@dataclass(slots=True)
class Script:
    """One turn of a run.

    Args:
        model: name of the model, which stands for the script at the provider.
        thread: number of the thread within the run.
        after: whether it is sent when the turn before it in the thread has ended, else at once.
        delay: seconds to wait before it is sent.
        cancel_after: seconds after which it is cancelled; None for never.
        leave_every: its reader leaves after so many events and comes back; 0 for never.
    """

    model: str
    thread: int
    after: bool
    delay: float
    steps: Sequence[Step]
    cancel_after: float | None = None
    leave_every: int = 0
    calls: Sequence[Call] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = [call for step in self.steps for call in step.calls]

    @property
    def text(self) -> str:
        """The answer of the turn that nothing stopped."""
        return self.steps[-1].text


# What a turn does between its first words and its answer: names of the tools of each step.
_SHAPES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (),
    (("once",),),
    (("once_blocking",),),
    (("once_command",),),
    (("once_beside", "again", "once_beside"),),
    (("once",), ("once_beside", "once_beside")),
    (("again",), ("once", "again")),
    (("once", "once_command"),),
)
_WAITING_SHAPES = ((("careful",),), (("careful", "once"),), (("once",), ("careful",)))


def make_scripts(seed: int, *, waiting: bool) -> list[Script]:
    """Make the turns of a run.

    Args:
        seed: of everything.
        waiting: whether some of them wait for an approval.
    """
    rng = random.Random(seed)
    shapes = _SHAPES + (_WAITING_SHAPES if waiting else ())
    scripts: list[Script] = []
    for thread in range(rng.randint(4, 7)):
        for place in range(rng.choice((1, 2, 2, 3))):
            model = f"seed{seed}-turn{len(scripts)}"
            shape = rng.choice(shapes)
            steps = [_step(rng, f"{model}-step{n}", tools) for n, tools in enumerate((*shape, ()))]
            scripts.append(
                Script(
                    model=model,
                    thread=thread,
                    after=bool(place and rng.random() < 0.5),
                    delay=rng.random() * 0.3,
                    steps=steps,
                    cancel_after=rng.uniform(0.02, 0.8) if rng.random() < 0.12 else None,
                    leave_every=rng.choice((0, 0, 3, 11)),
                )
            )
    return scripts


def _step(rng: random.Random, name: str, tools: Sequence[str]) -> Step:
    words = tuple(f"{name}-word{n} " for n in range(rng.choice((1, 4, 12, 30))))
    calls = tuple(Call(t, f"{name}-{n}-{t}", round(rng.uniform(0.05, 0.3), 3)) for n, t in enumerate(tools))
    return Step(words, rng.choice((0.0, 0.005, 0.02)), calls)


class _Pause(Hold):
    """A place at which the provider takes its time, as models do between two words."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def wait(self) -> Any:
        await asyncio.sleep(self._seconds)
        return True


class FaultProvider(StrictProvider):
    """Plays scripts by the model's name and the number of answers since the last user message."""

    def __init__(self) -> None:
        super().__init__()
        self._scripts: dict[str, Script] = {}
        self._outside = ""

    def begin(self, scripts: Sequence[Script], outside: Path) -> None:
        """Play these from now on; their tools leave their traces in `outside`."""
        self._scripts = {script.model: script for script in scripts}
        self._outside = str(outside)
        self.requests.clear()

    def reply(self, body: dict[str, Any], wire: str) -> Reply:
        """Choose the answer by the request alone."""
        script = self._scripts.get(body["model"])
        if script is None:
            return super().reply(body, wire)
        answers = 0
        for message in body["messages"]:
            answers = 0 if message["role"] == "user" else answers + (message["role"] == "assistant")
        step = script.steps[min(answers, len(script.steps) - 1)]
        words: list[str | Hold] = []
        for word in step.words:
            if step.pause:
                words.append(_Pause(step.pause))
            words.append(word)
        return says(*words, calls=[(call.tool, self._arguments(call)) for call in step.calls])

    def _arguments(self, call: Call) -> dict[str, Any]:
        seconds: float | str = str(call.seconds) if call.tool == "once_command" else call.seconds
        return {"file": self._outside, "tag": call.tag, "seconds": seconds}


@asynccontextmanager
async def fault_provider() -> AsyncIterator[FaultProvider]:
    """Serve on a free port; the address is `url`."""
    provider = FaultProvider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        await provider.close()
