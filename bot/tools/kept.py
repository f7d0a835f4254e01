"""The servers a toolbox keeps, and how they become others.

Called by `toolbox`. A server that stays as it is keeps its connection; one that has changed gets a new one, while the
old one takes its leave in a task that is owned here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bot.domain.pins import Review, first_pins, review
from bot.domain.servers import (
    ConnectPolicy,
    ServerConfig,
    ServerEntry,
    ServerState,
    ServerStatus,
    Standing,
)
from bot.domain.tools import Tool
from bot.tools.addresses import check_definition
from bot.tools.connection import Connection
from bot.tools.redaction import Redaction
from bot.tools.session import Surroundings
from bot.tools.unusable import Unusable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """One server, and its secrets. It has no connection if it is disabled or cannot be used as it is defined. `barred`
    is True if the operator's settings keep it out.
    """

    entry: ServerEntry
    problem: str
    redact: Redaction
    connection: Connection | None
    barred: bool = False

    @property
    def config(self) -> ServerConfig:
        """What it is."""
        return self.entry.config

    @property
    def state(self) -> ServerState:
        """How it stands."""
        if self.connection is not None:
            return self.connection.condition.state
        known = self.entry.synced
        return ServerState(
            self.config,
            ServerStatus.DISABLED if self.entry.standing is Standing.DISABLED else ServerStatus.FAILED,
            self.problem,
            own_problem=self.problem,
            tool_count=len(known.capabilities.tools),
            sync=known.status,
            synced_at=known.at,
        )

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its tools while they may be called."""
        return () if self.connection is None else self.connection.condition.tools

    @property
    def withheld(self) -> frozenset[str]:
        """The names of its tools that could be called if they did not wait for an admin."""
        return frozenset() if self.connection is None else self.connection.condition.withheld

    @property
    def known(self) -> tuple[Tool, ...]:
        """All its tools, as far as they are known."""
        synced = self.entry.synced if self.connection is None else self.connection.condition.synced
        return synced.capabilities.tools

    @property
    def unpinned(self) -> tuple[Tool, ...]:
        """Its tools whose definition is not the one that is pinned."""
        if self.connection is not None:
            return self.connection.condition.pinning.unpinned
        pinned = first_pins(self.known) if self.entry.pinned is None else self.entry.pinned
        return tuple(tool for tool in self.known if review(tool, pinned) is not Review.PINNED)


class KeptServers:
    """All of them, by id. Nothing is connected to before the start."""

    def __init__(self, shared: Surroundings, policy: ConnectPolicy) -> None:
        self._shared = shared
        self._policy = policy
        self._kept: dict[str, Kept] = {}
        self._leaving: dict[Connection, asyncio.Task[None]] = {}
        self._started = False

    def __iter__(self) -> Iterator[Kept]:
        return iter(sorted(self._kept.values(), key=lambda kept: (kept.config.name, kept.config.id)))

    def get(self, server_id: str) -> Kept | None:
        """The server with this id."""
        return self._kept.get(server_id)

    def start(self) -> None:
        """Connect to those that should be, and from now on to new ones at once."""
        self._started = True
        for kept in self:
            self._begin(kept)

    def follow(self, entries: Sequence[ServerEntry], limit: float) -> None:
        """Keep these and no others. `limit` is how long, in seconds, one that goes is closed gently."""
        wanted = {entry.config.id: entry for entry in entries}
        for server_id in self._kept.keys() - wanted.keys():
            self._let_go(self._kept.pop(server_id), limit)
        for server_id, entry in wanted.items():
            before = self._kept.get(server_id)
            self._kept[server_id] = kept = self._next(before, entry)
            if before is not None and before.redact is not kept.redact:
                self._let_go(before, limit)
            used = before is not None and before.connection is not None and before.connection.started
            if self._started and used and entry.standing is Standing.ON and kept.connection is not None:
                kept.connection.start()
            elif self._started:
                self._begin(kept)

    async def close(self, limit: float) -> None:
        """End all connections side by side, those that take their leave included."""
        present = [kept.connection for kept in self if kept.connection is not None]
        await asyncio.gather(*(connection.close(limit) for connection in (*present, *self._leaving)))
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    def _next(self, before: Kept | None, entry: ServerEntry) -> Kept:
        if before is None or before.connection is None or not _same(before, entry):
            return self._new(entry)
        before.connection.learn(entry.synced, entry.pinned)
        before.connection.learn_sign_in(entry.signed_in)
        return replace(before, entry=entry)

    def _new(self, entry: ServerEntry) -> Kept:
        redact = self._shared.secrets.open(entry)
        problem, barred = redact.clean(entry.problem), False
        try:
            check_definition(entry.config, self._shared.allowances)
        except Unusable as unusable:
            problem = problem or f"Server {entry.config.name}: {unusable.sentence}"
            barred = True
        if problem or entry.standing is Standing.DISABLED:
            return Kept(entry, problem, redact, None, barred)
        disconnected = entry.standing is Standing.DISCONNECTED
        connection = Connection(
            entry.config, self._shared, redact, entry.synced, entry.pinned, disconnected=disconnected
        )
        return Kept(entry, "", redact, connection)

    def _begin(self, kept: Kept) -> None:
        wanted = self._policy is ConnectPolicy.EAGER or (
            self._policy is ConnectPolicy.AUTO and kept.config.auto_connect
        )
        if wanted and kept.entry.standing is Standing.ON and kept.connection is not None:
            kept.connection.start()

    def _let_go(self, kept: Kept, limit: float) -> None:
        connection = kept.connection
        self._shared.reports.forget(kept.config.id)
        if connection is None:
            self._shared.secrets.close(kept.config.id, kept.redact)
            return
        # Also one that nobody has needed yet: somebody may hold it and need it in a moment.
        connection.condition.silence()
        task = asyncio.create_task(connection.leave(limit), name=f"mcp:leaving:{kept.config.name}")
        self._leaving[connection] = task
        task.add_done_callback(lambda _: self._has_left(kept, connection))

    def _has_left(self, kept: Kept, connection: Connection) -> None:
        # Calls that were under way may have shown its secrets until now.
        self._leaving.pop(connection, None)
        self._shared.secrets.close(kept.config.id, kept.redact)


def _same(before: Kept, entry: ServerEntry) -> bool:
    """The connection may stay. One that was made by hand stays when the server is then switched on for everybody."""
    if entry.problem or before.config != entry.config:
        return False
    switched_on = entry.standing is Standing.ON and before.connection is not None and before.connection.started
    return before.entry.standing is entry.standing or (before.entry.standing is Standing.DISCONNECTED and switched_on)
