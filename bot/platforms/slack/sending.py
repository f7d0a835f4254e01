"""Sender of a turn's messages: posts each once, edits it afterwards, and posts it again if a user deleted it.

Messages unfurl no links. The metadata of a post names its turn and message, so that a post without a response can be
found in the thread before it is repeated.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from bot.domain.conversations import ConversationKey
from bot.errors import DeliveryFailed
from bot.platforms.slack.ids import MessageRef
from bot.platforms.slack.outgoing import OutgoingMessage
from bot.platforms.slack.web_api import SlackConnectionError, SlackWebApiError, WebApi
from bot.rendering.text_safety import ELLIPSIS

log = logging.getLogger(__name__)

EVENT_TYPE = "countersign_turn"
REMEMBERED = 2000
LATEST = 200
"""Messages of a channel among which one is looked for that is in no thread."""
LONGEST_TEXT = 3_990
"""Bytes of `text` in an edit, with room for an ellipsis. Slack names 4,000 without a unit."""
_HALF_ENTITY = re.compile(r"&[a-z]{0,3}$")
_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
_UNCLEAR = frozenset({"internal_error", "fatal_error", "request_timeout", "service_unavailable"})
"""Slack's own words for: something of it may have happened."""
_TOO_MUCH = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long"})


class Sender:
    """Posts and edits the messages of turns. Caches their content to skip edits without a change."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._sent: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._unsure: set[tuple[str, str]] = set()

    def unchanged(self, turn_id: str, slot: OutgoingMessage) -> bool:
        """Return True if the message already has this content, as far as this process knows."""
        return self._sent.get((turn_id, slot.name)) == _digest(slot)

    async def post(
        self, turn_id: str, slot: OutgoingMessage, conversation: ConversationKey, *, search: bool = False
    ) -> MessageRef:
        """Post a message, or find it if an earlier post got no response. `search` forces the lookup. Raises
        DeliveryFailed.
        """
        key = (turn_id, slot.name)
        if search or key in self._unsure:
            try:
                found = await self._find(key, conversation, slot.place)
            except DeliveryFailed as failure:
                if not failure.permanent:
                    raise
                found = None  # the bot may not read there: better twice than not at all
            self._unsure.discard(key)
            if found is not None:
                return await self.edit(turn_id, slot, conversation, found)
        try:
            answer = await self._posted(slot, conversation, key)
        except DeliveryFailed as failure:
            if isinstance(failure, SlackConnectionError) or getattr(failure, "code", "") in _UNCLEAR:
                self._unsure.add(key)
            raise
        self._remember(key, slot)
        return MessageRef(str(answer.get("channel") or slot.place or conversation.channel), str(answer.get("ts", "")))

    async def edit(
        self, turn_id: str, slot: OutgoingMessage, conversation: ConversationKey, ref: MessageRef
    ) -> MessageRef:
        """Edit a message and return the ref of the one that shows it now. Raises DeliveryFailed."""
        try:
            await self._edited(slot, ref)
        except SlackWebApiError as error:
            if error.code not in _GONE:
                raise
            log.info("turn %s: a message was deleted (%s), posting it again", turn_id, error.code)
            return await self.post(turn_id, slot, conversation)
        self._remember((turn_id, slot.name), slot)
        return ref

    async def delete(self, turn_id: str, name: str, ref: MessageRef) -> None:
        """Delete a message that no longer belongs to the turn. Raises DeliveryFailed."""
        try:
            await self._api.edit("chat.delete", channel=ref.channel, ts=ref.ts)
        except SlackWebApiError as error:
            if error.code not in (*_GONE, "cant_delete_message"):
                raise
        self._sent.pop((turn_id, name), None)

    def forget(self, turn_id: str, name: str) -> None:
        """Drop the cached content, because the message was changed by other means."""
        self._sent.pop((turn_id, name), None)

    async def _posted(
        self, slot: OutgoingMessage, conversation: ConversationKey, key: tuple[str, str]
    ) -> Mapping[str, Any]:
        turn_id, name = key
        thread = None if slot.place else conversation.thread or None
        place: dict[str, Any] = {"channel": slot.place or conversation.channel, "thread_ts": thread}
        metadata = {"event_type": EVENT_TYPE, "event_payload": {"turn": turn_id, "slot": name}}
        quiet = {"unfurl_links": False, "unfurl_media": False}
        try:
            return await self._api.post(
                "chat.postMessage", **place, **quiet, metadata=metadata, text=_text(slot), blocks=list(slot.blocks)
            )
        except SlackWebApiError as error:
            _check_that_text_will_do(slot, error)
            return await self._api.post("chat.postMessage", **place, **quiet, metadata=metadata, text=_text(slot))

    async def _edited(self, slot: OutgoingMessage, ref: MessageRef) -> None:
        for _ in range(2):
            try:
                await self._api.edit(
                    "chat.update", channel=ref.channel, ts=ref.ts, text=_text(slot), blocks=list(slot.blocks)
                )
            except SlackWebApiError as error:
                if error.code == "streaming_state_conflict":
                    await self._stop_stream(ref)
                    continue
                _check_that_text_will_do(slot, error)
                await self._api.edit("chat.update", channel=ref.channel, ts=ref.ts, text=_text(slot), blocks=[])
            return
        raise SlackWebApiError("streaming_state_conflict", "Slack still streams that message.", retry_after=5.0)

    async def _stop_stream(self, ref: MessageRef) -> None:
        """Stop a stream that this or another process did not finish."""
        try:
            await self._api.edit("chat.stopStream", channel=ref.channel, ts=ref.ts)
        except SlackWebApiError as error:
            if error.code != "message_not_in_streaming_state":
                raise

    async def _find(self, key: tuple[str, str], conversation: ConversationKey, place: str = "") -> MessageRef | None:
        """Return the message with these metadata, in its thread or among the latest of its channel; None if it is not
        found.
        """
        if place:
            return await self._find_in(place, key)
        if not conversation.thread:
            return None
        identity = await self._api.identity()
        cursor: str | None = None
        for _ in range(5):
            answer = await self._api.read(
                "conversations.replies",
                channel=conversation.channel,
                ts=conversation.thread,
                include_all_metadata="true",
                limit=200,
                cursor=cursor,
            )
            messages = answer.get("messages")
            for message in messages if isinstance(messages, list) else ():
                if isinstance(message, dict) and message.get("user") == identity.user and _carries(message, key):
                    return MessageRef(conversation.channel, str(message.get("ts", "")))
            metadata = answer.get("response_metadata")
            cursor = str(metadata.get("next_cursor") or "") if isinstance(metadata, dict) else ""
            if not cursor:
                break
        return None

    async def _find_in(self, channel: str, key: tuple[str, str]) -> MessageRef | None:
        identity = await self._api.identity()
        answer = await self._api.read(
            "conversations.history", channel=channel, include_all_metadata="true", limit=LATEST
        )
        messages = answer.get("messages")
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and message.get("user") == identity.user and _carries(message, key):
                return MessageRef(channel, str(message.get("ts", "")))
        return None

    def _remember(self, key: tuple[str, str], slot: OutgoingMessage) -> None:
        self._sent[key] = _digest(slot)
        self._sent.move_to_end(key)
        while len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)


def _check_that_text_will_do(slot: OutgoingMessage, error: SlackWebApiError) -> None:
    """Check that a message may be posted without the layout that Slack rejected. Raises SlackWebApiError if not."""
    if error.code not in _TOO_MUCH:
        raise error
    if slot.asks:
        # A card without buttons would count as posted, and nobody could ever decide.
        cause = f"Slack did not take the layout of an approval card ({error.code})."
        raise SlackWebApiError(error.code, cause, permanent=True) from error
    log.error("Slack rejected the layout of a message (%s), sending plain text", error.code)


def _carries(message: Mapping[str, Any], key: tuple[str, str]) -> bool:
    metadata = message.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    return isinstance(payload, dict) and (payload.get("turn"), payload.get("slot")) == key


def _digest(slot: OutgoingMessage) -> str:
    return hashlib.sha256(json.dumps([slot.text, slot.blocks], sort_keys=True).encode()).hexdigest()


def _text(slot: OutgoingMessage) -> str:
    """Return the message's text, cut to Slack's limit."""
    whole = slot.text.encode()
    if len(whole) <= LONGEST_TEXT:
        return slot.text or ELLIPSIS
    return _HALF_ENTITY.sub("", whole[:LONGEST_TEXT].decode(errors="ignore")) + ELLIPSIS
