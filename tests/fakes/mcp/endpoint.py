"""A scripted streamable HTTP endpoint on a loopback port, in the test's own event loop.

It can send answers that no correct server sends: wrong statuses, truncated answers, forgotten sessions. Answers are
looked up by method; a request without an answer gets 404.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Message = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. `cut`: bytes of the body that are sent before the connection breaks; -1 sends all of it."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = -1


class Silence:
    """No answer at all; the connection stays open."""


class HangUp:
    """The connection is closed without an answer."""


@dataclass(frozen=True)
class Endless:
    """An answer that begins with `first` and repeats `again` without end, `pause` seconds apart."""

    first: bytes
    again: bytes
    pause: float = 0.0


Reaction = Answer | Silence | HangUp | Endless


@dataclass
class FakeEndpoint:
    """`async with FakeEndpoint() as endpoint`; then `endpoint.on[method] = reaction or function of the message`."""

    on: dict[str, Reaction | Callable[[Message], Reaction]] = field(default_factory=dict)
    seen: list[tuple[dict[str, str], Message]] = field(default_factory=list)
    port: int = 0
    capabilities: dict[str, Any] = field(default_factory=lambda: {"tools": {}})
    """Capabilities that the server declares."""
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _held: dict[str, tuple[asyncio.Event, asyncio.Event]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/mcp"

    def methods(self) -> list[str]:
        """Return the methods of the received messages, in order."""
        return [message.get("method", "") for _, message in self.seen]

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def listen(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold(self, method: str, until: asyncio.Event) -> asyncio.Event:
        """Answer a method only after an event. The returned event is set when a request waits for it."""
        arrived = asyncio.Event()
        self._held[method] = (arrived, until)
        return arrived

    def speak_legacy(self, *tools: str, session: str = "s1") -> None:
        """Answer like a server of the 2025-11-25 protocol with these tools, each call with `ok`."""
        info = {"name": "old", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "serverInfo": info}
        self.on["server/discover"] = lambda m: error(m, -32601, "Method not found")
        self.on["initialize"] = lambda m: result(m, hello, {"mcp-session-id": session})
        self.on["notifications/initialized"] = Answer(202)
        self._offer(tools)

    def speak_modern(self, *tools: str) -> None:
        """Answer like a server of the 2026-07-28 protocol with these tools, each call with `ok`."""
        hello = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}
        self.on["server/discover"] = lambda m: result(m, hello)
        self._offer(tools)

    def _offer(self, tools: Sequence[str]) -> None:
        self.on["tools/list"] = lambda m: result(m, {"tools": [tool(name) for name in tools]})
        self.on.setdefault("tools/call", lambda m: result(m, OK))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        message: Message = json.loads(body) if body else {"method": start.split()[0]}
        self.seen.append((headers, message))
        if message.get("method") in self._held:
            arrived, until = self._held[message["method"]]
            arrived.set()
            await until.wait()
        reaction = self.on.get(message.get("method", ""), Answer(404))
        if callable(reaction):
            reaction = reaction(message)
        match reaction:
            case Silence():
                await reader.read()
            case HangUp():
                return
            case Endless(first, again, pause):
                writer.write(first)
                while True:
                    writer.write(again)
                    await writer.drain()
                    await asyncio.sleep(pause)
            case Answer(status, content, extra, cut):
                raw = (
                    content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
                )
                shown = {"content-type": "application/json", "content-length": str(len(raw)), **extra}
                lines = [f"HTTP/1.1 {status} X", "connection: close", *(f"{k}: {v}" for k, v in shown.items()), "", ""]
                writer.write("\r\n".join(lines).encode() + (raw if cut < 0 else raw[:cut]))
                await writer.drain()


OK = {"content": [{"type": "text", "text": "ok"}]}
"""Result of a tool."""


def result(message: Message, value: dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
    """Return a JSON-RPC result for a request."""
    stamped = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **value}
    return Answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": stamped}, headers or {})


def error(message: Message, code: int, text: str, data: Any = None, *, status: int = 200) -> Answer:
    """Return a JSON-RPC error for a request."""
    body: dict[str, Any] = {"code": code, "message": text} | ({} if data is None else {"data": data})
    return Answer(status, {"jsonrpc": "2.0", "id": message["id"], "error": body})


def tool(name: str) -> dict[str, Any]:
    """Return the smallest definition of a tool."""
    return {"name": name, "inputSchema": {"type": "object", "properties": {}}}
