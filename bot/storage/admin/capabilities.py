"""Capabilities of servers: the cache of each server's last sync, and the pinned definitions of its tools.

Instructions are pinned like a tool. Both also for servers of the operator's file. An unreadable body counts as
missing; the next sync replaces it. A pin for no tool says that a server's tools were pinned at its first sync. A
refusal is a row whose tool is the refused definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from bot.domain.conversations import Author
from bot.domain.pins import FIRST_SYNC, REFUSED, Pin, Pinned, first_pins
from bot.domain.servers import FILE, CachedCapabilities, ServerCapabilities, SyncStatus
from bot.domain.tools import Tool, canonical_json
from bot.errors import NotFound
from bot.storage.codec import UNREADABLE, decode, encode_text, json_text, omit_fields
from bot.storage.coordination import bump_config_version, lock_config, record_change
from bot.storage.database import Store, insert_new, insert_or_update, matching, now, transaction
from bot.storage.tables import mcp_capabilities, mcp_servers, tool_pins

OFFERED = ("tools", "resources", "templates", "prompts", "instructions")
NO_TOOL = ""

# Both depend on the settings of the server now.
omit_fields(Tool, "place", "flow")

pins = tool_pins.c
_is_of_server = matching(tool_pins, server_id="s")
_definitions = sa.select(pins.server_id, pins.tool, pins.definition)
_pins_of_server = sa.select(tool_pins).where(_is_of_server, pins.tool != NO_TOOL).order_by(pins.tool)
_mark_of_server = sa.select(pins.tool).where(_is_of_server, pins.tool == NO_TOOL)
_add_mark = insert_new(tool_pins, pinned_at=now())
_replace_pin = insert_or_update(tool_pins, "definition", "body", "pinned_by", pinned_at=now())
_delete_pin = tool_pins.delete().where(matching(tool_pins, server_id="s", tool="t"))
_delete_pins = tool_pins.delete().where(_is_of_server)
_slug = sa.select(mcp_servers.c.slug).where(matching(mcp_servers, id="s"))
all_capabilities = sa.select(mcp_capabilities)
_capabilities = sa.select(mcp_capabilities.c.capabilities).where(matching(mcp_capabilities, server_id="i"))
_server = sa.select(mcp_servers.c.id).where(matching(mcp_servers, id="i")).with_for_update(read=True)

_save_capabilities = insert_or_update(
    mcp_capabilities,
    "capabilities",
    "definitions",
    "server_version",
    status=SyncStatus.SYNCED.value,
    synced_at=now(),
    error="",
)

_save_failure = insert_or_update(mcp_capabilities, "error", status=SyncStatus.SYNC_FAILED.value)

_delete_capabilities = mcp_capabilities.delete().where(matching(mcp_capabilities, server_id="i"))


class SqlPinStore(Store):
    """Pins by server and tool."""

    @transaction
    def pinned_definitions(self, connection: sa.Connection) -> Mapping[str, Pinned]:
        """Return the pinned definitions by server and tool, including servers with nothing to pin."""
        pinned: dict[str, dict[str, str]] = {}
        for server_id, tool, definition in connection.execute(_definitions):
            of_server = pinned.setdefault(server_id, {})
            if tool != NO_TOOL:
                of_server[tool] = definition
        return pinned

    @transaction
    def pins_of(self, connection: sa.Connection, server_id: str) -> Sequence[Pin]:
        """Return a server's pins by tool."""
        return _read_pins(connection, server_id)

    @transaction
    def pin(self, connection: sa.Connection, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Pin these definitions, replacing earlier pins of these tools. Raises NotFound."""
        name = _locked_name(connection, server_id)
        before = {pin.tool: pin.definition for pin in _read_pins(connection, server_id)}
        changed = [tool for tool in tools if before.get(tool.original_name) != tool.definition]
        if not changed:
            return
        _mark_as_pinned(connection, server_id, by.principal)
        _replace_pins(connection, server_id, changed, by.principal)
        for tool in changed:
            connection.execute(_delete_pin, {"s": server_id, "t": tool.definition})
        changes = {
            tool.original_name: f"{before.get(tool.original_name, 'nothing')} → {tool.definition}" for tool in changed
        }
        record_change(connection, "pinned tools", by.principal, subject=server_id, server=name, changes=changes)

    @transaction
    def refuse(self, connection: sa.Connection, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Refuse these definitions. Raises NotFound."""
        name = _locked_name(connection, server_id)
        before = {pin.tool for pin in _read_pins(connection, server_id)}
        refused = [tool for tool in tools if tool.definition not in before]
        if not refused:
            return
        _mark_as_pinned(connection, server_id, by.principal)
        for tool in refused:
            row = {"server_id": server_id, "tool": tool.definition, "definition": REFUSED, "pinned_by": by.principal}
            connection.execute(_replace_pin.on(connection), {**row, "body": encode_text(tool)})
        changes = {tool.original_name: tool.definition for tool in refused}
        record_change(connection, "refused tools", by.principal, subject=server_id, server=name, changes=changes)


def _locked_name(connection: sa.Connection, server_id: str) -> str:
    """Return the slug of a server, with its pins locked. Raises NotFound."""
    lock_config(connection)
    slug = connection.execute(_slug, {"s": server_id}).scalar()
    if slug is None and not server_id.startswith(FILE):
        raise NotFound("That server does not exist.", "list the servers")
    return slug or server_id.removeprefix(FILE)


def read_cached(row: Any) -> CachedCapabilities:
    """Return the cached capabilities of a row. Raises `codec.UNREADABLE`."""
    return CachedCapabilities(SyncStatus(row.status), decode_capabilities(row.capabilities), row.synced_at, row.error)


def save_capabilities(connection: sa.Connection, server_id: str, capabilities: ServerCapabilities) -> None:
    """Save a sync's capabilities, and pin the tools at the first sync. No effect if the server was removed."""
    text = encode_text(capabilities)
    # Read before the locks, because most syncs change nothing and must not wait for each other.
    before = connection.execute(_capabilities, {"i": server_id}).scalar()
    is_pinned = connection.execute(_mark_of_server, {"s": server_id}).first() is not None
    if not (same_offer(before, text) and (is_pinned or not capabilities.definitions)):
        bump_config_version(connection)
    if _is_removed(connection, server_id):
        return
    if not is_pinned and capabilities.definitions and _mark_as_pinned(connection, server_id, FIRST_SYNC):
        plain = first_pins(capabilities.definitions)
        accepted = (tool for tool in capabilities.definitions if tool.original_name in plain)
        _replace_pins(connection, server_id, accepted, FIRST_SYNC)
    row = {"server_id": server_id, "capabilities": text, "definitions": definitions_text(capabilities)}
    connection.execute(_save_capabilities.on(connection), {**row, "server_version": capabilities.server_version})


def save_sync_failure(connection: sa.Connection, server_id: str, problem: str) -> None:
    """Save the error of a failed sync; the cached capabilities stay."""
    if not _is_removed(connection, server_id):
        connection.execute(_save_failure.on(connection), {"server_id": server_id, "error": problem})


def delete_capabilities(connection: sa.Connection, server_id: str) -> None:
    """Delete the cached capabilities of a server."""
    connection.execute(_delete_capabilities, {"i": server_id})


def delete_pins(connection: sa.Connection, server_id: str) -> None:
    """Delete a server's pins."""
    connection.execute(_delete_pins, {"s": server_id})


def _is_removed(connection: sa.Connection, server_id: str) -> bool:
    """Return True if the server was removed. Otherwise lock its row until the transaction ends."""
    return not server_id.startswith(FILE) and connection.execute(_server, {"i": server_id}).first() is None


def _read_pins(connection: sa.Connection, server_id: str) -> Sequence[Pin]:
    pins = []
    for row in connection.execute(_pins_of_server, {"s": server_id}):
        try:
            tool = decode(Tool, json.loads(row.body))
        except UNREADABLE:
            tool = None
        pins.append(Pin(row.server_id, row.tool, row.definition, tool, row.pinned_by, row.pinned_at))
    return pins


def _mark_as_pinned(connection: sa.Connection, server_id: str, who: str) -> bool:
    mark = {"server_id": server_id, "tool": NO_TOOL, "definition": "", "body": "", "pinned_by": who}
    return connection.execute(_add_mark.on(connection), mark).first() is not None


def _replace_pins(connection: sa.Connection, server_id: str, tools: Iterable[Tool], who: str) -> None:
    for tool in tools:
        pin = {"server_id": server_id, "tool": tool.original_name, "definition": tool.definition, "pinned_by": who}
        connection.execute(_replace_pin.on(connection), {**pin, "body": encode_text(tool)})


def decode_capabilities(text: str | None) -> ServerCapabilities:
    """Decode capabilities. Raises `codec.UNREADABLE`."""
    return ServerCapabilities() if text is None else decode(ServerCapabilities, json.loads(text))


def definitions_text(capabilities: ServerCapabilities) -> str:
    """Return the fingerprints of all tool definitions as JSON text, by original name."""
    return json_text({tool.original_name: tool.definition for tool in capabilities.definitions})


def same_offer(before: str | None, after: str) -> bool:
    """Return True if two texts hold the same tools, resources and prompts in any order."""
    try:
        return _offer(before) == _offer(after)
    except (ValueError, TypeError, LookupError, AttributeError):
        return False


def _offer(text: str | None) -> Mapping[str, list[str]]:
    body = {} if text is None else json.loads(text)
    offers = {kind: body.get(kind) or [] for kind in OFFERED}
    return {
        kind: sorted(map(canonical_json, offer if isinstance(offer, list) else [offer]))
        for kind, offer in offers.items()
    }
