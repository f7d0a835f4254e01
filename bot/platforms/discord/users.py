"""Users of the served guilds: names, roles, rights, and their mentions in texts.

Names are cached for five minutes; concurrent lookups of one user share a request. Decisions need a fresh lookup, or the
rights in an interaction, which are current. Bots, non-members, members before the guild's screening,
members in a timeout and unknown users are strangers. In sentences of the engine and the commands `discord:7` becomes
`@sam`, and `discord-role:9` becomes `@ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic, time

import discord

from bot.chat import users
from bot.chat.users import PlatformUser, TtlCache
from bot.domain.conversations import Member
from bot.domain.locales import UNKNOWN, Locale, language_tag
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.discord.rest import PLATFORM, ROLE, DiscordApiError, Rest
from bot.ports.platform import DirectoryEntry
from bot.rendering.text_safety import single_line

NAME_LIMIT = 80
MEMBERS_A_PAGE = 1_000
MOST_MEMBERS = 10_000
"""Members of a guild that are listed to find those of a role."""
_PRINCIPALS = r"discord:\d{1,20}|discord-role:\d{1,20}"
RIGHTS = discord.Permissions(administrator=True, manage_guild=True)
"""Permissions that make a member an administrator."""


@dataclass(frozen=True, slots=True)
class Person(PlatformUser):
    """A user or bot of a guild."""

    platform = PLATFORM

    roles: frozenset[str] = frozenset()
    """Ids of roles, without the one that everybody has."""

    @property
    def member(self) -> Member:
        """Member with rights, for decisions and commands."""
        return Member(
            self.author,
            frozenset(f"{ROLE}{role}" for role in self.roles),
            platform_admin=self.admin and not self.external,
            external=self.external,
        )


class UserDirectory:
    """Looks up users. `servers` are the ids of the served guilds; empty for all guilds of the bot."""

    def __init__(
        self,
        rest: Rest,
        servers: frozenset[str] = frozenset(),
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._rest = rest
        self.wanted = servers
        self._people = TtlCache[tuple[str, str], Person](clock)
        self._servers = TtlCache[str, discord.Guild](clock)
        self._homes = TtlCache[str, str](clock)
        self._joined = TtlCache[str, tuple[str, ...]](clock)
        self._members = TtlCache[str, tuple[Person, ...] | None](clock)
        self._languages = TtlCache[str, str](clock)

    # ------------------------------------------------------------------ servers

    def serves(self, server: str) -> bool:
        """Return True if users of this guild are served."""
        return bool(server) and (not self.wanted or server in self.wanted)

    async def servers(self) -> tuple[str, ...]:
        """Return the ids of the served guilds, oldest first, cached for five minutes. Raises DeliveryFailed."""
        joined = await self._joined.get("", self._ask_for_servers)
        return tuple(server for server in joined if self.serves(server))

    async def server(self, server: str) -> discord.Guild:
        """Return a guild, cached for five minutes. Raises DeliveryFailed."""
        return await self._servers.get(server, lambda: self._ask_for_server(server))

    async def home_of(self, user: str) -> str:
        """Return the guild of a user in a direct conversation: the oldest served one with the user as a member, cached
        for five minutes; empty if there is none. Raises DeliveryFailed.
        """
        return await self._homes.get(user, lambda: self._ask_for_home(user))

    async def role_name(self, role: str, server: str) -> str:
        """Return the name of a role, cached for five minutes; empty if unknown. Raises DeliveryFailed."""
        named = (await self.server(server)).get_role(int(role)) if role.isdecimal() else None
        return single_line(named.name, NAME_LIMIT) if named is not None else ""

    # ------------------------------------------------------------------ people

    async def person(self, user: str, server: str) -> Person:
        """Return a user, cached for five minutes: for names and reading, not for decisions. Raises DeliveryFailed."""
        return await self._people.get((server, user), lambda: self._ask_for_person(user, server))

    async def member(self, user: str, server: str) -> Member:
        """Return a user with current rights and roles. Raises DeliveryFailed."""
        if not self.serves(server):
            return self._member(Person(user, user, external=True))
        await self._servers.refresh(server, lambda: self._ask_for_server(server))
        return self._member(await self._people.refresh((server, user), lambda: self._ask_for_person(user, server)))

    async def cached_member(self, user: str, server: str) -> Member:
        """Return a user with rights up to five minutes old. Raises DeliveryFailed."""
        return self._member(await self.person(user, server))

    def cached_name(self, user: str, server: str) -> str:
        """Return the name of a recently looked up user, or their id."""
        person = self._people.peek((server, user))
        return person.name if person is not None else user

    def stranger(self, user: discord.Member | discord.User) -> Member:
        """Return a user without any rights: a member of no served guild."""
        name = _name(user.display_name, str(user.id))
        return self._member(Person(str(user.id), name, external=True, bot=user.bot))

    def from_interaction(self, member: discord.Member) -> Member:
        """Return the member of an interaction or a message in a guild, with the current rights there."""
        person = self._person_of(member)
        self._people.put((str(member.guild.id), person.id), person)
        return self._member(person)

    def locale(self, user: str) -> Locale:
        """Return the language of a user's client, if an interaction has told it."""
        return Locale(self._languages.peek(user) or "")

    def remember_language(self, user: str, language: str) -> None:
        """Remember the language of a user's client, which only interactions tell."""
        self._languages.put(user, language)

    async def find_approver(self, principal: str, server: str) -> DirectoryEntry | None:
        """Return a user or role by its principal, up to five minutes old. None if it is gone, and for users without
        any right to approve. The members of a role are known with the Server Members intent, in guilds of up to
        MOST_MEMBERS members. Raises DeliveryFailed.
        """
        if principal.startswith(ROLE):
            role = principal.removeprefix(ROLE)
            name = await self.role_name(role, server)
            return DirectoryEntry(name, await self._members_of(role, server)) if name else None
        person = await self.person(principal.partition(":")[2], server)
        return None if person.external or person.bot else DirectoryEntry(person.name)

    def names(self, server: str) -> users.PrincipalNames:
        """Return the names of principals in a guild, for sentences and replies."""

        async def name(principal: str) -> str:
            if principal.startswith(ROLE):
                return await self.role_name(principal.removeprefix(ROLE), server)
            return (await self.person(principal.partition(":")[2], server)).name

        return users.PrincipalNames(_PRINCIPALS, name)

    async def _members_of(self, role: str, server: str) -> frozenset[str] | None:
        """Return the principals of a role's members, None if Discord does not tell. Bots are no members here."""
        members = await self._members.get(server, lambda: self._ask_for_members(server))
        if members is None:
            return None
        return frozenset(person.author.principal for person in members if role in person.roles and not person.external)

    # ------------------------------------------------------------------ asking

    async def _ask_for_servers(self) -> tuple[str, ...]:
        async with self._rest.request(gettext_lazy("list the bot's servers")) as client:
            guilds = [guild.id async for guild in client.fetch_guilds(limit=None, with_counts=False)]
        return tuple(map(str, sorted(guilds)))

    async def _ask_for_server(self, server: str) -> discord.Guild:
        async with self._rest.request(gettext_lazy("look at the server")) as client:
            return await client.fetch_guild(int(server), with_counts=False)

    async def _ask_for_members(self, server: str) -> tuple[Person, ...] | None:
        """Return the members of a guild; None without the intent, and for a large guild."""
        guild = await self.server(server)
        members: list[discord.Member] = []
        try:
            async with self._rest.request(gettext_lazy("list the members of a server")) as client:
                for _ in range(MOST_MEMBERS // MEMBERS_A_PAGE):
                    after = members[-1].id if members else 0
                    page = await client.http.get_members(guild.id, MEMBERS_A_PAGE, after)
                    members += (discord.Member(data=entry, guild=guild, state=guild._state) for entry in page)  # noqa: SLF001
                    if len(page) < MEMBERS_A_PAGE:
                        return tuple(map(self._person_of, members))
        except DiscordApiError as error:
            if not error.permanent:
                raise
        return None

    async def _ask_for_person(self, user: str, server: str) -> Person:
        if not user.isdecimal():
            return Person(user, user, external=True)
        guild = await self.server(server)
        try:
            async with self._rest.request(gettext_lazy("look somebody up")):
                return self._person_of(await guild.fetch_member(int(user)))
        except DiscordApiError as error:
            if error.status != 404:
                raise
            return Person(user, user, external=True)

    async def _ask_for_home(self, user: str) -> str:
        for server in await self.servers():
            try:
                person = await self.person(user, server)
            except DeliveryFailed as failure:
                if not failure.permanent:
                    raise
                continue  # the bot was sent away meanwhile
            if not person.external:
                return server
        return ""

    def _person_of(self, member: discord.Member) -> Person:
        server, rights = str(member.guild.id), member.resolved_permissions or member.guild_permissions
        is_timed_out = member.timed_out_until is not None and member.timed_out_until.timestamp() > time()
        return Person(
            id=str(member.id),
            name=_name(member.display_name, str(member.id)),
            roles=frozenset(str(role.id) for role in member.roles) - {server},
            admin=bool(rights.value & RIGHTS.value) or member.guild.owner_id == member.id,
            external=member.bot or member.pending or is_timed_out or not self.serves(server),
            bot=member.bot,
        )

    def _member(self, person: Person) -> Member:
        return replace(person.member, language=self._languages.peek(person.id))


def place_locale(guild: discord.Guild | None) -> Locale:
    """Return the locale of a guild. Only communities choose a language; all others have English."""
    if guild is None or "COMMUNITY" not in guild.features:
        return UNKNOWN
    return Locale(language_tag(guild.preferred_locale.value) or "")


def _name(given: object, user: str) -> str:
    return single_line(str(given or ""), NAME_LIMIT) or user
