"""Checks of the Discord setup for `countersign doctor`, and Discord's part of the checks on a live server
(`bot.chat.live_check`).

`diagnose` posts nothing, and does not connect the gateway, because Discord allows a thousand new sessions a day.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import monotonic
from urllib.parse import urlencode
from uuid import uuid4

import aiohttp
import discord

from bot.chat.delivery import NoticeOwner
from bot.chat.http import unreachable
from bot.chat.live_check import MARK, LivePlatform, accepted_length
from bot.domain.conversations import ConversationKey
from bot.errors import CountersignError, DeliveryFailed
from bot.examination import Check, CheckSkipped, CheckStatus
from bot.i18n import LazyFields, _, format_list, gettext_lazy, ngettext_lazy
from bot.platforms.discord.components import CONTENT, OutgoingMessage
from bot.platforms.discord.message_layout import outgoing_message
from bot.platforms.discord.rest import (
    FileUpload,
    Identity,
    MessageRef,
    Rest,
    channel_id_of,
    conversation,
    direct_channel,
    fetch_channel,
    open_thread,
)
from bot.platforms.discord.sending import DiscordMessages
from bot.platforms.discord.users import UserDirectory

# -------------------- permissions
# Bits as in docs.discord.com, "Permissions".

SCOPES = ("bot", "applications.commands")
AUTHORIZE = "https://discord.com/oauth2/authorize"
ADMINISTRATOR = 1 << 3

OPS_CHANNEL = gettext_lazy("ops channel")
_TOKEN = gettext_lazy("token")
_SERVERS = gettext_lazy("servers")
COMMANDS_CHECK = gettext_lazy("commands")
COMMANDS = ("agents", "approvals", "ask", "console", "conversations", "mcp", "preferences", "profile", "usage")
NAMED = 10
"""Servers that are looked at one by one; the rest is counted."""
READS_ALL = gettext_lazy("It is switched on: conversations go on in threads without a mention.")
READS_SOME = gettext_lazy(
    "It is switched off: mentions, direct messages and replies with a ping work; in threads people have to mention the "
    "bot each time."
)
PRIVATE = gettext_lazy("Only the owner of the application can invite the bot.")
NAMED_SERVERS = gettext_lazy(
    "Every Discord user can invite the bot; it answers only on the servers that DISCORD_SERVERS names."
)
PUBLIC = gettext_lazy(
    "Every Discord user can invite the bot to a server of theirs, where it would answer with your tools."
)
MAKE_IT_PRIVATE = gettext_lazy(
    "switch off Public Bot on the Bot page of the application, or name your servers in DISCORD_SERVERS"
)
CLEAR_IT = gettext_lazy("clear Interactions Endpoint URL on the General Information page of the application")
SWITCH_IT_ON = gettext_lazy("switch on Message Content Intent on the Bot page of the application, if you want that")
MOST_MESSAGES = 100
REGISTRATION_LOOKS = 15
"""Looks for the registered commands, one a second."""
NO_THREAD = gettext_lazy("The bot may not open a thread in the channel.")


@dataclass(frozen=True, slots=True)
class Permission(LazyFields):
    """One permission: its bit, its name in Discord's clients, and its purpose, which completes "without it …". Without
    a `needed` one the bot cannot answer; the others have fallbacks.
    """

    TEXTS = ("name", "without")
    bit: int
    name: str
    without: str
    needed: bool = False

    @property
    def value(self) -> int:
        """Permission as a number."""
        return 1 << self.bit


PERMISSIONS = (
    Permission(10, "View Channels", "the bot sees no channel", needed=True),
    Permission(11, "Send Messages", "the bot cannot answer", needed=True),
    Permission(38, "Send Messages in Threads", "the bot cannot answer in threads", needed=True),
    Permission(35, "Create Public Threads", "the bot answers in the channel itself instead of opening a thread"),
    Permission(16, "Read Message History", "the bot does not see earlier messages, and cannot reply to a message"),
    Permission(15, "Attach Files", "long answers, and images and files from tools, are not shown"),
    Permission(14, "Embed Links", "some clients show its links as plain text"),
)


def permission_integer() -> int:
    """Return the permissions that the bot uses, as the number in an invite link."""
    return sum(permission.value for permission in PERMISSIONS)


def missing(granted: int) -> tuple[Permission, ...]:
    """Return the permissions that a set lacks."""
    return (
        ()
        if granted & ADMINISTRATOR
        else tuple(permission for permission in PERMISSIONS if not granted & permission.value)
    )


def invite_link(app: str) -> str:
    """Return the invite link of the bot. `app` is the application's id."""
    query = {"client_id": app, "scope": " ".join(SCOPES), "permissions": str(permission_integer())}
    return f"{AUTHORIZE}?{urlencode(query)}"


