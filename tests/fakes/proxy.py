"""A proxy on a real socket, the only way out of a network whose names nobody here knows.

    async with FakeProxy({"tools.example:80": port}) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)

It passes on to ports of this machine what it has a route for, by CONNECT and by whole URLs, and answers 403, or as it
is told, otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class FakeProxy:
    """`asked` has each `host:port` that it was asked for, `requests` each method with its target: CONNECT
    with a host, others with a whole URL. Without `routes` it passes on to every port of this machine.
    """

    def __init__(
        self, routes: Mapping[str, int] | None, refusal: bytes = b"HTTP/1.1 403 Not here\r\ncontent-length: 0\r\n\r\n"
    ) -> None:
        self.routes = None if routes is None else dict(routes)
        self.refusal = refusal
        self.asked: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            try:
                await self._pass_on(await reader.readuntil(b"\r\n\r\n"), reader, writer)
            finally:
                writer.close()

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *headers = head.decode("latin-1").split("\r\n")
        method, target, version = line.split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host = f"{parts.hostname}:{parts.port or 80}"
        self.asked.append(host)
        self.requests.append((method, target))
        port = parts.port if self.routes is None else self.routes.get(host)
        if port is None:
            writer.write(self.refusal)
            return
        from_there, there = await asyncio.open_connection("127.0.0.1", port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            path = target.partition(parts.netloc)[2] or "/"
            kept = [each for each in headers if not each.lower().startswith(("connection:", "host:"))]
            upgrade = any(each.lower().startswith("upgrade:") for each in headers)
            kept.insert(0, f"host: 127.0.0.1:{port}")  # servers here take no other name
            kept.insert(0, f"connection: {'upgrade' if upgrade else 'close'}")
            there.write("\r\n".join((f"{method} {path} {version}", *kept)).encode("latin-1"))
        try:
            await asyncio.gather(_copy(reader, there), _copy(from_there, writer))
        finally:
            there.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
