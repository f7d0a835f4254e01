"""Turns as messages, each with its current blocks.

The same view always gives the same blocks. Delete a posted message that is not in the result, for example after a
restarted, shorter reply.
"""

from __future__ import annotations

from itertools import groupby

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.domain.turns import TurnStatus
from bot.domain.views import TurnView
from bot.platforms.slack.action_codec import encode
from bot.platforms.slack.blocks import (
    button,
    buttons,
    fallback,
    preformatted,
    rich_section,
    rich_text,
    small,
    words,
)
from bot.platforms.slack.elicitation_cards import elicitation_messages
from bot.platforms.slack.notification_text import fallback_text
from bot.platforms.slack.outgoing import Block, OutgoingMessage
from bot.platforms.slack.remote_card_messages import SentCards, approval_messages
from bot.platforms.slack.reply_messages import ReplyMessage, split_reply
from bot.platforms.slack.rich_text import RichTextBuilder
from bot.rendering.available_actions import StopTurnAction, available_actions
from bot.rendering.status_text import (
    AI_NOTICE,
    WORKING,
    busy_text,
    drop_repeats,
    offer_label,
    tool_text,
    truncate_output,
)
from bot.rendering.timeline import (
    ActivityLine,
    ApprovalEntry,
    CallLine,
    ElicitationEntry,
    Entry,
    Failure,
    Note,
    ReplyText,
    TimelineSection,
    ToolOutput,
    timeline,
)

CONTINUED = "(continued · {})"
OFFERS = 5
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
                slots += approval_messages(each, view, now, outside)
            case ElicitationEntry():
                slots += elicitation_messages(each, view, now)
            case TimelineSection():
                parts = split_reply(each)
                slots += [_slot(part, view, ends=number == last and part.last) for part in parts]
    return tuple(slots)


def _slot(part: ReplyMessage, view: TurnView, *, ends: bool) -> OutgoingMessage:
    prose = RichTextBuilder()
    if part.number:
        prose.block(*small(CONTINUED.format(part.number + 1)))
    for kind, group in groupby(drop_repeats(part.entries, view), key=type):
        _draw(prose, kind, list(group))
    if not prose.blocks:
        prose.block(*small(busy_text(WORKING)))
    text = fallback(fallback_text(prose.blocks))
    if ends:
        prose.block(*_end(view, part))
    return OutgoingMessage(part.name, tuple(prose.blocks), text)


def _draw(prose: RichTextBuilder, kind: type[Entry], entries: list[Entry]) -> None:
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


def _end(view: TurnView, part: ReplyMessage) -> list[Block]:
    """Return the buttons at the end of a turn."""
    turn = view.turn
    if turn.status is TurnStatus.QUEUED:
        return buttons(
            [
                *(button(offer_label(each, view), each) for each in available_actions(view)[:OFFERS]),
                button("Withdraw", StopTurnAction(turn.id)),
            ]
        )
    if not turn.status.ended:
        return buttons([button("Stop", StopTurnAction(turn.id))])
    ways = buttons(button(offer_label(each, view), each) for each in available_actions(view)[:OFFERS])
    answered = turn.status is TurnStatus.DONE and any(isinstance(each, ReplyText) for each in part.entries)
    return [*ways, *([_feedback(turn.id), *small(AI_NOTICE)] if answered else [])]


def _feedback(turn_id: str) -> Block:
    good, bad = (encode(SendFeedback(turn_id, opinion)) for opinion in (FeedbackValue.GOOD, FeedbackValue.BAD))
    assert good is not None and bad is not None  # noqa: PT018 - a turn's id is short
    sides = {
        "positive_button": {"text": {"type": "plain_text", "text": "Good answer"}, "value": good[1]},
        "negative_button": {"text": {"type": "plain_text", "text": "Bad answer"}, "value": bad[1]},
    }
    return {"type": "context_actions", "elements": [{"type": "feedback_buttons", "action_id": good[0], **sides}]}