_TO_POST = PERMISSIONS[:2]


async def diagnose(rest: Rest, people: UserDirectory) -> AsyncGenerator[Check, None]:
    """Check the bot's token, application, guilds, permissions and commands."""
    began = monotonic()
    try:
        identity = await rest.identity()
    except CountersignError as error:
        yield Check(_TOKEN, CheckStatus.BROKEN, error.detailed_cause, error.fix)
        return
    detail = gettext_lazy("It is {bot}, application {app}.", bot=identity.name, app=identity.app)
    yield Check(_TOKEN, CheckStatus.WELL, detail, seconds=monotonic() - began)
    name = gettext_lazy("message content")
    if identity.reads_all:
        yield Check(name, CheckStatus.WELL, READS_ALL)
    else:
        yield Check(name, CheckStatus.DOUBTFUL, READS_SOME, SWITCH_IT_ON)
    name = gettext_lazy("invitations")
    if identity.public and not people.wanted:
        yield Check(name, CheckStatus.DOUBTFUL, PUBLIC, MAKE_IT_PRIVATE)
    else:
        yield Check(name, CheckStatus.WELL, NAMED_SERVERS if identity.public else PRIVATE)
    if url := identity.endpoint:
        cause = gettext_lazy("Discord posts presses and commands to {url} instead of handing them to the bot.", url=url)
        yield Check(gettext_lazy("interactions"), CheckStatus.BROKEN, cause, CLEAR_IT)
    try:
        servers = await people.servers()
        yield _of_servers(servers, people, identity)
        for server in servers[:NAMED]:
            yield await _of_server(server, rest, people, identity)
        if (more := len(servers) - NAMED) > 0:
            rest_text = ngettext_lazy("{n} more was not looked at.", "{n} more were not looked at.", more)
            yield Check(_SERVERS, CheckStatus.SKIPPED, rest_text)
        yield await check_commands(rest, identity)
    except DeliveryFailed as error:
        yield Check(_SERVERS, CheckStatus.BROKEN, error.detailed_cause, error.fix)


async def diagnose_channel(
    rest: Rest, people: UserDirectory, channel: ConversationKey, named_by: str = "OPS_CHANNEL"
) -> Check:
    """Check that the bot may post in a channel, which `named_by` names. Nothing is posted."""
    began = monotonic()
    correct = gettext_lazy("correct {setting}", setting=named_by)
    try:
        identity, place = await rest.identity(), await fetch_channel(rest, channel.channel)
        if place is None or not place.server or (channel.workspace and channel.workspace != place.server):
            cause = gettext_lazy("It is no channel of a server.")
            if channel.workspace:
                cause = gettext_lazy("It is no channel of server {server}.", server=channel.workspace)
            return Check(OPS_CHANNEL, CheckStatus.BROKEN, cause, correct)
        guild = await people.server(place.server)
        async with rest.request(gettext_lazy("look at the bot's own rights")):
            me = await guild.fetch_member(int(identity.user))
            rights = (await guild.fetch_channel(int(channel.channel))).permissions_for(me)
    except DeliveryFailed as error:
        return Check(OPS_CHANNEL, CheckStatus.BROKEN, error.cause, error.fix or correct)
    lacking = [str(permission.name) for permission in _TO_POST if not rights.value & permission.value]
    if lacking:
        names = format_list(lacking)
        cause = gettext_lazy("The bot lacks {permissions} in it.", permissions=names)
        fix = gettext_lazy("give its role {permissions} there", permissions=names)
        return Check(OPS_CHANNEL, CheckStatus.BROKEN, cause, fix)
    return Check(OPS_CHANNEL, CheckStatus.WELL, gettext_lazy("The bot may post in it."), seconds=monotonic() - began)


