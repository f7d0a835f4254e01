"""Turns as Discord messages: answers, approval cards, elicitations, and cards in other channels.

An answer is the content of its messages. A card uses Components V2, which text of models and tools cannot imitate. It
stays within Discord's 40 components and 4,000 characters; omitted parts are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bot.chat import card_messages as chat_cards
from bot.chat import turn_messages as chat_turns
from bot.chat.card_messages import DIRECT_CONVERSATION, RemoteCard
from bot.chat.message_model import ChannelLink, Text
from bot.chat.turn_messages import NO_REFS, Answer, AnswerLimits
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.discord.channels import MessageRef, channel_id_of, message_url
from bot.platforms.discord.components import OutgoingMessage
from bot.platforms.discord.markdown import dialect
from bot.platforms.discord.markup import utf16_length
from bot.platforms.discord.message_layout import answer_message, caption, outgoing_message
from bot.rendering.markdown import SizeLimit

CALLS_A_CARD = 4
"""Each takes up to eight components while it waits."""
ANSWER_LIMITS = AnswerLimits(
    # With prefixes and suffixes a message stays within 1,900 of Discord's 2,000 characters.
    SizeLimit(good=1_450, most=1_800, weigh=utf16_length),
    weigh_line=lambda line: utf16_length(caption(line)) + 1,
    format_text=dialect,
    most_messages=10,
    latest_calls=10,
    words_first=True,
)


def remote_cards(view: TurnView, now: float, *, direct: bool) -> Iterator[RemoteCard]:
    """Yield the remote cards of a turn by channel, each with a link to its conversation; `direct` is True for a direct
    conversation, which other users cannot open.
    """
    origin = Text(DIRECT_CONVERSATION) if direct else ChannelLink(channel_id_of(view.turn.conversation))
    return chat_cards.remote_cards(view, now, origin, calls_a_card=CALLS_A_CARD)


def address_of(view: TurnView, refs: MessageRefs, slot: str) -> str:
    """Return the URL of a posted message; empty if it is not posted."""
    ref = MessageRef.parse(refs.get(slot, ""))
    return message_url(view.turn.conversation.workspace, ref) if ref is not None else ""


def turn_messages(view: TurnView, now: float, refs: MessageRefs = NO_REFS) -> tuple[OutgoingMessage, ...]:
    """Return all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now`
    (epoch seconds); `refs` are of all posted messages, including remote cards.
    """
    messages = chat_turns.turn_messages(
        view, now, ANSWER_LIMITS, CALLS_A_CARD, partial(address_of, view, refs), refs=refs
    )
    return tuple(
        answer_message(message) if isinstance(message, Answer) else outgoing_message(message) for message in messages
    )
