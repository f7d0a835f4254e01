"""One server: a task that owns its connection, and calls from everybody else.

The MCP library's client is opened and closed in the owner's task and nowhere else; it never reconnects by itself, so
the owner makes a new one whenever the old one is lost. States: pending, connecting, connected, failed, closed. Called
by `toolbox`; knows one server and no other.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio
from mcp import Client, MCPError, types
from mcp.client.subscriptions import SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

import bot
from bot.domain.messages import ToolCall
from bot.domain.servers import ServerConfig, ServerState, ServerStatus
from bot.domain.tools import NotSent, Tool, ToolOutcome
from bot.ports import CallContext
from bot.tools import attempts, calls
from bot.tools.catalogue import list_tools
from bot.tools.last_words import LastWords
from bot.tools.line import Line
from bot.tools.pacing import Pacing
from bot.tools.problems import connect_failure, connection_lost, not_in_time
from bot.tools.redaction import Redaction
from bot.tools.transports import opened
from bot.tools.turnstile import Turnstile

log = logging.getLogger(__name__)

_GOODBYE_SECONDS = 3.0
_FORCED_SECONDS = 8.0
"""The library takes up to six seconds to end a process that ignores both a closed input and SIGTERM."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all connections share: how many may be made at once, what is secret, how fast things go."""

    turnstile: Turnstile
    redact: Redaction = Redaction()
    pacing: Pacing = Pacing()
    chance: Callable[[], float] = random.random


