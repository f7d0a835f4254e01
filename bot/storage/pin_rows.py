"""Transactions on the definitions of tools that are pinned. Also for servers of the operator's file.

A row for no tool says that a server's tools were looked at once; without it nothing of the server is pinned yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import Author
from bot.domain.pins import FIRST_SYNC, Pin, first_pins
from bot.domain.servers import FILE
from bot.domain.tools import Tool
from bot.errors import NotFound
from bot.storage import audit
from bot.storage.capability_codec import read_tool, tool_body
from bot.storage.clock import now
from bot.storage.codec import VERSION
from bot.storage.config_version import bump, lock
from bot.storage.database import json_text
from bot.storage.tables import mcp_servers, tool_pins
from bot.storage.turn_reader import UNREADABLE
from bot.storage.upsert import Upsert

pins = tool_pins.c
NO_TOOL = ""
_definitions = sa.select(pins.server_id, pins.tool, pins.definition)
_of_server = sa.select(tool_pins).where(pins.server_id == bindparam("s"), pins.tool != NO_TOOL).order_by(pins.tool)
_looked_at = sa.select(pins.tool).where(pins.server_id == bindparam("s"), pins.tool == NO_TOOL)
_row = {
    "server_id": bindparam("s"),
    "tool": bindparam("t"),
    "definition": bindparam("d"),
    "body": bindparam("b"),
    "pinned_by": bindparam("who"),
    "pinned_at": now(),
}
_add = Upsert(
    lambda insert: insert(tool_pins).values(**_row).on_conflict_do_nothing().returning(tool_pins.c.definition)
)
_replace = Upsert(
    lambda insert: (
        insert(tool_pins)
        .values(**_row)
        .on_conflict_do_update(
            index_elements=["server_id", "tool"],
            set_={
                "definition": bindparam("d"),
                "body": bindparam("b"),
                "pinned_by": bindparam("who"),
                "pinned_at": now(),
            },
        )
    )
)
_delete = tool_pins.delete().where(pins.server_id == bindparam("s"))
_slug = sa.select(mcp_servers.c.slug).where(mcp_servers.c.id == bindparam("s"))


def read_pinned(connection: sa.Connection) -> Mapping[str, Mapping[str, str]]:
    """Return all pinned definitions by server and tool, including servers with nothing to pin."""
    rows: dict[str, dict[str, str]] = {}
    for server_id, tool, definition in connection.execute(_definitions):
        of_server = rows.setdefault(server_id, {})
        if tool != NO_TOOL:
            of_server[tool] = definition
    return rows


def read_pins(connection: sa.Connection, server_id: str) -> Sequence[Pin]:
    """Return a server's pins by tool."""
    return [_pin(row) for row in connection.execute(_of_server, {"s": server_id})]


def is_pinned(connection: sa.Connection, server_id: str) -> bool:
    """Return True if a server's tools were pinned at its first sync."""
    return connection.execute(_looked_at, {"s": server_id}).first() is not None


def begin(connection: sa.Connection, server_id: str, tools: Sequence[Tool]) -> bool:
    """Pin the tools of a server's first sync, except those that an admin must review. No effect if they are pinned
    already or there are no tools.
    """
    mark = {"s": server_id, "t": NO_TOOL, "d": "", "b": "", "who": FIRST_SYNC}
    if not tools or connection.execute(_add.on(connection), mark).first() is None:
        return False
    plain = first_pins(tools)
    _save(connection, server_id, (tool for tool in tools if tool.original_name in plain), FIRST_SYNC)
    return True


def pin(connection: sa.Connection, server_id: str, tools: Sequence[Tool], by: Author) -> None:
    """Pin these definitions, replacing earlier pins of these tools. Raises NotFound."""
    lock(connection)
    slug = connection.execute(_slug, {"s": server_id}).scalar()
    if slug is None and not server_id.startswith(FILE):
        raise NotFound("That server does not exist.", "list the servers")
    before = {read_pin.tool: read_pin.definition for read_pin in read_pins(connection, server_id)}
    fresh = [tool for tool in tools if before.get(tool.original_name) != tool.definition]
    if not fresh:
        return
    begin_with = {"s": server_id, "t": NO_TOOL, "d": "", "b": "", "who": by.principal}
    connection.execute(_add.on(connection), begin_with)
    _save(connection, server_id, fresh, by.principal)
    audit.record(
        connection,
        "pinned tools",
        by.principal,
        subject=server_id,
        server=slug or server_id.removeprefix(FILE),
        changes={
            tool.original_name: f"{before.get(tool.original_name, 'nothing')} → {tool.definition}" for tool in fresh
        },
    )
    bump(connection)


def forget(connection: sa.Connection, server_id: str) -> None:
    """Delete a server's pins."""
    connection.execute(_delete, {"s": server_id})


def _save(connection: sa.Connection, server_id: str, tools: Iterable[Tool], who: str) -> None:
    for tool in tools:
        body = json_text({"v": VERSION, **tool_body(tool)})
        row = {"s": server_id, "t": tool.original_name, "d": tool.definition, "b": body, "who": who}
        connection.execute(_replace.on(connection), row)


def _pin(row: Any) -> Pin:
    try:
        seen = read_tool(json.loads(row.body))
    except UNREADABLE:
        seen = None
    return Pin(row.server_id, row.tool, row.definition, seen, row.pinned_by, row.pinned_at)
