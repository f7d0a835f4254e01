"""Posts and edits of a turn's messages.

Messages unfurl no links and notify no user, except for those in `OutgoingMessage.notifies` at the first post. The nonce
of a post is derived from its turn and name; Discord rejects duplicates within minutes ("Create Message",
`enforce_nonce`). After that, the channel is searched.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from time import time
from typing import Any

import discord
from discord.utils import DISCORD_EPOCH, snowflake_time, time_snowflake

from bot.chat.delivery import MessageOwner, require_ref
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.discord.components import NONCE, OutgoingMessage, custom_ids, encode
from bot.platforms.discord.rest import (
    ANSWER_SECONDS,
    ARCHIVED,
    INVALID_BODY,
    MISSING_PERMISSIONS,
    NO_REPLIES,
    PLATFORM,
    ROLE,
    TOO_LARGE,
    TOO_OLD_TO_EDIT,
    UNKNOWN_MESSAGE,
    DiscordApiError,
    DiscordConnectionError,
    MessageRef,
    Rest,
    channel_id_of,
)
from bot.rendering.timeline import StopTurnAction

_NO_MENTIONS = discord.AllowedMentions.none()
"""Without it an edit would notify all mentioned users."""
SEARCHED = 300
"""Messages of a channel that are searched for a lost post, in pages of PAGE."""
PAGE = 100
"""Messages of one request; Discord's limit."""
SKEW = 60.0
"""Seconds by which the clocks of Discord and of the database may differ."""
OLD_SECONDS = 3600.0
OLD_PATIENCE = 12.0
"""Seconds for an edit of a message that is older than that (error 30046)."""


