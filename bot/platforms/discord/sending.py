"""Posts and edits of a turn's messages.

Messages unfurl no links and notify no user, except for the user in `OutgoingMessage.calls` at the first post. The nonce
of a post is derived from its turn and name; Discord rejects duplicates within minutes ("Create Message",
`enforce_nonce`). After that, the channel is searched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Any

from bot.domain.turns import Turn
from bot.errors import DeliveryFailed
from bot.platforms.discord.channels import MessageRef, channel_id_of
from bot.platforms.discord.components import NONCE, OutgoingMessage, custom_ids, encode
from bot.platforms.discord.rest import (
    ANSWER_SECONDS,
    ARCHIVED,
    INVALID_BODY,
    MISSING_PERMISSIONS,
    NO_REPLIES,
    TOO_LARGE,
    TOO_OLD_TO_EDIT,
    UNKNOWN_MESSAGE,
    DiscordApiError,
    DiscordConnectionError,
    Rest,
)
from bot.rendering.timeline import StopTurnAction

SUPPRESS_EMBEDS, COMPONENTS_V2 = 1 << 2, 1 << 15
"""Flags of a message."""
NOBODY: Mapping[str, Any] = {"parse": [], "replied_user": False}
"""`allowed_mentions` without notifications; without it an edit would notify all mentioned users."""
SEARCHED = 100
SEARCHED_PAGES = 3
SKEW = 60.0
"""Seconds by which the clocks of Discord and of the database may differ."""
OLD_SECONDS = 3600.0
OLD_PATIENCE = 12.0
"""Seconds for an edit of a message that is older than that (error 30046)."""
EPOCH = 1_420_070_400.0
"""Start of the time in Discord's ids, in epoch seconds."""


class DiscordMessages:
    """Posts, edits and lookups of messages. `clock` is in epoch seconds."""

    def __init__(self, rest: Rest, clock: Callable[[], float] = time) -> None:
        self._rest = rest
        self._clock = clock

    async def create(self, turn: Turn, message: OutgoingMessage, replaced: str) -> str:
        """Post a message. Discord answers a known nonce with the message as it was posted, which is then edited."""
        channel = message.place or channel_id_of(turn.conversation)
        if replaced:
            message = replace(message, calls="")  # the user whom it notifies was notified by the first one
        body = _posted(message) | {
            "nonce": _nonce(turn.id, message.name, *filter(None, [replaced])),
            "enforce_nonce": True,
        }
        before = MessageRef.parse(replaced)
        reference = (
            {"message_reference": {"message_id": before.message, "fail_if_not_exists": False}}
            if before is not None and before.channel == channel
            else {}
        )
        try:
            posted = await self._post(channel, body | reference, message)
        except DiscordApiError as error:
            if error.code != NO_REPLIES or not reference:
                raise
            posted = await self._post(channel, body, message)
        ref = str(MessageRef(channel, str(posted.get("id", ""))))
        if not _shows(posted, message):
            await self.update(turn, message, ref)
        return ref

    async def update(self, turn: Turn, message: OutgoingMessage, ref: str) -> None:  # noqa: ARG002
        """Edit a message, in an archived thread too."""
        await self._change("PATCH", _parse_ref(ref), "edit a message", _edit(message))

    async def remove(self, ref: str) -> None:
        """Delete a message, unless it is gone."""
        try:
            await self._change("DELETE", _parse_ref(ref), "delete a message")
        except DiscordApiError as error:
            if error.code != UNKNOWN_MESSAGE:
                raise

    async def find(self, turn: Turn, message: OutgoingMessage, taken: Collection[str]) -> str:
        """Return the ref of the message among those of the bot since the turn began. It is not found either if the bot
        may not read the channel: a duplicate is better than a missing message.
        """
        channel, user = message.place or channel_id_of(turn.conversation), (await self._rest.identity()).user
        nonce, after = _nonce(turn.id, message.name), _first_id(turn.created_at - SKEW)
        for _ in range(SEARCHED_PAGES):
            page = await self._page(channel, after)
            for posted in page:
                author, ref = posted.get("author"), str(MessageRef(channel, str(posted["id"])))
                own = isinstance(author, dict) and author.get("id") == user and ref not in taken
                if own and (posted.get("nonce") == nonce or _is_it(posted, message, turn)):
                    return ref
            if len(page) < SEARCHED:
                break
            after = max((str(posted["id"]) for posted in page), key=int)
        return ""

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
            return replace(message, components=())
        if error.code in (MISSING_PERMISSIONS, TOO_LARGE) and message.unattached:
            return replace(message, content=message.unattached, file=None, unattached="")
        return None

    def is_gone(self, error: DeliveryFailed, ref: str) -> bool:
        """Return True for a deleted message, and for one that is too old to be edited. Discord answers such an edit
        with repeated pauses, which the library waits out until its time limit.
        """
        is_old = self._is_old(_parse_ref(ref))
        if isinstance(error, DiscordApiError):
            return error.code in (UNKNOWN_MESSAGE, TOO_OLD_TO_EDIT) or (error.status == 429 and is_old)
        return isinstance(error, DiscordConnectionError) and is_old

    def is_unclear(self, error: DeliveryFailed) -> bool:
        """Return True if Discord gave no response."""
        return isinstance(error, DiscordConnectionError)

    async def _post(self, channel: str, body: Mapping[str, Any], message: OutgoingMessage) -> Mapping[str, Any]:
        files = [message.file] if message.file is not None else []
        path = "/channels/{channel_id}/messages"
        posted = await self._rest.call("POST", path, "post a message", body=body, files=files, channel_id=channel)
        return posted if isinstance(posted, dict) else {}

    async def _change(self, method: str, ref: MessageRef, what: str, body: Mapping[str, Any] | None = None) -> None:
        """Change a message; unarchive its thread once if needed."""
        try:
            await self._call(method, ref, what, body)
        except DiscordApiError as error:
            if error.code != ARCHIVED:
                raise
            path, opened = "/channels/{channel_id}", {"archived": False}
            await self._rest.call("PATCH", path, "open a thread again", body=opened, channel_id=ref.channel)
            await self._call(method, ref, what, body)

    async def _call(self, method: str, ref: MessageRef, what: str, body: Mapping[str, Any] | None) -> None:
        await self._rest.call(
            method,
            "/channels/{channel_id}/messages/{message_id}",
            what,
            body=body,
            patience=OLD_PATIENCE if self._is_old(ref) else ANSWER_SECONDS,
            channel_id=ref.channel,
            message_id=ref.message,
        )

    def _is_old(self, ref: MessageRef) -> bool:
        return self._clock() - _made_at(ref.message) > OLD_SECONDS

    async def _page(self, channel: str, after: str) -> Sequence[Mapping[str, Any]]:
        query: dict[str, str | int] = {"limit": SEARCHED, "after": after}
        path = "/channels/{channel_id}/messages"
        try:
            page = await self._rest.call("GET", path, "read its messages", query=query, channel_id=channel)
        except DiscordApiError as error:
            if not error.permanent:
                raise
            return []
        return [posted for posted in page if isinstance(posted, dict)] if isinstance(page, list) else []


