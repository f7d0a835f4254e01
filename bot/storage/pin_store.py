"""Pinned tool definitions, on a database; see `bot.ports.PinStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.domain.conversations import Author
from bot.domain.pins import Pin, Pinned
from bot.domain.tools import Tool
from bot.storage import pin_rows
from bot.storage.database import Database


class SqlPinStore:
    """Pins by server and tool."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def pinned(self) -> Mapping[str, Pinned]:
        """Return the pinned definitions by server."""
        return await self._database.run(pin_rows.read_pinned)

    async def pins_of(self, server_id: str) -> Sequence[Pin]:
        """Return a server's pins by tool."""
        return await self._database.run(lambda connection: pin_rows.read_pins(connection, server_id))

    async def pin(self, server_id: str, tools: Sequence[Tool], by: Author) -> None:
        """Pin these definitions."""
        await self._database.run(lambda connection: pin_rows.pin(connection, server_id, tools, by))
