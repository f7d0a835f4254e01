"""Who people are on the servers that are served: names, roles, rights.

Names are kept for five minutes; whoever decides by somebody's rights asks anew, or reads them off an interaction, to
which Discord attaches them as they are at that moment. Bots, people who are not members, members who have not passed
the server's screening, and members in a timeout are strangers, and so is whoever cannot be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any

import discord

from bot.domain.conversations import Author, Member
from bot.errors import DeliveryFailed
from bot.platforms.discord.errors import DiscordApiError
from bot.platforms.discord.ids import PLATFORM, ROLE
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.ttl_cache import TtlCache
from bot.rendering.text_safety import single_line

NAME_LIMIT = 80
SERVERS_A_PAGE = 200
RIGHTS = discord.Permissions(administrator=True, manage_guild=True)
"""Either makes somebody an administrator of the server."""


@dataclass(frozen=True, slots=True)
class Person:
    """One person or bot on one server, as Discord describes them there."""

    id: str
    name: str
    roles: frozenset[str] = frozenset()
    """Ids of roles, without the one that everybody has."""
    admin: bool = False
    external: bool = False
    bot: bool = False

    @property
    def author(self) -> Author:
        """As the engine knows people."""
        return Author(PLATFORM, self.id, self.name)

    @property
    def member(self) -> Member:
        """As decisions and commands know people."""
        roles = frozenset(f"{ROLE}{role}" for role in self.roles)
        return Member(self.author, roles, platform_admin=self.admin and not self.external, external=self.external)


@dataclass(frozen=True, slots=True)
class Server:
    """A Discord server (a guild). `rights` are each role's, and everybody's under the server's own id."""

    id: str
    name: str
    owner: str
    rights: Mapping[str, int]
    roles: Mapping[str, str]
    """Names of roles by their ids."""


