"""Servers for the rows of `faults`. Each runs during a block, is called `bad`, and has the tools `badly` and `well`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
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
    """A faulty server. `sent` counts the calls that it received, without those of `well`."""

    config: ServerConfig
    sent: Callable[[], int]


Serving = Callable[[Path], AbstractAsyncContextManager[Bad]]


def tool_definition(name: str, **fields: Any) -> dict[str, Any]:
    """Return a tool's definition for a listing."""
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


BOTH = [tool_definition("badly"), tool_definition("well")]


def nested_schema(levels: int) -> dict[str, Any]:
    """Return a JSON schema with `levels` levels."""
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(levels // 2):
        inner = {"type": "object", "properties": {"a": inner}}
    return inner


def says(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an action of a scripted server that answers with this content."""
    return {"result": {"content": list(content), **fields}}


def process(
    badly: dict[str, Any] | None = None,
    tools: list[Any] | None = None,
    *,
    connect_timeout: float | None = None,
    **script: Any,
) -> Serving:
    """Return a server that is a child process. `badly` scripts the call of that tool, `tools` are listed."""

    @asynccontextmanager
    async def open_server(folder: Path) -> AsyncIterator[Bad]:
        calls = {"badly": badly or {"result": SOUND}, "well": {"result": SOUND}}
        listing = BOTH if tools is None else tools
        record = folder / "record"
        told = {"listings": [[{"tools": listing}]], "calls": calls, "record": str(record), **script}
        config = raw("bad", script=told, list_timeout=2.0, connect_timeout=connect_timeout)

        def call_count() -> int:
            messages = record.read_text()
            return messages.count('"method": "tools/call"') - messages.count('"name": "well"')

        yield Bad(config, call_count)

    return open_server


@asynccontextmanager
async def mute(_folder: Path) -> AsyncIterator[Bad]:
    """Yield a child process that never answers."""
    yield Bad(raw("bad", script={"probe": "silence"}, connect_timeout=0.5), lambda: 0)


def endpoint(badly: Reaction | Callable[[Message], Reaction], *tools: str, legacy: bool = False) -> Serving:
    """Return a streamable HTTP endpoint with this reaction to calls of `badly`, or of `tools`."""

    @asynccontextmanager
    async def open_server(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            (server.speak_legacy if legacy else server.speak_modern)(*(tools or ("badly",)), "well")
            server.on["tools/call"] = lambda message: _of(message, badly)
            yield _bad(server)

    return open_server


def offering(tools: str) -> Serving:
    """Return a streamable HTTP endpoint whose list of tools is this JSON."""

    @asynccontextmanager
    async def open_server(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            server.speak_modern()
            line = f'{{"jsonrpc":"2.0","id":ID,"result":{{"tools":{tools}}}}}'
            server.on["tools/list"] = lambda message: Answer(200, line.replace("ID", str(message["id"])).encode())
            server.on["tools/call"] = lambda message: result(message, SOUND)
            yield _bad(server)

    return open_server


TRANSPORTS = ("stdio", "HTTP", "events", "SSE")


def writing(lines: Mapping[str, str], transport: str) -> Serving:
    """Return a server that answers calls with these texts, by tool, with the id of the call for ID.

    `HTTP` answers with a body, `events` with a stream, both over streamable HTTP.
    """
    if transport == "stdio":
        actions = {name: {"do": "write", "line": line} for name, line in lines.items()}
        return process(
            tools=[*map(tool_definition, lines), tool_definition("well")], calls={**actions, "well": {"result": SOUND}}
        )

    def write(message: Message) -> Answer:
        text = lines[message["params"]["name"]].replace("ID", str(message["id"]))
        if transport != "events":
            return Answer(200, text.encode("utf-8", "surrogatepass"))
        frame = f"event: message\ndata: {text}\n\n"
        return Answer(200, frame.encode("utf-8", "surrogatepass"), {"content-type": "text/event-stream"})

    return stream(write, *lines) if transport == "SSE" else endpoint(write, *lines)


def refusing(reaction: Reaction) -> Serving:
    """Return an endpoint with this reaction to the first request of either era."""

    @asynccontextmanager
    async def open_server(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            server.on = dict.fromkeys(("server/discover", "initialize"), reaction)
            yield _bad(server)

    return open_server


def _bad(server: FakeEndpoint, kind: HttpKind = HttpKind.STREAMABLE) -> Bad:
    def call_count() -> int:
        calls = [message["params"]["name"] for _, message in server.seen if message.get("method") == "tools/call"]
        return len(calls) - calls.count("well")

    return Bad(ServerConfig("bad", HttpTransport(server.url, kind=kind)), call_count)


def _of(message: Message, badly: Reaction | Callable[[Message], Reaction]) -> Reaction:
    if message["params"]["name"] == "well":
        return result(message, SOUND)
    return badly(message) if callable(badly) else badly


def forgetful(said: Answer) -> Serving:
    """Return an endpoint that has lost its first session, and gives this answer to every request of it."""

    @asynccontextmanager
    async def open_server(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEndpoint() as server:
            server.speak_legacy("badly", "well")

            def forgets(message: Message) -> Reaction:
                if server.seen[-1][0].get("mcp-session-id") == "s2":
                    return result(message, SOUND)
                server.speak_legacy("badly", "well", session="s2")
                return said

            server.on["tools/call"] = forgets
            yield _bad(server)

    return open_server


def busy(said: Answer) -> Serving:
    """Return an endpoint with this answer to the first call. Later calls succeed."""

    @asynccontextmanager
    async def open_server(_folder: Path) -> AsyncIterator[Bad]:
        answers = [said]

        def react(message: Message) -> Reaction:
            return answers.pop() if answers else result(message, SOUND)

        async with endpoint(react)(_folder) as server:
            yield server

    return open_server


@asynccontextmanager
async def open_dying_endpoint(_folder: Path) -> AsyncIterator[Bad]:
    """Yield an endpoint that stops when it receives a call."""
    ending: list[asyncio.Task[None]] = []
    async with FakeEndpoint() as server:
        server.speak_modern("badly", "well")

        def dies(_message: Message) -> Reaction:
            ending.append(asyncio.create_task(server.stop()))
            return Silence()

        server.on["tools/call"] = dies
        yield _bad(server)
        await asyncio.gather(*ending)


def stream(badly: Reaction | Callable[[Message], Reaction] | None, *tools: str) -> Serving:
    """Return a server of HTTP+SSE with this reaction to calls of `badly`, or of `tools`.

    With None as the reaction, it cuts its stream.
    """

    @asynccontextmanager
    async def open_server(_folder: Path) -> AsyncIterator[Bad]:
        async with FakeEventStream() as server:
            server.speak_legacy(*(tools or ("badly",)), "well")

            def cuts(_message: Message) -> Reaction:
                server.cut()
                return Silence()

            server.on["tools/call"] = lambda message: _of(message, badly or cuts)
            yield _bad(server, HttpKind.SSE)

    return open_server
