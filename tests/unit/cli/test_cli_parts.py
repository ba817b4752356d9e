"""The pieces of the command line that need no server."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import grpc
import pytest
from rich.console import Console

from support.turn_story import Story, multiplication
from turnwire.api.common.v1.error_reason_pb2 import ErrorReason
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.runtime.v1.turn_event_pb2 import Compacted, Notice, StepReset, TurnEvent, Waiting
from turnwire.cli import failures
from turnwire.cli.attachments import MAX_FILE_BYTES, attach, media_type
from turnwire.cli.event_printer import EventPrinter, arguments_text, end_code, shortened
from turnwire.cli.exit_codes import HELP, ExitCode
from turnwire.cli.failures import UsageProblem, exit_code_of, explain
from turnwire.cli.json_lines import json_line
from turnwire.cli.screen import Screen
from turnwire.cli.words import clean, word
from turnwire_client import Exhausted, FieldViolation, InvalidRequest, NotFound, Unavailable
from turnwire_client.messages import TurnState


class Streams:
    """An answer stream and a note stream; `window` makes both the same terminal."""

    def __init__(self, window: bool = False) -> None:
        self.out = Window() if window else io.StringIO()
        self.notes = self.out if window else io.StringIO()
        console = Console(file=self.notes, force_terminal=window, no_color=True, width=100, soft_wrap=True)
        self.screen = Screen(self.out, console)
        self.printer = EventPrinter(self.screen)

    def show(self, story: Story) -> Streams:
        for event in story.events:
            self.printer.show(event)
        self.screen.end()
        return self


class Window(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_answers_and_notes_go_to_their_own_streams() -> None:
    streams = Streams().show(multiplication())
    assert streams.out.getvalue() == "6 times 7 is 42.\n"
    notes = streams.notes.getvalue()
    assert notes.splitlines()[0] == "I should multiply."
    assert "● multiply(a=6, b=7)" in notes
    assert "✓ 20 ms" in notes
    assert "    42" in notes


def test_in_one_window_notes_never_break_a_line_of_the_answer() -> None:
    story = Story().accepted().started().step_started().text("half a line")
    story.add(notice=Notice(text="the model was asked again"))
    story.text("the other half").finished("x")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", Streams(window=True).show(story).out.getvalue())
    lines = [line.rstrip() for line in shown.replace("\r", "\n").splitlines()]
    assert any(line.endswith("half a line") for line in lines)
    assert any(line.endswith("! the model was asked again") for line in lines)


def test_a_summary_and_pieces_in_its_place_are_told_apart() -> None:
    story = Story().accepted().started().step_started()
    story.add(compacted=Compacted(compacted_count=12, summary="all of it"))
    story.add(compacted=Compacted(compacted_count=14, summary="pieces", fallback=True)).text("so").finished(
        "so"
    )
    notes = Streams().show(story).notes.getvalue()
    assert "12 older messages became a summary" in notes
    assert "14 older messages are left out of this request" in notes
    assert "all of it" not in notes


def test_voided_text_is_marked_and_the_new_text_follows() -> None:
    story = Story().accepted().started().step_started().text("Wrong")
    story.add(step_reset=StepReset(from_sequence=4, to_sequence=4, cause="retry")).text("Right").finished(
        "Right"
    )
    streams = Streams().show(story)
    assert "void" in streams.notes.getvalue()
    assert streams.out.getvalue().endswith("Right\n")
    assert streams.printer.view.text == "Right"


def test_reasoning_can_be_left_out() -> None:
    streams = Streams()
    streams.printer = EventPrinter(streams.screen, show_reasoning=False)
    streams.show(multiplication())
    assert "I should" not in streams.notes.getvalue()


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        (ToolOutcome.TOOL_OUTCOME_TIMED_OUT, "timed out"),
        (ToolOutcome.TOOL_OUTCOME_STOPPED, "stopped"),
        (ToolOutcome.TOOL_OUTCOME_OUTCOME_UNKNOWN, "end unknown"),
        (ToolOutcome.TOOL_OUTCOME_REJECTED, "rejected"),
    ],
)
def test_each_end_of_a_call_is_told_apart(outcome: ToolOutcome, shown: str) -> None:
    story = Story().accepted().started().step_started().call("call-0001", "report", "{}")
    story.tool_finished("call-0001", "report", "so far\n" * 20, outcome).finished("")
    notes = Streams().show(story).notes.getvalue()
    assert shown in notes
    assert "14 more lines" in notes


def test_waits_show_on_a_terminal_only() -> None:
    story = Story().accepted().started().step_started()
    story.add(waiting=Waiting(what="model"))
    assert Streams().show(story).notes.getvalue() == ""


def test_an_answer_that_was_never_streamed_is_still_shown() -> None:
    story = Story().accepted().started().finished("a canned answer", stop_reason="responded")
    assert Streams().show(story).out.getvalue() == "a canned answer\n"


def test_events_of_a_later_version_print_nothing() -> None:
    streams = Streams()
    streams.printer.show(TurnEvent(sequence=1))
    assert streams.out.getvalue() == ""


def test_arguments_read_as_in_code_and_fit_a_line() -> None:
    assert arguments_text('{"path": "ä", "n": 1}') == 'path="ä", n=1'
    assert arguments_text("") == ""
    assert arguments_text("not json") == "not json"
    assert arguments_text("[1]") == "[1]"
    assert len(arguments_text(json.dumps({"x": "y" * 500}))) == 100
    assert shortened("a\nb") == "a b"


def test_control_characters_become_visible() -> None:
    assert clean("a\x1b]0;title\x07\u202eb\r\nc\td") == "a\\x1b]0;title\\x07\\x202eb\nc\td"


def test_values_of_a_later_version_are_numbers() -> None:
    assert word(TurnState, TurnState.TURN_STATE_COMPLETED, "TURN_STATE_") == "completed"
    assert word(TurnState, 0, "TURN_STATE_") == ""
    assert word(TurnState, 99, "TURN_STATE_") == "99"
    assert end_code(TurnState.TURN_STATE_FAILED) is ExitCode.TURN_FAILED


def test_every_exit_code_is_told_in_the_help() -> None:
    text = " ".join(HELP.split())
    for code in ExitCode:
        assert f" {code.value} " in text


def test_an_error_is_explained_with_its_fields_and_the_way_out() -> None:
    error = InvalidRequest(
        "the request is wrong",
        reason="INVALID_REQUEST",
        violations=[FieldViolation("spec.agent", "is empty")],
    )
    assert explain(error).splitlines() == [
        "INVALID_ARGUMENT / INVALID_REQUEST: the request is wrong",
        "  spec.agent: is empty",
    ]
    gone = Unavailable("refused", reason="UNREACHABLE")
    assert "turnwire up" in explain(gone)
    assert exit_code_of(gone) is ExitCode.UNREACHABLE
    assert exit_code_of(NotFound("x", reason="TURN_NOT_FOUND")) is ExitCode.REFUSED
    wait = Exhausted(
        "full", reason="TURN_QUOTA_EXCEEDED", retry_delay=2.5, code=grpc.StatusCode.RESOURCE_EXHAUSTED
    )
    assert "repeat in 2.5 s" in explain(wait)


def test_ways_out_are_for_reasons_of_the_catalog() -> None:
    made_by_the_client = {"CONTROL_TARGET_UNKNOWN"}
    for reason in failures._WAYS_OUT.keys() - made_by_the_client:
        assert f"ERROR_REASON_{reason}" in ErrorReason.keys()  # noqa: SIM118  an enum wrapper, no dict


def test_files_are_attached_by_mention(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("spaces", encoding="utf-8")
    (tmp_path / "data.bin").write_bytes(b"\0\xff")
    (tmp_path / "code.unknownext").write_text("plain", encoding="utf-8")
    text = 'see @"a b.txt" and @data.bin, then (mail me@example.com) @nobody @code.unknownext.'
    parts = attach(text, tmp_path)
    assert [(part.blob.filename, part.blob.media_type) for part in parts] == [
        ("a b.txt", "text/plain"),
        ("data.bin", "application/octet-stream"),
        ("code.unknownext", "text/plain"),
    ]


def test_a_mentioned_path_that_is_missing_is_a_usage_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="no file"):
        attach("see @./missing.txt", tmp_path)
    with pytest.raises(UsageProblem, match="no file"):
        attach('see @"missing file"', tmp_path)
    with pytest.raises(UsageProblem, match="is not a file"):
        attach(f"see @{tmp_path}")


def test_a_file_above_the_limit_is_named_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    with pytest.raises(UsageProblem, match=str(MAX_FILE_BYTES + 1)):
        attach("@big.txt", tmp_path)


def test_media_types_follow_name_then_content() -> None:
    assert media_type(Path("x.png"), b"") == "image/png"
    assert media_type(Path("x.tar.gz"), b"\xff\xfe") == "application/octet-stream"
    assert media_type(Path("Makefile"), "ünï".encode()) == "text/plain"


def test_json_lines_are_protojson_with_error_details_on_one_line() -> None:
    event = multiplication().events[-1]
    event.turn_finished.error.message = "two\nlines"
    line = json_line(event)
    assert "\n" not in line
    assert json.loads(line)["turnFinished"]["stopReason"] == "completed"
