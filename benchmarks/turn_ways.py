"""Ways to run a turn: the product, a hand-written loop on the vendors' clients, raw HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from mcp import Client, types
from openai import AsyncOpenAI

from benchmarks.turn_services import ANSWER, ARGUMENTS, MODEL, TOOL, Services
from bot.app.models import select_model
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_runtime
from bot.domain.approvals import ApprovalPolicy
from bot.domain.turns import TurnStatus, TurnView
from bot.engine.engine import Engine
from bot.platforms.console.console import ConsoleSurface
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.turn_tracker import TurnTracker
from bot.settings import Settings, read_settings

QUESTION = "Please say it again."
LIMIT = 300.0


class Way(Protocol):
    """One way to run turns."""

    async def turn(self, conversation: int) -> float:
        """Run the next turn of a conversation. Return the seconds to the first visible text."""
        ...


Opened = Callable[[Services], AbstractAsyncContextManager[Way]]
"""Function that opens a way on these services."""


# the product


class Nowhere:
    """Drawing without output."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._ends: dict[str, asyncio.Future[TurnView]] = defaultdict(asyncio.Future)

    async def end(self, turn_id: str) -> tuple[TurnView, float]:
        """Return the last view of a turn, and the time at which its answer began."""
        view = await self._ends[turn_id]
        del self._ends[turn_id]
        return view, self._first.pop(turn_id)

    def append_own(self, view: TurnView) -> None:
        if view.streaming or view.turn.status.ended:
            self._first.setdefault(view.turn.id, time.perf_counter())
        if view.turn.status.ended:
            self._ends[view.turn.id].set_result(view)

    def append_foreign(self, view: TurnView, heading: str) -> None:
        self.append_own(view)

    def notice(self, text: str) -> None:
        pass


class EveryConversation(ConsoleSurface):
    """Surface that shows all conversations of its user, not only those that a terminal has open."""

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        return (self._user.key_prefix,)


class Product:
    """The whole engine."""

    def __init__(self, engine: Engine, person: LocalUser, drawing: Nowhere) -> None:
        self.engine = engine
        self.person = person
        self._drawing = drawing

    async def turn(self, conversation: int) -> float:
        began = time.perf_counter()
        # Not through the turn tracker, which accepts one message at a time.
        receipt = await self.engine.receive(self.person.new_message(QUESTION, str(conversation)))
        async with asyncio.timeout(LIMIT):
            view, first = await self._drawing.end(receipt.turn_id)
        assert view.turn.status is TurnStatus.DONE, view.turn.failure
        return first - began


@asynccontextmanager
async def product(
    services: Services,
    *,
    folder: Path,
    database: str = "",
    policy: ApprovalPolicy = ApprovalPolicy.ALWAYS_ALLOW,
    runs_turns: bool = True,
) -> AsyncIterator[Product]:
    """Open the product with its files in a folder, on a SQLite file there or on another database. Without `runs_turns`
    it only receives messages and decides approvals: another process on the database runs the turns.
    """
    settings = _settings(folder, database or f"sqlite:///{folder / 'bench.db'}", services, policy)
    person, drawing = LocalUser("bench"), Nowhere()
    surface = EveryConversation(person, TurnTracker(), drawing)
    files, choice = read_operator_files(settings), select_model(settings)
    async with open_runtime(settings, files, choice, [surface] if runs_turns else []) as runtime:
        async with asyncio.timeout(LIMIT):
            while not any(tool.original_name == TOOL for tool in (await runtime.services.toolbox.offer()).tools):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        yield Product(runtime.engine, person, drawing)


