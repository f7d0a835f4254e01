"""The state of the fake: the app, guilds, members, messages, interactions, the log of calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.fakes.clock import Clock
from tests.fakes.discord.apps import App
from tests.fakes.discord.calls import CallLog
from tests.fakes.discord.faults import Faults
from tests.fakes.discord.files import StoredFile
from tests.fakes.discord.limits import Limits
from tests.fakes.discord.messages import Message
from tests.fakes.discord.pace import Pace
from tests.fakes.discord.people import User
from tests.fakes.discord.permissions import Permission
from tests.fakes.discord.places import Channel, Guild, Kind
from tests.fakes.discord.refusals import Json, Refused
from tests.fakes.discord.snowflakes import Snowflakes

if TYPE_CHECKING:
    from tests.fakes.discord.intents import Intent
    from tests.fakes.discord.interactions import Interaction

Tell = Callable[[str, Json, "Intent | None", "Json | None"], None]


@dataclass
class DiscordState:
    """The state that routes, the gateway and the driver share."""

    clock: Clock
    app: App
    limits: Limits
    pace: Pace
    ids: Snowflakes
    users: dict[str, User] = field(default_factory=dict)
    guilds: dict[str, Guild] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    messages: dict[str, dict[str, Message]] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    created: list[float] = field(default_factory=list)
    """Times of new registrations of commands."""
    nonces: dict[tuple[str, str], Message] = field(default_factory=dict)
    typing: dict[str, float] = field(default_factory=dict)
    """Time of the app's last typing indicator, by channel."""
    interactions: dict[str, Interaction] = field(default_factory=dict)
    """By token."""
    calls: CallLog = field(default_factory=CallLog)
    faults: Faults = field(default_factory=Faults)
    broken: list[Exception] = field(default_factory=list)
    """Errors of the fake itself; they end the test."""
    unknown: list[str] = field(default_factory=list)
    """Routes, fields and parameters asked for that the fake does not know; they end the test."""
    base: str = ""
    gateway_url: str = ""
    identified: int = 0
    tell: Tell = lambda event, data, intent, bare: None

    @property
    def bot(self) -> User:
        """The app's own user."""
        return self.app.bot

    def now(self) -> float:
        """Return the time."""
        return self.clock.now()

    def may(self, channel: Channel, *permissions: Permission) -> bool:
        """May the app do all of this in a channel?"""
        granted = channel.permissions(self.bot, self.now())
        return all(granted & permission for permission in permissions)

    def need(self, channel: Channel, *permissions: Permission) -> None:
        """See that the app may do this in a channel.

        Raises:
            Refused: 50001 where it does not even see the channel, 50013 where it lacks something else.
        """
        if not self.may(channel, Permission.VIEW_CHANNEL):
            raise Refused(50001)
        if not self.may(channel, *permissions):
            raise Refused(50013)

    def channel(self, channel: str) -> Channel:
        """Return the channel with this id, if it is in a guild of the app's or its own direct conversation.

        Raises:
            Refused: 10003.
        """
        found = self.channels.get(channel)
        if found is None or found.deleted or (found.guild is not None and not found.guild.with_bot):
            raise Refused(10003)
        if found.guild is None and len(found.recipients) != 1:
            raise Refused(50001)
        return found

    def guild(self, guild: str) -> Guild:
        """Return the guild with this id.

        Raises:
            Refused: 10004, also if the app is not in it.
        """
        found = self.guilds.get(guild)
        if found is None or not found.with_bot:
            raise Refused(10004)
        return found

    def message(self, channel: str, message: str) -> Message:
        """A message that is there for all; an ephemeral one is not.

        Raises:
            Refused: 10008.
        """
        found = self.messages.get(channel, {}).get(message)
        if found is None or found.deleted or found.ephemeral_to:
            raise Refused(10008)
        return found

    def history(self, channel: str) -> list[Message]:
        """The messages of a channel that are there for all, oldest first."""
        kept = self.messages.get(channel, {}).values()
        return sorted((m for m in kept if not m.deleted and not m.ephemeral_to), key=lambda m: int(m.id))

    def store(self, name: str, content: bytes, channel: str) -> StoredFile:
        """Keep a file and give it an address."""
        file_id = self.ids.new()
        signed = "ex=70000000&is=60000000&hm=0"
        url = f"{self.base}/attachments/{channel}/{file_id}/{name}?{signed}"
        stored = StoredFile(file_id, name, content, url)
        self.files[file_id] = stored
        return stored

    def dm(self, user: User) -> Channel:
        """Return the direct conversation of the app with a user; open it if it is missing."""
        for channel in self.channels.values():
            if channel.kind is Kind.DM and channel.recipients == [user]:
                return channel
        opened = Channel(self.ids.new(), "", Kind.DM, recipients=[user])
        self.channels[opened.id] = opened
        return opened
