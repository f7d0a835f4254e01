"""The store of profiles and their bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.domain.conversations import Author
from bot.domain.profiles import Binding, Profile


class ProfileStore(Protocol):
    """Profiles and where they hold."""

    async def profiles(self) -> Sequence[Profile]:
        """All of them, by name."""

    async def save(self, profile: Profile, by: Author) -> Profile:
        """Keep a new profile (version 0) or replace one of the same version. Raises Conflict, NotFound."""

    async def delete(self, profile_id: str, by: Author) -> bool:
        """Delete a profile and its bindings. False if there was none."""

    async def bindings(self) -> Sequence[Binding]:
        """Which profile holds where."""

    async def bind(self, place: str, profile_id: str, by: Author) -> None:
        """Let a profile hold in a place, instead of the one before. Raises NotFound."""

    async def unbind(self, place: str, by: Author) -> bool:
        """Let none hold there. False if none did."""
