"""A turn as messages: one slot for every message, with the blocks it should show now.

Called by the surface whenever it draws, with whole views; the same view makes the same blocks. A slot that was drawn
once and is not among these any more (a reply began again and became shorter) has to be taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from bot.domain.turns import StepStatus, ToolStep, TurnStatus
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
from bot.platforms.slack.cards import card_slots
from bot.platforms.slack.parts import Part, parts_of, shown_of_returned
from bot.platforms.slack.presses import written
from bot.platforms.slack.rich_text import Prose
from bot.platforms.slack.slots import Block, Slot
from bot.platforms.slack.spoken import spoken
from bot.reception.presses import Opinion, Rate
from bot.rendering.offers import Check, Offer, RunAgain, Stop, offers
from bot.rendering.passages import Asking, Busy, Called, Entry, Failure, Passage, Remark, Returned, Said, passages
from bot.rendering.tool_lines import Mark, ToolLine, tool_name

CONTINUED = "(continued · {})"
WORKING = "Working"
AI_NOTICE = "AI answer. Check before acting."
OFFERS = 5
_MARKS = {
    Mark.WAITING: "◇",
    Mark.RUNNING: "◌",
    Mark.DONE: "✓",
    Mark.FAILED: "✗",
    Mark.DENIED: "⊘",
    Mark.UNKNOWN: "?",
    Mark.SKIPPED: "\N{EN DASH}",
}
_QUIET = (Mark.DONE, Mark.RUNNING)


def turn_slots(view: TurnView, now: float) -> tuple[Slot, ...]:
    """Every message of a turn, in order. `now` (epoch seconds) is when cards that are not out yet begin to run off."""
    sequence = passages(view)
    last = max(number for number, each in enumerate(sequence) if isinstance(each, Passage))
    slots: list[Slot] = []
    for number, each in enumerate(sequence):
        match each:
            case Asking():
                slots += card_slots(each, view, now)
            case Passage():
                parts = parts_of(each)
                slots += [_slot(part, view, ends=number == last and part.last) for part in parts]
    return tuple(slots)


def tool_text(line: ToolLine) -> str:
    """A tool call on one line: `✓ notes.add_note  Added note 3`."""
    state = line.state if line.mark not in _QUIET or not line.summary else ""
    more = f" ({line.more})" if line.more else ""
    told = "  ".join(part for part in (line.name, state, line.summary) if part)
    return f"{_MARKS[line.mark]} {told}{more}"


def _slot(part: Part, view: TurnView, *, ends: bool) -> Slot:
    prose = Prose()
    if part.number:
        prose.block(*small(CONTINUED.format(part.number + 1)))
    for kind, group in groupby(_without_repeats(part.entries, view), key=type):
        _draw(prose, kind, list(group))
    if not prose.blocks:
        prose.block(*small(f"{_MARKS[Mark.RUNNING]} {WORKING}"))
    text = fallback(spoken(prose.blocks))
    if ends:
        prose.block(*_end(view, part))
    return Slot(part.name, tuple(prose.blocks), text)


def _without_repeats(entries: Iterable[Entry], view: TurnView) -> Iterator[Entry]:
    """What came of a call with a card stands on the card; its line says only how it stands."""
    with_card = {step.n for step in view.steps if isinstance(step, ToolStep) and _has_card(step)}
    for entry in entries:
        if isinstance(entry, Called) and entry.n in with_card:
            yield replace(entry, line=replace(entry.line, summary="", more=""))
        else:
            yield entry


def _has_card(step: ToolStep) -> bool:
    """One that was denied by nobody could not be shown: perhaps there is no card that says so."""
    denied_by_nobody = step.status is StepStatus.DENIED and step.approval is not None and not step.approval.decided_by
    return step.approval is not None and not denied_by_nobody


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
                prose.block(*small(f"{_MARKS[Mark.RUNNING]} {text}"))
            case Failure(text, reference):
                prose.block(rich_text(rich_section(words(f"⚠ {text}  "), words(f"ref {reference}", code=True))))
            case Called():
                continue


def _end(view: TurnView, part: Part) -> list[Block]:
    """What can be done about the turn."""
    turn = view.turn
    if turn.status is TurnStatus.QUEUED:
        return buttons([*(_offer(each, view) for each in offers(view)[:OFFERS]), button("Withdraw", Stop(turn.id))])
    if not turn.status.ended:
        return buttons([button("Stop", Stop(turn.id))])
    ways = buttons(_offer(each, view) for each in offers(view)[:OFFERS])
    answered = turn.status is TurnStatus.DONE and any(isinstance(each, Said) for each in part.entries)
    return [*ways, *([_feedback(turn.id), *small(AI_NOTICE)] if answered else [])]


def _offer(offer: Offer, view: TurnView) -> Block | None:
    match offer:
        case Stop():
            return button(offer.label, offer)
        case Check(n=n) | RunAgain(n=n):
            unsure = [each.n for each in offers(view) if isinstance(each, Check)]
            of = f": {_name(view, n)}" if len(unsure) > 1 else ""
            return button(f"{offer.label}{of}", offer)


def _name(view: TurnView, n: int) -> str:
    return next((tool_name(step) for step in view.steps if isinstance(step, ToolStep) and step.n == n), str(n))


def _feedback(turn_id: str) -> Block:
    good, bad = (written(Rate(turn_id, opinion)) for opinion in (Opinion.GOOD, Opinion.BAD))
    assert good is not None and bad is not None  # noqa: PT018 - a turn's id is short
    sides = {
        "positive_button": {"text": {"type": "plain_text", "text": "Good answer"}, "value": good[1]},
        "negative_button": {"text": {"type": "plain_text", "text": "Bad answer"}, "value": bad[1]},
    }
    return {"type": "context_actions", "elements": [{"type": "feedback_buttons", "action_id": good[0], **sides}]}
