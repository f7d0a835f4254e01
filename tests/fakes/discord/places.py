"""Guilds, channels, threads, direct messages, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from tests.fakes.discord.people import JOINED, Member, Role, User
from tests.fakes.discord.permissions import (
    EVERYTHING,
    IN_A_DM,
    WHILE_TIMED_OUT,
    Overwrite,
    Permission,
    apply_overwrites,
)
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.snowflakes import moment_of
from tests.fakes.discord.times import iso


class Kind(IntEnum):
    """Supported types of Discord's channels."""

    TEXT = 0
    DM = 1
    VOICE = 2
    CATEGORY = 4
    ANNOUNCEMENT = 5
    ANNOUNCEMENT_THREAD = 10
    PUBLIC_THREAD = 11
    PRIVATE_THREAD = 12
    STAGE = 13
    FORUM = 15


THREADS = frozenset({Kind.ANNOUNCEMENT_THREAD, Kind.PUBLIC_THREAD, Kind.PRIVATE_THREAD})
VOCAL = frozenset({Kind.VOICE, Kind.STAGE})
HOLDS_MESSAGES = frozenset({Kind.TEXT, Kind.DM, Kind.ANNOUNCEMENT}) | VOCAL | THREADS


@dataclass
class Channel:
    """A channel, a thread (with `parent`) or a direct conversation (with `recipients`, without the bot).

    `members` are the ids of the users in a thread.
    """

    id: str
    name: str
    kind: Kind = Kind.TEXT
    guild: Guild | None = None
    parent: Channel | None = None
    overwrites: list[Overwrite] = field(default_factory=list)
    recipients: list[User] = field(default_factory=list)
    owner_id: str = ""
    members: list[str] = field(default_factory=list)
    archived: bool = False
    locked: bool = False
    archived_at: float = JOINED
    auto_archive: int = 4320
    slow: int = 0
    """Seconds between two messages of one user (`rate_limit_per_user`)."""
    topic: str | None = None
    last_message_id: str | None = None
    message_count: int = 0
    deleted: bool = False

    @property
    def is_thread(self) -> bool:
        """Does it belong to another channel?"""
        return self.kind in THREADS

    @property
    def mention(self) -> str:
        """The text that Discord inserts for a typed #name."""
        return f"<#{self.id}>"

    def permissions(self, user: User, now: float) -> Permission:
        """Return the user's permissions in the channel; empty for a user outside the guild."""
        if self.guild is None:
            is_there = user in self.recipients or (user.bot and len(self.recipients) == 1)
            return IN_A_DM if is_there else Permission(0)
        member = self.guild.members.get(user.id)
        if member is None:
            return Permission(0)
        if user.id == self.guild.owner_id:
            return EVERYTHING
        base = self.guild.permissions(member)
        overwrites = (self.parent or self).overwrites
        permissions = apply_overwrites(base, overwrites, self.guild.id, member.roles, user.id)
        if member.timed_out_until > now and not permissions & Permission.ADMINISTRATOR:
            permissions &= WHILE_TIMED_OUT
        hidden = self.kind is Kind.PRIVATE_THREAD and user.id not in self.members
        return Permission(0) if hidden and not permissions & Permission.MANAGE_THREADS else permissions

    def forbid(self, to: User | Role, *permissions: Permission) -> None:
        """Deny something here to one user or role."""
        overwrite = self._overwrite(to)
        for permission in permissions:
            overwrite.deny, overwrite.allow = overwrite.deny | permission, overwrite.allow & ~permission

    def permit(self, to: User | Role, *permissions: Permission) -> None:
        """Allow something here to one user or role."""
        overwrite = self._overwrite(to)
        for permission in permissions:
            overwrite.allow, overwrite.deny = overwrite.allow | permission, overwrite.deny & ~permission

    def to_json(self, me: User | None = None) -> Json:
        """Return the channel object. That of a thread says if `me` is a member of it."""
        described: Json = {"id": self.id, "type": int(self.kind), "last_message_id": self.last_message_id, "flags": 0}
        if self.guild is None:
            return described | {"recipients": [user.to_json() for user in self.recipients]}
        described |= {
            "guild_id": self.guild.id,
            "name": self.name,
            "parent_id": self.parent.id if self.parent else None,
            "rate_limit_per_user": self.slow,
        }
        if self.is_thread:
            return described | self._as_thread(me)
        described |= {
            "position": 0,
            "topic": self.topic,
            "nsfw": False,
            "permission_overwrites": [overwrite.to_json() for overwrite in self.overwrites],
        }
        if self.kind in VOCAL:
            return described | {"bitrate": 64_000, "user_limit": 0, "rtc_region": None}
        if self.kind is Kind.FORUM:
            of_posts = {"default_reaction_emoji": None, "default_sort_order": None, "default_forum_layout": 0}
            return described | {"available_tags": [], **of_posts}
        return described

    def _as_thread(self, me: User | None) -> Json:
        joined = iso(moment_of(self.id))
        described: Json = {
            "owner_id": self.owner_id,
            "message_count": min(self.message_count, 50),
            "total_message_sent": self.message_count,
            "member_count": min(len(self.members), 50),
            "thread_metadata": {
                "archived": self.archived,
                "auto_archive_duration": self.auto_archive,
                "archive_timestamp": iso(self.archived_at),
                "locked": self.locked,
                "create_timestamp": joined,
            },
        }
        if me is not None and me.id in self.members:
            described["member"] = {"id": self.id, "user_id": me.id, "join_timestamp": joined, "flags": 0}
        return described

    def _overwrite(self, to: User | Role) -> Overwrite:
        for overwrite in self.overwrites:
            if overwrite.target == to.id:
                return overwrite
        self.overwrites.append(Overwrite(to.id, isinstance(to, Role)))
        return self.overwrites[-1]


@dataclass
class Guild:
    """A server. `with_bot` False: the application is not in it."""

    id: str
    name: str
    owner_id: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    with_bot: bool = True
    features: list[str] = field(default_factory=list)
    locale: str = "en-US"
    """Only communities may choose another one."""

    @property
    def everyone(self) -> Role:
        """The role that all have."""
        return self.roles[self.id]

    def permissions(self, member: Member) -> Permission:
        """Permissions of a member before the overwrites of channels."""
        if member.user.id == self.owner_id:
            return EVERYTHING
        permissions = self.everyone.permissions
        for role in member.roles:
            permissions |= self.roles[role].permissions
        return EVERYTHING if permissions & Permission.ADMINISTRATOR else permissions

    def to_json(self) -> Json:
        """Return the guild object, as GET /guilds/{guild} gives it."""
        return {
            "id": self.id,
            "name": self.name,
            "owner_id": self.owner_id,
            "icon": None,
            "splash": None,
            "discovery_splash": None,
            "banner": None,
            "description": None,
            "region": "deprecated",
            "afk_channel_id": None,
            "afk_timeout": 300,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "premium_tier": 0,
            "premium_progress_bar_enabled": False,
            "preferred_locale": self.locale,
            "application_id": None,
            "system_channel_id": None,
            "system_channel_flags": 0,
            "rules_channel_id": None,
            "public_updates_channel_id": None,
            "safety_alerts_channel_id": None,
            "vanity_url_code": None,
            "roles": [role.to_json() for role in self.roles.values()],
            "emojis": [],
            "stickers": [],
            "features": list(self.features),
        }
