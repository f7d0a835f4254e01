"""Ways to run a turn: the product, a hand-written loop on the vendors' clients, raw HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from mcp import Client, StdioServerParameters, types
from openai import AsyncOpenAI

from benchmarks.turn_services import ANSWER, ARGUMENTS, MODEL, TOOL, TOOLS_PROGRAM
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


Opened = Callable[[str], AbstractAsyncContextManager[Way]]
"""Function that opens a way with the model service at an address."""


# the product


class Nowhere:
    """Console surface without output. `first` has the times at which answers began."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}

    def append_own(self, view: TurnView) -> None:
        if view.streaming or view.turn.status.ended:
            self.first.setdefault(view.turn.id, time.perf_counter())

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

    def __init__(self, engine: Engine, person: LocalUser, watch: TurnTracker, drawing: Nowhere) -> None:
        self._engine = engine
        self._person = person
        self._watch = watch
        self._drawing = drawing

    async def turn(self, conversation: int) -> float:
        began = time.perf_counter()
        # Not through the turn tracker, which accepts one message at a time.
        receipt = await self._engine.receive(self._person.new_message(QUESTION, str(conversation)))
        self._watch.track(receipt.turn_id)
        async with asyncio.timeout(LIMIT):
            view = await self._watch.end_turn(receipt.turn_id, self._engine)
        assert view.turn.status is TurnStatus.DONE, view.turn.failure
        return self._drawing.first.pop(receipt.turn_id) - began


@asynccontextmanager
async def product(model: str, *, folder: Path, database: str = "") -> AsyncIterator[Way]:
    """Open the product with its files in a folder, on a SQLite file there or on another database."""
    settings = _settings(folder, database or f"sqlite:///{folder / 'bench.db'}", model)
    person, watch, drawing = LocalUser("bench"), TurnTracker(), Nowhere()
    surface = EveryConversation(person, watch, drawing)
    files, choice = read_operator_files(settings), select_model(settings)
    async with open_runtime(settings, files, choice, [surface]) as runtime:
        async with asyncio.timeout(LIMIT):
            while not any(tool.original_name == TOOL for tool in (await runtime.services.toolbox.offer()).tools):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
        yield Product(runtime.engine, person, watch, drawing)


def _settings(folder: Path, database: str, model: str) -> Settings:
    command, *args = TOOLS_PROGRAM
    servers = {"bench": {"command": command, "args": args, "cwd": str(Path.cwd())}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    (folder / "prompt.md").write_text("")
    return read_settings(
        max_running_turns_per_user=1000,  # one user asks all questions
        max_queued_turns_per_user=100_000,
        database_url=database,
        bot_model=f"openai:{MODEL}",
        openai_api_key="sk-bench",
        openai_base_url=model,
        openai_api="chat",
        mcp_servers_file=folder / "servers.json",
        policy_file=folder / "policy.toml",
        system_prompt_file=folder / "prompt.md",
        mcp_approval_default_policy=ApprovalPolicy.ALWAYS_ALLOW,
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
async def client_loop(model: str) -> AsyncIterator[Way]:
    """Open the loop's clients."""
    command, *args = TOOLS_PROGRAM
    async with (
        AsyncOpenAI(api_key="sk-bench", base_url=model) as openai,
        Client(StdioServerParameters(command=command, args=args, cwd=str(Path.cwd()))) as mcp,
    ):
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

    def __init__(self, address: str, tools: _RawTools) -> None:
        host, _, port = address.removeprefix("http://").partition("/")[0].partition(":")
        self._place = (host, int(port))
        self._tools = tools
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        asked = [{"role": "user", "content": QUESTION}]
        function = {"name": TOOL, "arguments": json.dumps(ARGUMENTS)}
        answered = [
            {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c1", "content": ARGUMENTS["text"]},
        ]
        self._first, self._second = self._request(asked), self._request([*asked, *answered])

    def _request(self, messages: list[Any]) -> bytes:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        tools = [{"type": "function", "function": {"name": TOOL, "parameters": schema}}]
        body = json.dumps({"model": MODEL, "stream": True, "messages": messages, "tools": tools}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._place[0]}\r\nauthorization: Bearer sk-bench\r\n"
        return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    async def turn(self, conversation: int) -> float:
        began = time.perf_counter()
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._place)
        await self._exchange(reader, writer, self._first)
        await self._tools.call()
        first = await self._exchange(reader, writer, self._second)
        self._idle.append((reader, writer))
        return first - began

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> float:
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        tail, first = await reader.read(65536), time.perf_counter()
        while not tail.endswith(b"0\r\n\r\n"):
            tail = tail[-8:] + await reader.read(65536)
        return first

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()


class _RawTools:
    """JSON-RPC lines to the MCP server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._out, self._in = process.stdin, process.stdout
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def read(self) -> None:
        while line := await self._in.readline():
            answer = json.loads(line)
            if (waiting := self._waiting.pop(answer.get("id", 0), None)) is not None:
                waiting.set_result(None)

    async def greet(self) -> None:
        client = {"name": "bench", "version": "1"}
        await self._ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self._out.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')

    async def call(self) -> None:
        await self._ask("tools/call", {"name": TOOL, "arguments": ARGUMENTS})

    async def _ask(self, method: str, params: dict[str, Any]) -> None:
        n = next(self._ids)
        self._waiting[n] = waiting = asyncio.get_running_loop().create_future()
        request = {"jsonrpc": "2.0", "id": n, "method": method, "params": params}
        self._out.write(json.dumps(request).encode() + b"\n")
        await waiting


@asynccontextmanager
async def raw_http(model: str) -> AsyncIterator[Way]:
    """Open raw HTTP and raw JSON-RPC."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*TOOLS_PROGRAM, stdin=pipe, stdout=pipe)
    tools = _RawTools(process)
    reading = asyncio.create_task(tools.read())
    way = RawHttp(model, tools)
    try:
        async with asyncio.timeout(LIMIT):
            await tools.greet()
        yield way
    finally:
        await way.close()
        process.terminate()
        await process.wait()
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
