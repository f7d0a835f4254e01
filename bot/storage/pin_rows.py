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
_put = Upsert(
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
_forget = tool_pins.delete().where(pins.server_id == bindparam("s"))
_slug = sa.select(mcp_servers.c.slug).where(mcp_servers.c.id == bindparam("s"))


def read_pinned(connection: sa.Connection) -> Mapping[str, Mapping[str, str]]:
    """The definition of every tool that is pinned, by server and tool; also of servers that had nothing to pin."""
    found: dict[str, dict[str, str]] = {}
    for server_id, tool, definition in connection.execute(_definitions):
        of_server = found.setdefault(server_id, {})
        if tool != NO_TOOL:
            of_server[tool] = definition
    return found


def read_pins(connection: sa.Connection, server_id: str) -> Sequence[Pin]:
    """The pins of a server, by tool."""
    return [_pin(row) for row in connection.execute(_of_server, {"s": server_id})]


def is_pinned(connection: sa.Connection, server_id: str) -> bool:
    """Whether a server's tools were looked at once."""
    return connection.execute(_looked_at, {"s": server_id}).first() is not None


def begin(connection: sa.Connection, server_id: str, tools: Sequence[Tool]) -> bool:
    """Pin what a server offers the first time, but for what an admin should see first. Nothing happens where somebody
    was faster, or where there is no tool yet.
    """
    mark = {"s": server_id, "t": NO_TOOL, "d": "", "b": "", "who": FIRST_SYNC}
    if not tools or connection.execute(_add.on(connection), mark).first() is None:
        return False
    plain = first_pins(tools)
    _keep(connection, server_id, (tool for tool in tools if tool.original_name in plain), FIRST_SYNC)
    return True


def pin(connection: sa.Connection, server_id: str, tools: Sequence[Tool], by: Author) -> None:
    """Pin these definitions, whatever was pinned of these tools before. Raises NotFound."""
    lock(connection)
    slug = connection.execute(_slug, {"s": server_id}).scalar()
    if slug is None and not server_id.startswith(FILE):
        raise NotFound("That server is not there any more.", "list the servers")
    before = {each.tool: each.definition for each in read_pins(connection, server_id)}
    fresh = [tool for tool in tools if before.get(tool.original_name) != tool.definition]
    if not fresh:
        return
    begin_with = {"s": server_id, "t": NO_TOOL, "d": "", "b": "", "who": by.principal}
    connection.execute(_add.on(connection), begin_with)
    _keep(connection, server_id, fresh, by.principal)
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
    """Nothing is pinned of this server any more."""
    connection.execute(_forget, {"s": server_id})


def _keep(connection: sa.Connection, server_id: str, tools: Iterable[Tool], who: str) -> None:
    for tool in tools:
        body = json_text({"v": VERSION, **tool_body(tool)})
        row = {"s": server_id, "t": tool.original_name, "d": tool.definition, "b": body, "who": who}
        connection.execute(_put.on(connection), row)


def _pin(row: Any) -> Pin:
    try:
        seen = read_tool(json.loads(row.body))
    except UNREADABLE:
        seen = None
    return Pin(row.server_id, row.tool, row.definition, seen, row.pinned_by, row.pinned_at)
