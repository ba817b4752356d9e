"""Where a reader stands in a turn's log, without any I/O: what to ask next, what to deliver, when it is over.

Each sequence is delivered once and none is left out, whatever repeats or breaks below.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnwire.api.runtime.v1.turn_event_pb2 import TurnEvent
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2 import (
    CancelOnDisconnect,
    RunTurnRequest,
    RunTurnResponse,
    StreamHeader,
    WatchTurnRequest,
    WatchTurnResponse,
)

__all__ = ["Follow"]


class Follow:
    """The state of one reader over all its connections.

    Args:
        request: the first request. A RunTurn is asked again only until its turn is known; from then on the
            reader watches, so that a long prompt does not travel twice.
    """

    def __init__(self, request: RunTurnRequest | WatchTurnRequest) -> None:
        self._request = request
        self._after = request.after_sequence
        self._log_id = request.log_id
        self._suspended = False
        self._broken = False
        self.turn = request.turn if isinstance(request, WatchTurnRequest) else ""
        self.header: StreamHeader | None = None
        self.finished = False

    @property
    def after_sequence(self) -> int:
        """Sequence of the event delivered last."""
        return self._after

    @property
    def log_id(self) -> str:
        """Identity of the log that is read; empty before the first header."""
        return self._log_id

    @property
    def complete(self) -> bool:
        """Whether a stream that ends here with OK told everything: the turn ended, or waits for somebody."""
        return self.finished or (self._suspended and not self._broken)

    def next_request(self) -> RunTurnRequest | WatchTurnRequest:
        """Give the request that goes on after the last delivered event."""
        self._broken = False
        if isinstance(self._request, RunTurnRequest) and self.header is None:
            request = RunTurnRequest()
            request.CopyFrom(self._request)
            return request
        return WatchTurnRequest(
            turn=self.turn,
            after_sequence=self._after,
            log_id=self._log_id,
            follow_while_waiting=self._request.follow_while_waiting,
            cancel_on_disconnect=self._disconnect(),
        )

    def _disconnect(self) -> CancelOnDisconnect | None:
        request = self._request
        return request.cancel_on_disconnect if request.HasField("cancel_on_disconnect") else None

    def take(self, response: RunTurnResponse | WatchTurnResponse) -> Iterator[TurnEvent]:
        """Take a message in and give the events in it that are new, in order.

        A gap ends the iteration and marks the stream as broken; what follows the gap comes again.
        """
        if response.HasField("header"):
            self._take_header(response.header)
        for event in response.events:
            if self._broken or event.sequence > self._after + 1:
                self._broken = True
                return
            if event.sequence <= self._after:
                continue
            self._after = event.sequence
            self._note(event)
            yield event

    def _take_header(self, header: StreamHeader) -> None:
        if self.header is None or not self.turn:
            self.header = header
        self.turn = header.turn
        self._log_id = header.log_id
        self._suspended = header.state == TurnState.TURN_STATE_WAITING
        if header.state in _TERMINAL and self._after >= header.last_sequence:
            # Everything was delivered before: the server has nothing to repeat.
            self.finished = True

    def _note(self, event: TurnEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "turn_finished":
            self.finished = True
        elif kind == "turn_suspended":
            self._suspended = True
        elif kind == "turn_resumed":
            self._suspended = False

    @property
    def broken(self) -> bool:
        """Whether the current stream left something out and must be given up."""
        return self._broken


_TERMINAL = (
    TurnState.TURN_STATE_COMPLETED,
    TurnState.TURN_STATE_FAILED,
    TurnState.TURN_STATE_CANCELLED,
)
