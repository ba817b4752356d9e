"""Whatever a tool prints, what is shown is bounded, well-formed and honest about the rest."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.executor.limits import MIN_RESULT_CHARS, Capture, OutputLimits, clip, render
from turnwire.executor.workers.protocol import Link, encode

HANDLE = "sha256:" + "a" * 64
chunks = st.lists(st.binary(max_size=3_000), max_size=30)
texts = st.lists(
    st.text(alphabet=st.characters(codec=None) | st.sampled_from("\n\0é漢🙂"), max_size=2_000), max_size=20
)
limits = st.builds(
    OutputLimits,
    max_chars=st.integers(MIN_RESULT_CHARS, 5_000),
    head_ratio=st.floats(0, 0.3),
    tail_ratio=st.floats(0, 0.3),
)


def shown_well(shown: str, bounds: OutputLimits) -> None:
    assert len(shown) <= bounds.max_chars
    assert "\0" not in shown
    assert len(shown.encode()) <= 4 * bounds.max_chars


@given(chunks, limits)
@settings(deadline=None)
def test_bytes_are_shown_within_the_limit_and_kept_whole(data: list[bytes], bounds: OutputLimits) -> None:
    whole = b"".join(data)
    decoded = whole.decode("utf-8", "replace").replace("\0", "\ufffd")
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(bounds, folder)
        for piece in data:
            capture.feed(piece)
        done = capture.finish()
        shown_well(render(done, HANDLE), bounds)
        assert done.total_bytes == len(whole)
        assert done.total_chars == len(decoded)
        assert done.total_lines == len(decoded.split("\n")) - (decoded.endswith("\n") or not decoded)
        assert done.truncated == (len(decoded) > bounds.max_chars)
        if done.truncated:
            assert Path(done.spill_path).read_bytes() == whole
            assert done.sha256 == hashlib.sha256(whole).hexdigest()
            assert decoded.startswith(done.head)
            assert decoded.endswith(done.tail)
            assert HANDLE in render(done, HANDLE)
        else:
            assert render(done, HANDLE) == decoded
            assert list(Path(folder).iterdir()) == []


@given(texts, limits)
@settings(deadline=None)
def test_any_text_becomes_well_formed(pieces: list[str], bounds: OutputLimits) -> None:
    capture = Capture(bounds)
    capture.feed_text("".join(pieces))
    done = capture.finish()
    shown_well(render(done, ""), bounds)
    assert done.spill_path == ""


@given(chunks, st.lists(st.integers(1, 50), min_size=1, max_size=5))
@settings(deadline=None)
def test_how_the_bytes_arrive_changes_nothing(data: list[bytes], sizes: list[int]) -> None:
    whole = b"".join(data)
    bounds = OutputLimits(max_chars=1_000)
    at_once, in_pieces = Capture(bounds), Capture(bounds)
    at_once.feed(whole)
    position = turn = 0
    while position < len(whole):
        size = sizes[turn % len(sizes)]
        in_pieces.feed(whole[position : position + size])
        position, turn = position + size, turn + 1
    assert in_pieces.finish() == at_once.finish()


@given(st.text(alphabet=st.characters(codec=None), max_size=500), st.integers(1, 300))
def test_clipped_errors_are_bounded_and_well_formed(text: str, size: int) -> None:
    clipped = clip(text, size)
    assert len(clipped) <= size
    clipped.encode()


@given(st.lists(st.dictionaries(st.text(max_size=10), st.text(max_size=50), max_size=3), max_size=5))
def test_frames_arrive_whole_however_the_stream_is_cut(messages: list[dict[str, str]]) -> None:
    data = b"".join(encode(message) for message in messages)

    class Dripping:
        """Gives one byte at a time, then the end."""

        def __init__(self) -> None:
            self.position = 0

        def recv(self, size: int) -> bytes:
            self.position += 1
            return data[self.position - 1 : self.position]

    link = Link(Dripping())  # type: ignore[arg-type]
    received = []
    while (message := link.receive()) is not None:
        received.append(message)
    assert received == json.loads(json.dumps(messages))
