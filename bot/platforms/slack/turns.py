"""Turns as Slack messages: answers, approval cards, elicitations, and cards in other channels.

The same view always gives the same blocks. Delete a posted message that is not in the result, for example after a
restarted, shorter reply. Text stays in its message while the section grows; blocks and streams split a reply alike.

Calls of one completion share a card; each has its own decision. A call with a hidden part that looks like a secret can
only be approved in the modal that shows all of it. The card of an elicitation mentions the user who must answer,
because Slack notifies when a message with a mention is posted, not when it is edited. Answers and page addresses never
appear on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from bot.chat import card_messages as chat_cards
from bot.chat.actions import (
    FeedbackValue,
    SendFeedback,
)
from bot.chat.card_messages import DIRECT_CONVERSATION, RemoteCard, approval_messages, elicitation_messages
from bot.chat.message_model import ChannelLink, Link, Span, Text
from bot.domain.conversations import ConversationKey
from bot.domain.turns import TurnStatus
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.slack.blocks import (
    MESSAGE_WEIGHT,
    Block,
    OutgoingMessage,
    button,
    buttons,
    encode,
    fallback,
    fallback_text,
    preformatted,
    rich_section,
    rich_text,
    small,
    words,
)
from bot.platforms.slack.channels import MessageRef
from bot.platforms.slack.message_blocks import outgoing_message
from bot.platforms.slack.rich_text import RichTextBuilder
from bot.rendering.markdown import SizeLimit, split_once, text_weight
from bot.rendering.text_safety import strip_control
from bot.rendering.timeline import (
    AI_NOTICE,
    WORKING,
    ActivityLine,
    ApprovalEntry,
    CallLine,
    ElicitationEntry,
    Entry,
    Failure,
    Note,
    ReplyText,
    StopTurnAction,
    TimelineSection,
    ToolOutput,
    available_actions,
    busy_text,
    drop_repeats,
    offer_label,
    timeline,
    tool_text,
    truncate_output,
)

ROOM = SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 600)
"""Size limit of the text; the rest of the message is for the small lines at its end."""
LINE_WEIGHT = 250
"""Weight of a tool line, independent of its length, so that a changed line moves no text."""
ENTRIES = 20
CONTINUED = "(continued · {})"
OFFERS = 5
CALLS_A_CARD = 8

# -------------------- approval cards


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


@dataclass(frozen=True, slots=True)
class ReplyMessage:
    """Part of a section in one message. `last` is False if the section continues in another message."""

    name: str
    number: int
    entries: tuple[Entry, ...]
    last: bool = True


def split_reply(passage: TimelineSection) -> tuple[ReplyMessage, ...]:
    """Split a section into one or more messages."""
    pages = [*_pages(passage)]
    return tuple(
        ReplyMessage(_name(passage, number), number, entries, number == len(pages) - 1)
        for number, entries in enumerate(pages)
    )


def _name(passage: TimelineSection, number: int) -> str:
    return f"answer-{passage.number}" + (f"-{number}" if number else "")


def _pages(passage: TimelineSection) -> Iterator[tuple[Entry, ...]]:
    page: list[Entry] = []
    used = 0
    for entry in passage.entries:
        if page and (len(page) >= ENTRIES or used + _weight(entry) > ROOM.most):
            yield tuple(page)
            page, used = [], 0
        if not isinstance(entry, ReplyText):
            page.append(entry)
            used += _weight(entry)
            continue
        rest = strip_control(entry.text)
        while rest:
            head, rest = split_once(rest, ROOM.after(used))
            if head.strip():
                page.append(replace(entry, text=head, growing=entry.growing and not rest))
            used += text_weight(head)
            if rest:
                yield tuple(page)
                page, used = [], 0
    yield tuple(page)


def _weight(entry: Entry) -> int:
    match entry:
        case CallLine():
            return LINE_WEIGHT
        case ReplyText():
            return 0
        case ToolOutput(text):
            return text_weight(truncate_output(text))
        case _:
            return text_weight(entry.text)


NOWHERE = SentCards()


def turn_messages(view: TurnView, now: float, outside: SentCards = NOWHERE) -> tuple[OutgoingMessage, ...]:
    """Return all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now`
    (epoch seconds); `outside` are the posted remote cards.
    """
    sequence = timeline(view)
    last = max(number for number, each in enumerate(sequence) if isinstance(each, TimelineSection))
    slots: list[OutgoingMessage] = []
    for number, each in enumerate(sequence):
        match each:
            case ApprovalEntry():
                cards = approval_messages(each, view, now, calls_a_card=CALLS_A_CARD, address=outside.address)
                slots += map(outgoing_message, cards)
            case ElicitationEntry():
                slots += map(outgoing_message, elicitation_messages(each, view, now))
            case TimelineSection():
                parts = split_reply(each)
                slots += [_reply_message(part, view, ends=number == last and part.last) for part in parts]
    return tuple(slots)


def _reply_message(part: ReplyMessage, view: TurnView, *, ends: bool) -> OutgoingMessage:
    prose = RichTextBuilder()
    if part.number:
        prose.block(*small(CONTINUED.format(part.number + 1)))
    for kind, group in groupby(drop_repeats(part.entries, view), key=type):
        _add_entries(prose, kind, list(group))
    if not prose.blocks:
        prose.block(*small(busy_text(WORKING)))
    text = fallback(fallback_text(prose.blocks))
    if ends:
        prose.block(*_ending(view, part))
    return OutgoingMessage(part.name, tuple(prose.blocks), text)


def _add_entries(prose: RichTextBuilder, kind: type[Entry], entries: list[Entry]) -> None:
    """Add consecutive entries of one kind."""
    if kind is CallLine:
        prose.block(*small(*(tool_text(each.line) for each in entries if isinstance(each, CallLine))))
        return
    for entry in entries:
        match entry:
            case ReplyText(text):
                prose.markdown(text)
            case ToolOutput(text):
                prose.block(rich_text(preformatted(truncate_output(text))))
            case Note(text):
                prose.block(*small(text))
            case ActivityLine(text):
                prose.block(*small(busy_text(text)))
            case Failure(text, reference):
                prose.block(rich_text(rich_section(words(f"⚠ {text}  "), words(f"ref {reference}", code=True))))
            case CallLine():
                continue


def _ending(view: TurnView, part: ReplyMessage) -> list[Block]:
    """Return the buttons at the end of a turn."""
    turn = view.turn
    if turn.status is TurnStatus.QUEUED:
        return buttons(
            [
                *(button(offer_label(action, view), action) for action in available_actions(view)[:OFFERS]),
                button("Withdraw", StopTurnAction(turn.id)),
            ]
        )
    if not turn.status.ended:
        return buttons([button("Stop", StopTurnAction(turn.id))])
    ways = buttons(button(offer_label(action, view), action) for action in available_actions(view)[:OFFERS])
    answered = turn.status is TurnStatus.DONE and any(isinstance(entry, ReplyText) for entry in part.entries)
    return [*ways, *([_feedback(turn.id), *small(AI_NOTICE)] if answered else [])]


def _feedback(turn_id: str) -> Block:
    good, bad = (encode(SendFeedback(turn_id, opinion)) for opinion in (FeedbackValue.GOOD, FeedbackValue.BAD))
    assert good is not None and bad is not None  # noqa: PT018 - a turn's id is short
    sides = {
        "positive_button": {"text": {"type": "plain_text", "text": "Good answer"}, "value": good[1]},
        "negative_button": {"text": {"type": "plain_text", "text": "Bad answer"}, "value": bad[1]},
    }
    return {"type": "context_actions", "elements": [{"type": "feedback_buttons", "action_id": good[0], **sides}]}