class DiscordMessages:
    """Posts, edits and lookups of messages. `clock` is in epoch seconds."""

    def __init__(self, rest: Rest, clock: Callable[[], float] = time) -> None:
        self._rest = rest
        self._clock = clock

    async def create(self, owner: MessageOwner, message: OutgoingMessage, replaced: str) -> str:
        """Post a message. Discord answers a known nonce with the message as it was posted, which is then edited."""
        channel = message.place or channel_id_of(owner.conversation)
        if replaced:
            message = replace(message, notifies=frozenset())  # the first one has notified them
        nonce, before = _nonce(owner.id, message.name, *filter(None, [replaced])), MessageRef.parse(replaced)
        answered = before.message if before is not None and before.channel == channel else ""
        try:
            posted = await self._post(channel, message, nonce, answered)
        except DiscordApiError as error:
            if error.code != NO_REPLIES or not answered:
                raise
            posted = await self._post(channel, message, nonce, "")
        ref = str(MessageRef(channel, str(posted.id)))
        if not _shows(posted, message):
            await self.update(owner, message, ref)
        return ref

    async def update(self, owner: MessageOwner, message: OutgoingMessage, ref: str) -> None:  # noqa: ARG002
        """Edit a message, in an archived thread too. Existing files stay."""
        content: dict[str, Any] = {} if message.laid_out else {"content": message.content}
        await self._change(
            require_ref(MessageRef.parse(ref)),
            gettext_lazy("edit a message"),
            lambda posted: posted.edit(**content, view=message.view(), allowed_mentions=_NO_MENTIONS),
        )

    async def remove(self, ref: str) -> None:
        """Delete a message, unless it is gone."""
        try:
            await self._change(
                require_ref(MessageRef.parse(ref)), gettext_lazy("delete a message"), lambda posted: posted.delete()
            )
        except DiscordApiError as error:
            if error.code != UNKNOWN_MESSAGE:
                raise

    async def find(self, owner: MessageOwner, message: OutgoingMessage, taken: Collection[str]) -> str:
        """Return the ref of the message among those of the bot since the turn began. It is not found either if the bot
        may not read the channel: a duplicate is better than a missing message.
        """
        channel, user = message.place or channel_id_of(owner.conversation), (await self._rest.identity()).user
        nonce = _nonce(owner.id, message.name)
        try:
            created_at = datetime.fromtimestamp(max(owner.created_at - SKEW, DISCORD_EPOCH / 1000), UTC)
            async for posted in self._posted_after(channel, time_snowflake(created_at)):
                ref = str(MessageRef(channel, str(posted.id)))
                own = str(posted.author.id) == user and ref not in taken
                if own and (str(posted.nonce) == nonce or _is_it(posted, message, owner)):
                    return ref
        except DiscordApiError as error:
            if not error.permanent:
                raise
        return ""

    async def _posted_after(self, channel: str, message: int) -> AsyncIterator[discord.Message]:
        """Yield up to SEARCHED messages of a channel, oldest first. Each page has a time limit of its own."""
        for _ in range(SEARCHED // PAGE):
            async with self._rest.request(gettext_lazy("read its messages"), patience=ANSWER_SECONDS) as client:
                history = client.get_partial_messageable(int(channel)).history(
                    limit=PAGE, after=discord.Object(message), oldest_first=True
                )
                page = [posted async for posted in history]
            for posted in page:
                yield posted
            if len(page) < PAGE:
                return
            message = page[-1].id

    def digest(self, message: OutgoingMessage) -> str:
        """Return a digest of the content."""
        return hashlib.sha256(json.dumps([message.content, message.components], sort_keys=True).encode()).hexdigest()

    def fallback(self, message: OutgoingMessage, error: DeliveryFailed) -> OutgoingMessage | None:
        """Return an answer without its buttons if Discord rejects them, or without its file if the bot may share none.
        A card needs its layout.
        """
        if not isinstance(error, DiscordApiError):
            return None
        if error.code == INVALID_BODY and message.components and not (message.asks or message.laid_out):
            return replace(message, items=())
        if error.code in (MISSING_PERMISSIONS, TOO_LARGE) and message.unattached:
            return replace(message, content=message.unattached, file=None, unattached="")
        return None

    def is_gone(self, error: DeliveryFailed, ref: str) -> bool:
        """Return True for a deleted message, and for one that is too old to be edited. Discord answers such an edit
        with repeated pauses, which the library waits out until its time limit.
        """
        is_old = self._is_old(require_ref(MessageRef.parse(ref)))
        if isinstance(error, DiscordApiError):
            return error.code in (UNKNOWN_MESSAGE, TOO_OLD_TO_EDIT) or (error.status == 429 and is_old)
        return isinstance(error, DiscordConnectionError) and is_old

    def is_unclear(self, error: DeliveryFailed) -> bool:
        """Return True if Discord gave no response."""
        return isinstance(error, DiscordConnectionError)

    async def _post(self, channel: str, message: OutgoingMessage, nonce: str, answered: str) -> discord.Message:
        """Post a message, as a reply to the message `answered` if it is given."""
        options: dict[str, Any] = {"allowed_mentions": _allowed_mentions(message.notifies)}
        if (view := message.view()) is not None:
            options["view"] = view
        if answered:
            options["reference"] = discord.MessageReference(
                message_id=int(answered), channel_id=int(channel), fail_if_not_exists=False
            )
        if message.file is not None:
            options["file"] = message.file.to_file()
        async with self._rest.request(gettext_lazy("post a message")) as client:
            return await client.get_partial_messageable(int(channel)).send(
                message.content or None,
                nonce=nonce,
                suppress_embeds=not message.laid_out,
                silent=message.silent,
                **options,
            )

    async def _change(
        self, ref: MessageRef, what: str, change: Callable[[discord.PartialMessage], Awaitable[object]]
    ) -> None:
        """Change a message; unarchive its thread once if needed."""
        patience = OLD_PATIENCE if self._is_old(ref) else ANSWER_SECONDS
        for is_last in (False, True):
            try:
                async with self._rest.request(what, patience=patience) as client:
                    await change(client.get_partial_messageable(int(ref.channel)).get_partial_message(int(ref.message)))
            except DiscordApiError as error:
                if error.code != ARCHIVED or is_last:
                    raise
            else:
                return
            async with self._rest.request(gettext_lazy("open a thread again")) as client:
                await client.http.edit_channel(int(ref.channel), archived=False)

    def _is_old(self, ref: MessageRef) -> bool:
        return self._clock() - snowflake_time(int(ref.message)).timestamp() > OLD_SECONDS


def _allowed_mentions(principals: Iterable[str]) -> discord.AllowedMentions:
    """Return a permission to notify exactly these users and roles."""
    users, roles = (
        [discord.Object(int(name.removeprefix(kind))) for name in principals if re.fullmatch(rf"{kind}\d+", name)]
        for kind in (f"{PLATFORM}:", ROLE)
    )
    return discord.AllowedMentions(everyone=False, users=users, roles=roles, replied_user=False)


def _shows(posted: discord.Message, outgoing: OutgoingMessage) -> bool:
    return posted.content == outgoing.content.strip() and _ids_of(posted) == custom_ids(outgoing.components)


def _is_it(posted: discord.Message, outgoing: OutgoingMessage, owner: MessageOwner) -> bool:
    """Return True if a message of the bot is this one: it has the card's buttons, the answer's text, or the turn's stop
    button.
    """
    ids = _ids_of(posted)
    if outgoing.laid_out:
        return not posted.content and bool(ids & custom_ids(outgoing.components))
    is_working = bool(posted.content) and encode(StopTurnAction(owner.id)) in ids
    return (outgoing.file is None and is_working) or _shows(posted, outgoing)


def _ids_of(posted: discord.Message) -> frozenset[str]:
    return custom_ids([dict(component.to_dict()) for component in posted.components])


def _nonce(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:NONCE]