def _settings(folder: Path, database: str, services: Services, policy: ApprovalPolicy) -> Settings:
    servers = {"bench": {"url": services.tools}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    (folder / "prompt.md").write_text("")
    return read_settings(
        max_running_turns_per_user=1000,  # one user asks all questions
        max_queued_turns_per_user=100_000,
        database_url=database,
        bot_model=f"openai:{MODEL}",
        openai_api_key="sk-bench",
        openai_base_url=services.model,
        openai_api="chat",
        mcp_servers_file=folder / "servers.json",
        policy_file=folder / "policy.toml",
        system_prompt_file=folder / "prompt.md",
        mcp_approval_default_policy=policy,
    )


# a loop on the vendors' clients


class ClientLoop:
    """Simple loop that stores and displays nothing. Its clients stay open."""

    def __init__(self, openai: AsyncOpenAI, mcp: Client, tools: list[Any]) -> None:
        self._openai = openai
        self._mcp = mcp
        self._tools = tools
        self._said: dict[int, list[Any]] = defaultdict(list)

    async def turn(self, conversation: int) -> float:
        began = time.perf_counter()
        said = self._said[conversation]
        messages = [*said, {"role": "user", "content": QUESTION}]
        while True:
            text, calls, first = await self._reply(messages)
            if not calls:
                break
            messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
            for call in calls:
                function = call["function"]
                answer = await self._mcp.call_tool(function["name"], json.loads(function["arguments"]))
                assert isinstance(answer, types.CallToolResult)
                content = "".join(each.text for each in answer.content if isinstance(each, types.TextContent))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        assert text == ANSWER
        said += [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": text}]
        return first - began

    async def _reply(self, messages: list[Any]) -> tuple[str, list[Any], float]:
        text, first = "", 0.0
        calls: dict[int, dict[str, Any]] = {}
        stream = await self._openai.chat.completions.create(
            model=MODEL, messages=messages, tools=self._tools, stream=True, stream_options={"include_usage": True}
        )
        async with stream:
            async for chunk in stream:
                for choice in chunk.choices:
                    if choice.delta.content:
                        first = first or time.perf_counter()
                        text += choice.delta.content
                    for each in choice.delta.tool_calls or ():
                        call = calls.setdefault(
                            each.index, {"type": "function", "function": {"name": "", "arguments": ""}}
                        )
                        if each.id:
                            call["id"] = each.id
                        if each.function is not None:
                            call["function"]["name"] += each.function.name or ""
                            call["function"]["arguments"] += each.function.arguments or ""
        return text, list(calls.values()), first


@asynccontextmanager
async def client_loop(services: Services) -> AsyncIterator[Way]:
    """Open the loop's clients."""
    async with AsyncOpenAI(api_key="sk-bench", base_url=services.model) as openai, Client(services.tools) as mcp:
        listed = await mcp.list_tools()
        tools = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in listed.tools
        ]
        yield ClientLoop(openai, mcp, tools)


# raw HTTP


class RawHttp:
    """Minimum cost of the same exchange: raw bytes, hardly parsed."""

    def __init__(self, services: Services) -> None:
        self._model = _RawClient(services.model + "/chat/completions", {"authorization": "Bearer sk-bench"})
        self._tools = _RawClient(services.tools, {"accept": "application/json, text/event-stream"})
        asked = [{"role": "user", "content": QUESTION}]
        function = {"name": TOOL, "arguments": json.dumps(ARGUMENTS)}
        answered = [
            {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c1", "content": ARGUMENTS["text"]},
        ]
        self._first, self._second = self._completion(asked), self._completion([*asked, *answered])
        self._ids = itertools.count(1)

    def _completion(self, messages: list[Any]) -> bytes:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        tools = [{"type": "function", "function": {"name": TOOL, "parameters": schema}}]
        return self._model.request({"model": MODEL, "stream": True, "messages": messages, "tools": tools})

    async def open(self) -> None:
        """Begin a session with the MCP server."""
        client = {"name": "bench", "version": "1"}
        params: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        greeting = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        _, head = await self._tools.exchange(self._tools.request(greeting))
        lines = (line.partition(b": ") for line in head.split(b"\r\n"))
        session = next(value for name, _, value in lines if name.lower() == b"mcp-session-id")
        self._tools.headers["mcp-session-id"] = session.decode()
        await self._tools.exchange(self._tools.request({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    async def turn(self, conversation: int) -> float:
        began = time.perf_counter()
        await self._model.exchange(self._first)
        params = {"name": TOOL, "arguments": ARGUMENTS}
        call = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        await self._tools.exchange(self._tools.request(call))
        first, _ = await self._model.exchange(self._second)
        return first - began

    async def close(self) -> None:
        await self._model.close()
        await self._tools.close()


class _RawClient:
    """Connections to one address, kept open."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        address, _, self._path = url.removeprefix("http://").partition("/")
        host, _, port = address.partition(":")
        self._place = (host, int(port))
        self.headers = {"host": address, "content-type": "application/json", **headers}
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def request(self, body: dict[str, Any]) -> bytes:
        content = json.dumps(body).encode()
        lines = [f"POST /{self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\r\n".join([*lines, f"content-length: {len(content)}", "", ""]).encode() + content

    async def exchange(self, request: bytes) -> tuple[float, bytes]:
        """Send a request. Return the time of the first byte of the answer's body, and the answer's head."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._place)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        first = time.perf_counter()
        if b"chunked" in head:
            tail = await reader.read(65536)
            first = time.perf_counter()
            while not tail.endswith(b"0\r\n\r\n"):
                tail = tail[-8:] + await reader.read(65536)
        self._idle.append((reader, writer))
        return first, head

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def raw_http(services: Services) -> AsyncIterator[Way]:
    """Open raw HTTP."""
    way = RawHttp(services)
    try:
        async with asyncio.timeout(LIMIT):
            await way.open()
        yield way
    finally:
        await way.close()
