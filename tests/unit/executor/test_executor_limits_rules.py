"""Where outputs are cut, and what is said in place of the rest."""

from __future__ import annotations

from pathlib import Path

from turnwire.executor.limits import Capture, OutputLimits, render

LIMITS = OutputLimits(max_chars=1_000)


def captured(text: str, staging: str = "", limits: OutputLimits = LIMITS):  # type: ignore[no-untyped-def]
    capture = Capture(limits, staging)
    capture.feed_text(text)
    return capture.finish()


def test_the_limit_itself_is_shown_whole() -> None:
    done = captured("x" * 1_000)
    assert not done.truncated
    assert render(done, "h") == "x" * 1_000


def test_one_character_more_shows_a_tenth_a_marker_and_a_seventh() -> None:
    done = captured("x" * 1_001)
    assert (len(done.head), len(done.tail)) == (100, 150)
    shown = render(done, "the-handle")
    assert "[... 751 of 1,001 characters left out; in all 1 lines, 1,001 bytes;" in shown
    assert 'recall_result handle="the-handle"' in shown


def test_cuts_move_to_a_line_end_that_is_near() -> None:
    done = captured("".join(f"line {number:02}\n" for number in range(300)))
    assert done.head.endswith("\n")
    assert done.tail.startswith("line ")


def test_cuts_do_not_split_a_character() -> None:
    done = captured("漢" * 2_000)
    assert set(done.head + done.tail) == {"漢"}
    assert done.total_bytes == 6_000


def test_without_a_handle_the_reader_learns_that_the_rest_is_gone() -> None:
    assert "the part left out was not kept" in render(captured("x" * 2_000), "")


def test_only_the_first_bytes_are_kept_when_there_are_too_many(tmp_path: Path) -> None:
    limits = OutputLimits(max_chars=1_000, max_stored_bytes=1_500)
    done = captured("x" * 4_000, str(tmp_path), limits)
    assert done.stored_bytes == Path(done.spill_path).stat().st_size == 1_500
    assert "the first 1,500 bytes are kept" in render(done, "h")


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    done = captured("x" * 2_000, str(tmp_path / "absent"))
    assert done.truncated
    assert done.spill_path == ""


def test_half_a_surrogate_pair_and_nul_are_replaced_and_pairs_are_joined() -> None:
    assert captured("a\ud83d b\0 \ud83d\ude00").head == "a\ufffd b\ufffd \U0001f600"


def test_a_discarded_output_leaves_no_file(tmp_path: Path) -> None:
    capture = Capture(LIMITS, str(tmp_path))
    capture.feed(b"x" * 5_000)
    assert len(list(tmp_path.iterdir())) == 1
    capture.discard()
    assert list(tmp_path.iterdir()) == []
