"""Dependencies of all token providers of a process. Owns the refresh tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from bot.domain.servers import ServerConfig
from bot.errors import ServerTrouble
from bot.logs import out_of_context
from bot.mcp.addresses import AllowedTargets, Resolve, check_definition, resolve_host
from bot.mcp.errors import InvalidDefinition
from bot.mcp.oauth.http import AuthServerClient, open_client, open_guarded_transport
from bot.mcp.redaction import KnownSecrets
from bot.ports import Leases, SignInStore


@dataclass(frozen=True, slots=True)
class OAuthDependencies:
    """Shared dependencies. `clock` is in epoch seconds, `elapsed` a monotonic clock in seconds. `pause` sleeps for
    a number of seconds.
    """

    store: SignInStore
    leases: Leases
    secrets: KnownSecrets
    allowances: AllowedTargets = AllowedTargets()
    resolve: Resolve = resolve_host
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def errand(self, config: ServerConfig) -> AbstractAsyncContextManager[AuthServerClient]:
        """Return a client for the authorization server of this server. Raises ServerTrouble if the operator's
        settings forbid the server.
        """
        try:
            check_definition(config, self.allowances)
        except InvalidDefinition as unusable:
            raise ServerTrouble(f"Server {config.name}: {unusable.cause}", unusable.fix) from unusable
        return open_client(open_guarded_transport(config, self.allowances, self.resolve))

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that outlives its caller. Its exceptions are raised to the tasks that await it."""
        with out_of_context():
            task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self, limit: float) -> None:
        """Wait for running tasks, at most `limit` seconds, because new tokens must be stored."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=limit)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Retrieve the exception, because the task may have no waiter.
            task.exception()
