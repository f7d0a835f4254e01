"""A turn as messages: one slot for every message, with the blocks it should show now.

Called by the surface whenever it draws, with whole views; the same view makes the same blocks. A slot that was drawn
once and is not among these any more (a reply began again and became shorter) has to be taken away.
"""

from __future__ import annotations

from itertools import groupby

from bot.domain.turns import TurnStatus
from bot.domain.views import TurnView
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
from bot.platforms.slack.elsewhere import Outside, asked_slots
from bot.platforms.slack.inquiries import inquiry_slots
from bot.platforms.slack.parts import Part, parts_of
from bot.platforms.slack.presses import written
from bot.platforms.slack.rich_text import Prose
from bot.platforms.slack.slots import Block, Slot
from bot.platforms.slack.spoken import spoken
from bot.reception.presses import Opinion, Rate
from bot.rendering.offers import Stop, offers
from bot.rendering.passages import (
    Asking,
    Busy,
    Called,
    Entry,
    Failure,
    Inquired,
    Passage,
    Remark,
    Returned,
    Said,
    passages,
)
from bot.rendering.thread_lines import (
    AI_NOTICE,
    WORKING,
    busy_text,
    offer_label,
    shown_of_returned,
    tool_text,
    without_repeats,
)

CONTINUED = "(continued · {})"
OFFERS = 5
NOWHERE = Outside()


def turn_slots(view: TurnView, now: float, outside: Outside = NOWHERE) -> tuple[Slot, ...]:
    """Every message of a turn in its conversation, in order. `now` (epoch seconds) is when cards that are not out yet
    begin to run off; `outside` is what is out elsewhere.
    """
    sequence = passages(view)
    last = max(number for number, each in enumerate(sequence) if isinstance(each, Passage))
    slots: list[Slot] = []
    for number, each in enumerate(sequence):
        match each:
            case Asking():
                slots += asked_slots(each, view, now, outside)
            case Inquired():
                slots += inquiry_slots(each, view, now)
            case Passage():
                parts = parts_of(each)
                slots += [_slot(part, view, ends=number == last and part.last) for part in parts]
    return tuple(slots)


def _slot(part: Part, view: TurnView, *, ends: bool) -> Slot:
    prose = Prose()
    if part.number:
        prose.block(*small(CONTINUED.format(part.number + 1)))
    for kind, group in groupby(without_repeats(part.entries, view), key=type):
        _draw(prose, kind, list(group))
    if not prose.blocks:
        prose.block(*small(busy_text(WORKING)))
    text = fallback(spoken(prose.blocks))
    if ends:
        prose.block(*_end(view, part))
    return Slot(part.name, tuple(prose.blocks), text)


def _draw(prose: Prose, kind: type[Entry], entries: list[Entry]) -> None:
    """Entries of one kind that follow each other."""
    if kind is Called:
        prose.block(*small(*(tool_text(each.line) for each in entries if isinstance(each, Called))))
        return
    for entry in entries:
        match entry:
            case Said(text):
                prose.markdown(text)
            case Returned(text):
                prose.block(rich_text(preformatted(shown_of_returned(text))))
            case Remark(text):
                prose.block(*small(text))
            case Busy(text):
                prose.block(*small(busy_text(text)))
            case Failure(text, reference):
                prose.block(rich_text(rich_section(words(f"⚠ {text}  "), words(f"ref {reference}", code=True))))
            case Called():
                continue


def _end(view: TurnView, part: Part) -> list[Block]:
    """What can be done about the turn."""
    turn = view.turn
    if turn.status is TurnStatus.QUEUED:
        return buttons(
            [
                *(button(offer_label(each, view), each) for each in offers(view)[:OFFERS]),
                button("Withdraw", Stop(turn.id)),
            ]
        )
    if not turn.status.ended:
        return buttons([button("Stop", Stop(turn.id))])
    ways = buttons(button(offer_label(each, view), each) for each in offers(view)[:OFFERS])
    answered = turn.status is TurnStatus.DONE and any(isinstance(each, Said) for each in part.entries)
    return [*ways, *([_feedback(turn.id), *small(AI_NOTICE)] if answered else [])]


def _feedback(turn_id: str) -> Block:
    good, bad = (written(Rate(turn_id, opinion)) for opinion in (Opinion.GOOD, Opinion.BAD))
    assert good is not None and bad is not None  # noqa: PT018 - a turn's id is short
    sides = {
        "positive_button": {"text": {"type": "plain_text", "text": "Good answer"}, "value": good[1]},
        "negative_button": {"text": {"type": "plain_text", "text": "Bad answer"}, "value": bad[1]},
    }
    return {"type": "context_actions", "elements": [{"type": "feedback_buttons", "action_id": good[0], **sides}]}
