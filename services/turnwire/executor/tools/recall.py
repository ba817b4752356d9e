"""Reading back what was too long to be shown."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Literal

from pydantic import Field

from turnwire.core.errors import Expired, InvalidRequest, NotFound, Unavailable
from turnwire.executor.inline import ScopedContext, ToolFailed
from turnwire.executor.overflow import CHUNK_BYTES, Overflow, Unit
from turnwire.extend.tools import Mode, Tool, ToolContext, tool

__all__ = ["recall_tools"]

_MAX_MATCHES = 50


def recall_tools(overflow: Overflow) -> list[Tool[..., Any]]:
    """Make the tool that reads stored results of the caller's scope."""

    @tool(mode=Mode.PARALLEL, repeatable=True, timeout=60)
    async def recall_result(
        context: ToolContext,
        handle: Annotated[str, Field(description="As given where the output was cut")],
        unit: Literal["lines", "bytes"] = "lines",
        offset: Annotated[int, Field(ge=0, description="First line or byte, from 0")] = 0,
        length: Annotated[int, Field(ge=0, description="How many; 0 = as much as fits")] = 0,
        search: Annotated[
            str, Field(description="Instead of a range: list the lines that hold this text")
        ] = "",
    ) -> str:
        """Read a range of a long result that was shown only in part, or search in it."""
        if not isinstance(context, ScopedContext):
            raise ToolFailed("Stored results cannot be read here.")
        try:
            if search:
                return await _search(overflow, context.scope, handle, search)
            return await _range(overflow, context.scope, handle, Unit(unit), offset, length)
        except (NotFound, InvalidRequest):
            raise ToolFailed(f"There is no stored result {handle[:80]!r}.") from None
        except (Expired, Unavailable) as error:
            raise ToolFailed(error.message) from None

    return [recall_result]


async def _range(overflow: Overflow, scope: str, handle: str, unit: Unit, offset: int, length: int) -> str:
    data = bytearray()
    start = size = 0
    async for chunk in overflow.read(scope, handle, unit, offset, length):
        if not data:
            start, size = chunk.offset, chunk.size
        data += chunk.data
        if len(data) >= CHUNK_BYTES:
            break
    # Bytes may be cut inside a character: half ones at the edges are left out.
    while data and start > 0 and data[0] & 0xC0 == 0x80:
        del data[0]
        start += 1
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(data[:CHUNK_BYTES]))
    end = start + len(text.encode())
    return f"[bytes {start} to {end} of {size}]\n{text}"


async def _search(overflow: Overflow, scope: str, handle: str, text: str) -> str:
    matches, more = await overflow.search(scope, handle, text, _MAX_MATCHES)
    if not matches:
        return "No line holds that text."
    # Numbers as `offset` takes them.
    lines = [f"{match.number - 1}: {match.line.decode('utf-8', 'replace')}" for match in matches]
    if more:
        lines.append(f"[more than {_MAX_MATCHES} lines; search for something narrower]")
    return "\n".join(lines)
