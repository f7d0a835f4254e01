"""What becomes of profiles. Values in, values out: `/profile` says it in replies, the HTTP API in JSON."""

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
    """Nothing was saved: somebody was faster. `why` is the store's sentence."""

    why: str


class ProfileService:
    """Finds, saves and deletes profiles, and lets this process follow at once."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts
        self._remembered: dict[str, Sequence[str]] = {}

    @property
    def remembered(self) -> Mapping[str, Sequence[str]]:
        """The names last seen, by workspace: for completion, which waits for nothing."""
        return self._remembered

    async def all(self, where: ConversationKey) -> list[Profile]:
        """Every profile there is for this place, by name."""
        profiles = [
            each
            for each in await self._parts.profiles.profiles()
            if each.workspace in (EVERYWHERE, where.workspace_key)
        ]
        self._remembered[where.workspace_key] = tuple(each.name for each in profiles)
        return profiles

    async def named(self, name: str, where: ConversationKey) -> Profile | None:
        """The profile of that name or id; the workspace's own before everybody's."""
        wanted = name.strip().lower()
        found = [each for each in await self.all(where) if wanted in (each.name.lower(), each.id.lower())]
        return min(found, key=lambda each: each.workspace == EVERYWHERE, default=None)

    async def find(self, name: str, where: ConversationKey) -> Profile:
        """The same. Raises Unknown."""
        profile = await self.named(name, where)
        if profile is None:
            hint = did_you_mean(name, self._remembered.get(where.workspace_key, ()))
            raise NotFoundRejection(f"There is no profile of that name.{hint} `/profile list` lists them.")
        return profile

    def blank(self, name: str, workspace: str) -> Profile:
        """A profile that there is not yet."""
        return Profile(str(uuid.uuid4()), name, workspace)

    def may_change(self, profile: Profile, member: Member) -> None:
        """Raises ForbiddenRejection if this person may not."""
        if profile.workspace == EVERYWHERE and not self._parts.rights.everywhere(member):
            raise ForbiddenRejection("This profile belongs to every workspace. Only the operator can change it.")

    async def save(self, profile: Profile, by: Author) -> Profile | Outdated:
        """Keep a new profile, or one that is changed and still of this version. Raises NotFound."""
        try:
            kept = await self._parts.profiles.save(profile, by)
        except Conflict as conflict:
            return Outdated(str(conflict))
        await self._parts.administration.refresh()
        return kept

    async def delete(self, profile: Profile, by: Author) -> None:
        """Delete a profile; the places where it holds have none then."""
        await self._parts.profiles.delete(profile.id, by)
        await self._parts.administration.refresh()
