"""Turns as messages, each with its current blocks. Blocks and streams split a reply alike.

The same view always gives the same blocks. Delete a posted message that is not in the result, for example after a
restarted, shorter reply. Text stays in its message while the section grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.domain.turns import TurnStatus
from bot.domain.views import TurnView
from bot.platforms.slack.blocks import (
    button,
    buttons,
    encode,
    fallback,
    preformatted,
    rich_section,
    rich_text,
    small,
    words,
)
from bot.platforms.slack.cards import SentCards, approval_messages, elicitation_messages
from bot.platforms.slack.limits import MESSAGE_WEIGHT
from bot.platforms.slack.outgoing import Block, OutgoingMessage, fallback_text
from bot.platforms.slack.rich_text import RichTextBuilder
from bot.rendering.available_actions import StopTurnAction, available_actions
from bot.rendering.markdown_split import SizeLimit, split_once, text_weight
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
    TimelineSection,
    ToolOutput,
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
