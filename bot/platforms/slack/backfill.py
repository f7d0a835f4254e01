"""Loading of messages that were missed while no process received.

Slack sends an event again for some minutes, and those of a longer downtime never. A message that comes both ways is one
turn. Missed messages are in threads with a recent turn, and in the channels and direct conversations of those threads:
there, mentions and direct messages begin new ones. Mentions in other threads are not found.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bot.chat.backfill import MOST_MESSAGES, MissedPeriod
from bot.domain.conversations import ConversationKey
from bot.errors import DeliveryFailed
from bot.platforms.slack.channels import ChannelRef
from bot.platforms.slack.messages import SlackMessage, parse_message
from bot.platforms.slack.web_api import WebApi

log = logging.getLogger(__name__)

MOST_CHANNELS = 30
PAUSE_SECONDS = 2.0
MOST_PAUSES = 60
"""Pauses before one call, while its rate limit has no room for optional calls."""


class SlackMissedMessages:
    """Loads messages that no process has received. Calls leave room in the rate limits for current conversations."""

    def __init__(self, api: WebApi) -> None:
        self._api = api

    async def messages_since(self, conversation: ConversationKey, since: datetime) -> Sequence[SlackMessage]:
        """Return the messages of a thread; none of another workspace. Raises DeliveryFailed."""
        identity = await self._api.identity()
        if conversation.workspace != identity.team or not conversation.thread:
            return ()
        messages = await self._read("conversations.replies", conversation.channel, since, ts=conversation.thread)
        # The first message of a thread comes with every answer.
        return [message for message in messages if message.sent_at >= since.timestamp()]

    async def mentions(self, period: MissedPeriod) -> AsyncGenerator[SlackMessage, None]:
        """Yield mentions outside of threads, and the first messages of direct conversations."""
        channels = dict.fromkeys(conversation.channel for conversation in period.known)
        for channel in [*channels][:MOST_CHANNELS]:
            try:
                messages = await self._read("conversations.history", channel, period.since)
            except DeliveryFailed as failure:
                log.info("missed messages of channel %s not loaded: %s", channel, failure)
                continue
            for message in messages:
                if message.addresses_bot:
                    yield message

    async def _read(self, method: str, channel: str, since: datetime, **arguments: str) -> list[SlackMessage]:
        """Return the users' messages of a thread or channel, oldest first. Raises DeliveryFailed."""
        for _ in range(MOST_PAUSES):
            if self._api.pacing.has_headroom(method):
                break
            await asyncio.sleep(PAUSE_SECONDS)
        oldest = f"{since.timestamp():.6f}"
        answer = await self._api.read(method, channel=channel, oldest=oldest, limit=MOST_MESSAGES, **arguments)
        identity = await self._api.identity()
        raw = answer.get("messages")
        parsed = [
            parse_message({"type": "message", **message, "channel": channel, **_channel_type(channel)}, identity)
            for message in (raw if isinstance(raw, list) else ())
            if isinstance(message, dict)
        ]
        return sorted((message for message in parsed if message is not None), key=lambda message: message.sent_at)


def _channel_type(channel: str) -> Mapping[str, Any]:
    return {"channel_type": "im"} if ChannelRef(channel, "").direct else {}
