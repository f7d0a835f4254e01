"""What all bearers of a process share: where sign-ins are kept, who may renew one, how it is asked for, the clocks.

Owns the tasks in which sign-ins are renewed.
"""

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
    """`clock` is in epoch seconds, for what expires; `elapsed` in seconds of any beginning, for how long things take.
    `pause` waits so many seconds.
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
        """Return a client for the authorization server of this server. Raises ServerTrouble if the operator's settings
        keep the server out.
        """
        try:
            check_definition(config, self.allowances)
        except InvalidDefinition as unusable:
            raise ServerTrouble(f"Server {config.name}: {unusable.cause}", unusable.fix) from unusable
        return open_client(open_guarded_transport(config, self.allowances, self.resolve))

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that outlives whoever began it. What it raises is for those who wait for it."""
        with out_of_context():
            task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self, limit: float) -> None:
        """Let what is under way come to its end, for so many seconds: tokens that were given out must be kept."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=limit)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Looked at here, so that nobody has to: whoever waits gets it too.
            task.exception()
