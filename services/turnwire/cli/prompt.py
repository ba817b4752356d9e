"""Questions at a terminal that never miss Ctrl-C."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["ask"]

# A person does not notice a delay of this many seconds.
_LOOK_EVERY = 0.1


def ask(prompt: str) -> str:
    """Show `prompt` and return the line that is typed; only the main thread may call it.

    Readline sees a signal when it cuts the wait for a key short. One that comes between the prompt and that
    wait would stay unseen until the next key, so the wait is cut short again and again.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
        EOFError: the terminal gives no more lines.
    """
    former = signal.signal(signal.SIGALRM, _look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_EVERY, _LOOK_EVERY)
    try:
        return input(prompt)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)


def _look(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal has made the interpreter look for others."""
