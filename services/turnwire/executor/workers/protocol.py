"""Frames between the service and its processes: four bytes of length, then a JSON object.

Standard library only. A frame is at most 8 MiB; the far side of a broken frame is treated as dead.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

__all__ = ["MAX_FRAME_BYTES", "FrameError", "Link", "encode"]

MAX_FRAME_BYTES = 8 << 20
_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """The peer sent something that is not a frame."""


def encode(message: dict[str, Any]) -> bytes:
    """Write one frame. Raises FrameError when it would be too long."""
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(body)} bytes is above the limit of {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class Link:
    """One end of a socket pair, used without an event loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()

    def fileno(self) -> int:
        """Give the descriptor, for selectors."""
        return self._sock.fileno()

    def send(self, message: dict[str, Any]) -> bool:
        """Send one frame, waiting while the peer is slow; false when the peer has gone."""
        try:
            self._sock.sendall(encode(message))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> dict[str, Any] | None:
        """Wait for one frame; None when the peer has gone."""
        while True:
            message = self._take()
            if message is not None:
                return message
            if not self._fill():
                return None

    def available(self) -> tuple[list[dict[str, Any]], bool]:
        """Read once and give the whole frames at hand, and whether the peer is still there."""
        open_ = self._fill()
        messages = []
        while (message := self._take()) is not None:
            messages.append(message)
        return messages, open_

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def _fill(self) -> bool:
        try:
            data = self._sock.recv(1 << 16)
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)

    def _take(self) -> dict[str, Any] | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_FRAME_BYTES:
            raise FrameError(f"the peer announced a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        message = json.loads(bytes(self._buffer[_LENGTH.size : end]))
        del self._buffer[:end]
        if not isinstance(message, dict):
            raise FrameError("a frame must be a JSON object")
        return message
