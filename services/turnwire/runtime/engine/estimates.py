"""What a model call has used, when the provider did not say or could not any more: counted from bytes.

A token is taken for so many bytes of UTF-8: 4 suit English prose, and languages of longer characters are not
counted too low by it. An image or file counts as a fixed number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnwire.extend.llm import (
    AssistantMessage,
    MediaPart,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    TextPart,
    TokenUsage,
    ToolMessage,
    UsageProvenance,
    UserMessage,
)

__all__ = [
    "BYTES_PER_TOKEN",
    "MEDIA_TOKENS",
    "MESSAGE_TOKENS",
    "estimated_usage",
    "message_pieces",
    "request_tokens",
    "text_tokens",
]

BYTES_PER_TOKEN = 4.0
# Providers count images by their size in pixels, which is not known here.
MEDIA_TOKENS = 1000
# What frames each message on its way to a model.
MESSAGE_TOKENS = 4


def text_tokens(texts: Iterable[str], bytes_per_token: float = BYTES_PER_TOKEN) -> int:
    """Return how many tokens the texts have together, rounded up."""
    # Whether a text is ASCII is known without a look at it.
    size = sum(len(t) if t.isascii() else len(t.encode("utf-8", "replace")) for t in texts)
    return -int(-size // bytes_per_token)


def request_tokens(request: ModelRequest, bytes_per_token: float = BYTES_PER_TOKEN) -> int:
    """Return how many tokens a request has: messages, tools and schema."""
    texts = [request.response_schema_json]
    media = 0
    for message in request.messages:
        said, files = message_pieces(message)
        texts += said
        media += files
    for tool in request.tools:
        texts += [tool.name, tool.description, tool.input_schema_json]
    framing = MESSAGE_TOKENS * len(request.messages)
    return text_tokens(texts, bytes_per_token) + media * MEDIA_TOKENS + framing


def estimated_usage(
    reported: TokenUsage | None,
    request: ModelRequest,
    said: Iterable[str],
    bytes_per_token: float = BYTES_PER_TOKEN,
) -> TokenUsage:
    """Return what an attempt used that broke off.

    Args:
        reported: what the provider had reported before, which stands where it is more.
        said: what the model had said.
    """
    output = text_tokens(said, bytes_per_token)
    if reported is None:
        given = request_tokens(request, bytes_per_token)
        return TokenUsage(given, output_tokens=output, provenance=UsageProvenance.ESTIMATED)
    return TokenUsage(
        reported.input_tokens,
        reported.cache_read_tokens,
        reported.cache_creation_tokens,
        max(reported.output_tokens, output),
        reported.reasoning_tokens,
        UsageProvenance.ESTIMATED,
    )


def message_pieces(message: ModelMessage) -> tuple[list[str], int]:
    """Return the texts of a message and how many images and files it has."""
    match message:
        case SystemMessage(text):
            return [text], 0
        case UserMessage(parts):
            texts = [part.text for part in parts if isinstance(part, TextPart)]
            return texts, sum(isinstance(part, MediaPart) for part in parts)
        case AssistantMessage():
            calls = [t for c in message.tool_calls for t in (c.tool_name, c.arguments_json)]
            return [message.text, message.reasoning, message.replay_json, *calls], 0
        case ToolMessage():
            return [message.content], len(message.media)
