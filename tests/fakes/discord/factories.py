"""Creation of users, roles, guilds and channels."""

from __future__ import annotations

from tests.fakes.discord import events
from tests.fakes.discord.apps import App
from tests.fakes.discord.gateway import Gateway
from tests.fakes.discord.people import Member, Role, User
from tests.fakes.discord.permissions import FOR_EVERYONE, NOTHING, Permission
from tests.fakes.discord.places import Channel, Guild, Kind
from tests.fakes.discord.state import DiscordState


class Factories:
    """Users, guilds and channels of the fake. `guild` is the default guild of new objects."""

    def __init__(self, world: DiscordState) -> None:
        self.world = world
        self.gateway = Gateway(world)
        world.tell = self.gateway.tell
        self.guild = self.another_guild("Acme")

    @property
    def app(self) -> App:
        """The app under test."""
        return self.world.app

    @property
    def bot(self) -> User:
        """The app's own user."""
        return self.world.bot

    @property
    def bot_role(self) -> Role:
        """Return the app's role in the first guild, with the permissions of its invitation."""
        return self.guild.roles[self.guild.members[self.bot.id].roles[0]]

    def another_guild(self, name: str, *, with_bot: bool = True) -> Guild:
        """Add a further server with an owner. The app is in it by default."""
        guild = Guild(self.world.ids.new(), name)
        guild.roles[guild.id] = Role(guild.id, "@everyone", FOR_EVERYONE, position=0)
        owner = User(self.world.ids.new(), f"{name} owner")
        self.world.users[owner.id], guild.owner_id = owner, owner.id
        guild.members[owner.id] = Member(owner)
        self.world.guilds[guild.id] = guild
        guild.with_bot = False
        if with_bot:
            self.invite(guild)
        return guild

    def invite(self, guild: Guild, permissions: Permission = NOTHING) -> None:
        """Add the app to a guild, with the permissions of its own role beyond those of everyone."""
        role = Role(self.world.ids.new(), self.app.name, permissions, managed=True, bot=self.bot.id)
        guild.roles[role.id] = role
        guild.members[self.bot.id] = Member(self.bot, [role.id])
        guild.with_bot = True
        events.guild_joined(self.world, guild)

    def expel(self, guild: Guild) -> None:
        """Remove the app from a guild."""
        guild.members.pop(self.bot.id)
        guild.with_bot = False
        events.guild_left(self.world, guild)

    def user(
        self,
        name: str,
        *roles: Role,
        admin: bool = False,
        owner: bool = False,
        pending: bool = False,
        stranger: bool = False,
        guild: Guild | None = None,
    ) -> User:
        """Add a user. `admin` gives a role with Administrator; a `stranger` is a member of no guild."""
        user = User(self.world.ids.new(), name)
        self.world.users[user.id] = user
        if not stranger:
            self.join(user, guild or self.guild, *roles, pending=pending)
        if admin:
            self.give(user, self.role(f"{name}'s admin", permissions=Permission.ADMINISTRATOR, guild=guild))
        if owner:
            (guild or self.guild).owner_id = user.id
        return user

    def other_bot(self, name: str = "Builds", guild: Guild | None = None) -> User:
        """Another app's bot."""
        bot = User(self.world.ids.new(), name, bot=True)
        self.world.users[bot.id] = bot
        self.join(bot, guild or self.guild)
        return bot

    def webhook(self, name: str = "Alerts") -> User:
        """Add a webhook that posts in channels; it is a member of no guild."""
        hook = User(self.world.ids.new(), name, webhook=True)
        self.world.users[hook.id] = hook
        return hook

    def role(
        self,
        name: str,
        *members: User,
        permissions: Permission = NOTHING,
        mentionable: bool = False,
        guild: Guild | None = None,
    ) -> Role:
        """Add a role with its members."""
        where = guild or self.guild
        role = Role(self.world.ids.new(), name, permissions, mentionable, position=len(where.roles))
        where.roles[role.id] = role
        events.role_told(self.world, "GUILD_ROLE_CREATE", where, role)
        for user in members:
            self.give(user, role)
        return role

    def channel(
        self, name: str, *only: User, kind: Kind = Kind.TEXT, with_bot: bool = True, guild: Guild | None = None
    ) -> Channel:
        """Add a channel for all members of a guild, or for the named users only. It includes the app by default."""
        where = guild or self.guild
        channel = Channel(self.world.ids.new(), name, kind, where)
        if only or not with_bot:
            channel.forbid(where.everyone, Permission.VIEW_CHANNEL)
            for user in (*only, *([self.bot] if with_bot else [])):
                channel.permit(user, Permission.VIEW_CHANNEL)
        self.world.channels[channel.id] = channel
        events.channel_told(self.world, "CHANNEL_CREATE", channel)
        return channel

    def install(self, user: User) -> None:
        """Install the app as a user, which the portal must allow."""
        assert self.app.user_install, "the portal does not allow it"
        self.app.installed_by.add(user.id)

    def private(self, *users: User) -> Channel:
        """Add a direct conversation between users, without the app."""
        channel = Channel(self.world.ids.new(), "", Kind.DM, recipients=list(users))
        self.world.channels[channel.id] = channel
        return channel

    def dm(self, user: User) -> Channel:
        """Return the direct conversation of a user with the app."""
        return self.world.dm(user)

    # Changes of users

    def join(self, user: User, guild: Guild, *roles: Role, pending: bool = False) -> Member:
        """Come into a guild."""
        member = guild.members[user.id] = Member(user, [role.id for role in roles], pending=pending)
        events.member_told(self.world, "GUILD_MEMBER_ADD", guild, member)
        return member

    def leave(self, user: User, guild: Guild | None = None) -> None:
        """Leave a guild, or be put out."""
        where = guild or self.guild
        member = where.members.pop(user.id)
        events.member_told(self.world, "GUILD_MEMBER_REMOVE", where, member)

    def give(self, user: User, role: Role) -> None:
        """Give a user a role."""
        guild, member = self._membership(user, role)
        if role.id not in member.roles:
            member.roles.append(role.id)
        events.member_told(self.world, "GUILD_MEMBER_UPDATE", guild, member)

    def take(self, user: User, role: Role) -> None:
        """Take a role from a user."""
        guild, member = self._membership(user, role)
        member.roles.remove(role.id)
        events.member_told(self.world, "GUILD_MEMBER_UPDATE", guild, member)

    def time_out(self, user: User, seconds: float, guild: Guild | None = None) -> None:
        """Time a member out for a while."""
        where = guild or self.guild
        member = where.members[user.id]
        member.timed_out_until = self.world.now() + seconds
        events.member_told(self.world, "GUILD_MEMBER_UPDATE", where, member)

    def _membership(self, user: User, role: Role) -> tuple[Guild, Member]:
        guild = next(guild for guild in self.world.guilds.values() if role.id in guild.roles)
        return guild, guild.members[user.id]
