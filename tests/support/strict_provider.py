"""A model provider that accepts only histories in good order, and plays the replies that a test gives it.

It speaks chat completions, responses, the messages format and Gemini's on a free port of this machine. A
history that breaks one of the `history_rules`, such as a call without its result right after it, is answered
with 400, as by others.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.history_rules import chat_fault, messages_fault
from support.strict_formats import (
    CHAT,
    GEMINI,
    GEMINI_DONE,
    MESSAGES,
    RESPONSES,
    RESPONSES_DONE,
    format_of,
    gemini_fault,
    model_of,
    responses_fault,
)

__all__ = ["Hold", "Reply", "StrictProvider", "says", "strict_provider"]


class Hold(asyncio.Event):
    """A place in a reply at which the provider waits until the test sets it, or until the client leaves.

    `reached` is set when everything before it has been sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()


@dataclass
class Reply:
    """Bytes and holds in order; `closed` is set when the client leaves before the end of it.

    With `dropped` the connection is closed after the last piece, without the end of the body.
    """

    pieces: Sequence[bytes | Hold]
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: bool = False


def says(
    *words: str | Hold,
    reasoning: Sequence[str] = (),
    calls: Sequence[tuple[str, dict[str, Any]]] = (),
) -> Reply:
    """A chat answer: a chunk for each word, then its tool calls, usage and end mark."""
    pieces: list[bytes | Hold] = [_chunk({"reasoning_content": text}) for text in reasoning]
    pieces += [word if isinstance(word, Hold) else _chunk({"content": word}) for word in words]
    for index, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        pieces.append(_chunk({"tool_calls": [call]}))
    usage = {"prompt_tokens": 10, "completion_tokens": len(pieces), "total_tokens": 10 + len(pieces)}
    end = _chunk({}, "tool_calls" if calls else "stop") + _line({"choices": [], "usage": usage})
    return Reply([*pieces, end + b"data: [DONE]\n\n"])


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _line({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _line(payload: dict[str, Any]) -> bytes:
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "strict",
        **payload,
    }
    return b"data: %b\n\n" % json.dumps(whole).encode()


MESSAGES_DONE = "".join(
    f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
    for event in [
        {
            "type": "message_start",
            "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": {"input_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
).encode()


# What is wrong with the history of a request, by its format.
_FAULTS: dict[str, Callable[[dict[str, Any]], str]] = {
    CHAT: lambda body: chat_fault(body["messages"]),
    MESSAGES: lambda body: messages_fault(body["messages"]),
    RESPONSES: lambda body: responses_fault(body["input"]),
    GEMINI: lambda body: gemini_fault(body["contents"]),
}
_DONE = {MESSAGES: MESSAGES_DONE, RESPONSES: RESPONSES_DONE, GEMINI: GEMINI_DONE}


class StrictProvider:
    """The provider of one test module.

    `queue` gives a model its replies; a model without a reply left says "done". `requests` holds the bodies
    of each model in order, `refusals` what was answered with 400.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.refusals: list[str] = []
        self._replies: defaultdict[str, deque[Reply]] = defaultdict(deque)
        self._tasks: set[asyncio.Task[None]] = set()

    def queue(self, model: str, *replies: Reply) -> None:
        """Add replies for a model, by the name that goes over the wire."""
        self._replies[model].extend(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client has gone, or the test is over.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        path = head.split(" ", 2)[1]
        length = int(head.lower().partition("content-length:")[2].split("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        # One format says the model in its path.
        body["model"] = model_of(path, body)
        self.requests[body["model"]].append(body)
        wire = format_of(path)
        fault = _FAULTS[wire](body)
        if fault:
            self.refusals.append(fault)
            refusal = json.dumps({"error": {"message": fault, "type": "invalid_request_error"}}).encode()
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(refusal), refusal))
            await writer.drain()
            return True
        return await self._play(self.reply(body, wire), reader, writer)

    def reply(self, body: dict[str, Any], wire: str) -> Reply:
        """Choose the answer to a request in good order; `wire` is the format that it came in."""
        replies = self._replies[body["model"]]
        if replies:
            return replies.popleft()
        return says("done") if wire == CHAT else Reply([_DONE[wire]])

    async def _play(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        # A client sends nothing while it reads, so that bytes here, or their end, mean that it has left.
        leaving = asyncio.create_task(reader.read(1))
        try:
            for piece in reply.pieces:
                if isinstance(piece, Hold):
                    piece.reached.set()
                    await self._hold(piece, leaving)
                elif piece:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                if leaving.done():
                    raise ConnectionResetError
        except ConnectionError:
            reply.closed.set()
            raise
        finally:
            leaving.cancel()
            await asyncio.wait({leaving})
        if reply.dropped:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    @staticmethod
    async def _hold(hold: Hold, leaving: asyncio.Task[bytes]) -> None:
        released = asyncio.create_task(hold.wait())
        try:
            await asyncio.wait({released, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            released.cancel()

    async def close(self) -> None:
        """End what is still being answered."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def strict_provider() -> AsyncIterator[StrictProvider]:
    """Serve on a free port; the address is `url`."""
    provider = StrictProvider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        await provider.close()
