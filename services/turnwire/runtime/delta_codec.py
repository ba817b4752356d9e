"""The hot half of the event codec: text and reasoning deltas are nearly all events of a turn.

Their few fields are written by hand; a test holds the bytes equal to what protobuf itself writes.
"""

from __future__ import annotations

from turnwire.api.runtime.v1 import turn_event_pb2 as pb
from turnwire.runtime.store.log import Record

__all__ = ["REASONING", "TEXT", "encode_delta", "varint"]

# Wire keys (field << 3 | type) of LlmEvent.text_delta and LlmEvent.reasoning_delta.
TEXT, REASONING = b"\x0a", b"\x12"

_SMALL_VARINTS = [bytes((n,)) for n in range(128)] + [
    bytes((n & 0x7F | 0x80, n >> 7)) for n in range(128, 16384)
]


def varint(n: int) -> bytes:
    """Return a number above or equal 0 in base 128, as protobuf writes it."""
    if n < 16384:
        return _SMALL_VARINTS[n]
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


# The turn's name, attempts and step, and the second, seldom change between two deltas.
_heads: dict[tuple[str, tuple[int, int, int]], bytes] = {}
_seconds: tuple[int, bytes] = (0, b"")


def _head(turn: str, stamp: tuple[int, int, int]) -> bytes:
    """Return the encoded fields 3 to 6 of an event."""
    head = _heads.get((turn, stamp))
    if head is None:
        if len(_heads) > 4096:
            _heads.clear()
        attempt, step, step_attempt = stamp
        head = pb.TurnEvent(
            turn=turn, turn_attempt=attempt, step=step, step_attempt=step_attempt
        ).SerializeToString()
        _heads[turn, stamp] = head
    return head


def encode_delta(turn: str, record: Record, arm: bytes, text: str) -> bytes:
    """Return the TurnEvent of a delta; `arm` is TEXT or REASONING."""
    global _seconds
    seconds, nanos = divmod(record[1], 1_000_000_000)
    if _seconds[0] != seconds:
        _seconds = (seconds, b"\x08" + varint(seconds))
    time = _seconds[1] + b"\x10" + varint(nanos) if nanos else _seconds[1]
    data = text.encode()
    inner = b"\x0a" + varint(len(data)) + data if data else b""
    llm_event = arm + varint(len(inner)) + inner
    return b"".join(
        (
            b"\x08",
            varint(record[0]),
            b"\x12",
            varint(len(time)),
            time,
            _head(turn, record[2]),
            b"\x52",
            varint(len(llm_event)),
            llm_event,
        )
    )
