"""Images, sounds and files in the words of each wire format.

Parts come here with a media type and after a check: what a format has no words for is an error.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from turnwire.extend.llm import MediaPart
from turnwire.runtime.models.capabilities import is_text

__all__ = ["anthropic_media", "chat_media", "data_uri", "gemini_media", "responses_media", "tool_id"]

_ID = re.compile(r"[^a-zA-Z0-9_-]")


def data_uri(part: MediaPart) -> str:
    """The part as one URI: its own, or its bytes."""
    return part.uri or f"data:{part.media_type};base64,{_base64(part)}"


def tool_id(call_id: str) -> str:
    """A call id in the alphabet that all providers take."""
    return _ID.sub("_", call_id) or "call"


def chat_media(part: MediaPart) -> dict[str, Any]:
    """A content part of chat completions. Raises ValueError."""
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_uri(part)}}
    if part.uri:
        raise _unsaid(part)
    if part.media_type.startswith("audio/"):
        form = part.media_type.removeprefix("audio/").removeprefix("x-").replace("mpeg", "mp3")
        return {"type": "input_audio", "input_audio": {"data": _base64(part), "format": form}}
    if is_text(part):
        return {"type": "text", "text": _as_text(part)}
    return {"type": "file", "file": {"filename": part.filename or "file", "file_data": data_uri(part)}}


def responses_media(part: MediaPart) -> dict[str, Any]:
    """An input item part of responses. Raises ValueError."""
    if part.media_type.startswith("image/"):
        return {"type": "input_image", "image_url": data_uri(part)}
    if part.uri:
        return {"type": "input_file", "file_url": part.uri}
    if is_text(part):
        return {"type": "input_text", "text": _as_text(part)}
    return {"type": "input_file", "filename": part.filename or "file", "file_data": data_uri(part)}


def anthropic_media(part: MediaPart) -> dict[str, Any]:
    """A content block of messages. Raises ValueError."""
    image = part.media_type.startswith("image/")
    if image or part.media_type == "application/pdf":
        kind = "image" if image else "document"
        if part.uri:
            return {"type": kind, "source": {"type": "url", "url": part.uri}}
        source = {"type": "base64", "media_type": part.media_type, "data": _base64(part)}
        block: dict[str, Any] = {"type": kind, "source": source}
        if part.filename and not image:
            block["title"] = part.filename
        return block
    if is_text(part):
        return {"type": "text", "text": _as_text(part)}
    raise _unsaid(part)


def gemini_media(part: MediaPart) -> dict[str, Any]:
    """A part of contents."""
    if part.uri:
        return {"fileData": {"mimeType": part.media_type, "fileUri": part.uri}}
    return {"inlineData": {"mimeType": part.media_type, "data": _base64(part)}}


def _base64(part: MediaPart) -> str:
    return base64.b64encode(part.data).decode()


def _as_text(part: MediaPart) -> str:
    return f"<file name={part.filename or 'file'!r}>\n{part.data.decode('utf-8', 'replace')}\n</file>"


def _unsaid(part: MediaPart) -> ValueError:
    return ValueError(f"there are no words for {part.media_type} there")
