"""Files named as `@path` in what a person types."""

from __future__ import annotations

import mimetypes
import re
from pathlib import Path

from turnwire.cli.failures import UsageProblem
from turnwire_client.messages import BlobContent, Part

__all__ = ["MAX_FILE_BYTES", "attach", "read_file"]

MAX_FILE_BYTES = 1024 * 1024

# `@path` or `@"path with spaces"` at the start of a word; an address such as me@example.com is not one.
_MENTION = re.compile(r'(?<!\S)@(?:"([^"]+)"|(\S+))')


def attach(text: str, folder: Path | None = None) -> list[Part]:
    """Read the files that a text mentions; the text itself keeps the mention.

    A mention of something that does not exist is left alone, unless it looks like a path.

    Raises:
        UsageProblem: a file is missing, unreadable or too large.
    """
    parts = []
    for quoted, plain in _MENTION.findall(text):
        name = quoted or plain
        path = (folder or Path()) / Path(name).expanduser()
        if not path.exists() and not quoted:
            path = path.with_name(path.name.rstrip(".,;:!?)")) if path.name.rstrip(".,;:!?)") else path
        if path.exists():
            parts.append(read_file(path))
        elif quoted or "/" in name:
            raise UsageProblem(f"there is no file {name}: check the path, or write it without @")
    return parts


def read_file(path: Path) -> Part:
    """Read one file as a part of a message.

    Raises:
        UsageProblem: it is a folder, unreadable, or above 1 MiB.
    """
    if not path.is_file():
        raise UsageProblem(f"{path} is not a file")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise UsageProblem(f"{path} has {size} bytes and the limit is {MAX_FILE_BYTES}: attach a part of it")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}") from error
    return Part(blob=BlobContent(media_type=media_type(path, data), data=data, filename=path.name))


def media_type(path: Path, data: bytes) -> str:
    """Guess the media type from the name, else from whether the bytes are text."""
    guessed, encoding = mimetypes.guess_type(path.name)
    if guessed and not encoding and not guessed.startswith("application/x-"):
        return guessed
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain" if "\0" not in text else "application/octet-stream"
