"""Context of a message: earlier messages of its thread, and the messages it replies to.

The bot's own messages and those up to its last turn are in its history and left out. Replied-to messages are always
included. Reading has a time limit; the context says if messages are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import discord

from bot.chat.thread_context import append_file_names, format_lines, messages_since
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.errors import DeliveryFailed
from bot.platforms.discord.channel_ref import message_key
from bot.platforms.discord.errors import map_errors
from bot.platforms.discord.incoming import IncomingMessage, answered_by, words_of
from bot.platforms.discord.rest import Rest
from bot.ports import EngineApi
from bot.rendering.text_safety import single_line

READING_SECONDS = 3.0
MOST_LINES = 100
"""Messages of one request; Discord's limit."""
LONGEST_CHAIN = 8
UNREAD = "(what was said here before could not be read)"
FORWARDED = "(forwarded)"


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message that stands before another. `own` is the bot's."""

    id: int
    user: str
    name: str
    text: str
    own: bool = False


class InboundMessageBuilder:
    """Makes InboundMessages."""

    def __init__(self, rest: Rest, engine: EngineApi) -> None:
        self._rest = rest
        self._engine = engine

    async def build(
        self,
        message: IncomingMessage,
        text: str,
        author: Author,
        conversation: ConversationKey,
        guild: discord.Guild | None,
    ) -> InboundMessage:
        """Return the message with its context; `text` is its content. Raises the engine's errors."""
        recent = await self._engine.recent_turns(conversation, 1)
        asked = (recent[-1].turn.author.id, recent[-1].turn.question.text) if recent else None
        try:
            async with asyncio.timeout(READING_SECONDS):
                lines = await self._lines(message, guild, asked, in_thread=message.place == conversation.thread)
        except (DeliveryFailed, TimeoutError):
            context: tuple[str, ...] = (UNREAD,)
        else:
            context = format_lines([(line.name, line.text) for line in lines])
        return InboundMessage(
            keys=(message_key(message.id),),
            conversation=conversation,
            author=author,
            text=text,
            attachments=message.files,
            context=(*context, *format_lines([(FORWARDED, each) for each in message.forwarded])),
        )

    async def _lines(
        self, message: IncomingMessage, guild: discord.Guild | None, asked: tuple[str, str] | None, *, in_thread: bool
    ) -> Sequence[ThreadMessage]:
        """Return all lines of the context, oldest first. Raises DeliveryFailed."""
        me = (await self._rest.identity()).user
        before = await self._history(message, me, guild) if in_thread else []
        fresh = messages_since(before, lambda line: (line.user, line.text) == asked) if asked is not None else before
        replied = await self._replied_to(message, before, me, guild)
        known = {line.id for line in fresh}
        return [line for line in chain((each for each in replied if each.id not in known), fresh) if not line.own]

    async def _history(self, message: IncomingMessage, me: str, guild: discord.Guild | None) -> list[ThreadMessage]:
        client = await self._rest.client()
        with map_errors("read what was said before"):
            place = client.get_partial_messageable(int(message.place))
            found = [each async for each in place.history(limit=MOST_LINES, before=discord.Object(int(message.id)))]
        return [line for each in reversed(found) if (line := to_thread_message(each, me, guild)) is not None]

    async def _replied_to(
        self, said: IncomingMessage, before: Sequence[ThreadMessage], me: str, guild: discord.Guild | None
    ) -> list[ThreadMessage]:
        """Return the chain of replied-to messages, oldest first, up to the first of the bot."""
        client = await self._rest.client()
        known = {line.id: line for line in before}
        found: list[ThreadMessage] = []
        answered = said.answers
        while answered is not None and answered.user != me and len(found) < LONGEST_CHAIN:
            try:
                with map_errors("read what a message replies to"):
                    place = client.get_partial_messageable(int(answered.place))
                    message = await place.fetch_message(int(answered.message))
            except DeliveryFailed as failure:
                if not failure.permanent:
                    raise
                break
            line = known.get(message.id) or to_thread_message(message, me, guild)
            if line is None or line.own:
                break
            found.append(line)
            answered = answered_by(message)
        return found[::-1]


def to_thread_message(message: discord.Message, me: str, guild: discord.Guild | None) -> ThreadMessage | None:
    """Return an earlier message as a line, or None if it is empty. The first message of a thread is a copy of the
    message it was opened at.
    """
    if message.type is discord.MessageType.thread_starter_message:
        opened_at = message.reference.resolved if message.reference is not None else None
        if not isinstance(opened_at, discord.Message):
            return None
        line = to_thread_message(opened_at, me, guild)
        return None if line is None else replace(line, id=opened_at.id)
    if message.is_system():
        return None
    text = append_file_names(words_of(message, me, guild), [attachment.filename for attachment in message.attachments])
    if not text:
        return None
    user = str(message.author.id)
    return ThreadMessage(message.id, user, single_line(message.author.display_name, 80), text, own=user == me)