class UserDirectory:
    """Looks people up. `servers` are the ids of the servers to serve; none named, every one the bot is in."""

    def __init__(
        self,
        rest: Rest,
        servers: frozenset[str] = frozenset(),
        *,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self._rest = rest
        self.wanted = servers
        self._clock = clock
        self._wall_clock = wall_clock
        self._people = TtlCache[tuple[str, str], Person](clock)
        self._servers = TtlCache[str, Server](clock)
        self._homes = TtlCache[str, str](clock)
        self._joined = TtlCache[str, tuple[str, ...]](clock)

    # ------------------------------------------------------------------ servers

    def serves(self, server: str) -> bool:
        """Whether people of this server are answered."""
        return bool(server) and (not self.wanted or server in self.wanted)

    async def servers(self) -> tuple[str, ...]:
        """The ids of the servers that are served, the oldest first, as of the last five minutes. Raises
        DeliveryFailed.
        """
        joined = await self._joined.get("", self._ask_for_servers)
        return tuple(server for server in joined if self.serves(server))

    async def server(self, server: str) -> Server:
        """A server as of the last five minutes. Raises DeliveryFailed."""
        return await self._servers.get(server, lambda: self._ask_for_server(server))

    async def home_of(self, user: str) -> str:
        """The server that somebody belongs to who writes to the bot directly: the oldest that is served and whose
        member they are, as of the last five minutes; empty if there is none. Raises DeliveryFailed.
        """
        return await self._homes.get(user, lambda: self._ask_for_home(user))

    async def role_name(self, role: str, server: str) -> str:
        """What people call a role, as of the last five minutes; empty if it is not known. Raises DeliveryFailed."""
        return (await self.server(server)).roles.get(role, "")

    # ------------------------------------------------------------------ people

    async def person(self, user: str, server: str) -> Person:
        """Somebody, as of the last five minutes: for names and for reading, never to decide by. Raises
        DeliveryFailed.
        """
        return await self._people.get((server, user), lambda: self._ask_for_person(user, server))

    async def member(self, user: str, server: str) -> Member:
        """Somebody with their rights and roles, asked for now. Raises DeliveryFailed."""
        if not self.serves(server):
            return Person(user, user, external=True).member
        await self._servers.refresh(server, lambda: self._ask_for_server(server))
        return (await self._people.refresh((server, user), lambda: self._ask_for_person(user, server))).member

    def cached_name(self, user: str, server: str) -> str:
        """The name of somebody who was looked up lately; their id if nobody did."""
        person = self._people.peek((server, user))
        return person.name if person is not None else user

    def from_interaction(self, who: discord.Member | discord.User) -> Member:
        """Somebody as an interaction or a message of a server brings them along: with the rights they have at that
        moment. Whoever comes without them, as in a direct conversation, is a stranger: ask for `member` instead.
        """
        if not isinstance(who, discord.Member):
            return Person(str(who.id), _name(who.display_name, str(who.id)), external=True, bot=who.bot).member
        server = str(who.guild.id)
        rights = who.resolved_permissions or who.guild_permissions
        person = Person(
            id=str(who.id),
            name=_name(who.display_name, str(who.id)),
            roles=frozenset(str(role.id) for role in who.roles) - {server},
            admin=bool(rights.value & RIGHTS.value) or who.guild.owner_id == who.id,
            external=who.bot or who.pending or self._silent_until(who.timed_out_until) or not self.serves(server),
            bot=who.bot,
        )
        self._people.put((server, person.id), person)
        return person.member

    # ------------------------------------------------------------------ asking

    async def _ask_for_servers(self) -> tuple[str, ...]:
        found: list[str] = []
        while True:
            query: dict[str, str | int] = {"limit": SERVERS_A_PAGE, **({"after": found[-1]} if found else {})}
            page = await self._rest.call("GET", "/users/@me/guilds", "list the bot's servers", query=query)
            found += [str(each["id"]) for each in page]
            if len(page) < SERVERS_A_PAGE:
                return tuple(sorted(found, key=int))

    async def _ask_for_server(self, server: str) -> Server:
        guild = await self._rest.call("GET", "/guilds/{guild_id}", "look at the server", guild_id=server)
        roles = [each for each in guild.get("roles") or () if isinstance(each, dict)]
        return Server(
            server,
            single_line(str(guild.get("name") or server), NAME_LIMIT),
            str(guild.get("owner_id") or ""),
            {str(each["id"]): int(each.get("permissions") or 0) for each in roles},
            {str(each["id"]): single_line(str(each.get("name") or ""), NAME_LIMIT) for each in roles},
        )

    async def _ask_for_person(self, user: str, server: str) -> Person:
        try:
            found = await self._rest.call(
                "GET", "/guilds/{guild_id}/members/{user_id}", "look somebody up", guild_id=server, user_id=user
            )
        except DiscordApiError as error:
            if error.status != 404:
                raise
            return Person(user, user, external=True)
        return self._read(user, found, await self.server(server))

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

    def _read(self, user: str, found: Mapping[str, Any], server: Server) -> Person:
        account = found.get("user") or {}
        roles = frozenset(str(role) for role in found.get("roles") or ())
        rights = server.rights.get(server.id, 0)
        for role in roles:
            rights |= server.rights.get(role, 0)
        bot = bool(account.get("bot"))
        return Person(
            id=user,
            name=_name(found.get("nick") or account.get("global_name") or account.get("username"), user),
            roles=roles,
            admin=bool(rights & RIGHTS.value) or server.owner == user,
            external=bot
            or bool(found.get("pending"))
            or self._silent_until(_moment(found.get("communication_disabled_until"))),
            bot=bot,
        )

    def _silent_until(self, moment: datetime | None) -> bool:
        """Whether somebody is in a timeout."""
        return moment is not None and moment.timestamp() > self._wall_clock()


def _name(given: object, user: str) -> str:
    return single_line(str(given or ""), NAME_LIMIT) or user


def _moment(given: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
