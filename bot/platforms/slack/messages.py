"""From an event to a turn on disk. What returns may be acknowledged; what raises must not be, for Slack sends it again.

What is said in one thread is taken in the order in which it came, for finding out about a message takes its time.
Decides who may talk at all. A command said to the bot (`@bot mcp list`) goes to the commands, everything else that is
meant for the bot to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.chat.keyed_lock import KeyedLock
from bot.chat.recent_keys import RecentKeys
from bot.chat.rejection_messages import NOT_STORED
from bot.chat.text_commands import parse_command
from bot.chat.thread_context import describe_files
from bot.chat.thread_tracker import ThreadTracker
from bot.errors import DatabaseUnwritable, QueueFull
from bot.platforms.slack.context import PlatformContext
from bot.platforms.slack.ephemeral import ChannelRef, send_ephemeral, text_message
from bot.platforms.slack.ids import conversation
from bot.platforms.slack.incoming import IncomingMessage, parse_message
from bot.platforms.slack.message_builder import InboundMessageBuilder
from bot.platforms.slack.users import Person
from bot.platforms.slack.web_api import Identity

NOTHING_SAID = "What can I do for you? Mention me together with your question."


@dataclass(frozen=True, slots=True)
class TextCommand:
    """A command that somebody said to the bot instead of typing it behind a slash."""

    words: tuple[str, ...]
    spot: ChannelRef


class MessageHandler:
    """Takes events of people saying something. `invoke` answers commands."""

    def __init__(self, desk: PlatformContext, invoke: Callable[[TextCommand], None]) -> None:
        self._desk = desk
        self._invoke = invoke
        self._attention = ThreadTracker(follow_threads=desk.manners.follow_threads)
        self._reading = InboundMessageBuilder(desk.api, desk.people)
        self._in_turn = KeyedLock()
        self._done = RecentKeys()
        self._delayed = RecentKeys()

    async def handle(self, body: Mapping[str, Any]) -> None:
        """Take an event in, so that it may be acknowledged. Raises CountersignError if it must come again."""
        event = body.get("event")
        identity = await self._desk.api.identity()
        if not isinstance(event, dict) or not _concerns(body, identity):
            return
        said = parse_message(event, identity)
        if said is None:
            return
        async with self._in_turn.acquire(f"{said.channel}:{said.thread}"):
            await self._hear(said, identity)

    async def _hear(self, said: IncomingMessage, identity: Identity) -> None:
        if f"{said.channel}:{said.ts}" in self._done:
            return
        if not await self._is_meant(said, identity):
            return
        person = await self._desk.people.person(said.user)
        if person.bot:
            return
        if refusal := self._desk.manners.rejection(person):
            self._refuse(said, refusal)
            return
        await self._take(said, person, identity)

    async def _is_meant(self, said: IncomingMessage, identity: Identity) -> bool:
        """Mentions and direct messages are; in a thread where the bot has a turn, so is what turns to nobody else."""
        if said.direct or identity.user in said.mentions:
            return True
        if said.opens_thread or said.mentions:
            return False
        key = conversation(identity.team, said.channel, said.thread)
        return await self._attention.is_following(key, self._desk.engine)

    async def _take(self, said: IncomingMessage, person: Person, identity: Identity) -> None:
        key = conversation(identity.team, said.channel, said.thread)
        addressed = said.direct or identity.user in said.mentions
        text = await self._reading.words(said)
        if addressed and (words := parse_command(text, self._desk.commands, key)):
            if said.notified and self._done.add(f"{said.channel}:{said.ts}"):
                self._invoke(TextCommand(words, _spot(said)))
            return
        text = text or (describe_files(said.files) if said.files else "")
        if not text:
            self._refuse(said, NOTHING_SAID)
            return
        engine = self._desk.engine
        message = await self._reading.build(said, text, person.author, key, engine)
        try:
            await engine.receive(message)
        except QueueFull as error:
            # A mention comes as two events. What is not addressed to the bot comes as one.
            if said.notified or not addressed:
                self._tell(said, error.told)
            return
        except DatabaseUnwritable:
            # Slack sends it again, because it is not acknowledged.
            if (said.notified or not addressed) and self._delayed.add(f"{said.channel}:{said.ts}"):
                self._notify(said, NOT_STORED)
            raise
        self._done.remember(f"{said.channel}:{said.ts}")
        self._attention.follow(key)

    def _refuse(self, said: IncomingMessage, why: str) -> None:
        """Say so to whoever turned to the bot; people who only go on talking in a thread hear nothing."""
        if said.notified:
            self._tell(said, why)

    def _tell(self, said: IncomingMessage, why: str) -> None:
        """Tell the author alone, once, why nothing comes of a message."""
        if self._done.add(f"{said.channel}:{said.ts}"):
            self._notify(said, why)

    def _notify(self, said: IncomingMessage, why: str) -> None:
        self._desk.errands.refuse(
            said.user, why, lambda text: send_ephemeral(self._desk.api, _spot(said), text_message(text))
        )


def _spot(said: IncomingMessage) -> ChannelRef:
    return ChannelRef(said.channel, said.user, said.thread)


def _concerns(body: Mapping[str, Any], identity: Identity) -> bool:
    """Whether an event is for this installation: one that comes from a shared channel names the other workspace."""
    authorizations = body.get("authorizations")
    teams = [each.get("team_id") for each in authorizations if isinstance(each, dict)] if authorizations else []
    return identity.team in teams or body.get("team_id") == identity.team
