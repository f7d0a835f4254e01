"""A message made ready for the engine: names instead of ids, and what was said in its thread before.

Slack waits for the acknowledgement meanwhile, so this has a limit: what could not be read by then is left out, and
said to be. Only who the author is must be known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.errors import DeliveryFailed
from bot.platforms.slack.earlier import Earlier, read_thread
from bot.platforms.slack.people import People
from bot.platforms.slack.references import message_keys
from bot.platforms.slack.said import Said
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.wording import Names, addressed, mentioned_people, unnamed_channels, worded
from bot.ports import FrontDoor
from bot.reception.context_lines import context_lines, since, with_files
from bot.reception.per_user_limit import PerUserRate
from bot.rendering.plain import one_line

READING_SECONDS = 0.8
READS_A_MINUTE = 10
"""Calls of conversations.replies for one user: about a fifth of those that all users have (`pacing.py`)."""
UNREAD = "(what was said in this thread before could not be read)"
MOST_NAMES = 20
MOST_CHANNELS = 2_000


class ReadingUp:
    """Makes InboundMessages."""

    def __init__(self, api: WebApi, people: People) -> None:
        self._api = api
        self._people = people
        self._channels: dict[str, str] = {}
        self._reads = PerUserRate(READS_A_MINUTE, 60.0)

    async def words(self, said: Said) -> str:
        """What was said to the bot, as plain text. Names that cannot be found out in time stay ids."""
        identity = await self._api.identity()
        text = addressed(said.text, identity.user)
        return worded(text, await self._names([text], identity.user, identity.name)).strip()

    async def message(
        self, said: Said, text: str, author: Author, conversation: ConversationKey, engine: FrontDoor
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

    async def _context(self, said: Said, conversation: ConversationKey, engine: FrontDoor) -> tuple[str, ...]:
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
        texts = {line.ts: worded(addressed(line.text, identity.user), names).strip() for line in lines}
        recent = await engine.recent(conversation, 1)
        if recent:
            last = recent[-1].turn
            asked = (last.author.id, last.question.text)
            lines = tuple(since(lines, lambda line: (line.user, texts[line.ts]) == asked))
        return context_lines([(self._speaker(line, names), with_files(texts[line.ts], line.files)) for line in lines])

    async def _names(self, texts: Iterable[str], bot: str, bot_name: str, users: Sequence[str] = ()) -> Names:
        joined = "\n".join(texts)
        wanted = [user for user in dict.fromkeys((*users, *mentioned_people(joined))) if user != bot][:MOST_NAMES]
        channels = unnamed_channels(joined)[:MOST_NAMES]
        try:
            async with asyncio.timeout(READING_SECONDS):
                await asyncio.gather(*map(self._learn_person, wanted), *map(self._learn_channel, channels))
        except TimeoutError:
            pass  # ids say less than names, and nothing wrong
        people = {user: self._people.known_name(user) for user in wanted}
        return Names({**people, bot: bot_name}, {name: self._channels.get(name, "") for name in channels})

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
        self._channels[channel] = one_line(str(found.get("name") or ""), 80) if isinstance(found, dict) else ""

    def _speaker(self, line: Earlier, names: Names) -> str:
        return line.speaker or names.people.get(line.user) or line.user


def _speakers(lines: Sequence[Earlier]) -> list[str]:
    """Whoever spoke, the latest first: those are the lines that are kept."""
    return [line.user for line in reversed(lines) if line.user and not line.speaker]
