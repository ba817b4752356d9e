"""What the mock model says: a script out of a model's name, and the bytes of an answer, rendered once.

See `bench.mock_model` for the words of a script.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from bench.workloads import token

ID_MARK = b"MOCKID00"
# Stands for the time of a chunk, and is as long as one: seconds of CLOCK_MONOTONIC with six digits.
STAMP_MARK = b"MOCKTIME00.000000"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True)
class Script:
    """What a model's name asks for; `rate` is in chunks a second, `delay` in seconds, sizes in bytes."""

    tokens: int = 20
    rounds: int = 0
    rate: float = 0.0
    delay: float = 0.0
    silent: bool = False
    args: int = 0
    piece: int = 0
    stamp: bool = False


def parse_script(model: str) -> Script:
    """Read the script out of a model's name; what the name leaves out has its default.

    Raises:
        ValueError: a value is not a number.
    """
    _, found, words = model.partition("w:")
    pairs = dict(word.partition("=")[::2] for word in words.split(":")) if found else {}
    return Script(
        tokens=int(pairs.get("tokens", 20)),
        rounds=int(pairs.get("rounds", 0)),
        rate=float(pairs.get("rate", 0)),
        delay=float(pairs.get("delay", 0)) / 1000,
        silent=pairs.get("silent", "0") == "1",
        args=int(pairs.get("args", 0)),
        piece=int(pairs.get("piece", 0)),
        stamp=pairs.get("stamp", "0") == "1",
    )


def stamp(seconds: float) -> bytes:
    """A time as the text of a chunk; as long as its mark."""
    return b"%017.6f" % seconds


@dataclass(frozen=True)
class Answer:
    """The rendered bytes of one answer: head, chunks and tail of the stream, and the answer in one piece."""

    head: bytes
    chunks: tuple[bytes, ...]
    tail: bytes
    whole: bytes
    plain: bytes


def render(model: str, script: Script, call: int | None) -> Answer:
    """Render the answer to one request; `call` is the number of the tool call it ends in, if it does."""
    arguments = call_arguments(call or 0, script.args)
    finish = "stop" if call is None else "tool_calls"
    head = sse(model, [choice({"role": "assistant", "content": "", "refusal": None})])
    texts = [STAMP_MARK.decode() if script.stamp else token(index) for index in range(script.tokens)]
    chunks = tuple(sse(model, [choice({"content": text})]) for text in texts)
    deltas = call_deltas(arguments, script.piece) if call is not None else ()
    tail = b"".join(sse(model, [choice(delta)]) for delta in deltas)
    tail += sse(model, [choice({}, finish)]) + sse(model, [], usage(script.tokens))
    tail += http_chunk(b"data: [DONE]\n\n") + LAST_CHUNK
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if call is not None:
        message["tool_calls"] = [tool_call(arguments)]
    body = envelope(model, "chat.completion", usage(script.tokens))
    body["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}]
    return Answer(head, chunks, tail, STREAM_HEAD + head + b"".join(chunks) + tail, http_json(body))


def call_arguments(a: int, size: int) -> str:
    """Arguments of the tool `add`, filled up to `size` bytes by a string that it does not know."""
    plain = f'{{"a":{a},"b":1}}'
    filled = plain[:-1] + ',"note":""}'
    return f'{filled[:-2]}{"n" * (size - len(filled))}"}}' if size > len(filled) else plain


def call_deltas(arguments: str, size: int) -> Iterator[dict[str, Any]]:
    """Yield the deltas of a tool call: its name, then its arguments, `size` bytes each or three in all."""
    yield {"tool_calls": [{"index": 0, **tool_call("")}]}
    pieces = [arguments[:5], arguments[5:-6], arguments[-6:]]
    if size:
        pieces = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    for piece in pieces:
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def tool_call(arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{ID_MARK.decode()}",
        "type": "function",
        "function": {"name": "add", "arguments": arguments},
    }


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def usage(tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": 10,
        "completion_tokens": tokens,
        "total_tokens": 10 + tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def envelope(model: str, kind: str, counts: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{ID_MARK.decode()}",
        "object": kind,
        "created": 1_760_000_000,
        "model": model,
        "service_tier": "default",
        "system_fingerprint": "fp_mock000000",
        "choices": [],
        "usage": counts,
    }


def sse(model: str, choices: list[dict[str, Any]], counts: dict[str, Any] | None = None) -> bytes:
    event = envelope(model, "chat.completion.chunk", counts)
    event["choices"] = choices
    return http_chunk(b"data: " + msgspec.json.encode(event) + b"\n\n")


def http_chunk(data: bytes) -> bytes:
    """Each event is a chunk of the transfer encoding, as the real service sends it."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def http_json(body: object, status: bytes = b"200 OK") -> bytes:
    data = msgspec.json.encode(body)
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(data)) + data
