"""Profiles and their bindings, on a database: every method is one transaction, see `bot.ports.ProfileStore`."""

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
    """Profiles and their bindings to places."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._complained: set[str] = set()

    async def profiles(self) -> Sequence[Profile]:
        """Return all profiles by name. An unreadable profile enables no tools."""
        profiles, unreadable = await self._database.run(profile_rows.read_profiles)
        for profile_id in set(unreadable) - self._complained:
            self._complained.add(profile_id)
            log.warning("profile %s: unreadable, enables no tools", profile_id)
        return profiles

    async def save(self, profile: Profile, by: Author) -> Profile:
        """Add a profile or replace one of the same version."""
        return await self._database.run(lambda connection: profile_rows.save(connection, profile, by))

    async def delete(self, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings."""
        return await self._take_away(lambda connection: profile_rows.delete(connection, profile_id, by))

    async def bindings(self) -> Sequence[Binding]:
        """Return the bindings of profiles to places."""
        return await self._database.run(profile_rows.read_bindings)

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        """Bind a profile to a place."""
        await self._database.run(lambda connection: profile_rows.bind(connection, place, profile_id, by))

    async def unbind(self, place: str, by: Author) -> bool:
        """Remove a place's binding. Return False if there was none."""
        return await self._take_away(lambda connection: profile_rows.unbind(connection, place, by))

    async def _take_away(self, transaction: Callable[[sa.Connection], bool]) -> bool:
        removed = False

        def whole(connection: sa.Connection) -> bool:
            nonlocal removed
            # After a lost COMMIT response the binding is gone, and this call deleted it.
            removed = transaction(connection) or removed
            return removed

        return await self._database.run(whole)
