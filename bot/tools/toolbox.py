"""All MCP servers as one toolbox: the ports `Toolbox` and `ServerAdmin`.

Built by the composition root. It connects to every server at once, hands out what is there, and routes each call to
the server its tool belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from bot.domain.messages import ToolCall
from bot.domain.servers import ServerConfig, ServerState, ServerStatus, StdioTransport
from bot.domain.tools import NotSent, Returned, ServerGuidance, Tool, ToolOutcome, ToolSet, digest
from bot.errors import NotFound
from bot.ports import CallContext
from bot.tools.arguments import misfits
from bot.tools.connection import Connection, Surroundings
from bot.tools.library_logs import contain_library_logs
from bot.tools.pacing import Pacing
from bot.tools.redaction import Redaction, secrets_of, shown
from bot.tools.results import failed_result
from bot.tools.turnstile import Turnstile

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Servers that start at the same moment."""


class McpToolbox:
    """The tools of all configured servers.

    `problems` are servers that cannot be used as configured, with a sentence each. `first_wait` is how long, in
    seconds from the start, an offer waits for servers that connect for the first time. `secrets` are never shown.
    With `enabled=False` nothing is started and nothing is offered.
    """

    def __init__(
        self,
        configs: Sequence[ServerConfig],
        problems: Sequence[tuple[str, str]] = (),
        *,
        enabled: bool = True,
        first_wait: float = 10.0,
        secrets: Iterable[str] = (),
        pacing: Pacing | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._enabled = enabled
        self._first_wait = first_wait
        self._first_wait_ends = 0.0
        used = sorted(configs, key=lambda config: config.name) if enabled else []
        redact = Redaction((*secrets, *(secret for config in used for secret in secrets_of(config))))
        self._redact = redact
        self._problems = {name: redact(sentence) for name, sentence in problems} if enabled else {}
        pacing = pacing or Pacing()
        shared = Surroundings(Turnstile(_AT_ONCE, pacing.crowding), redact, pacing, chance)
        self._connections = {config.name: Connection(config, shared) for config in used}

    @property
    def enabled(self) -> bool:
        """False if MCP is switched off altogether."""
        return self._enabled

    async def start(self) -> None:
        """Begin to connect to every server, and return at once."""
        contain_library_logs()
        self._first_wait_ends = asyncio.get_running_loop().time() + self._first_wait
        for connection in self._connections.values():
            connection.start()

    async def close(self, limit: float = 15.0) -> None:
        """End all connections and processes side by side, gently for `limit` seconds. Later calls are NotSent."""
        await asyncio.gather(*(connection.close(limit) for connection in self._connections.values()))

    async def settled(self) -> None:
        """Wait until every server has been tried once, but only in the first seconds after the start."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._first_wait_ends):
                for connection in self._connections.values():
                    await connection.tried()

    async def offer(self) -> ToolSet:
        """What may be used now: the tools of all connected servers by name, and a sentence for each server that is
        not there. Only the first seconds after the start are waited for.
        """
        await self.settled()
        tools = self._offered()
        return ToolSet(
            tools=tools,
            guidance=tuple(self._guidance()),
            absent=(*(self._problems[name] for name in sorted(self._problems)), *self._absent()),
            version=digest([[tool.name, tool.definition, tool.trusted] for tool in tools]),
        )

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. Arguments that do not fit its schema are told to the model and never sent."""
        connection = self._connections.get(tool.server)
        if connection is None:
            return NotSent(f"There is no MCP server {tool.server}.")
        wrong = misfits(tool.input_schema, call.arguments)
        if wrong:
            listed = "\n".join(f"- {each}" for each in wrong)
            text = f"The arguments do not fit the tool, so nothing was sent. Correct them and call it again:\n{listed}"
            return Returned(failed_result(call.id, text))
        return await connection.call(tool, call, context)

    def servers(self) -> Sequence[ServerState]:
        """Every configured server, by name and without its secrets. One whose configuration cannot be used has no
        command and no address.
        """
        unusable = (
            ServerState(ServerConfig(name, StdioTransport("")), ServerStatus.FAILED, problem)
            for name, problem in self._problems.items()
            if name not in self._connections
        )
        states = (
            replace(connection.state, config=shown(connection.config, self._redact))
            for connection in self._connections.values()
        )
        return sorted((*states, *unusable), key=lambda state: state.config.name)

    def tools(self, server: str) -> Sequence[Tool]:
        """The tools of one server as they are offered. Raises NotFound."""
        if server in self._connections:
            return [tool for tool in self._offered() if tool.server == server]
        if server in self._problems:
            return []
        raise NotFound(f"There is no MCP server {server}.", "List the servers to see their names.")

    def _offered(self) -> tuple[Tool, ...]:
        """By name, so that the same tools give the same text. A name that two servers manage to have is the first
        server's alone.
        """
        offered: dict[str, Tool] = {}
        for connection in self._connections.values():
            for tool in connection.tools:
                if offered.setdefault(tool.name, tool) is not tool:
                    log.debug("the tools of %s and %s have one name", offered[tool.name].server, tool.server)
        return tuple(offered[name] for name in sorted(offered))

    def _guidance(self) -> Iterable[ServerGuidance]:
        for connection in self._connections.values():
            config = connection.config
            if connection.state.status is not ServerStatus.CONNECTED:
                continue
            wanted = (tool.name for tool in connection.tools if tool.original_name == config.auto_context_tool)
            guidance = ServerGuidance(
                config.name, config.system_instruction, config.response_instruction, next(wanted, "")
            )
            if guidance != ServerGuidance(config.name):
                yield guidance

    def _absent(self) -> Iterable[str]:
        for connection in self._connections.values():
            state = connection.state
            match state.status:
                case ServerStatus.CONNECTED:
                    continue
                case ServerStatus.CLOSED:
                    yield f"Server {state.config.name} is closed, because the program is ending."
                case _:
                    yield (
                        state.problem or f"Server {state.config.name} is still connecting. Fix: ask again in a moment."
                    )
