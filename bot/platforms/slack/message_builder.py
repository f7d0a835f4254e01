"""A message made ready for the engine: names instead of ids, and what was said in its thread before.

Slack waits for the acknowledgement meanwhile, so this has a limit: what could not be read by then is left out, and
said to be. Only who the author is must be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from bot.chat.per_user_limit import PerUserRate
from bot.chat.thread_context import append_file_names, format_lines, messages_since
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.errors import DeliveryFailed
from bot.platforms.slack.ids import message_keys
from bot.platforms.slack.incoming import IncomingMessage
from bot.platforms.slack.markup import (
    MentionResolver,
    mentioned_people,
    strip_bot_mention,
    to_plain_text,
    unnamed_channels,
)
from bot.platforms.slack.thread_history import ThreadMessage, read_thread
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.ports import EngineApi
from bot.rendering.text_safety import single_line

READING_SECONDS = 0.8
READS_A_MINUTE = 10
"""Calls of conversations.replies for one user: about a fifth of those that all users have (`pacing.py`)."""
UNREAD = "(what was said in this thread before could not be read)"
MOST_NAMES = 20
MOST_CHANNELS = 2_000


class InboundMessageBuilder:
    """Makes InboundMessages."""

    def __init__(self, api: WebApi, people: UserDirectory) -> None:
        self._api = api
        self._people = people
        self._channels: dict[str, str] = {}
        self._reads = PerUserRate(READS_A_MINUTE, 60.0)

    async def words(self, said: IncomingMessage) -> str:
        """What was said to the bot, as plain text. Names that cannot be found out in time stay ids."""
        identity = await self._api.identity()
        text = strip_bot_mention(said.text, identity.user)
        return to_plain_text(text, await self._names([text], identity.user, identity.name)).strip()

    async def build(
        self, said: IncomingMessage, text: str, author: Author, conversation: ConversationKey, engine: EngineApi
    ) -> InboundMessage:
        """The message with its context."""
        return InboundMessage(
            keys=message_keys(conversation.workspace, said.channel, said.ts, said.user, said.client_id),
            conversation=conversation,
            author=author,
            text=text,
            attachments=said.files,
            context=await self._context(said, conversation, engine),
        )

    async def _context(
        self, said: IncomingMessage, conversation: ConversationKey, engine: EngineApi
    ) -> tuple[str, ...]:
        if said.opens_thread:
            return ()
        try:
            async with asyncio.timeout(READING_SECONDS):
                identity = await self._api.identity()
                lines = await read_thread(
                    self._api,
                    identity,
                    said.channel,
                    said.thread,
                    said.ts,
                    may_read=lambda: self._reads.acquire(said.user),
                )
        except (DeliveryFailed, TimeoutError):
            return (UNREAD,)
        if not lines:
            return ()
        names = await self._names([line.text for line in lines], identity.user, identity.name, _speakers(lines))
        texts = {line.ts: to_plain_text(strip_bot_mention(line.text, identity.user), names).strip() for line in lines}
        recent = await engine.recent_turns(conversation, 1)
        if recent:
            last = recent[-1].turn
            asked = (last.author.id, last.question.text)
            lines = tuple(messages_since(lines, lambda line: (line.user, texts[line.ts]) == asked))
        return format_lines(
            [(self._speaker(line, names), append_file_names(texts[line.ts], line.files)) for line in lines]
        )

    async def _names(self, texts: Iterable[str], bot: str, bot_name: str, users: Sequence[str] = ()) -> MentionResolver:
        joined = "\n".join(texts)
        wanted = [user for user in dict.fromkeys((*users, *mentioned_people(joined))) if user != bot][:MOST_NAMES]
        channels = unnamed_channels(joined)[:MOST_NAMES]
        try:
            async with asyncio.timeout(READING_SECONDS):
                await asyncio.gather(*map(self._learn_person, wanted), *map(self._learn_channel, channels))
        except TimeoutError:
            pass  # ids say less than names, and nothing wrong
        people = {user: self._people.cached_name(user) for user in wanted}
        return MentionResolver({**people, bot: bot_name}, {name: self._channels.get(name, "") for name in channels})

    async def _learn_person(self, user: str) -> None:
        try:
            await self._people.person(user)
        except DeliveryFailed:
            return

    async def _learn_channel(self, channel: str) -> None:
        if channel in self._channels:
            return
        try:
            answer = await self._api.read("conversations.info", channel=channel)
        except DeliveryFailed:
            return
        if len(self._channels) >= MOST_CHANNELS:
            self._channels.clear()
        found = answer.get("channel")
        self._channels[channel] = single_line(str(found.get("name") or ""), 80) if isinstance(found, dict) else ""

    def _speaker(self, line: ThreadMessage, names: MentionResolver) -> str:
        return line.speaker or names.people.get(line.user) or line.user


def _speakers(lines: Sequence[ThreadMessage]) -> list[str]:
    """Whoever spoke, the latest first: those are the lines that are kept."""
    return [line.user for line in reversed(lines) if line.user and not line.speaker]
