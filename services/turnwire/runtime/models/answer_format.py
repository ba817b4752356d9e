"""Where the schema of an answer goes: into the request's own field for it, or into the instructions.

A provider that takes schemas takes a part of JSON Schema, each another one, and refuses the whole request for
a keyword too many. So the field is used where the schema is sure to be taken; the answer is checked anyway.
"""

from __future__ import annotations

from dataclasses import replace

from turnwire.extend.llm import ModelRequest, SystemMessage
from turnwire.runtime.models.openai_request import json_object
from turnwire.runtime.models.settings import ProviderProfile

__all__ = ["place_schema"]

_INSTRUCTION = (
    "When you give your final answer, give one JSON value that fits the JSON Schema below: the whole answer"
    " is that JSON, without code fences and without a word before or after it.\n"
    "<json_schema>\n{schema}\n</json_schema>"
)


def place_schema(request: ModelRequest, profile: ProviderProfile) -> ModelRequest:
    """Return the request with its schema where this provider looks for it."""
    if not request.response_schema_json or _has_field(request, profile):
        return request
    first = next(
        (i for i, message in enumerate(request.messages) if not isinstance(message, SystemMessage)),
        len(request.messages),
    )
    told = SystemMessage(_INSTRUCTION.format(schema=request.response_schema_json))
    messages = (*request.messages[:first], told, *request.messages[first:])
    return replace(request, messages=messages, response_schema_json="")


def _has_field(request: ModelRequest, profile: ProviderProfile) -> bool:
    if profile.response_schema != "auto":
        return profile.response_schema == "field"
    if profile.format == "anthropic":
        # It takes schemas that are closed, and of newer models only.
        return False
    if profile.format == "gemini":
        # Tools and a schema exclude each other there.
        return not request.tools
    return json_object(request.response_schema_json).get("type") == "object"