class Connection:
    """The connection to one server, kept up until it is closed."""

    def __init__(self, config: ServerConfig, shared: Surroundings) -> None:
        self.config = config
        self._shared = shared
        self._state = ServerState(config, ServerStatus.PENDING)
        self._tools: tuple[Tool, ...] = ()
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._closing = asyncio.Event()
        self._line: Line | None = None
        self._scope: anyio.CancelScope | None = None
        self._owner: asyncio.Task[None] | None = None
        self._failed_tries = 0
        self._mode = "auto"

    @property
    def state(self) -> ServerState:
        """How the server stands now."""
        return self._state

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its tools while it is connected, in its own order."""
        return self._tools

    def start(self) -> None:
        """Begin to connect, and go on until closed."""
        if self._owner is None:
            self._owner = asyncio.create_task(self._own(), name=f"mcp:{self.config.name}")

    async def tried(self) -> None:
        """Wait until the first attempt to connect has ended one way or the other."""
        while self._state.status in (ServerStatus.PENDING, ServerStatus.CONNECTING) and not self._failed_tries:
            await self._changed.wait()

    async def close(self, limit: float) -> None:
        """End the connection and its process. Gentle for `limit` seconds, then not."""
        self._closing.set()
        self._hurry.set()
        if self._owner is None:
            self._become(ServerState(self.config, ServerStatus.CLOSED))
            return
        if self._line is not None and self._line.idle:
            self._line.interrupt()
        elif self._scope is not None:
            self._scope.cancel()
        # Never `wait_for` and never a second cancellation: both would leave the child process behind.
        done, _ = await asyncio.wait({self._owner}, timeout=limit)
        if not done and self._scope is not None:
            self._scope.cancel()
            done, _ = await asyncio.wait({self._owner}, timeout=_FORCED_SECONDS)
        if not done:
            log.error("the connection to MCP server %s does not end", self.config.name)

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. What never reached the server is sent once more if the connection comes back in time."""
        loop = asyncio.get_running_loop()
        limit = self.config.tool_timeout if context.deadline is None else context.deadline
        deadline = loop.time() + limit
        reason = ""
        for _ in range(2):
            line = await self._usable_line(min(self._shared.pacing.patience, deadline - loop.time()))
            left = deadline - loop.time()
            if line is None or line.client is None or left <= 0:
                break
            outcome = await calls.send(line.client, tool, call, context, limit=left, redact=self._shared.redact)
            if not isinstance(outcome, calls.Undelivered):
                return outcome
            reason = outcome.reason
            if outcome.gone:
                line.lose()
            else:
                line.doubt()
        return NotSent(self._state.problem or reason or f"Server {self.config.name} is not connected.")

    async def _usable_line(self, patience: float) -> Line | None:
        """The live connection, after a wait for one that is being made. A server that had failed is tried now."""
        tries = self._failed_tries

        def settled() -> bool:
            usable = self._line is not None and self._line.usable
            return usable or self._failed_tries > tries or self._closing.is_set()

        if not settled():
            self._hurry.set()

        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not settled():
                    await self._changed.wait()
        return self._line if self._line is not None and self._line.usable else None

    async def _own(self) -> None:
        try:
            await self._keep_up()
        finally:
            self._become(ServerState(self.config, ServerStatus.CLOSED))

    async def _keep_up(self) -> None:
        failures = 0
        while not self._closing.is_set():
            began = asyncio.get_running_loop().time()
            problem, worked = await self._connect_and_serve()
            if self._closing.is_set():
                return
            lived = asyncio.get_running_loop().time() - began
            failures = 1 if worked and lived >= self._shared.pacing.steady_after else failures + 1
            self._failed_tries += not worked
            self._become(ServerState(self.config, ServerStatus.FAILED, problem))
            await self._rest(self._pause(failures, worked=worked))

    def _pause(self, failures: int, *, worked: bool) -> float:
        pacing = self._shared.pacing
        if worked and failures == 1:
            return pacing.quick_pause
        return pacing.pause(failures - worked, self._shared.chance())

    async def _rest(self, pause: float) -> None:
        """Wait before the next try. A call that wants the server cuts it short, though not to nothing."""
        least = asyncio.get_running_loop().time() + min(pause, self._shared.pacing.nudge_after)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._hurry.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(least):
                await self._closing.wait()

    async def _connect_and_serve(self) -> tuple[str, bool]:
        """One connection from its beginning to its end: why it ended, and whether it had ever worked."""
        self._hurry.clear()
        words = LastWords(self.config.name, self._shared.redact)
        line = Line(self._shared.pacing.settle)
        error: BaseException | None = None
        with attempts.begin() as attempt:
            try:
                with anyio.CancelScope() as self._scope:
                    await self._live(line, words, self._scope)
            except BaseException as raised:
                if not isinstance(raised, Exception | BaseExceptionGroup):
                    raise
                log.debug("MCP server %s: %s", self.config.name, self._shared.redact(repr(raised)))
                error = raised
            finally:
                self._line = self._scope = None
        worked = line.client is not None
        # Some older servers die of the question that finds out the protocol: the next try does not ask it.
        died_asked = line.lost and not worked and self._mode == "auto"
        self._mode = "legacy" if died_asked or (worked and self._mode == "legacy") else "auto"
        if worked and (line.lost or error is None):
            problem = connection_lost(self.config, words.lines)
        elif error is None:
            problem = not_in_time(self.config, words.lines)
        else:
            problem = connect_failure(self.config, error, attempt, words.lines)
        return self._shared.redact(problem), worked

    async def _live(self, line: Line, words: LastWords, scope: anyio.CancelScope) -> None:
        async with self._shared.turnstile.passed() as make_room:
            self._become(replace(self._state, status=ServerStatus.CONNECTING))
            scope.deadline = anyio.current_time() + self.config.connect_timeout
            async with self._client(line, words) as client:
                tools = await self._listed(client, line)
                scope.deadline = math.inf
                make_room()
                line.client = client
                self._line = line
                self._publish(client, tools)
                try:
                    await self._serve(client, line)
                finally:
                    self._line = None
                    scope.deadline = anyio.current_time() + _GOODBYE_SECONDS

    def _client(self, line: Line, words: LastWords) -> Client:
        async def heard(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                line.mark_stale()

        return Client(
            opened(self.config, words, line.lose),
            message_handler=heard,
            client_info=types.Implementation(name="countersign", version=bot.__version__),
            mode=self._mode,
            cache=None,
        )

    async def _serve(self, client: Client, line: Line) -> None:
        """Keep the tools fresh until the connection is lost or to be closed."""
        async with anyio.create_task_group() as watchers:
            offered = client.server_capabilities.tools
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS and offered is not None and offered.list_changed:
                watchers.start_soon(self._follow, client, line)
            while not (line.lost or self._closing.is_set()):
                if line.stale or line.doubted:
                    with anyio.fail_after(self.config.connect_timeout):
                        self._publish(client, await self._listed(client, line))
                await line.news()
            watchers.cancel_scope.cancel()

    async def _follow(self, client: Client, line: Line) -> None:
        """Newer servers tell of changes on a stream of its own, which is opened again when it breaks. Nothing is
        replayed on it, so after a break the tools are fetched.
        """
        failures = 0
        while True:
            began = anyio.current_time()
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    if failures:
                        line.mark_stale()
                    async for _ in changes:
                        line.mark_stale()
            except (SubscriptionLost, TimeoutError):
                log.debug("MCP server %s: the stream of changes ended", self.config.name)
            except MCPError as error:
                log.debug("MCP server %s does not tell of changes: %s", self.config.name, error.message)
                if not line.lost and error.code != types.CONNECTION_CLOSED:
                    return
            line.doubt()
            steady = anyio.current_time() - began >= self._shared.pacing.steady_after
            failures = 1 if steady else failures + 1
            await anyio.sleep(self._shared.pacing.pause(failures, self._shared.chance()))

    async def _listed(self, client: Client, line: Line) -> tuple[Tool, ...]:
        line.list_begins()
        tools = await list_tools(client, self.config)
        line.list_ends()
        return tools

    def _publish(self, client: Client, tools: tuple[Tool, ...]) -> None:
        self._tools = tools
        wanted = self.config.auto_context_tool
        if wanted and all(tool.original_name != wanted for tool in tools):
            log.warning("MCP server %s has no tool %s for its auto_context_tool", self.config.name, wanted)
        info = client.server_info
        connected_at = self._state.connected_at if self._state.status is ServerStatus.CONNECTED else time.time()
        self._become(
            ServerState(
                self.config,
                ServerStatus.CONNECTED,
                protocol=client.protocol_version,
                server_version=info.version if info is not None else "",
                tool_count=len(tools),
                connected_at=connected_at,
            )
        )

    def _become(self, state: ServerState) -> None:
        before, self._state = self._state, state
        if state.status is not ServerStatus.CONNECTED:
            self._tools = ()
        if (before.status, before.problem, before.tool_count) != (state.status, state.problem, state.tool_count):
            self._tell(before, state)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _tell(self, before: ServerState, state: ServerState) -> None:
        match state.status:
            case ServerStatus.CONNECTED:
                log.info("MCP server %s: connected, %d tools, %s", state.config.name, state.tool_count, state.protocol)
            case ServerStatus.FAILED if state.problem != before.problem:
                log.warning("MCP server %s: %s", state.config.name, state.problem)
            case _:
                log.debug("MCP server %s: %s", state.config.name, state.status)
