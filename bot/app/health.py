"""How this process stands: asked by probes over HTTP and by people with `/mcp health`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from bot.domain.health import Health, ListenerStatus, ServersHealth
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.errors import DatabaseError, DatabaseUnwritable
from bot.ports import Listener

log = logging.getLogger(__name__)

DATABASE_SECONDS = 2.0
FRESH_SECONDS = 1.0
"""However often somebody asks, the database is asked no more than that often."""
_IN_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)


@dataclass(frozen=True, slots=True)
class _DatabaseHealth:
    """What the database said last."""

    answers: bool
    unwritable: str = ""
    fix: str = ""


class HealthCheck:
    """Looks. `ask` writes something small to the database (`Database.check_writable`), `servers` says how MCP servers
    stand; `watch` adds what receives.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[object]],
        servers: Callable[[], Iterable[ServerSnapshot]],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ask = ask
        self._servers = servers
        self._clock = clock
        self._listeners: dict[str, Listener] = {}
        self._checkpoints_fail: Callable[[], bool] = lambda: False
        self._asking = asyncio.Lock()
        self._answer = _DatabaseHealth(answers=False)
        self._asked_at = -FRESH_SECONDS

    def watch(self, platform: str, listener: Listener) -> None:
        """This platform is received here."""
        self._listeners[platform] = listener

    def watch_checkpoints(self, fail: Callable[[], bool]) -> None:
        """Ask `fail` whether checkpoints of the audit cannot be written."""
        self._checkpoints_fail = fail

    async def look(self) -> Health:
        """How everything stands now. Takes a few seconds at most, and never raises."""
        platforms: dict[str, ListenerStatus] = {name: await each.listening() for name, each in self._listeners.items()}
        database = await self._database_health()
        return Health(
            database.answers,
            platforms,
            _counted(self._servers()),
            unwritable=database.unwritable,
            fix=database.fix,
            checkpoints_fail=self._checkpoints_fail(),
        )

    async def _database_health(self) -> _DatabaseHealth:
        async with self._asking:
            if self._clock() - self._asked_at >= FRESH_SECONDS:
                self._answer = await self._asked_now()
                self._asked_at = self._clock()
            return self._answer

    async def _asked_now(self) -> _DatabaseHealth:
        try:
            async with asyncio.timeout(DATABASE_SECONDS):
                await self._ask()
        except DatabaseUnwritable as error:
            return _DatabaseHealth(answers=True, unwritable=error.reason, fix=error.fix)
        except (DatabaseError, TimeoutError) as error:
            log.debug("the database was asked how it is: %s", error or "no answer")
            return _DatabaseHealth(answers=False)
        return _DatabaseHealth(answers=True)


def _counted(states: Iterable[ServerSnapshot]) -> ServersHealth:
    stands = [state.status for state in states]
    return ServersHealth(
        total=len(stands),
        connected=stands.count(ServerStatus.CONNECTED),
        errors=sum(status in _IN_TROUBLE for status in stands),
    )
