"""Files in the workspace of a call: nothing outside it can be reached, by `..` or by a symbolic link."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from turnwire.executor.inline import ToolFailed
from turnwire.executor.workspace import OutsideWorkspace, Workspaces, open_inside
from turnwire.extend.tools import Mode, Tool, ToolContext, tool

__all__ = ["file_tools"]

_MAX_READ_BYTES = 8 << 20
_MAX_WRITE_BYTES = 1 << 20
_MAX_ENTRIES = 1_000

RelativePath = Annotated[str, Field(description="Path inside the workspace, for example notes/plan.md")]


def file_tools(workspaces: Workspaces) -> list[Tool[..., Any]]:
    """Make the tools that work below `workspaces`."""

    @tool(mode=Mode.PARALLEL, repeatable=True, timeout=30)
    async def read_file(
        context: ToolContext,
        path: RelativePath,
        start_line: Annotated[int, Field(ge=1, description="First line to read, from 1")] = 1,
        line_count: Annotated[int, Field(ge=0, description="Lines to read; 0 = to the end")] = 0,
    ) -> str:
        """Read a text file of the workspace, whole or by lines."""
        return await _guarded(_read, workspaces, context.workspace, path, start_line, line_count)

    @tool(mode=Mode.PARALLEL, repeatable=True, timeout=30)
    async def list_files(
        context: ToolContext,
        path: Annotated[str, Field(description="Folder inside the workspace; empty = the workspace")] = "",
        recursive: bool = False,
    ) -> str:
        """List the files of a workspace folder with their sizes in bytes."""
        return await _guarded(_list, workspaces, context.workspace, path, recursive)

    # It reaches nothing outside the workspace, which is there to be written.
    @tool(timeout=30)
    async def write_file(
        context: ToolContext,
        path: RelativePath,
        content: str,
        append: Annotated[bool, Field(description="Add to the end instead of replacing the file")] = False,
    ) -> str:
        """Write a text file of the workspace, making its folders."""
        return await _guarded(_write, workspaces, context.workspace, path, content, append)

    return [read_file, list_files, write_file]


async def _guarded(work: Any, *arguments: Any) -> str:
    try:
        return str(await asyncio.to_thread(work, *arguments))
    except OutsideWorkspace as error:
        raise ToolFailed(f"Refused: {error}.") from None
    except OSError as error:
        raise ToolFailed(f"{error.strerror or type(error).__name__}: {arguments[2]}") from None


def _read(workspaces: Workspaces, workspace: str, path: str, start_line: int, line_count: int) -> str:
    # Non-blocking, or a named pipe would hold the thread for ever.
    fd = open_inside(workspaces.folder(workspace), path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{path} is not a file.")
        if start_line == 1 and line_count == 0:
            data = file.read(_MAX_READ_BYTES)
        else:
            last = start_line + line_count if line_count else None
            data = _lines(file, start_line, last)
        rest = status.st_size - file.tell()
    text = data.decode("utf-8", "replace")
    if len(data) >= _MAX_READ_BYTES and rest > 0:
        return f"{text}\n[{rest} more bytes follow; read them by start_line]"
    return text


def _lines(file: Any, start: int, end: int | None) -> bytes:
    found: list[bytes] = []
    size = 0
    number = 0
    while size < _MAX_READ_BYTES:
        line: bytes = file.readline(_MAX_READ_BYTES)
        number += 1
        if not line or (end is not None and number >= end):
            break
        if number >= start:
            found.append(line)
            size += len(line)
    return b"".join(found)


def _list(workspaces: Workspaces, workspace: str, path: str, recursive: bool) -> str:
    fd = open_inside(workspaces.folder(workspace), path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lines: list[str] = []
        for line in _entries(fd, "", recursive):
            if len(lines) >= _MAX_ENTRIES:
                lines.append(f"[more than {_MAX_ENTRIES} entries; list a folder below]")
                break
            lines.append(line)
    finally:
        os.close(fd)
    return "\n".join(lines) or "[empty]"


def _entries(fd: int, prefix: str, recursive: bool) -> Iterator[str]:
    with os.scandir(fd) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = os.fsencode(entry.name).decode("utf-8", "replace")
            if entry.is_symlink():
                yield f"{prefix}{name} (link, not followed)"
            elif entry.is_dir(follow_symlinks=False):
                yield f"{prefix}{name}/"
                if recursive:
                    below = os.open(
                        entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd
                    )
                    try:
                        yield from _entries(below, f"{prefix}{name}/", recursive)
                    finally:
                        os.close(below)
            else:
                yield f"{prefix}{name} {entry.stat(follow_symlinks=False).st_size}"


def _write(workspaces: Workspaces, workspace: str, path: str, content: str, append: bool) -> str:
    data = content.encode("utf-8", "replace")
    if len(data) > _MAX_WRITE_BYTES:
        raise ToolFailed(f"The content is longer than {_MAX_WRITE_BYTES} bytes; write it in parts.")
    folder: Path = workspaces.folder(workspace)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | (os.O_APPEND if append else os.O_TRUNC)
    fd = open_inside(folder, path, flags, make_parents=True)
    with os.fdopen(fd, "wb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ToolFailed(f"{path} is not a file.")
        file.write(data)
    return f"Wrote {len(data)} bytes to {path}."
