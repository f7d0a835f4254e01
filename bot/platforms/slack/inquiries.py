"""Cards of what servers ask back: what everybody in the thread sees of a question, and in the same place how it ended.

Called by the drawing of a turn and by the Home tab. A card calls whoever is asked, once: Slack notifies of a mention
when a message is posted and not when it is edited. What is answered, and the address of a page, never stand on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.domain.elicitations import Action, Elicitation
from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.platforms.slack.blocks import (
    Element,
    button,
    buttons,
    fallback,
    moment,
    person,
    quote,
    rich_section,
    rich_text,
    words,
)
from bot.platforms.slack.cards import EXPIRES
from bot.platforms.slack.slots import Block, Slot
from bot.platforms.slack.spoken import spoken
from bot.reception.presses import RunBeside
from bot.rendering.cards import in_words
from bot.rendering.inquiries import InquiryCard, InquiryOffer, inquiry_card
from bot.rendering.passages import Inquired

ALONE = "nobody else sees the answer"


def inquiry_slots(inquired: Inquired, view: TurnView, now: float) -> tuple[Slot, ...]:
    """What the server of one call has asked back, a message for each question."""
    return tuple(_slot(inquired.step, each, view, now) for each in inquired.elicitations)


def open_question(made: InquiryCard) -> Block:
    """What an open question is about: the server's words are text and nothing else."""
    elements = [rich_section(words(made.title, bold=True)), *_facts(made)]
    if made.message:
        elements += [rich_section(words("The server says:")), quote(made.message)]
    if made.warning:
        elements.append(rich_section(words(f"⚠ {made.warning}", bold=True)))
    return rich_text(*elements)


def expiry(made: InquiryCard, now: float) -> list[Element]:
    """When the question goes away by itself; one that is not out yet begins to run off `now`."""
    if made.expires_in is None:
        return [words(made.expiry)]
    end = made.expires_at or now + made.expires_in
    return [words("expires "), moment(end, EXPIRES, f"within {in_words(made.expires_in)}")]


def offered(offers: Sequence[InquiryOffer]) -> list[Block]:
    """The buttons of an open question."""
    return buttons(button(each.label, RunBeside(each.words), "primary" if each.strong else "") for each in offers)


def _slot(step: ToolStep, elicitation: Elicitation, view: TurnView, now: float) -> Slot:
    made = inquiry_card(step, elicitation, view)
    blocks = _open(made, view, now) if made.offers else _settled(made, elicitation)
    text = spoken(blocks)
    return Slot(
        f"question-{elicitation.id}",
        tuple(blocks),
        fallback(f"Answer needed: {text}" if made.offers else text),
        asks=bool(made.offers),
    )


def _open(made: InquiryCard, view: TurnView, now: float) -> list[Block]:
    author = view.turn.author
    about = [words("For "), person(author.id, author.name), words(f" alone · {ALONE} · "), *expiry(made, now)]
    return [open_question(made), rich_text(rich_section(*about)), *offered(made.offers)]


def _facts(made: InquiryCard) -> Iterator[Element]:
    """Whose question it is, and what it is after."""
    server = [words("Server ", bold=True), words(f"{made.server}   ")]
    yield rich_section(*server, words("Tool ", bold=True), words(made.tool))
    if made.fields:
        yield rich_section(words("It asks for ", bold=True), words(", ".join(made.fields)))
    if made.domain:
        yield rich_section(words("The page is on ", bold=True), words(made.domain, code=True))


def _settled(made: InquiryCard, elicitation: Elicitation) -> list[Block]:
    """One line for what was asked, one for how it ended."""
    accepted = elicitation.reply is not None and elicitation.reply.action is Action.ACCEPT
    title = words(f"✅ {made.title}", bold=True) if accepted else words(made.title, strike=True)
    return [rich_text(rich_section(title, words(f"\n{made.outcome} · {made.tool}")))]
