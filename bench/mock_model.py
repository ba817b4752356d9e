"""A scripted OpenAI-compatible model: an answer's bytes are rendered once, so it costs next to nothing.

The script stands in the model's name, from `w:` on: `w:tokens=500:rounds=0:rate=0:delay=0:silent=0`.

* `tokens`: content chunks of each answer; chunk i is ` w%04d`, six characters.
* `rounds`: the answer ends in a call of the tool `add` until the conversation holds so many tool results.
* `rate`: chunks a second, each a write of its own; 0 = the whole answer in one write.
* `delay`: milliseconds before the first byte.
* `silent`: 1 = after the chunks nothing more comes and the connection stays open.
* `args`: bytes of the arguments of each tool call, most of them in a string; 0 = just two numbers.
* `piece`: bytes of each fragment of the arguments; 0 = three fragments.
* `stamp`: 1 = the text of a chunk is the time at which it was sent, 17 characters, `0000012345.678901`.

Routes: `POST .../chat/completions`, `GET .../models`, `GET /stats`, `GET /times` (when each chunk of each
rated answer was sent), `POST /reset`. All times are CLOCK_MONOTONIC, so that other processes can compare.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench.mock_answers import (
    ID_MARK,
    STAMP_MARK,
    STREAM_HEAD,
    Answer,
    Script,
    http_json,
    parse_script,
    render,
    stamp,
)

MAX_SCRIPTS = 256


class Message(msgspec.Struct):
    """The one field of a message that decides the answer."""

    role: str = ""


class ChatRequest(msgspec.Struct):
    """The fields of a request that decide the answer."""

    model: str
    messages: list[Message]
    stream: bool | None = False


@dataclass
class MockModel:
    """What all connections share: rendered answers and counters since the last reset."""

    requests: int = 0
    active: int = 0
    max_active: int = 0
    aborts: list[tuple[float, int]] = field(default_factory=list)
    times: list[list[float]] = field(default_factory=list)
    served: int = 0
    _scripts: dict[str, Script] = field(default_factory=dict)
    _answers: dict[tuple[str, int | None], Answer] = field(default_factory=dict)
    _decode: Callable[[bytes], ChatRequest] = field(default=msgspec.json.Decoder(ChatRequest).decode)

    def open(self, body: bytes) -> tuple[ChatRequest, Script, Answer]:
        """Take a request in.

        Raises:
            msgspec.MsgspecError: the body is no request.
            ValueError: the model's name holds no script.
        """
        request = self._decode(body)
        script = self._scripts.get(request.model)
        if script is None:
            if len(self._scripts) >= MAX_SCRIPTS:
                self._scripts.clear()
                self._answers.clear()
            script = self._scripts[request.model] = parse_script(request.model)
        results = sum(message.role == "tool" for message in request.messages) if script.rounds else 0
        call = results if results < script.rounds else None
        answer = self._answers.get((request.model, call))
        if answer is None:
            answer = self._answers[request.model, call] = render(request.model, script, call)
        self.requests += 1
        self.served += 1
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        return request, script, answer

    def reset(self) -> None:
        """Forget what has been counted; streams that are open stay."""
        self.requests = 0
        self.max_active = self.active
        self.aborts = []
        self.times = []

    def stats(self) -> dict[str, Any]:
        """The counters; each abort is its time and the chunks that had been sent."""
        return {
            "requests": self.requests,
            "active": self.active,
            "max_active": self.max_active,
            "aborts": self.aborts,
            "cpu": time.process_time(),
        }


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection; requests on it are answered in order."""

    def __init__(self, mock: MockModel) -> None:
        self._mock = mock
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._sent = 0
        self._id = b""
        self._begin = 0.0
        self._times: list[float] = []
        self._script = Script()
        self._answer = Answer(b"", (), b"", b"", b"")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Note when a stream was cut."""
        if self._timer is not None:
            self._timer.cancel()
        if self._busy:
            self._mock.aborts.append((time.monotonic(), self._sent))
            self._done()

    def data_received(self, data: bytes) -> None:
        """Collect a request; what comes during an answer waits."""
        self._buffer += data
        self._pump()

    def _pump(self) -> None:
        while self._buffer and not self._busy:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = content_length(head)
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            self._route(head, rest[:length])

    def _route(self, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path.endswith(b"/chat/completions"):
            self._chat(body)
        elif path == b"/stats":
            self._transport.write(http_json(self._mock.stats()))
        elif path == b"/times":
            self._transport.write(http_json(self._mock.times))
        elif path == b"/reset":
            self._mock.reset()
            self._transport.write(http_json({}))
        elif path.endswith(b"/models"):
            self._transport.write(http_json({"object": "list", "data": []}))
        else:
            self._refuse(b"404 Not Found", "no such path")

    def _refuse(self, status: bytes, message: str) -> None:
        error = {"error": {"message": message, "type": "invalid_request_error"}}
        self._transport.write(http_json(error, status))

    def _chat(self, body: bytes) -> None:
        try:
            request, self._script, self._answer = self._mock.open(body)
        except (ValueError, msgspec.MsgspecError) as error:
            self._refuse(b"400 Bad Request", str(error))
            return
        self._busy = True
        self._id = b"%08x" % self._mock.served
        self._sent = 0
        if request.stream and (self._script.rate or self._script.silent):
            self._times = []
            self._mock.times.append(self._times)
            self._begin = self._loop.time() + self._script.delay
            self._timer = self._loop.call_at(self._begin, self._first)
            return
        data = self._answer.whole if request.stream else self._answer.plain
        if self._script.delay:
            self._timer = self._loop.call_later(self._script.delay, self._finish, data)
        else:
            self._finish(data)

    def _first(self) -> None:
        self._transport.write(STREAM_HEAD + self._marked(self._answer.head))
        self._arm()

    def _arm(self) -> None:
        step = (self._sent + 1) / self._script.rate if self._script.rate else 0.0
        self._timer = self._loop.call_at(self._begin + step, self._next)

    def _next(self) -> None:
        if self._sent < len(self._answer.chunks):
            now = time.monotonic()
            self._times.append(now)
            self._transport.write(self._marked(self._answer.chunks[self._sent], now))
            self._sent += 1
            self._arm()
        elif self._script.silent:
            self._timer = None
        else:
            self._finish(self._answer.tail)

    def _finish(self, data: bytes) -> None:
        self._timer = None
        self._transport.write(self._marked(data))
        self._done()
        if self._buffer:
            self._loop.call_soon(self._pump)

    def _marked(self, data: bytes, now: float = 0.0) -> bytes:
        """Ids differ from answer to answer, as those of a real service do; stamps tell the time."""
        data = data.replace(ID_MARK, self._id)
        return data.replace(STAMP_MARK, stamp(now or time.monotonic())) if self._script.stamp else data

    def _done(self) -> None:
        self._busy = False
        self._mock.active -= 1


def content_length(head: bytes) -> int:
    """The length of a request's body; 0 when it has none.

    Raises:
        ValueError: the header is no number.
    """
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def serve(port: int, ready_file: Path | None) -> None:
    """Answer on 127.0.0.1 until the process is ended; the ready file then holds the port."""
    mock = MockModel()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(mock), "127.0.0.1", port, backlog=1024)
    if ready_file is not None:
        ready_file.write_text(str(server.sockets[0].getsockname()[1]), encoding="utf-8")
    await server.serve_forever()


def main() -> None:
    """Run the mock as a process."""
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible model.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-file", type=Path)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.ready_file))


if __name__ == "__main__":
    main()
