"""Messages as ProtoJSON, one a line: what every --json prints."""

from __future__ import annotations

import sys
from typing import TextIO

from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2

__all__ = ["json_line", "write_line"]

# Error details travel as Any: printing them needs their types to be known.
_REGISTERED = error_details_pb2.ErrorInfo


def json_line(message: Message) -> str:
    """Give a message as one line of ProtoJSON, without the line's end."""
    return json_format.MessageToJson(message, indent=None, ensure_ascii=False)


def write_line(message: Message, out: TextIO | None = None) -> None:
    """Print a message and hand it on at once, so that a pipe sees events as they happen."""
    stream = out or sys.stdout
    stream.write(json_line(message) + "\n")
    stream.flush()