def _of_servers(servers: tuple[str, ...], people: UserDirectory, identity: Identity) -> Check:
    lacking = sorted(people.wanted - set(servers), key=int)
    if servers and not lacking:
        return Check(_SERVERS, CheckStatus.WELL, ngettext_lazy("{n} is served.", "{n} are served.", len(servers)))
    cause = gettext_lazy("The bot is in no server.")
    if lacking:
        cause = gettext_lazy("The bot is not in {servers}.", servers=", ".join(lacking))
    fix = gettext_lazy("invite it: {url}", url=invite_link(identity.app))
    return Check(_SERVERS, CheckStatus.BROKEN, cause, fix)


async def _of_server(server: str, rest: Rest, people: UserDirectory, identity: Identity) -> Check:
    """Check the bot's permissions in a guild; single channels may differ."""
    try:
        guild = await people.server(server)
        async with rest.request(gettext_lazy("look at the bot's own rights")):
            me = await guild.fetch_member(int(identity.user))
    except DeliveryFailed as error:
        name = gettext_lazy("server {server}", server=server)
        return Check(name, CheckStatus.BROKEN, error.detailed_cause, error.fix)
    name, lacking = gettext_lazy("server {server}", server=guild.name), missing(me.guild_permissions.value)
    if not lacking:
        return Check(name, CheckStatus.WELL, gettext_lazy("The bot may do there what it needs."))
    listed = "; ".join(
        _("{permission}: without it {consequence}", permission=permission.name, consequence=permission.without)
        for permission in lacking
    )
    status = CheckStatus.BROKEN if any(permission.needed for permission in lacking) else CheckStatus.DOUBTFUL
    cause = gettext_lazy("It lacks permissions. {permissions}.", permissions=listed)
    fix = gettext_lazy("give its role these permissions, or invite it again: {url}", url=invite_link(identity.app))
    return Check(name, status, cause, fix)


async def check_commands(rest: Rest, identity: Identity) -> Check:
    """Check that the commands are registered. Raises DeliveryFailed."""
    async with rest.request(gettext_lazy("look at the commands")) as client:
        names = {command["name"] for command in await client.http.get_global_commands(int(identity.app))}
    lacking = [name for name in COMMANDS if name not in names]
    if lacking:
        told = gettext_lazy("Discord does not know {commands}.", commands=", ".join(f"/{name}" for name in lacking))
        return Check(COMMANDS_CHECK, CheckStatus.DOUBTFUL, told, gettext_lazy("start the bot once: it registers them"))
    return Check(COMMANDS_CHECK, CheckStatus.WELL, gettext_lazy("They are registered."))


