"""How one server stands, as events: what `/mcp show` says, whenever it would say something else.

The connections are looked at in memory; nothing is asked of the database or of the server as long as all is quiet. The
events end when the server is removed; the stream that they are sent in ends when nobody listens or the program leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from bot.commands.rejections import NotFoundRejection
from bot.commands.server_directory import ServerDirectory, VisibleServer
from bot.domain.conversations import ConversationKey
from bot.domain.servers import ServerSnapshot, ServerStatus, SyncStatus
from bot.ports import ServerAdmin
from bot.web.servers.responses import ServerSerializer
from bot.web.sse import ServerEvent

LOOK_SECONDS = 0.25
_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)


async def stream_status(
    servers: ServerAdmin,
    directory: ServerDirectory,
    seen: VisibleServer,
    where: ConversationKey,
    writer: ServerSerializer,
) -> AsyncGenerator[ServerEvent, None]:
    """The events, the first one at once."""
    last = _state(servers, seen.id)
    yield _event("status_update", seen, writer)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        before, last = last, _state(servers, seen.id)
        if before == last:
            continue
        try:
            seen = await directory.find(seen.id, where)
        except NotFoundRejection:
            yield ServerEvent("server_removed", {"id": seen.id, "serverId": seen.name})
            return
        if _stands(before) != _stands(last):
            yield _event("connection_change", seen, writer)
        if _was_asked(before, last):
            yield _event("capabilities_synced", seen, writer)


def _event(name: str, seen: VisibleServer, writer: ServerSerializer) -> ServerEvent:
    return ServerEvent(name, writer.listed(seen).model_dump(mode="json"))


def _state(servers: ServerAdmin, server_id: str) -> ServerSnapshot | None:
    return next((state for state in servers.servers() if state.config.id == server_id), None)


def _stands(state: ServerSnapshot | None) -> tuple[object, ...]:
    """What of a state is about the connection, and about how the server is defined."""
    return () if state is None else (state.status, state.problem, state.config, state.server_version)


def _was_asked(before: ServerSnapshot | None, state: ServerSnapshot | None) -> bool:
    """Whether the server was asked for what it offers, well or badly."""
    if state is None or state.status in _OFF or state.sync not in (SyncStatus.SYNCED, SyncStatus.SYNC_FAILED):
        return False
    return before is None or (before.sync, before.synced_at) != (state.sync, state.synced_at)
