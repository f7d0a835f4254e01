"""A turn as messages: one slot for every message, with what it should show now.

Called by the surface whenever it draws, with whole views; the same view makes the same messages. A slot that was drawn
once and is not among these any more (an answer that became a file, a reply that began again) has to be taken away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.domain.turns import TurnStatus
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.discord.components import Component, button, rows
from bot.platforms.discord.elicitation_cards import elicitation_messages
from bot.platforms.discord.outgoing import FileUpload, OutgoingMessage
from bot.platforms.discord.remote_card_messages import approval_messages
from bot.platforms.discord.reply_messages import FILE_NAME, ReplyMessage, small, split_reply
from bot.rendering.available_actions import StopTurnAction, available_actions
from bot.rendering.status_text import AI_NOTICE, drop_repeats, offer_label
from bot.rendering.timeline import ApprovalEntry, ElicitationEntry, ReplyText, TimelineSection, timeline

OFFERS = 5
NONE_OUT: MessageRefs = {}


def turn_messages(view: TurnView, now: float, refs: MessageRefs = NONE_OUT) -> tuple[OutgoingMessage, ...]:
    """Every message of a turn in its conversation, in order. `now` (epoch seconds) is when cards that are not out yet
    begin to run off; `refs` are of what is out, elsewhere too.
    """
    sequence = timeline(view)
    last = max(number for number, each in enumerate(sequence) if isinstance(each, TimelineSection))
    slots: list[OutgoingMessage] = []
    for number, each in enumerate(sequence):
        match each:
            case ApprovalEntry():
                slots += approval_messages(each, view, now, refs)
            case ElicitationEntry():
                slots += elicitation_messages(each, view, now)
            case TimelineSection():
                slots += _passage(each, view, ends=number == last)
    return tuple(slots)


def _passage(passage: TimelineSection, view: TurnView, *, ends: bool) -> Iterator[OutgoingMessage]:
    over = view.turn.status.ended or not ends
    parts = split_reply(tuple(drop_repeats(passage.entries, view)), over=over)
    for part in parts:
        notice, below = _end(passage, view) if ends and part is parts[-1] else ("", ())
        content, unattached = (
            "\n".join(filter(None, (each, notice))) if each else "" for each in (part.content, part.unattached)
        )
        yield OutgoingMessage(_name(passage, part), content, tuple(below), _file(part), unattached=unattached)


def _name(passage: TimelineSection, part: ReplyMessage) -> str:
    return f"answer-{passage.number}" + ("-file" if part.file else f"-{part.number}" if part.number else "")


def _file(part: ReplyMessage) -> FileUpload | None:
    return FileUpload(FILE_NAME, part.file.encode("utf-8", "replace")) if part.file else None


def _end(passage: TimelineSection, view: TurnView) -> tuple[str, Sequence[Component]]:
    """What is said below the last message of a turn, and what can be done about it."""
    turn = view.turn
    offered = [button(offer_label(each, view), each) for each in available_actions(view)[:OFFERS]]
    if turn.status is TurnStatus.QUEUED:
        return "", rows([*offered, button("Withdraw", StopTurnAction(turn.id))])
    if not turn.status.ended:
        return "", rows([button("Stop", StopTurnAction(turn.id))])
    if turn.status is not TurnStatus.DONE or not any(isinstance(each, ReplyText) for each in passage.entries):
        return "", rows(offered)
    opinions = [
        button("", SendFeedback(turn.id, FeedbackValue.GOOD), emoji="👍"),
        button("", SendFeedback(turn.id, FeedbackValue.BAD), emoji="👎"),
    ]
    return small(AI_NOTICE), [*rows(offered), *rows(opinions)]
