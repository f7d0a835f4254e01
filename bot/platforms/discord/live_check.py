"""Discord's part of the checks on a live server (`bot.chat.live_check`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from uuid import uuid4

import aiohttp
import discord

from bot.chat.live_check import MARK, CheckSkipped, Extra, LiveMessageApi, LiveMessages
from bot.chat.message_model import Block, Message
from bot.domain.conversations import ConversationKey
from bot.domain.health import Check, CheckStatus
from bot.errors import DeliveryFailed
from bot.platforms.discord.channels import (
    MessageRef,
    channel_id_of,
    conversation,
    direct_channel,
    fetch_channel,
    open_thread,
)
from bot.platforms.discord.components import CONTENT, OutgoingMessage
from bot.platforms.discord.diagnostics import COMMANDS_CHECK, check_commands, diagnose, diagnose_channel
from bot.platforms.discord.message_layout import outgoing_message
from bot.platforms.discord.rest import FileUpload, Rest
from bot.platforms.discord.sending import DiscordMessages
from bot.platforms.discord.users import UserDirectory

MOST_MESSAGES = 100
REGISTRATION_LOOKS = 15
"""Looks for the registered commands, one a second."""
NO_THREAD = "The bot may not open a thread in the channel."


class DiscordLiveCheck:
    """A Discord server to be checked."""

    name = "Discord"
    longest = 3_900
    layouts: Sequence[tuple[str, Sequence[Block]]] = ()
    removes_threads = True

    def __init__(self, rest: Rest, people: UserDirectory) -> None:
        self._rest = rest
        self._people = people
        self._native = DiscordMessages(rest)
        self._messages = LiveMessages(self._native, _in_channel)
        self.extras: Sequence[tuple[str, Extra]] = (("plain message", self._plain), ("typing", self._typing))

    @property
    def messages(self) -> LiveMessageApi:
        """Messages without fallbacks."""
        return self._messages

    async def examine(self, channel: ConversationKey) -> AsyncGenerator[Check, None]:
        """Check the token, the application, the servers, the commands and the channel."""
        checks = diagnose(self._rest, self._people)
        async with aclosing(checks):
            async for check in checks:
                # The bot of the test registers the commands first.
                if check.name != COMMANDS_CHECK:
                    yield check
        yield replace(await diagnose_channel(self._rest, self._people, channel, "--channel"), name="channel")

    async def examine_connected(self) -> AsyncGenerator[Check, None]:
        """Check the commands, which are registered at the start of the bot."""
        identity = await self._rest.identity()
        for _ in range(REGISTRATION_LOOKS):
            check = await check_commands(self._rest, identity)
            if check.finding is CheckStatus.WELL:
                break
            await asyncio.sleep(1)
        yield check

    async def mention(self) -> str:
        """Return the mention of the bot."""
        return f"@{(await self._rest.identity()).name}"

    async def locate(self, channel: ConversationKey) -> ConversationKey:
        """Return the channel with its server. Raises DeliveryFailed."""
        place = await fetch_channel(self._rest, channel.channel)
        if place is None or place.direct:
            raise DeliveryFailed("That is no channel of a server.", "name a text channel by its id", permanent=True)
        return conversation(place.server, place.channel)

    async def thread(self, channel: ConversationKey, ref: str) -> ConversationKey:
        """Open a thread at a message. Raises DeliveryFailed."""
        posted = MessageRef.parse(ref)
        thread = await open_thread(self._rest, posted.channel, posted.message, MARK) if posted is not None else ""
        if not thread:
            fix = "give its role Create Public Threads and Send Messages in Threads there"
            raise DeliveryFailed(NO_THREAD, fix, permanent=True)
        return replace(channel, thread=thread)

    async def share(self, thread: ConversationKey, name: str, content: bytes) -> str:
        """Post a message with a file in a thread, and return its ref."""
        message = OutgoingMessage("file", f"-# {MARK}", file=FileUpload(name, content), place=thread.thread)
        return await self._native.create(_Owner(thread), message, "")

    async def unshare(self, file: str) -> None:
        """Delete the message with a file."""
        await self._native.remove(file)

    async def remove_thread(self, thread: ConversationKey) -> None:
        """Delete a thread, which needs the permission Manage Threads."""
        try:
            async with self._rest.request("delete a thread") as client:
                await client.http.delete_channel(int(thread.thread))
        except DeliveryFailed as error:
            fix = "delete the thread by hand, or give the bot's role Manage Threads for the test"
            raise DeliveryFailed("Discord does not let the bot delete a thread.", fix, permanent=True) from error

    async def direct_channel(self, user: str) -> str:
        """Return the direct channel with a user."""
        return await direct_channel(self._rest, user)

    async def _plain(self, thread: ConversationKey, _root: str) -> str:
        """Post the longest message that is not laid out. It is found among the bot's own in the end."""
        text = f"{MARK}. ".ljust(CONTENT, ".")
        await self._native.create(_Owner(thread), OutgoingMessage("plain", text, place=thread.thread), "")
        return f"{CONTENT:,} characters are accepted."

    async def _typing(self, thread: ConversationKey, _root: str) -> str:
        """Show that the bot types."""
        async with self._rest.request("show that it types") as client:
            await client.get_partial_messageable(int(thread.thread)).typing()
        return "The bot can show that it types."

    async def own_messages(self, conversation: ConversationKey, since: str) -> Sequence[str]:
        """Return the refs of the bot's messages in a channel or thread, from a message on."""
        first, user = MessageRef.parse(since), (await self._rest.identity()).user
        after = discord.Object(int(first.message) - 1) if first is not None else None
        channel = channel_id_of(conversation)
        async with self._rest.request("read its messages") as client:
            history = client.get_partial_messageable(int(channel)).history(limit=MOST_MESSAGES, after=after)
            return [
                str(MessageRef(channel, str(posted.id))) async for posted in history if str(posted.author.id) == user
            ]

    async def rate_limits(self, channel: ConversationKey) -> str:
        """Return the limit that Discord names in its headers. Raises CheckSkipped if it names none."""
        url = f"{self._rest.url}/channels/{channel.channel}/messages?limit=1"
        try:
            async with self._rest.session.get(url, headers={"Authorization": f"Bot {self._rest.token}"}) as answer:
                limit = answer.headers.get("X-RateLimit-Limit", "")
                seconds = answer.headers.get("X-RateLimit-Reset-After", "")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryFailed("Discord did not answer.", "check the network and discordstatus.com") from error
        if not limit:
            raise CheckSkipped("Discord named no limit.")
        return f"Discord names them: {limit} requests, anew in {seconds} s."


class _Owner:
    """Owner of a single message."""

    created_at = 0.0

    def __init__(self, thread: ConversationKey) -> None:
        self.id = uuid4().hex
        self.conversation = thread


def _in_channel(message: Message, channel: str) -> OutgoingMessage:
    return replace(outgoing_message(message), place=channel)
