"""Cached capabilities of each server from its last sync, including servers of the operator's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.capabilities import ServerCapabilities
from bot.domain.servers import FILE, CachedCapabilities, SyncStatus
from bot.storage import pin_rows
from bot.storage.capability_codec import decode_capabilities, definitions_text, encode_capabilities, same_offer
from bot.storage.clock import now
from bot.storage.config_version import bump
from bot.storage.tables import mcp_capabilities, mcp_servers
from bot.storage.turn_reader import UNREADABLE
from bot.storage.upsert import Upsert

_all = sa.select(mcp_capabilities)
_select_capabilities = sa.select(mcp_capabilities.c.capabilities).where(mcp_capabilities.c.server_id == bindparam("i"))
_server = sa.select(mcp_servers.c.id).where(mcp_servers.c.id == bindparam("i")).with_for_update(read=True)
_save = Upsert(
    lambda insert: (
        insert(mcp_capabilities)
        .values(
            server_id=bindparam("i"),
            status=SyncStatus.SYNCED.value,
            capabilities=bindparam("what"),
            definitions=bindparam("prints"),
            server_version=bindparam("release"),
            synced_at=now(),
            problem="",
        )
        .on_conflict_do_update(
            index_elements=["server_id"],
            set_={
                "status": SyncStatus.SYNCED.value,
                "capabilities": bindparam("what"),
                "definitions": bindparam("prints"),
                "server_version": bindparam("release"),
                "synced_at": now(),
                "problem": "",
            },
        )
    )
)
_fail = Upsert(
    lambda insert: (
        insert(mcp_capabilities)
        .values(server_id=bindparam("i"), status=SyncStatus.SYNC_FAILED.value, problem=bindparam("why"))
        .on_conflict_do_update(
            index_elements=["server_id"], set_={"status": SyncStatus.SYNC_FAILED.value, "problem": bindparam("why")}
        )
    )
)
_delete = mcp_capabilities.delete().where(mcp_capabilities.c.server_id == bindparam("i"))


@dataclass(frozen=True, slots=True)
class CachedRow:
    """Readable rows by server id, and the errors of unreadable rows by server id."""

    readable: Mapping[str, CachedCapabilities]
    unreadable: Mapping[str, str]


def read_known(connection: sa.Connection) -> CachedRow:
    """Return the cached capabilities of every server."""
    readable, unreadable = {}, {}
    for row in connection.execute(_all):
        try:
            readable[row.server_id] = CachedCapabilities(
                SyncStatus(row.status), decode_capabilities(row.capabilities), row.synced_at, row.problem
            )
        except UNREADABLE as error:
            unreadable[row.server_id] = repr(error)
    return CachedRow(readable, unreadable)


def save_capabilities(connection: sa.Connection, server_id: str, capabilities: ServerCapabilities) -> None:
    """Save a sync's capabilities, and pin the tools at the first sync. No effect if the server was removed."""
    text = encode_capabilities(capabilities)
    # Read before the locks, because most syncs change nothing and must not wait for each other.
    before = connection.execute(_select_capabilities, {"i": server_id}).scalar()
    pinned = pin_rows.is_pinned(connection, server_id)
    if not (same_offer(before, text) and (pinned or not capabilities.tools)):
        bump(connection)
    if _is_removed(connection, server_id):
        return
    if not pinned:
        pin_rows.begin(connection, server_id, capabilities.tools)
    connection.execute(
        _save.on(connection),
        {
            "i": server_id,
            "what": text,
            "prints": definitions_text(capabilities),
            "release": capabilities.server_version,
        },
    )


def save_sync_failure(connection: sa.Connection, server_id: str, problem: str) -> None:
    """Save the error of a failed sync; the cached capabilities stay."""
    if not _is_removed(connection, server_id):
        connection.execute(_fail.on(connection), {"i": server_id, "why": problem})


def forget(connection: sa.Connection, server_id: str) -> None:
    """Delete the cached capabilities of a server."""
    connection.execute(_delete, {"i": server_id})


def _is_removed(connection: sa.Connection, server_id: str) -> bool:
    """Return True if the server was removed. Otherwise lock its row until the transaction ends."""
    return not server_id.startswith(FILE) and connection.execute(_server, {"i": server_id}).first() is None
