"""Turns as Slack messages: answers, approval cards, elicitations, and cards in other channels.

Slack notifies the users whom a message mentions when it is posted, not when it is edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bot.chat import card_messages as chat_cards
from bot.chat import turn_messages as chat_turns
from bot.chat.card_messages import DIRECT_CONVERSATION, RemoteCard
from bot.chat.message_model import ChannelLink, Link, Span, Text
from bot.chat.turn_messages import Answer, AnswerLimits
from bot.domain.conversations import ConversationKey
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.slack.blocks import MESSAGE_WEIGHT, OutgoingMessage
from bot.platforms.slack.channels import MessageRef
from bot.platforms.slack.message_blocks import answer_message, outgoing_message
from bot.rendering.markdown import SizeLimit

LINE_WEIGHT = 250
"""Weight of a tool line, independent of its length, so that a changed line moves no text."""
ANSWER_LIMITS = AnswerLimits(
    # The rest of a message is for the small lines at its end.
    SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 600),
    weigh_line=lambda _line: LINE_WEIGHT,
)
CALLS_A_CARD = 8


@dataclass(frozen=True, slots=True)
class SentCards:
    """Posted remote cards of a turn, and the URL of the workspace."""

    url: str = ""
    refs: MessageRefs = field(default_factory=dict)

    def address(self, slot: str) -> str:
        """Return the permalink of a message; empty if it is not posted."""
        ref = MessageRef.parse(self.refs.get(slot, ""))
        return message_address(self.url, ref) if ref is not None else ""


def remote_cards(view: TurnView, now: float, url: str) -> Iterator[RemoteCard]:
    """Yield the remote cards of a turn by channel, each with a link to its conversation."""
    return chat_cards.remote_cards(view, now, _origin(view.turn.conversation, url), calls_a_card=CALLS_A_CARD)


def message_address(url: str, ref: MessageRef) -> str:
    """Return the permalink of a message, as chat.getPermalink would, without a request."""
    return f"{url.rstrip('/')}/archives/{ref.channel}/p{ref.ts.replace('.', '')}" if url else ""


def _origin(conversation: ConversationKey, url: str) -> Span:
    if conversation.channel.startswith("D"):
        return Text(DIRECT_CONVERSATION)
    address = message_address(url, MessageRef(conversation.channel, conversation.thread)) if conversation.thread else ""
    return Link(address, "this thread") if address else ChannelLink(conversation.channel)


NO_CARDS = SentCards()


def turn_messages(
    view: TurnView,
    now: float,
    sent: SentCards = NO_CARDS,
    refs: MessageRefs = chat_turns.NO_REFS,
    *,
    streams: bool = False,
) -> tuple[OutgoingMessage, ...]:
    """Return all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now`
    (epoch seconds); `sent` are the posted remote cards, `refs` those of all messages. If `streams` is True, the first
    words are shown at once.
    """
    messages = chat_turns.turn_messages(
        view, now, ANSWER_LIMITS, CALLS_A_CARD, sent.address, refs=refs, streams=streams
    )
    return tuple(
        answer_message(message) if isinstance(message, Answer) else outgoing_message(message) for message in messages
    )
