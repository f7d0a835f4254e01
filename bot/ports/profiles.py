"""The store of profiles and their bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.conversations import Author
from bot.domain.profiles import Binding, Profile


class ProfileStore(Protocol):
    """Profiles and their bindings to places."""

    async def profiles(self) -> Sequence[Profile]:
        """Return all profiles by name."""

    async def save(self, profile: Profile, by: Author) -> Profile:
        """Store a new profile (version 0), or replace one of the same version. Raises Conflict, NotFound."""

    async def delete(self, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings. Return False if it does not exist."""

    async def bindings(self) -> Sequence[Binding]:
        """Return all bindings."""

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        """Bind a profile to a place, replacing an earlier binding. Raises NotFound."""

    async def unbind(self, place: str, by: Author) -> bool:
        """Delete the binding of a place. Return False if there is none."""
