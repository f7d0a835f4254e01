"""Sender of a turn's messages: posts each once, edits it afterwards, and posts it again where it cannot be edited.

Messages unfurl no links and notify no user, except for the user in `OutgoingMessage.calls` at the first post. The nonce
of a post is derived from its turn and name; Discord rejects duplicates within minutes ("Create Message",
`enforce_nonce`). After that, the channel is searched before a post without a response is repeated.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
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

log = logging.getLogger(__name__)

REMEMBERED = 2000
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


class Sender:
    """Posts and edits the messages of turns. Caches their content to skip edits without a change."""

    def __init__(self, rest: Rest, clock: Callable[[], float] = time) -> None:
        self._rest = rest
        self._clock = clock
        self._sent: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._unsure: set[tuple[str, str]] = set()

    def unchanged(self, turn: Turn, slot: OutgoingMessage) -> bool:
        """Return True if the message already has this content, as far as this process knows."""
        return self._sent.get((turn.id, slot.name)) == _digest(slot)

    async def post(
        self, turn: Turn, slot: OutgoingMessage, *, search: bool = False, taken: Collection[str] = ()
    ) -> MessageRef:
        """Post a message, or find it if an earlier post got no response. `search` forces the lookup. Messages in
        `taken` are ignored, because they belong to other outgoing messages. Raises DeliveryFailed.
        """
        key = (turn.id, slot.name)
        if search or key in self._unsure:
            found = await self._find(turn, slot, taken)
            self._unsure.discard(key)
            if found is not None:
                return await self.edit(turn, slot, found)
        return await self._post(turn, slot, nonce=_nonce(turn.id, slot.name))

    async def edit(self, turn: Turn, slot: OutgoingMessage, ref: MessageRef) -> MessageRef:
        """Edit a message and return the ref of the one that shows it now. Raises DeliveryFailed."""
        try:
            await self._edited(slot, ref)
        except DeliveryFailed as failure:
            gone = isinstance(failure, DiscordApiError) and failure.code == UNKNOWN_MESSAGE
            if not gone and not self._too_old(failure, ref):
                raise
            log.info("turn %s: a message cannot be edited, posting it again (%s)", turn.id, failure)
            # Another nonce than the first message's: Discord would answer with that one again.
            nonce = _nonce(turn.id, slot.name, ref.message)
            known = replace(slot, calls="")  # whoever it calls has been called
            return await self._post(turn, known, nonce=nonce, answering=None if gone else ref)
        self._remember(turn, slot)
        return ref

    async def delete(self, turn: Turn, name: str, ref: MessageRef) -> None:
        """Delete a message that no longer belongs to the turn. Raises DeliveryFailed."""
        try:
            await self._patiently("DELETE", ref, "delete a message")
        except DiscordApiError as error:
            if error.code != UNKNOWN_MESSAGE:
                raise
        self._sent.pop((turn.id, name), None)

    async def _post(
        self, turn: Turn, slot: OutgoingMessage, *, nonce: str, answering: MessageRef | None = None
    ) -> MessageRef:
        place, sent = slot.place or channel_id_of(turn.conversation), slot
        try:
            try:
                answer = await self._create(sent, nonce, place, answering)
            except DiscordApiError as error:
                if _will_do_without_buttons(slot, error):
                    sent = replace(slot, components=())
                elif slot.unattached and error.code in (MISSING_PERMISSIONS, TOO_LARGE):
                    sent = replace(slot, content=slot.unattached, file=None)
                elif error.code == NO_REPLIES and answering is not None:
                    answering = None
                else:
                    raise
                answer = await self._create(sent, nonce, place, answering)
        except DiscordConnectionError:
            self._unsure.add((turn.id, slot.name))
            raise
        ref = MessageRef(place, str(answer.get("id", "")))
        if not _shows(answer, sent):
            # The nonce was known: this is the message as it was posted before.
            return await self.edit(turn, slot, ref)
        self._remember(turn, slot)
        return ref

    async def _create(
        self, slot: OutgoingMessage, nonce: str, place: str, answering: MessageRef | None
    ) -> Mapping[str, Any]:
        body = {**_posted(slot), "nonce": nonce, "enforce_nonce": True}
        if answering is not None and answering.channel == place:
            body["message_reference"] = {"message_id": answering.message, "fail_if_not_exists": False}
        answer = await self._rest.call(
            "POST",
            "/channels/{channel_id}/messages",
            "post a message",
            body=body,
            files=[slot.file] if slot.file is not None else [],
            channel_id=place,
        )
        return answer if isinstance(answer, dict) else {}

    async def _edited(self, slot: OutgoingMessage, ref: MessageRef) -> None:
        body = _edit(slot)
        try:
            await self._patiently("PATCH", ref, "edit a message", body)
        except DiscordApiError as error:
            if not _will_do_without_buttons(slot, error):
                raise
            await self._patiently("PATCH", ref, "edit a message", {**body, "components": []})

    async def _patiently(self, method: str, ref: MessageRef, what: str, body: Mapping[str, Any] | None = None) -> None:
        """Change a message; unarchive its thread once if needed."""
        try:
            await self._changed(method, ref, what, body)
        except DiscordApiError as error:
            if error.code != ARCHIVED:
                raise
            path, opened = "/channels/{channel_id}", {"archived": False}
            await self._rest.call("PATCH", path, "open a thread again", body=opened, channel_id=ref.channel)
            await self._changed(method, ref, what, body)

    async def _changed(self, method: str, ref: MessageRef, what: str, body: Mapping[str, Any] | None) -> None:
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

    def _too_old(self, failure: DeliveryFailed, ref: MessageRef) -> bool:
        """Return True if Discord rejects the edit of an old message. Discord answers with repeated pauses, which the
        library waits out until its time limit.
        """
        if isinstance(failure, DiscordApiError):
            return failure.code == TOO_OLD_TO_EDIT or (failure.status == 429 and self._is_old(ref))
        return isinstance(failure, DiscordConnectionError) and self._is_old(ref)

    async def _find(self, turn: Turn, slot: OutgoingMessage, taken: Collection[str]) -> MessageRef | None:
        """Return the message among those of the bot since the turn began. None also if the bot may not read the
        channel: a duplicate is better than a missing message.
        """
        place, user = slot.place or channel_id_of(turn.conversation), (await self._rest.identity()).user
        nonce = _nonce(turn.id, slot.name)
        after = _first_id(turn.created_at - SKEW)
        for _ in range(SEARCHED_PAGES):
            page = await self._page(place, after)
            for message in page:
                author, ref = message.get("author"), MessageRef(place, str(message["id"]))
                own = isinstance(author, dict) and author.get("id") == user and str(ref) not in taken
                if own and (message.get("nonce") == nonce or _is_it(message, slot, turn)):
                    return ref
            if len(page) < SEARCHED:
                break
            after = max((str(each["id"]) for each in page), key=int)
        return None

    async def _page(self, place: str, after: str) -> Sequence[Mapping[str, Any]]:
        query: dict[str, str | int] = {"limit": SEARCHED, "after": after}
        try:
            page = await self._rest.call(
                "GET", "/channels/{channel_id}/messages", "read what it said", query=query, channel_id=place
            )
        except DiscordApiError as error:
            if not error.permanent:
                raise
            return []
        return [each for each in page if isinstance(each, dict)] if isinstance(page, list) else []

    def _remember(self, turn: Turn, slot: OutgoingMessage) -> None:
        key = (turn.id, slot.name)
        self._sent[key] = _digest(slot)
        self._sent.move_to_end(key)
        while len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)


def _posted(slot: OutgoingMessage) -> dict[str, Any]:
    called = {**NOBODY, "users": [slot.calls]} if slot.calls else NOBODY
    body: dict[str, Any] = {"allowed_mentions": called, "components": list(slot.components)}
    if slot.laid_out:
        return body | {"flags": COMPONENTS_V2}
    body |= {"content": slot.content, "flags": SUPPRESS_EMBEDS}
    if slot.file is not None:
        body["attachments"] = [{"id": 0, "filename": slot.file.name}]
    return body


def _edit(slot: OutgoingMessage) -> dict[str, Any]:
    """Return the body of an edit: existing files stay, and the layout flag cannot change."""
    body: dict[str, Any] = {"allowed_mentions": NOBODY, "components": list(slot.components)}
    return body if slot.laid_out else body | {"content": slot.content, "flags": SUPPRESS_EMBEDS}


def _will_do_without_buttons(slot: OutgoingMessage, error: DiscordApiError) -> bool:
    """Return True if a message may be posted without the layout that Discord rejected. False for a card, whose approval
    could not be decided without buttons.
    """
    if error.code != INVALID_BODY or slot.asks or slot.laid_out or not slot.components:
        return False
    log.error("Discord rejected the buttons of a message, sending it without them")
    return True


def _shows(message: Mapping[str, Any], slot: OutgoingMessage) -> bool:
    """Return True if a message has the content that was to be posted."""
    ids = custom_ids(message.get("components") or ())
    return str(message.get("content") or "") == slot.content.strip() and ids == custom_ids(slot.components)


def _is_it(message: Mapping[str, Any], slot: OutgoingMessage, turn: Turn) -> bool:
    """Return True if a message of the bot is this one: it has the card's buttons, the answer's text, or the turn's stop
    button.
    """
    ids = custom_ids(message.get("components") or ())
    if slot.laid_out:
        return bool(ids & custom_ids(slot.components))
    return (slot.file is None and encode(StopTurnAction(turn.id)) in ids) or _shows(message, slot)


def _nonce(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:NONCE]


def _first_id(at: float) -> str:
    """Return the lowest id of an object created at that time (epoch seconds)."""
    return str(int(max(at - EPOCH, 0.0) * 1000) << 22)


def _made_at(message: str) -> float:
    """Return when a message was posted, in epoch seconds."""
    return (int(message) >> 22) / 1000 + EPOCH


def _digest(slot: OutgoingMessage) -> str:
    return hashlib.sha256(json.dumps([slot.content, slot.components], sort_keys=True).encode()).hexdigest()
