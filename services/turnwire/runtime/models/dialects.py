"""What an HTTP model must know of each wire format: where to send, how to write, how to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from turnwire.extend.llm import ModelRequest, ToolDefinition
from turnwire.runtime.models.answer_format import place_schema
from turnwire.runtime.models.anthropic import AnthropicNormaliser
from turnwire.runtime.models.anthropic_request import encode_messages
from turnwire.runtime.models.gemini import GeminiNormaliser
from turnwire.runtime.models.gemini_request import encode_gemini, gemini_path
from turnwire.runtime.models.inline_calls import InlineCalls
from turnwire.runtime.models.normaliser import Normaliser
from turnwire.runtime.models.openai_chat import OpenAiChatNormaliser
from turnwire.runtime.models.openai_request import encode_chat
from turnwire.runtime.models.openai_responses import OpenAiResponsesNormaliser
from turnwire.runtime.models.responses_request import encode_responses
from turnwire.runtime.models.settings import ProviderProfile, WireFormat
from turnwire.runtime.models.think import ThinkSplitter

__all__ = ["DIALECTS", "Dialect", "make_normaliser"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One wire format."""

    encode: Callable[[ModelRequest, ProviderProfile, bool], bytes]
    path: Callable[[str, bool], str]
    headers: Callable[[str], dict[str, str]]
    normaliser: type[Normaliser]
    tags_by_default: bool = False


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _anthropic_headers(key: str) -> dict[str, str]:
    headers = {"anthropic-version": "2023-06-01"}
    return headers | {"x-api-key": key} if key else headers


DIALECTS: dict[WireFormat, Dialect] = {
    "openai-chat": Dialect(
        lambda request, profile, stream: encode_chat(place_schema(request, profile), profile, stream=stream),
        lambda _model, _stream: "/chat/completions",
        _bearer,
        OpenAiChatNormaliser,
        tags_by_default=True,
    ),
    "openai-responses": Dialect(
        lambda request, profile, stream: encode_responses(
            place_schema(request, profile), profile, stream=stream
        ),
        lambda _model, _stream: "/responses",
        _bearer,
        OpenAiResponsesNormaliser,
    ),
    "gemini": Dialect(
        lambda request, profile, stream: encode_gemini(
            place_schema(request, profile), profile, stream=stream
        ),
        gemini_path,
        lambda key: {"x-goog-api-key": key} if key else {},
        GeminiNormaliser,
    ),
    "anthropic": Dialect(
        lambda request, profile, stream: encode_messages(
            place_schema(request, profile), profile, stream=stream
        ),
        lambda _model, _stream: "/v1/messages",
        _anthropic_headers,
        AnthropicNormaliser,
    ),
}


def make_normaliser(
    provider: str, profile: ProviderProfile, model: str = "", tools: Sequence[ToolDefinition] = ()
) -> Normaliser:
    """A fresh normaliser for one answer of this provider.

    Args:
        model: the provider's name for the model, which may be one whose text holds calls.
        tools: those of the step; no other is ever called from text.
    """
    dialect = DIALECTS[profile.format]
    tags = profile.think_tags
    wanted = tags in ("on", "inside") or (tags == "auto" and dialect.tags_by_default)
    think = ThinkSplitter(inside=tags == "inside") if wanted else None
    inline = None
    if tools and any(fnmatchcase(model, pattern) for pattern in profile.inline_tool_calls):
        inline = InlineCalls({tool.name: tool.input_schema_json for tool in tools})
    return dialect.normaliser(provider, think=think, inline=inline, null_finish_ok=profile.null_finish_ok)
