"""Servers with a fault, as `faults` lists them: each is there within a block, called `bad`, with the tools `badly` and
`well`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.domain.servers import HttpKind, HttpTransport, ServerConfig
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, Reaction, Silence, result
from tests.fakes.mcp.event_stream import FakeEventStream
from tests.mcp.toolboxes import raw

DONE = "done"
SOUND: dict[str, Any] = {"content": [{"type": "text", "text": DONE}]}


@dataclass(frozen=True, slots=True)
class Bad:
    """A server with a fault, and how often it was sent the call."""

    config: ServerConfig
    sent: Callable[[], int]


Serving = Callable[[Path], AbstractAsyncContextManager[Bad]]


def listed(name: str, **fields: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


BOTH = [listed("badly"), listed("well")]


def nested(levels: int) -> dict[str, Any]:
    """Arguments that are nested so deeply."""
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(levels // 2):
        inner = {"type": "object", "properties": {"a": inner}}
    return inner


def says(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An action of a scripted server: this result."""
    return {"result": {"content": list(content), **fields}}


def process(badly: dict[str, Any] | None = None, tools: list[Any] | None = None, **script: Any) -> Serving:
    """A child process. `badly` is what it does, `tools` what it lists."""

    @asynccontextmanager
    async def served(folder: Path) -> AsyncIterator[Bad]:
        calls = {"badly": badly or {"result": SOUND}, "well": {"result": SOUND}}
        listing = BOTH if tools is None else tools
        record = folder / "record"
        told = {"listings": [[{"tools": listing}]], "calls": calls, "record": str(record), **script}
        yield Bad(raw("bad", script=told, list_timeout=2.0), lambda: record.read_text().count('"name": "badly"'))

    return served


@asynccontextmanager
async def mute(_folder: Path) -> AsyncIterator[Bad]:
    """A child process that says nothing at all."""
    yield Bad(raw("bad", script={"probe": "silence"}, connect_timeout=0.5), lambda: 0)


def endpoint(badly: Reaction | Callable[[Message], Reaction], *, legacy: bool = False) -> Serving:
    """A streamable HTTP endpoint that reacts like this to the call of `badly`."""

    @asynccontextmanager
    async def served(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            (server.speak_legacy if legacy else server.speak_modern)("badly", "well")
            server.on["tools/call"] = lambda message: _of(message, badly)
            yield _bad(server)

    return served


def offering(tools: str) -> Serving:
    """A streamable HTTP endpoint that lists its tools in this JSON."""

    @asynccontextmanager
    async def served(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            server.speak_modern()
            line = f'{{"jsonrpc":"2.0","id":ID,"result":{{"tools":{tools}}}}}'
            server.on["tools/list"] = lambda message: Answer(200, line.replace("ID", str(message["id"])).encode())
            server.on["tools/call"] = lambda message: result(message, SOUND)
            yield _bad(server)

    return served


def writing(line: str) -> dict[str, Serving]:
    """Servers of every transport that write this text, with the id of the call for ID, in answer to it."""

    def body(message: Message, content_type: str = "application/json", frame: str = "{}") -> Answer:
        text = frame.replace("{}", line.replace("ID", str(message["id"])))
        return Answer(200, text.encode("utf-8", "surrogatepass"), {"content-type": content_type})

    return {
        "stdio": process({"do": "write", "line": line}),
        "HTTP": endpoint(body),
        "events": endpoint(lambda message: body(message, "text/event-stream", "event: message\ndata: {}\n\n")),
        "SSE": stream(body),
    }


def refusing(reaction: Reaction) -> Serving:
    """An endpoint that reacts like this to whatever it is asked first."""

    @asynccontextmanager
    async def served(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            server.on = dict.fromkeys(("server/discover", "initialize"), reaction)
            yield _bad(server)

    return served


def _bad(server: FakeEndpoint, kind: HttpKind = HttpKind.STREAMABLE) -> Bad:
    def sent() -> int:
        return sum(message.get("params", {}).get("name") == "badly" for _, message in server.seen)

    return Bad(ServerConfig("bad", HttpTransport(server.url, kind=kind)), sent)


def _of(message: Message, badly: Reaction | Callable[[Message], Reaction]) -> Reaction:
    if message["params"]["name"] == "well":
        return result(message, SOUND)
    return badly(message) if callable(badly) else badly


def forgetful(said: Answer) -> Serving:
    """An endpoint with sessions that has forgotten the first one, and answers every request of it like this."""

    @asynccontextmanager
    async def served(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            server.speak_legacy("badly", "well")

            def forgets(message: Message) -> Reaction:
                if server.seen[-1][0].get("mcp-session-id") == "s2":
                    return result(message, SOUND)
                server.speak_legacy("badly", "well", session="s2")
                return said

            server.on["tools/call"] = forgets
            yield _bad(server)

    return served


def busy(said: Answer) -> Serving:
    """An endpoint that answers the first call like this, and the next ones well."""

    @asynccontextmanager
    async def served(_folder: Path) -> AsyncIterator[Bad]:
        answers = [said]

        def react(message: Message) -> Reaction:
            return answers.pop() if answers else result(message, SOUND)

        async with endpoint(react)(_folder) as server:
            yield server

    return served


@asynccontextmanager
async def killed(_folder: Path) -> AsyncIterator[Bad]:
    """An endpoint that is killed by the call."""
    ending: list[asyncio.Task[None]] = []
    async with FakeEndpoint() as server:
        server.speak_modern("badly", "well")

        def dies(_message: Message) -> Reaction:
            ending.append(asyncio.create_task(server.stop()))
            return Silence()

        server.on["tools/call"] = dies
        yield _bad(server)
        await asyncio.gather(*ending)


def stream(badly: Reaction | Callable[[Message], Reaction] | None) -> Serving:
    """A server of HTTP+SSE; without a reaction it cuts its stream."""

    @asynccontextmanager
    async def served(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEventStream() as server:
            server.speak_legacy("badly", "well")

            def cuts(_message: Message) -> Reaction:
                server.cut()
                return Silence()

            server.on["tools/call"] = lambda message: _of(message, badly or cuts)
            yield _bad(server, HttpKind.SSE)

    return served
