"""Requests of `countersign setup slack`: the owner of a token, users, channels, and the first message."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Any
from uuid import uuid4

from bot.chat.delivery import NoticeOwner
from bot.chat.home_message import first_message
from bot.errors import NotFound
from bot.platforms.slack.message_blocks import outgoing_message
from bot.platforms.slack.sending import SlackMessages
from bot.platforms.slack.web_api import SlackWebApiError, WebApi, conversation, object_in, objects_in, text_in

PAGE_SIZE = 200
MAX_PAGES = 20
"""Pages of a list that are read: four thousand users or channels."""
_CHANNEL_ID = re.compile(r"[CG][A-Z0-9]{7,}")
_CHANNEL_LINK = re.compile(r"/archives/([CG][A-Z0-9]{7,})")
_USER_ID = re.compile(r"[UW][A-Z0-9]{7,}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel of the workspace."""

    id: str
    name: str
    private: bool = False
    member: bool = False


@dataclass(frozen=True, slots=True)
class User:
    """A user of the workspace."""

    id: str
    name: str
    role: str
    """`owner`, `admin`, `member` or `guest`, as Slack reports it."""


async def find_app_id(api: WebApi) -> str:
    """Return the id of the app that a bot token belongs to; empty if Slack does not say."""
    identity = await api.identity()
    try:
        answer = await api.read("bots.info", bot=identity.bot)
    except SlackWebApiError:
        return ""
    return text_in(answer, "bot", "app_id")


async def find_users(api: WebApi, text: str) -> Sequence[User]:
    """Return the users with a member id, an e-mail address or a name. Raises DeliveryFailed; for an e-mail address
    SlackWebApiError with the code missing_scope if the app may not look it up.
    """
    word = text.strip().strip("<>").lstrip("@")
    if _USER_ID.fullmatch(word):
        return [_require_user(await api.read("users.info", user=word))]
    if _EMAIL.fullmatch(word):
        return [_require_user(await api.read("users.lookupByEmail", email=word))]
    wanted = word.casefold()
    return [
        _read_user(account)
        async for account in _entries(api, "users.list", "members")
        if not account.get("deleted") and not account.get("is_bot") and wanted in _names(account)
    ]


async def find_group(api: WebApi, handle: str) -> str:
    """Return the id of a user group by its handle or id; empty if there is none. Raises DeliveryFailed."""
    word = handle.strip().lstrip("@").casefold()
    for group in objects_in(await api.read("usergroups.list"), "usergroups"):
        if word in (str(group.get("handle", "")).casefold(), str(group.get("id", "")).casefold()):
            return str(group["id"])
    return ""


async def list_joined_channels(api: WebApi) -> Sequence[Channel]:
    """Return the channels of the bot. Raises DeliveryFailed."""
    scopes = (await api.identity()).scopes
    wanted = (("public_channel", "channels:read"), ("private_channel", "groups:read"))
    kinds = ",".join(kind for kind, scope in wanted if scope in scopes or not scopes)
    if not kinds:
        return []
    pages = _entries(api, "users.conversations", "channels", types=kinds, exclude_archived="true")
    return [replace(_read_channel(channel), member=True) async for channel in pages]


async def find_channel(api: WebApi, text: str) -> Channel | None:
    """Return the channel with an id, a link or a #name; None if the bot cannot see it. Raises DeliveryFailed."""
    word = text.strip()
    link = _CHANNEL_LINK.search(word)
    channel_id = link[1] if link else word
    if _CHANNEL_ID.fullmatch(channel_id):
        try:
            info = (await api.read("conversations.info", channel=channel_id)).get("channel")
        except SlackWebApiError as error:
            if error.code != "channel_not_found":
                raise
            return None
        return _read_channel(info) if isinstance(info, dict) else None
    name = word.lstrip("#").casefold()
    joined = next((channel for channel in await list_joined_channels(api) if channel.name.casefold() == name), None)
    if joined is not None:
        return joined
    async for channel in _entries(
        api, "conversations.list", "channels", types="public_channel", exclude_archived="true"
    ):
        if str(channel.get("name", "")).casefold() == name:
            return _read_channel(channel)
    return None


async def try_join(api: WebApi, channel: Channel) -> bool:
    """Join a public channel; return False if the app may not. Raises DeliveryFailed."""
    if channel.private or "channels:join" not in (await api.identity()).scopes:
        return False
    try:
        await api.edit("conversations.join", channel=channel.id)
    except SlackWebApiError as error:
        if not error.permanent:
            raise
        return False
    return True


async def post_first_message(api: WebApi, channel: str, *, commands: bool) -> str:
    """Post the first message in a channel, and return its ref. Raises DeliveryFailed."""
    identity = await api.identity()
    owner = NoticeOwner(f"setup:{uuid4().hex}", conversation(identity.team, channel, ""), time())
    message = outgoing_message(first_message(identity.name, commands=commands), channel)
    return await SlackMessages(api).create(owner, message, "")


async def _entries(api: WebApi, method: str, key: str, **arguments: Any) -> AsyncIterator[Mapping[str, Any]]:
    async for page in api.pages(method, key, most=MAX_PAGES, limit=PAGE_SIZE, **arguments):
        for entry in page:
            yield entry


def _read_channel(channel: Mapping[str, Any]) -> Channel:
    return Channel(
        str(channel.get("id", "")),
        str(channel.get("name", "")),
        bool(channel.get("is_private")),
        bool(channel.get("is_member")),
    )


def _require_user(response: Mapping[str, Any]) -> User:
    account = object_in(response, "user")
    if not account or account.get("deleted") or account.get("is_bot"):
        raise NotFound("That is no person who uses this workspace.", "name a member of it")
    return _read_user(account)


def _read_user(account: Mapping[str, Any]) -> User:
    role = next((name for name in ("owner", "admin") if account.get(f"is_{name}")), "")
    if not role:
        role = "guest" if account.get("is_restricted") else "member"
    return User(str(account.get("id", "")), str(account.get("real_name") or account.get("name") or ""), role)


def _names(account: Mapping[str, Any]) -> frozenset[str]:
    profile = object_in(account, "profile")
    names = (account.get("name"), account.get("real_name"), profile.get("display_name"), profile.get("real_name"))
    return frozenset(str(name).casefold() for name in names if name)
