"""The hot half of the event codec: text and reasoning deltas are nearly all events of a turn.

Their few fields are written by hand; a test holds the bytes equal to what protobuf itself writes.
"""

from __future__ import annotations

from turnwire.api.runtime.v1 import turn_event_pb2 as pb
from turnwire.runtime.store.log import Record

__all__ = ["REASONING", "TEXT", "encode_delta", "varint"]

# Wire keys, field << 3 | type: of LlmEvent.text_delta and LlmEvent.reasoning_delta here, of others below.
TEXT, REASONING = b"\x0a", b"\x12"

_SMALL = 16384
_SMALL_VARINTS = [bytes((n,)) for n in range(128)] + [
    bytes((n & 0x7F | 0x80, n >> 7)) for n in range(128, _SMALL)
]
# The lower 14 bits of a larger number: two bytes that go on.
_LOWER = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(_SMALL)]


def varint(n: int) -> bytes:
    """Return a number above or equal 0 in base 128, as protobuf writes it."""
    if n < _SMALL:
        return _SMALL_VARINTS[n]
    return _LOWER[n & 0x3FFF] + varint(n >> 14)


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


def _shells(arm: bytes) -> list[bytes]:
    """Return, by the bytes of a text, the keys and lengths of the three messages round it."""
    return [_shell(arm, length) for length in range(_SHORT)]


def _shell(arm: bytes, length: int) -> bytes:
    inner = b"\x0a" + varint(length) if length else b""
    llm_event = arm + varint(len(inner) + length) + inner
    return b"\x52" + varint(len(llm_event) + length) + llm_event


_SHORT = 256
_SHELLS = {TEXT: _shells(TEXT), REASONING: _shells(REASONING)}


def encode_delta(turn: str, record: Record, arm: bytes, text: str) -> bytes:
    """Return the TurnEvent of a delta as a field of a page; `arm` is TEXT or REASONING."""
    global _seconds
    sequence, now, stamp, _ = record
    seconds, nanos = divmod(now, 1_000_000_000)
    if _seconds[0] != seconds:
        _seconds = (seconds, b"\x08" + varint(seconds))
    time = _seconds[1]
    if nanos:
        time = b"%b\x10%b" % (time, varint(nanos))
    data = text.encode()
    length = len(data)
    shell = _SHELLS[arm][length] if length < _SHORT else _shell(arm, length)
    number, head = varint(sequence), _head(turn, stamp)
    size = varint(len(number) + len(time) + len(head) + len(shell) + length + 3)
    return b"\x0a%b\x08%b\x12%c%b%b%b%b" % (size, number, len(time), time, head, shell, data)
