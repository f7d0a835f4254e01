"""Service of profiles, shared by `/profile` and the HTTP API."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.commands.dependencies import CommandDependencies
from bot.commands.rejections import ForbiddenRejection, NotFoundRejection
from bot.commands.text_format import did_you_mean
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.profiles import Profile
from bot.domain.servers import EVERYWHERE
from bot.errors import Conflict


@dataclass(frozen=True, slots=True)
class Outdated:
    """A change that was not saved because of a newer version. `why` is the store's sentence."""

    why: str


class ProfileService:
    """Finds, saves and deletes profiles, and applies changes to this process."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts
        self._remembered: dict[str, Sequence[str]] = {}

    @property
    def remembered(self) -> Mapping[str, Sequence[str]]:
        """Profile names last read, by workspace. Completion uses them without a query."""
        return self._remembered

    async def all(self, where: ConversationKey) -> list[Profile]:
        """Return all profiles of a workspace and the global ones, sorted by name."""
        profiles = [
            profile
            for profile in await self._parts.profiles.profiles()
            if profile.workspace in (EVERYWHERE, where.workspace_key)
        ]
        self._remembered[where.workspace_key] = tuple(each.name for each in profiles)
        return profiles

    async def named(self, name: str, where: ConversationKey) -> Profile | None:
        """Return the profile by name or id; those of the workspace come before global ones. None if it is missing."""
        wanted = name.strip().lower()
        found = [each for each in await self.all(where) if wanted in (each.name.lower(), each.id.lower())]
        return min(found, key=lambda each: each.workspace == EVERYWHERE, default=None)

    async def find(self, name: str, where: ConversationKey) -> Profile:
        """Return the profile by name or id. Raises NotFoundRejection."""
        profile = await self.named(name, where)
        if profile is None:
            hint = did_you_mean(name, self._remembered.get(where.workspace_key, ()))
            raise NotFoundRejection(f"There is no profile of that name.{hint} `/profile list` lists them.")
        return profile

    def blank(self, name: str, workspace: str) -> Profile:
        """Return a new profile, not saved."""
        return Profile(str(uuid.uuid4()), name, workspace)

    def may_change(self, profile: Profile, member: Member) -> None:
        """Check that the member may change the profile. Raises ForbiddenRejection."""
        if profile.workspace == EVERYWHERE and not self._parts.rights.everywhere(member):
            raise ForbiddenRejection("This profile belongs to every workspace. Only the operator can change it.")

    async def save(self, profile: Profile, by: Author) -> Profile | Outdated:
        """Save a new profile, or a changed one if its version is current. Raises NotFound."""
        try:
            kept = await self._parts.profiles.save(profile, by)
        except Conflict as conflict:
            return Outdated(str(conflict))
        await self._parts.administration.refresh()
        return kept

    async def delete(self, profile: Profile, by: Author) -> None:
        """Delete a profile and its bindings."""
        await self._parts.profiles.delete(profile.id, by)
        await self._parts.administration.refresh()
