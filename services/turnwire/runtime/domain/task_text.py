"""A task as the text that the model reads: the one template of it."""

from __future__ import annotations

import re

__all__ = ["task_text"]

# Only what could be taken for a tag of the template is escaped: code in a task stays as it was written.
_TAG = re.compile(r"<(?=\s*/?\s*(?:task|expected_output)\b)", re.I)
_TASK = "<task>\n{description}\n</task>"
_EXPECTED = "<expected_output>\n{expected_output}\n</expected_output>"


def task_text(description: str, expected_output: str) -> str:
    """Write a task out; without an expected output nothing is said of one."""
    text = _TASK.format(description=_TAG.sub("&lt;", description))
    if not expected_output:
        return text
    return f"{text}\n\n{_EXPECTED.format(expected_output=_TAG.sub('&lt;', expected_output))}"
