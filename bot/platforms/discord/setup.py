"""Requests of `countersign setup discord`: the application, servers and channels, and the first message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from uuid import uuid4

import discord

from bot.chat.delivery import NoticeOwner
from bot.chat.home_message import first_message
from bot.platforms.discord.diagnostics import PERMISSIONS, missing
from bot.platforms.discord.message_layout import outgoing_message
from bot.platforms.discord.rest import Rest, conversation
from bot.platforms.discord.sending import DiscordMessages

PORTAL = "https://discord.com/developers/applications"
_POST_PERMISSIONS = PERMISSIONS[0].value | PERMISSIONS[1].value
_MAX_SERVERS = 100


@dataclass(frozen=True, slots=True)
class NamedId:
    """A server that the bot is in, a text channel in which it may post, or a user."""

    id: str
    name: str


async def list_servers(rest: Rest) -> Sequence[NamedId]:
    """Return the servers of the bot, past any cache. Raises DeliveryFailed."""
    async with rest.request("list its servers") as client:
        return [NamedId(str(guild.id), guild.name) async for guild in client.fetch_guilds(limit=_MAX_SERVERS)]


async def missing_permissions(rest: Rest, server: str) -> Sequence[str]:
    """Return the names of the permissions that the bot lacks in a server. Raises DeliveryFailed."""
    identity = await rest.identity()
    async with rest.request("look at the bot's own rights") as client:
        guild = await client.fetch_guild(int(server), with_counts=False)
        me = await guild.fetch_member(int(identity.user))
    return [str(permission.name) for permission in missing(me.guild_permissions.value)]


async def list_channels(rest: Rest, server: str) -> Sequence[NamedId]:
    """Return the text channels in which the bot may post, in their order. Raises DeliveryFailed."""
    identity = await rest.identity()
    async with rest.request("list the channels") as client:
        guild = await client.fetch_guild(int(server), with_counts=False)
        me = await guild.fetch_member(int(identity.user))
        channels = await guild.fetch_channels()
    return [
        NamedId(str(channel.id), channel.name)
        for channel in sorted(channels, key=lambda channel: (channel.position, channel.id))
        if isinstance(channel, discord.TextChannel)
        and (
            channel.permissions_for(me).value & _POST_PERMISSIONS == _POST_PERMISSIONS
            or me.guild_permissions.administrator
        )
    ]


async def fetch_owner(rest: Rest) -> NamedId | None:
    """Return the owner of the application, None for a team. Raises DeliveryFailed."""
    async with rest.request("look at the application") as client:
        info = await client.application_info()
    return None if info.team is not None else NamedId(str(info.owner.id), info.owner.display_name)


async def find_members(rest: Rest, server: str, text: str) -> Sequence[NamedId]:
    """Return the members of a server with an id or a prefix of their names. Raises DeliveryFailed."""
    word = text.strip().lstrip("@").strip("<!@>")
    async with rest.request("look up a member") as client:
        guild = await client.fetch_guild(int(server), with_counts=False)
        if word.isdecimal():
            member = await guild.fetch_member(int(word))
            return [] if member.bot else [NamedId(str(member.id), member.display_name)]
        members = await client.http.request(
            discord.http.Route("GET", "/guilds/{guild_id}/members/search", guild_id=int(server)),
            params={"query": word, "limit": 10},
        )
    return [
        NamedId(str(member["user"]["id"]), member.get("nick") or member["user"]["username"])
        for member in members
        if not member["user"].get("bot")
    ]


async def post_first_message(rest: Rest, server: str, channel: str) -> str:
    """Post the first message in a channel, and return its ref. Raises DeliveryFailed."""
    identity = await rest.identity()
    owner = NoticeOwner(f"setup:{uuid4().hex}", conversation(server, channel), time())
    message = outgoing_message(first_message(identity.name, commands=True), channel)
    return await DiscordMessages(rest).create(owner, message, "")