class DiscordLiveCheck(LivePlatform):
    """A Discord server to be checked."""

    longest = 3_900
    removes_threads = True

    def __init__(self, rest: Rest, people: UserDirectory) -> None:
        super().__init__(DiscordMessages(rest), outgoing_message)
        self._rest = rest
        self._people = people
        self.extras = ((gettext_lazy("plain message"), self._plain), (gettext_lazy("typing"), self._typing))

    async def examine(self, channel: ConversationKey) -> AsyncGenerator[Check, None]:
        """Check the token, the application, the servers, the commands and the channel."""
        async with aclosing(diagnose(self._rest, self._people)) as checks:
            async for check in checks:
                # The bot of the test registers the commands first.
                if check.name != COMMANDS_CHECK:
                    yield check
        yield replace(
            await diagnose_channel(self._rest, self._people, channel, "--channel"), name=gettext_lazy("channel")
        )

    async def examine_connected(self) -> Sequence[Check]:
        """Check the commands, which are registered at the start of the bot."""
        identity = await self._rest.identity()
        for _attempt in range(REGISTRATION_LOOKS):
            check = await check_commands(self._rest, identity)
            if check.finding is CheckStatus.WELL:
                break
            await asyncio.sleep(1)
        return [check]

    async def mention(self) -> str:
        """Return the mention of the bot."""
        return f"@{(await self._rest.identity()).name}"

    async def locate(self, channel: ConversationKey) -> ConversationKey:
        """Return the channel with its server. Raises DeliveryFailed."""
        place = await fetch_channel(self._rest, channel.channel)
        if place is None or place.direct:
            raise DeliveryFailed(
                gettext_lazy("That is no channel of a server."),
                gettext_lazy("name a text channel by its id"),
                permanent=True,
            )
        return conversation(place.server, place.channel)

    async def thread(self, channel: ConversationKey, ref: str) -> ConversationKey:
        """Open a thread at a message. Raises DeliveryFailed."""
        posted = MessageRef.parse(ref)
        thread = await open_thread(self._rest, posted.channel, posted.message, MARK) if posted is not None else ""
        if not thread:
            fix = gettext_lazy("give its role Create Public Threads and Send Messages in Threads there")
            raise DeliveryFailed(NO_THREAD, fix, permanent=True)
        return replace(channel, thread=thread)

    async def share(self, thread: ConversationKey, name: str, content: bytes) -> str:
        """Post a message with a file in a thread, and return its ref."""
        message = OutgoingMessage("file", f"-# {MARK}", file=FileUpload(name, content), place=thread.thread)
        return await self._create(thread, message)

    async def _create(self, thread: ConversationKey, message: OutgoingMessage) -> str:
        return await self.api.create(NoticeOwner(uuid4().hex, thread, 0.0), message, "")

    async def unshare(self, file: str) -> None:
        """Delete the message with a file."""
        await self.api.remove(file)

    async def remove_thread(self, thread: ConversationKey) -> None:
        """Delete a thread, which needs the permission Manage Threads."""
        try:
            async with self._rest.request(gettext_lazy("delete a thread")) as client:
                await client.http.delete_channel(int(thread.thread))
        except DeliveryFailed as error:
            fix = gettext_lazy("delete the thread by hand, or give the bot's role Manage Threads for the test")
            raise DeliveryFailed(
                gettext_lazy("Discord does not let the bot delete a thread."), fix, permanent=True
            ) from error

    async def direct_channel(self, user: str) -> str:
        """Return the direct channel with a user."""
        return await direct_channel(self._rest, user)

    async def _plain(self, thread: ConversationKey, _root: str) -> str:
        text = f"{MARK}. ".ljust(CONTENT, ".")
        await self._create(thread, OutgoingMessage("plain", text, place=thread.thread))
        return accepted_length(CONTENT)

    async def _typing(self, thread: ConversationKey, _root: str) -> str:
        async with self._rest.request(gettext_lazy("show that it types")) as client:
            await client.get_partial_messageable(int(thread.thread)).typing()
        return gettext_lazy("The bot can show that it types.")

    async def own_messages(self, conversation: ConversationKey, since: str) -> Sequence[str]:
        """Return the refs of the bot's messages in a channel or thread, from a message on."""
        first, user = MessageRef.parse(since), (await self._rest.identity()).user
        after = discord.Object(int(first.message) - 1) if first is not None else None
        channel = channel_id_of(conversation)
        async with self._rest.request(gettext_lazy("read its messages")) as client:
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
            raise DeliveryFailed(*unreachable("Discord", "discordstatus.com", error)) from error
        if not limit:
            raise CheckSkipped(gettext_lazy("Discord named no limit."))
        return gettext_lazy("Discord names them: {limit} requests, anew in {seconds} s.", limit=limit, seconds=seconds)
