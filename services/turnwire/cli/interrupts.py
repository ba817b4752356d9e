"""Ctrl-C while a turn streams: the first cancels the turn, the second stops waiting for its end."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from turnwire_client import Client, TurnStream, TurnwireError

__all__ = ["Interrupts"]


class Interrupts:
    """Takes SIGINT over while it is entered; only the main thread may enter it.

    The read that Ctrl-C meets is never cut in the middle: command and detachment go out from other threads.

    Attributes:
        count: how often Ctrl-C was pressed.
        error: why the cancel command could not be sent, if so.
    """

    def __init__(self, client: Client, stream: TurnStream) -> None:
        self.count = 0
        self.error: TurnwireError | None = None
        self._client = client
        self._stream = stream
        self._sent = False
        self._former: Any = None

    def __enter__(self) -> Self:
        self._former = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._former)

    def turn_known(self) -> None:
        """Tell that the stream has its header: a cancel that was asked for before goes out now."""
        if self.count:
            self._send()

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            self._send()
        else:
            threading.Thread(target=self._stream.close, daemon=True).start()

    def _send(self) -> None:
        if self._stream.turn and not self._sent:
            self._sent = True
            threading.Thread(target=self._cancel, daemon=True).start()

    def _cancel(self) -> None:
        try:
            self._client.cancel(self._stream.turn, cause="Ctrl-C")
        except TurnwireError as error:
            self.error = error
            self._stream.close()
