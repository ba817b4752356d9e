"""What each adapter can say and read: one table, which requests are checked against and docs are made from.

A word of the table is `yes`, `no` (a request that needs it is refused before anything is sent) or `degraded`
(it works in another way, which the note tells). A profile may say otherwise of its server.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from turnwire.extend.llm import MediaPart, ModelRequest, ToolMessage, UserMessage
from turnwire.runtime.ports import RequestRefusal

__all__ = [
    "CAPABILITIES",
    "FORMATS",
    "LEVELS",
    "Capability",
    "WireFormat",
    "able",
    "is_text",
    "level",
    "prepared",
    "refusal_of",
    "typed",
]

WireFormat = Literal["openai-chat", "openai-responses", "anthropic", "gemini", "pydantic-ai"]
FORMATS: tuple[WireFormat, ...] = ("openai-chat", "openai-responses", "anthropic", "gemini", "pydantic-ai")
LEVELS = ("yes", "no", "degraded")

# The efforts that a format knows; the others pass any word on, as their models differ.
_EFFORTS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "gemini": ("none", "minimal", "low", "medium", "high"),
    "pydantic-ai": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
}
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})


@dataclass(frozen=True, slots=True)
class Capability:
    """One row.

    Args:
        name: what profiles call it.
        meaning: what it is about.
        words: one word for each format, in their order.
        note: how it works where the word is `degraded`.
        checked: whether a request that needs it is refused where the word is `no`, so that a profile may say
            otherwise.
    """

    name: str
    meaning: str
    words: tuple[str, str, str, str, str]
    note: str = ""
    checked: bool = False


CAPABILITIES = (
    Capability("streaming", "answers piece by piece", ("yes", "yes", "yes", "yes", "yes")),
    Capability(
        "streaming_with_tools",
        "the same with tools offered",
        ("yes", "yes", "yes", "yes", "yes"),
        "A server that refuses to is asked once more without streaming.",
    ),
    Capability("parallel_calls", "several calls in one answer", ("yes", "yes", "yes", "yes", "yes")),
    Capability("tool_choice_none", "tools offered, none to be called", ("yes",) * 5, checked=True),
    Capability("tool_choice_required", "some tool has to be called", ("yes",) * 5, checked=True),
    Capability("tool_choice_tool", "one tool has to be called", ("yes",) * 5, checked=True),
    Capability(
        "images", "images as bytes", ("yes",) * 5, "anthropic: PNG, JPEG, GIF and WebP.", checked=True
    ),
    Capability("image_uris", "images by address", ("yes",) * 5, checked=True),
    Capability("documents", "PDF as bytes", ("yes",) * 5, checked=True),
    Capability("document_uris", "PDF by address", ("no", "yes", "yes", "yes", "yes"), checked=True),
    Capability(
        "text_files",
        "text and JSON files as bytes",
        ("degraded", "degraded", "degraded", "yes", "yes"),
        "They go as text, in a `<file>` element with their name.",
        checked=True,
    ),
    Capability("audio", "sound as bytes", ("yes", "no", "no", "yes", "yes"), checked=True),
    Capability("video", "video as bytes", ("no", "no", "no", "yes", "yes"), checked=True),
    Capability("other_files", "other files as bytes", ("yes", "yes", "no", "yes", "yes"), checked=True),
    Capability(
        "other_uris",
        "sound, video and other files by address",
        ("no", "yes", "no", "yes", "yes"),
        checked=True,
    ),
    Capability(
        "result_media",
        "images and files in results of tools",
        ("degraded", "yes", "yes", "yes", "yes"),
        "They follow the results in a message of the user. Where a model cannot be shown one, it is told so.",
    ),
    Capability("reasoning", "reasoning as it is made", ("yes", "yes", "yes", "yes", "yes")),
    Capability(
        "reasoning_replay",
        "signed or encrypted reasoning goes back to its provider",
        ("yes", "yes", "yes", "yes", "yes"),
    ),
    Capability(
        "reasoning_effort",
        "how much to think",
        ("yes", "yes", "degraded", "degraded", "yes"),
        "The word becomes a budget of tokens; unknown words are refused.",
    ),
    Capability(
        "response_schema",
        "the answer is forced into a schema",
        ("yes", "yes", "degraded", "yes", "yes"),
        "The schema goes into the instructions, and the answer is checked.",
    ),
    Capability(
        "prompt_caching",
        "the start of a prompt is not paid for again",
        ("yes", "yes", "yes", "degraded", "degraded"),
        "Nothing is sent for it; the prompt begins with the same bytes each time, for caches that see that.",
    ),
    Capability("usage_in_stream", "tokens are counted by the provider", ("yes", "yes", "yes", "yes", "yes")),
    Capability("stop", "stop sequences", ("yes", "no", "yes", "yes", "yes"), checked=True),
    Capability("max_output_tokens", "a limit of the answer", ("yes", "yes", "yes", "yes", "yes")),
)
_BY_NAME = {row.name: row for row in CAPABILITIES}


def level(form: WireFormat, overrides: Mapping[str, str], name: str) -> str:
    """The word for a capability of this server."""
    return overrides.get(name) or _BY_NAME[name].words[FORMATS.index(form)]


def able(form: WireFormat, overrides: Mapping[str, str], part: MediaPart) -> bool:
    """Whether a model can be shown this part."""
    return level(form, overrides, _name(part)) != "no" and not _foreign_image(form, part)


def typed(part: MediaPart) -> MediaPart:
    """The part with a media type: its own, else what the address or the name ends with says."""
    if part.media_type:
        return part
    found, _ = mimetypes.guess_type(part.uri or part.filename)
    return replace(part, media_type=found or "application/octet-stream")


def is_text(part: MediaPart) -> bool:
    """Whether the bytes can be read by any model as text."""
    return bool(part.data) and (part.media_type.startswith("text/") or part.media_type in _TEXT_TYPES)


def refusal_of(
    request: ModelRequest, form: WireFormat, overrides: Mapping[str, str]
) -> RequestRefusal | None:
    """Why this request cannot be put to this server; None where it can."""
    options, choice = request.options, request.tool_choice.mode
    if options.stop and level(form, overrides, "stop") == "no":
        return RequestRefusal("model_options.stop", "the model takes no stop sequences: leave them out")
    if choice != "auto" and level(form, overrides, f"tool_choice_{choice}") == "no":
        return RequestRefusal("tool_choice", f"the model cannot be told {choice!r}: leave the choice to it")
    efforts = _EFFORTS.get(form)
    if options.reasoning_effort and efforts and options.reasoning_effort not in efforts:
        why = f"the model knows {', '.join(efforts)}"
        return RequestRefusal("model_options.reasoning_effort", why)
    for message in request.messages:
        if isinstance(message, UserMessage):
            for index, part in enumerate(message.parts):
                if isinstance(part, MediaPart) and not able(form, overrides, typed(part)):
                    return RequestRefusal(f"input.parts[{index}]", _why(typed(part)))
    return None


def prepared(request: ModelRequest, form: WireFormat, overrides: Mapping[str, str]) -> ModelRequest:
    """The request as an encoder takes it: media with their types, results without what cannot be shown.

    Raises:
        ValueError: the request cannot be put to this server.
    """
    refusal = refusal_of(request, form, overrides)
    if refusal is not None:
        raise ValueError(f"{refusal.field}: {refusal.why}")
    messages = tuple(
        _shown(message, form, overrides)
        if isinstance(message, ToolMessage) and message.media
        else _named(message)
        if isinstance(message, UserMessage)
        else message
        for message in request.messages
    )
    return replace(request, messages=messages)


def _named(message: UserMessage) -> UserMessage:
    if not any(isinstance(part, MediaPart) and not part.media_type for part in message.parts):
        return message
    return UserMessage(tuple(typed(p) if isinstance(p, MediaPart) else p for p in message.parts))


def _shown(message: ToolMessage, form: WireFormat, overrides: Mapping[str, str]) -> ToolMessage:
    media = [typed(part) for part in message.media]
    kept = tuple(part for part in media if able(form, overrides, part))
    lost = [
        f"[{_what(part)} is left out: this model cannot be shown it]" for part in media if part not in kept
    ]
    content = "\n".join([message.content, *lost] if message.content else lost) if lost else message.content
    return replace(message, media=kept, content=content)


def _name(part: MediaPart) -> str:
    kind = part.media_type.partition("/")[0]
    if kind == "image":
        return "images" if part.data else "image_uris"
    if part.media_type == "application/pdf":
        return "documents" if part.data else "document_uris"
    if not part.data:
        return "other_uris"
    if kind in ("audio", "video"):
        return kind
    return "text_files" if is_text(part) else "other_files"


def _foreign_image(form: WireFormat, part: MediaPart) -> bool:
    image = bool(part.data) and part.media_type.startswith("image/")
    return form == "anthropic" and image and part.media_type not in _IMAGES


def _what(part: MediaPart) -> str:
    size = f"of {len(part.data)} bytes" if part.data else "at an address"
    return f"{part.filename or 'a file'} ({part.media_type}) {size}"


def _why(part: MediaPart) -> str:
    way = "" if part.data else " by address"
    return f"the model takes no {part.media_type}{way}: send it in another form, or ask another model"