def _parse_ref(ref: str) -> MessageRef:
    """Parse the ref of a posted message. Raises DeliveryFailed for any other text."""
    posted = MessageRef.parse(ref)
    if posted is None:
        raise DeliveryFailed("The reference of a message is unreadable.", permanent=True)
    return posted


def _posted(outgoing: OutgoingMessage) -> dict[str, Any]:
    called = {**NOBODY, "users": [outgoing.calls]} if outgoing.calls else NOBODY
    body: dict[str, Any] = {"allowed_mentions": called, "components": list(outgoing.components)}
    if outgoing.laid_out:
        return body | {"flags": COMPONENTS_V2}
    body |= {"content": outgoing.content, "flags": SUPPRESS_EMBEDS}
    if outgoing.file is not None:
        body["attachments"] = [{"id": 0, "filename": outgoing.file.name}]
    return body


def _edit(outgoing: OutgoingMessage) -> dict[str, Any]:
    """Return the body of an edit: existing files stay, and the layout flag cannot change."""
    body: dict[str, Any] = {"allowed_mentions": NOBODY, "components": list(outgoing.components)}
    return body if outgoing.laid_out else body | {"content": outgoing.content, "flags": SUPPRESS_EMBEDS}


def _shows(message: Mapping[str, Any], outgoing: OutgoingMessage) -> bool:
    """Return True if a message has the content that was to be posted."""
    ids = custom_ids(message.get("components") or ())
    return str(message.get("content") or "") == outgoing.content.strip() and ids == custom_ids(outgoing.components)


def _is_it(message: Mapping[str, Any], outgoing: OutgoingMessage, turn: Turn) -> bool:
    """Return True if a message of the bot is this one: it has the card's buttons, the answer's text, or the turn's stop
    button.
    """
    ids = custom_ids(message.get("components") or ())
    if outgoing.laid_out:
        return bool(ids & custom_ids(outgoing.components))
    return (outgoing.file is None and encode(StopTurnAction(turn.id)) in ids) or _shows(message, outgoing)


def _nonce(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:NONCE]


def _first_id(at: float) -> str:
    """Return the lowest id of an object created at that time (epoch seconds)."""
    return str(int(max(at - EPOCH, 0.0) * 1000) << 22)


def _made_at(message: str) -> float:
    """Return when a message was posted, in epoch seconds."""
    return (int(message) >> 22) / 1000 + EPOCH
