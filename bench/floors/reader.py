"""The bare reader (F1): an HTTP client and a JSON decoder, nothing between a token's bytes and its text.

The other floors read through it too, so that what they cost above it is their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

OnText = Callable[[str], Awaitable[None] | None]

ADD_TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two integers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
HEADERS = {"content-type": "application/json", "authorization": "Bearer mock"}
READ_BUFFER_BYTES = 256 * 1024


class FunctionPart(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class CallPart(msgspec.Struct):
    index: int
    id: str | None = None
    function: FunctionPart | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[CallPart] | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


class AddArguments(msgspec.Struct):
    a: int
    b: int


_decode = msgspec.json.Decoder(Chunk).decode
_decode_arguments = msgspec.json.Decoder(AddArguments).decode
_encode = msgspec.json.Encoder().encode


def open_session() -> aiohttp.ClientSession:
    """A client without a limit on connections; the caller closes it."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=READ_BUFFER_BYTES)


async def run_turn(http: aiohttp.ClientSession, url: str, model: str, prompt: str, on_text: OnText) -> None:
    """Run one turn with its tool rounds; `on_text` gets each delta and may be awaited.

    Raises:
        aiohttp.ClientError: the model could not be read.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    while True:
        text, calls = await read_answer(http, url, model, messages, on_text)
        if not calls:
            return
        messages.append({"role": "assistant", "content": text, "tool_calls": [wire_call(c) for c in calls]})
        for call in calls:
            arguments = _decode_arguments(call[2])
            result = str(arguments.a + arguments.b)
            messages.append({"role": "tool", "tool_call_id": call[0], "content": result})


def wire_call(call: list[str]) -> dict[str, Any]:
    return {"id": call[0], "type": "function", "function": {"name": call[1], "arguments": call[2]}}


async def read_answer(
    http: aiohttp.ClientSession, url: str, model: str, messages: list[dict[str, Any]], on_text: OnText
) -> tuple[str, list[list[str]]]:
    """Make one model call; returns its text and its tool calls as id, name, arguments."""
    body = _encode(
        {
            "model": model,
            "messages": messages,
            "tools": [ADD_TOOL],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    texts: list[str] = []
    calls: dict[int, list[str]] = {}
    async with http.post(f"{url}/chat/completions", data=body, headers=HEADERS) as response:
        response.raise_for_status()
        rest = b""
        async for data in response.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if event[:6] != b"data: " or event == b"data: [DONE]":
                    continue
                choices = _decode(memoryview(event)[6:]).choices
                if not choices:
                    continue
                delta = choices[0].delta
                if delta.content:
                    texts.append(delta.content)
                    sent = on_text(delta.content)
                    if sent is not None:
                        await sent
                if delta.tool_calls:
                    collect(calls, delta.tool_calls)
    return "".join(texts), list(calls.values())


def collect(calls: dict[int, list[str]], parts: list[CallPart]) -> None:
    """Put the fragments of tool calls together, keyed by index."""
    for part in parts:
        call = calls.setdefault(part.index, ["", "", ""])
        call[0] += part.id or ""
        if part.function is not None:
            call[1] += part.function.name or ""
            call[2] += part.function.arguments or ""
