"""Users, members, roles, and their JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.times import iso

JOINED = 1_577_836_800.0


@dataclass
class User:
    """A user, a bot, or a webhook (`webhook`). With `takes_dms` False, direct messages are refused.

    `locale` is that of the client, which interactions contain.
    """

    id: str
    name: str
    bot: bool = False
    webhook: bool = False
    takes_dms: bool = True
    locale: str = "en-US"

    @property
    def mention(self) -> str:
        """The text that Discord inserts for a typed @name."""
        return f"<@{self.id}>"

    @property
    def handle(self) -> str:
        """The unique name."""
        return self.name.lower().replace(" ", ".")

    def to_json(self) -> Json:
        """Return the user object."""
        described: Json = {
            "id": self.id,
            "username": self.handle,
            "discriminator": "0000" if self.webhook else "0",
            "global_name": None if self.bot or self.webhook else self.name,
            "avatar": None,
            "public_flags": 0,
        }
        return described | ({"bot": True} if self.bot or self.webhook else {})


@dataclass
class Role:
    """A role of a guild. The one with the guild's id is @everyone; `bot` is the app's user whose own role it is."""

    id: str
    name: str
    permissions: Permission = Permission(0)
    mentionable: bool = False
    managed: bool = False
    position: int = 1
    bot: str = ""

    @property
    def mention(self) -> str:
        """The text that Discord inserts for a typed @role."""
        return f"<@&{self.id}>"

    def to_json(self) -> Json:
        """Return the role object."""
        return {
            "id": self.id,
            "name": self.name,
            "permissions": str(int(self.permissions)),
            "position": self.position,
            "color": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
            "hoist": False,
            "icon": None,
            "unicode_emoji": None,
            "managed": self.managed,
            "mentionable": self.mentionable,
            "flags": 0,
            **({"tags": {"bot_id": self.bot}} if self.bot else {}),
        }


@dataclass
class Member:
    """A user in a guild. `roles`: ids. `pending`: has not passed the membership screening."""

    user: User
    roles: list[str] = field(default_factory=list)
    nick: str | None = None
    pending: bool = False
    timed_out_until: float = 0.0

    def to_json(self, *, with_user: bool = True, permissions: Permission | None = None) -> Json:
        """Return the member object; messages carry it without the user, interactions with the permissions in the
        channel.
        """
        described: Json = {
            "roles": list(self.roles),
            "nick": self.nick,
            "avatar": None,
            "banner": None,
            "joined_at": iso(JOINED),
            "premium_since": None,
            "deaf": False,
            "mute": False,
            "flags": 0,
            "pending": self.pending,
            "communication_disabled_until": iso(self.timed_out_until) if self.timed_out_until else None,
        }
        if with_user:
            described["user"] = self.user.to_json()
        if permissions is not None:
            described["permissions"] = str(int(permissions) & ((1 << 53) - 1))
        return described
