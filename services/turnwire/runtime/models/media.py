"""Images, sounds and files in the words of each wire format."""

from __future__ import annotations

import base64
import re
from typing import Any

from turnwire.extend.llm import MediaPart

__all__ = ["anthropic_media", "data_uri", "is_text", "openai_media", "tool_id"]

_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})
_ID = re.compile(r"[^a-zA-Z0-9_-]")


def data_uri(part: MediaPart) -> str:
    """The part as one URI: its own, or its bytes."""
    if part.uri:
        return part.uri
    return f"data:{part.media_type};base64,{base64.b64encode(part.data).decode()}"


def is_text(part: MediaPart) -> bool:
    """Whether the bytes can be read by any model as text."""
    return bool(part.data) and (part.media_type.startswith("text/") or part.media_type in _TEXT_TYPES)


def tool_id(call_id: str) -> str:
    """A call id in the alphabet that all providers take."""
    return _ID.sub("_", call_id) or "call"


def _as_text(part: MediaPart) -> str:
    name = part.filename or "file"
    if not part.data:
        return f"[{name}: {part.media_type} at {part.uri}]"
    return f"<file name={name!r}>\n{part.data.decode('utf-8', 'replace')}\n</file>"


def openai_media(part: MediaPart) -> dict[str, Any]:
    """A content part of chat completions."""
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_uri(part)}}
    if part.media_type.startswith("audio/") and part.data:
        form = part.media_type.removeprefix("audio/").removeprefix("x-").replace("mpeg", "mp3")
        return {
            "type": "input_audio",
            "input_audio": {"data": base64.b64encode(part.data).decode(), "format": form},
        }
    if is_text(part) or not part.data:
        return {"type": "text", "text": _as_text(part)}
    return {"type": "file", "file": {"filename": part.filename or "file", "file_data": data_uri(part)}}


def anthropic_media(part: MediaPart) -> dict[str, Any]:
    """A content block of messages."""
    kind = "image" if part.media_type.startswith("image/") else "document"
    if part.uri:
        if kind == "image" or part.media_type == "application/pdf":
            return {"type": kind, "source": {"type": "url", "url": part.uri}}
        return {"type": "text", "text": _as_text(part)}
    if kind == "image" or part.media_type == "application/pdf":
        data = base64.b64encode(part.data).decode()
        source = {"type": "base64", "media_type": part.media_type, "data": data}
        block: dict[str, Any] = {"type": kind, "source": source}
        if kind == "document" and part.filename:
            block["title"] = part.filename
        return block
    if is_text(part):
        return {"type": "text", "text": _as_text(part)}
    return {"type": "text", "text": f"[{part.filename or 'file'}: {part.media_type}, {len(part.data)} bytes]"}
