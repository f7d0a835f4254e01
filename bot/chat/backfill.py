"""Messages that are read back from the platform.

`Backfill` handles those that arrived while no process received, and that the platform does not deliver again.
Conversations with a turn are read from their last turn before the session on; elsewhere the platform looks for mentions
of the bot since the last turn of any conversation. Processing a message twice has no effect, because a message is one
turn.

`conversation_texts` is for deployments that keep no content: the history of a turn is then read from the conversation.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, Protocol, TypeVar

from bot.chat.context import ActiveConversations
from bot.chat.message_handler import MessageHandler, PlatformMessage, ThreadMessage
from bot.chat.turn_messages import find_answers
from bot.domain.conversations import ConversationKey
from bot.domain.turns import MessageRefs
from bot.errors import CountersignError
from bot.ports import EngineApi
from bot.ports.platform import PostedText

log = logging.getLogger(__name__)

HOURS = 24.0
MOST_CONVERSATIONS = 100
MOST_MESSAGES = 100
"""Messages of one conversation."""
RECENT_TURNS = 10
LATEST = 5
"""Number of the latest conversations of which the last turns are looked at: the newest may be from just now."""
CLOCKS_DIFFER = timedelta(seconds=60)
"""Turns carry the database's time, messages the platform's."""

M = TypeVar("M", bound=PlatformMessage)
M_co = TypeVar("M_co", bound=PlatformMessage, covariant=True)


@dataclass(frozen=True, slots=True)
class MissedPeriod:
    """Time in which mentions may have been missed: since the last turn, or since a thread was opened for a mention at
    the `earliest`. `known` conversations have been read already.
    """

    earliest: datetime
    since: datetime
    known: Collection[ConversationKey]


class MissedMessages(Protocol[M_co]):
    """The platform's part of a backfill: loading earlier messages."""

    async def messages_since(self, conversation: ConversationKey, since: datetime) -> Sequence[M_co]:
        """Return up to MOST_MESSAGES of a conversation, oldest first; none of one that is gone. Raises
        DeliveryFailed.
        """

    def mentions(self, period: MissedPeriod) -> AsyncGenerator[M_co, None]:
        """Yield the mentions of the bot in conversations that are not known. Raises CountersignError."""


class Backfill(Generic[M]):
    """Handles the missed messages of the conversations whose keys begin with `prefix` and a colon.
    `active_conversations` may be missing.
    """

    def __init__(
        self,
        prefix: str,
        missed: MissedMessages[M],
        handler: MessageHandler[M],
        engine: EngineApi,
        active_conversations: ActiveConversations | None,
    ) -> None:
        self._prefix = prefix
        self._missed = missed
        self._handler = handler
        self._engine = engine
        self._active_conversations = active_conversations

    async def run(self, began_at: float) -> None:
        """Handle the messages before a session that began at `began_at`, in epoch seconds. Raises CountersignError."""
        began = datetime.fromtimestamp(began_at, UTC)
        conversations: Sequence[ConversationKey] = ()
        if self._active_conversations is not None:
            conversations = await self._active_conversations(f"{self._prefix}:", HOURS * 3600, MOST_CONVERSATIONS)
        for conversation in conversations:
            try:
                since = await self._last_turn(conversation, began)
                messages = await self._missed.messages_since(conversation, since)
                for message in await self._unseen(conversation, began, messages):
                    await self._handler.handle_late(message)
            except CountersignError as error:
                log.warning("missed messages of %s not loaded: %s", conversation, error)
        earliest = began - timedelta(hours=HOURS)
        last_turns = [await self._last_turn(conversation, began) for conversation in conversations[:LATEST]]
        period = MissedPeriod(earliest, max(last_turns, default=earliest), frozenset(conversations))
        async with aclosing(self._missed.mentions(period)) as mentions:
            async for message in mentions:
                await self._handler.handle_late(message)

    async def _unseen(self, conversation: ConversationKey, began: datetime, messages: Sequence[M]) -> Sequence[M]:
        """Return the messages after the last one that was a question before the session. If it is not among them,
        return the messages since its turn, and older ones that address the bot: they are stored once.
        """
        turns = [view.turn for view in await self._engine.recent_turns(conversation, RECENT_TURNS)]
        turns = [turn for turn in turns if turn.created_at < began.timestamp()]
        asked = {turn.question.message_id for turn in turns} - {""}
        if known := [n for n, message in enumerate(messages) if message.id in asked]:
            return messages[known[-1] + 1 :]
        at = max((turn.created_at for turn in turns), default=0.0)
        return [message for message in messages if message.addresses_bot or message.sent_at >= at]

    async def _last_turn(self, conversation: ConversationKey, began: datetime) -> datetime:
        """Return when the last turn before the session was, at most HOURS ago."""
        turns = await self._engine.recent_turns(conversation, RECENT_TURNS)
        earliest = began - timedelta(hours=HOURS)
        # A message of this session may be a turn already, and says nothing about earlier ones.
        before = [at for view in turns if (at := datetime.fromtimestamp(view.turn.created_at, UTC)) < began]
        return max(max(before, default=earliest) - CLOCKS_DIFFER, earliest)


def conversation_texts(
    messages: Sequence[ThreadMessage],
    posted: Mapping[str, MessageRefs],
    *,
    ref_of: Callable[[ThreadMessage], str],
    id_of: Callable[[ThreadMessage], str],
) -> Sequence[PostedText]:
    """Return the messages of a conversation that belong to its history: those of users, and the answers of the turns in
    `posted`. `ref_of` returns the ref of a message of the bot, `id_of` the id as in `InboundMessage.message_id`.
    """
    answers = find_answers(posted)
    texts = []
    for message in messages:
        turn_id = answers.get(ref_of(message), "") if message.own else ""
        if turn_id or not message.own:
            _, text = message.entry
            texts.append(PostedText(id_of(message), message.name, text, turn_id))
    return texts
