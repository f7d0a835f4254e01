"""Profiles and where they hold, on a database: every method one transaction, see `bot.ports.ProfileStore`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import sqlalchemy as sa

from bot.domain.conversations import Author
from bot.domain.profiles import Binding, Profile
from bot.storage import profile_rows
from bot.storage.database import Database

log = logging.getLogger(__name__)


class SqlProfileStore:
    """Who the bot is where."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._complained: set[str] = set()

    async def profiles(self) -> Sequence[Profile]:
        """All of them, by name. One that cannot be read enables nothing."""
        found, unreadable = await self._database.run(profile_rows.read_profiles)
        for profile_id in set(unreadable) - self._complained:
            self._complained.add(profile_id)
            log.warning("the profile %s cannot be read: nothing is enabled where it holds", profile_id)
        return found

    async def save(self, profile: Profile, by: Author) -> Profile:
        """Keep a new profile or replace one of the same version."""
        return await self._database.run(lambda connection: profile_rows.save(connection, profile, by))

    async def delete(self, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings."""
        return await self._take_away(lambda connection: profile_rows.delete(connection, profile_id, by))

    async def bindings(self) -> Sequence[Binding]:
        """Which profile holds where."""
        return await self._database.run(profile_rows.read_bindings)

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        """Let a profile hold in a place."""
        await self._database.run(lambda connection: profile_rows.bind(connection, place, profile_id, by))

    async def unbind(self, place: str, by: Author) -> bool:
        """Let none hold there."""
        return await self._take_away(lambda connection: profile_rows.unbind(connection, place, by))

    async def _take_away(self, transaction: Callable[[sa.Connection], bool]) -> bool:
        taken = False

        def whole(connection: sa.Connection) -> bool:
            nonlocal taken
            # After a COMMIT whose answer was lost there is nothing any more, and it was this that took it away.
            taken = transaction(connection) or taken
            return taken

        return await self._database.run(whole)
