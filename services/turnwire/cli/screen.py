"""The terminal as two streams: answers go to stdout, everything about them to stderr; nothing untrusted runs.

Colour and spinner appear on a terminal only. Control characters in what models and tools say become visible,
so that no text of theirs can move the cursor or change the title.
"""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

from turnwire.cli.words import clean

__all__ = ["Screen"]


class Screen:
    """Writes text piece by piece and notes in between, each note on lines of its own.

    Args:
        out: where answers go; default stdout.
        console: where notes go; default stderr.
    """

    def __init__(self, out: TextIO | None = None, console: Console | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = console or Console(stderr=True, soft_wrap=True, highlight=False)
        self._out_open = False
        self._notes_open = False
        self._status: Status | None = None
        # Both streams end in the same window: then each must begin where the other has ended its line.
        self._shared = self._out.isatty() and self._notes.is_terminal

    def text(self, text: str) -> None:
        """Write a piece of the answer."""
        if not text:
            return
        self.rest()
        if self._shared:
            self._end_notes()
        shown = clean(text)
        self._out.write(shown)
        self._out.flush()
        self._out_open = not shown.endswith("\n")

    def aside(self, text: str, style: str = "dim") -> None:
        """Write a piece of what is not the answer, such as reasoning, without ending the line."""
        if not text:
            return
        self.rest()
        if self._shared:
            self._end_out()
        shown = clean(text)
        self._notes.print(Text(shown, style=style), end="")
        self._notes_open = not shown.endswith("\n")

    def note(self, text: str, style: str = "") -> None:
        """Write whole lines that are not the answer."""
        self.rest()
        if self._shared:
            self._end_out()
        self._end_notes()
        self._notes.print(Text(clean(text), style=style))

    def wait(self, what: str) -> None:
        """Show that something takes its time; on a terminal only, until the next output."""
        if not self._notes.is_terminal:
            return
        if self._status is None:
            if self._shared:
                self._end_out()
            self._end_notes()
            self._status = self._notes.status(Text(clean(what), style="dim"), spinner="dots")
            self._status.start()
        else:
            self._status.update(Text(clean(what), style="dim"))

    def rest(self) -> None:
        """Take the spinner away."""
        if self._status is not None:
            status, self._status = self._status, None
            status.stop()

    def end(self) -> None:
        """End open lines and take the spinner away."""
        self.rest()
        self._end_notes()
        self._end_out()

    def _end_out(self) -> None:
        if self._out_open:
            self._out.write("\n")
            self._out.flush()
            self._out_open = False

    def _end_notes(self) -> None:
        if self._notes_open:
            self._notes.print()
            self._notes_open = False
