"""Intents: the events that an app asks for when it connects, and the parts of messages that it may see."""

from __future__ import annotations

from enum import IntFlag

from tests.fakes.discord.apps import App
from tests.fakes.discord.messages import Message


class Intent(IntFlag):
    """Intents of the gateway, with those whose events the fake never sends."""

    GUILDS = 1 << 0
    GUILD_MEMBERS = 1 << 1
    GUILD_MODERATION = 1 << 2
    GUILD_EXPRESSIONS = 1 << 3
    GUILD_INTEGRATIONS = 1 << 4
    GUILD_WEBHOOKS = 1 << 5
    GUILD_INVITES = 1 << 6
    GUILD_VOICE_STATES = 1 << 7
    GUILD_PRESENCES = 1 << 8
    GUILD_MESSAGES = 1 << 9
    GUILD_MESSAGE_REACTIONS = 1 << 10
    GUILD_MESSAGE_TYPING = 1 << 11
    DIRECT_MESSAGES = 1 << 12
    DIRECT_MESSAGE_REACTIONS = 1 << 13
    DIRECT_MESSAGE_TYPING = 1 << 14
    MESSAGE_CONTENT = 1 << 15
    GUILD_SCHEDULED_EVENTS = 1 << 16
    AUTO_MODERATION_CONFIGURATION = 1 << 20
    AUTO_MODERATION_EXECUTION = 1 << 21
    GUILD_MESSAGE_POLLS = 1 << 24
    DIRECT_MESSAGE_POLLS = 1 << 25


ALL_INTENTS = sum(Intent)


def has_disallowed_intent(intents: int, app: App) -> bool:
    """Does it ask for a privileged intent that is not switched on?"""
    switches = (
        (Intent.MESSAGE_CONTENT, app.message_content),
        (Intent.GUILD_MEMBERS, app.guild_members),
        (Intent.GUILD_PRESENCES, app.presences),
    )
    return any(intents & intent and not on for intent, on in switches)


def content_is_hidden(message: Message, app: App) -> bool:
    """Is the content withheld from an app without the Message Content intent?

    It is not for its own messages, direct ones, and those that mention it, replies with a ping among them.
    """
    return not (message.author is app.bot or message.channel.guild is None or app.bot in message.mentions)
