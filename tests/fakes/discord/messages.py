"""A message, its flags, and how Discord describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

from tests.fakes.discord.files import StoredFile
from tests.fakes.discord.people import Role, User
from tests.fakes.discord.places import Channel
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.snowflakes import moment_of
from tests.fakes.discord.times import iso


class Flag(IntFlag):
    """Supported message flags."""

    SUPPRESS_EMBEDS = 1 << 2
    HAS_THREAD = 1 << 5
    EPHEMERAL = 1 << 6
    LOADING = 1 << 7
    SUPPRESS_NOTIFICATIONS = 1 << 12
    IS_COMPONENTS_V2 = 1 << 15


class Type(IntEnum):
    """Supported message types."""

    DEFAULT = 0
    MEMBER_JOIN = 7
    THREAD_CREATED = 18
    REPLY = 19
    CHAT_INPUT_COMMAND = 20
    THREAD_STARTER_MESSAGE = 21
    CONTEXT_MENU_COMMAND = 23


SYSTEM = frozenset({Type.MEMBER_JOIN, Type.THREAD_CREATED, Type.THREAD_STARTER_MESSAGE})
EDITABLE = frozenset({Type.DEFAULT, Type.REPLY, Type.CHAT_INPUT_COMMAND, Type.CONTEXT_MENU_COMMAND})


@dataclass(eq=False)
class Message:
    """One message. `past` holds its description before each change.

    `pings` are the ids of notified users and roles, and 'everyone' or 'here'.
    """

    id: str
    channel: Channel
    author: User
    content: str = ""
    type: Type = Type.DEFAULT
    components: list[Json] = field(default_factory=list)
    embeds: list[Json] = field(default_factory=list)
    files: list[StoredFile] = field(default_factory=list)
    flags: Flag = Flag(0)
    reply_to: Message | None = None
    mentions: list[User] = field(default_factory=list)
    mentioned_roles: list[Role] = field(default_factory=list)
    mentions_everyone: bool = False
    pings: set[str] = field(default_factory=set)
    nonce: str | None = None
    edited_at: float | None = None
    ephemeral_to: str = ""
    webhook_id: str = ""
    interaction: Json | None = None
    thread: Channel | None = None
    reactions: dict[str, list[str]] = field(default_factory=dict)
    deleted: bool = False
    past: list[Json] = field(default_factory=list)
    extra: Json = field(default_factory=dict)
    """More fields of the message object."""

    @property
    def at(self) -> float:
        """Time of posting, in seconds since 1970."""
        return moment_of(self.id)

    @property
    def url(self) -> str:
        """Link to the message, as copied in Discord's client."""
        guild = self.channel.guild.id if self.channel.guild else "@me"
        return f"https://discord.com/channels/{guild}/{self.channel.id}/{self.id}"

    @property
    def is_v2(self) -> bool:
        """Is it made of display components?"""
        return Flag.IS_COMPONENTS_V2 in self.flags

    @property
    def loading(self) -> bool:
        """Does it still show that the app is thinking?"""
        return Flag.LOADING in self.flags

    def remember(self) -> None:
        """Keep the present description before a change."""
        self.past.append(self.to_json(deep=False))

    def to_json(self, *, bare: bool = False, deep: bool = True) -> Json:
        """Return the message object. `bare` leaves out the fields that need the Message Content intent.

        `deep` includes the message it replies to.
        """
        described: Json = {
            "id": self.id,
            "channel_id": self.channel.id,
            "type": int(self.type),
            "author": self.author.to_json(),
            "content": "" if bare else self.content,
            "timestamp": iso(self.at),
            "edited_timestamp": iso(self.edited_at) if self.edited_at else None,
            "tts": False,
            "mention_everyone": self.mentions_everyone,
            "mentions": [user.to_json() for user in self.mentions],
            "mention_roles": [role.id for role in self.mentioned_roles],
            "attachments": [] if bare else [stored.to_json() for stored in self.files],
            "embeds": [] if bare else self.embeds,
            "components": [] if bare else self.components,
            "pinned": False,
            "flags": int(self.flags),
        }
        if self.nonce is not None:
            described["nonce"] = self.nonce
        if self.webhook_id:
            described["webhook_id"] = self.webhook_id
        if self.interaction is not None:
            described |= {"application_id": self.webhook_id, "interaction_metadata": self.interaction}
        if self.thread is not None:
            described["thread"] = self.thread.to_json()
        if self.reply_to is not None:
            described |= self._reference(deep)
        return described | ({} if bare else self.extra)

    def event(self, *, bare: bool = False) -> Json:
        """Body of MESSAGE_CREATE and MESSAGE_UPDATE: the guild and the authors' memberships as well."""
        described, guild = self.to_json(bare=bare), self.channel.guild
        if guild is None:
            return described
        described["guild_id"] = guild.id
        if self.author.id in guild.members:
            described["member"] = guild.members[self.author.id].to_json(with_user=False)
        for mention in described["mentions"]:
            if mention["id"] in guild.members:
                mention["member"] = guild.members[mention["id"]].to_json(with_user=False)
        return described

    def _reference(self, deep: bool) -> Json:
        to = self.reply_to
        assert to is not None
        reference: Json = {"type": 0, "message_id": to.id, "channel_id": to.channel.id}
        if to.channel.guild:
            reference["guild_id"] = to.channel.guild.id
        if not deep:
            return {"message_reference": reference}
        return {
            "message_reference": reference,
            "referenced_message": None if to.deleted else to.to_json(deep=False),
        }
