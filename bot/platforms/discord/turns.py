"""A turn as messages: one slot for every message, with what it should show now.

Called by the surface whenever it draws, with whole views; the same view makes the same messages. A slot that was drawn
once and is not among these any more (an answer that became a file, a reply that began again) has to be taken away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.domain.turns import TurnStatus
from bot.domain.views import Refs, TurnView
from bot.platforms.discord.components import Component, button, rows
from bot.platforms.discord.elsewhere import asked_slots
from bot.platforms.discord.inquiries import inquiry_slots
from bot.platforms.discord.parts import FILE_NAME, Part, parts_of, small
from bot.platforms.discord.slots import Slot, Upload
from bot.reception.presses import Opinion, Rate
from bot.rendering.offers import Stop, offers
from bot.rendering.passages import Asking, Inquired, Passage, Said, passages
from bot.rendering.thread_lines import AI_NOTICE, offer_label, without_repeats

OFFERS = 5
NONE_OUT: Refs = {}


def turn_slots(view: TurnView, now: float, refs: Refs = NONE_OUT) -> tuple[Slot, ...]:
    """Every message of a turn in its conversation, in order. `now` (epoch seconds) is when cards that are not out yet
    begin to run off; `refs` are of what is out, elsewhere too.
    """
    sequence = passages(view)
    last = max(number for number, each in enumerate(sequence) if isinstance(each, Passage))
    slots: list[Slot] = []
    for number, each in enumerate(sequence):
        match each:
            case Asking():
                slots += asked_slots(each, view, now, refs)
            case Inquired():
                slots += inquiry_slots(each, view, now)
            case Passage():
                slots += _passage(each, view, ends=number == last)
    return tuple(slots)


def _passage(passage: Passage, view: TurnView, *, ends: bool) -> Iterator[Slot]:
    over = view.turn.status.ended or not ends
    parts = parts_of(tuple(without_repeats(passage.entries, view)), over=over)
    for part in parts:
        notice, below = _end(passage, view) if ends and part is parts[-1] else ("", ())
        content, unattached = (
            "\n".join(filter(None, (each, notice))) if each else "" for each in (part.content, part.unattached)
        )
        yield Slot(_name(passage, part), content, tuple(below), _file(part), unattached=unattached)


def _name(passage: Passage, part: Part) -> str:
    return f"answer-{passage.number}" + ("-file" if part.file else f"-{part.number}" if part.number else "")


def _file(part: Part) -> Upload | None:
    return Upload(FILE_NAME, part.file.encode("utf-8", "replace")) if part.file else None


def _end(passage: Passage, view: TurnView) -> tuple[str, Sequence[Component]]:
    """What is said below the last message of a turn, and what can be done about it."""
    turn = view.turn
    offered = [button(offer_label(each, view), each) for each in offers(view)[:OFFERS]]
    if turn.status is TurnStatus.QUEUED:
        return "", rows([*offered, button("Withdraw", Stop(turn.id))])
    if not turn.status.ended:
        return "", rows([button("Stop", Stop(turn.id))])
    if turn.status is not TurnStatus.DONE or not any(isinstance(each, Said) for each in passage.entries):
        return "", rows(offered)
    opinions = [
        button("", Rate(turn.id, Opinion.GOOD), emoji="👍"),
        button("", Rate(turn.id, Opinion.BAD), emoji="👎"),
    ]
    return small(AI_NOTICE), [*rows(offered), *rows(opinions)]
