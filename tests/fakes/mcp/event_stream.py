"""A scripted server of HTTP+SSE, MCP's first transport over HTTP, on a loopback port in the test's own event loop.

Answers are looked up by method, as in `FakeEndpoint`. An answer of status 200 is sent on the stream of events, and the
request gets 202. An answer of another status is the response to the request, and the stream gets no event.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, HangUp, Message, Silence


@dataclass
class FakeEventStream(FakeEndpoint):
    """`async with FakeEventStream() as server`; the URL to connect to is `server.url`.

    `first` is the beginning of the stream. `instead` is the response to requests for the stream, if it is set.
    `refuses` is the status for messages that are sent to the stream's own address.
    """

    first: str = "event: endpoint\ndata: /messages?session=1\n\n"
    instead: Answer | None = None
    refuses: int = 405
    streams: list[asyncio.StreamWriter] = field(default_factory=list)
    opened: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/sse"

    def cut(self) -> None:
        """Close all streams."""
        for stream in self.streams:
            stream.close()
        self.streams.clear()

    def say(self, message: Message | bytes) -> None:
        """Send a message on all streams."""
        text = message if isinstance(message, bytes) else json.dumps(message).encode()
        for stream in self.streams:
            stream.write(b"event: message\ndata: " + text + b"\n\n")

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        verb, path, _ = start.split()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        message: Message = json.loads(body) if body else {"method": verb}
        self.seen.append((headers, message))
        if verb == "GET" and self.instead is None:
            await self._stream(reader, writer)
        elif verb == "GET":
            await _http(writer, self.instead)
        elif path == "/sse":
            await _http(writer, Answer(self.refuses))
        else:
            await self._hear(message, reader, writer)

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(self.first.encode())
        self.streams.append(writer)
        try:
            await reader.read()
        finally:
            if writer in self.streams:
                self.streams.remove(writer)

    async def _hear(self, message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = message.get("method", "")
        if method in self._held:
            arrived, until = self._held[method]
            arrived.set()
            await until.wait()
        reaction = self.on.get(method, Answer(404))
        match reaction(message) if callable(reaction) else reaction:
            case HangUp():
                return
            case Silence():
                await _http(writer, Answer(202))
            case Answer(200, content):
                await _http(writer, Answer(202))
                self.say(content)
            case Answer() as refused:
                await _http(writer, refused)


async def _http(writer: asyncio.StreamWriter, answer: Answer | None) -> None:
    assert answer is not None
    content: Any = answer.body
    raw = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
    shown = {"content-type": "application/json", "content-length": str(len(raw)), **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} X", "connection: close", *(f"{k}: {v}" for k, v in shown.items()), "", ""]
    writer.write("\r\n".join(lines).encode() + raw)
    await writer.drain()


@dataclass
class FakeSideStream(FakeEventStream):
    """A server of streamable HTTP that answers requests of the methods `aside` with 202, and in a stream that belongs
    to no request, once one is open. With `early`, the answer comes first.
    """

    first: str = ": hello\n\n"
    aside: tuple[str, ...] = ("tools/call",)
    early: bool = False
    _kept: list[bytes] = field(default_factory=list)

    def say(self, message: Message | bytes) -> None:
        """Send a message on the stream, or keep it until there is one."""
        if self.streams:
            super().say(message)
        else:
            self._kept.append(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.first = ": hello\n\n" + b"".join(self._kept).decode()
        self._kept.clear()
        await super()._stream(reader, writer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _hear(self, message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reaction = self.on.get(message.get("method", ""), Answer(404))
        answer = reaction(message) if callable(reaction) else reaction
        assert isinstance(answer, Answer)
        if message.get("method") not in self.aside:
            await _http(writer, answer)
            return
        if not self.early:
            await _http(writer, Answer(202))
        self.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        self.say(answer.body)
        if self.early:
            await _http(writer, Answer(202))
