"""Cards of what servers ask back: what everybody in the thread sees of a question, and in the same place how it ended.

Called by the drawing of a turn and by the Home tab. A card calls whoever is asked, once: Slack notifies of a mention
when a message is posted and not when it is edited. What is answered, and the address of a page, never stand on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.chat.actions import RunCommandInNewReply
from bot.domain.elicitations import Elicitation, ElicitationAction
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
from bot.platforms.slack.notification_text import fallback_text
from bot.platforms.slack.outgoing import Block, OutgoingMessage
from bot.rendering.approval_card import format_duration
from bot.rendering.elicitation_card import ElicitationButton, ElicitationCard, elicitation_card
from bot.rendering.timeline import ElicitationEntry

ALONE = "nobody else sees the answer"


def elicitation_messages(inquired: ElicitationEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """What the server of one call has asked back, a message for each question."""
    return tuple(_slot(inquired.step, each, view, now) for each in inquired.elicitations)


def open_elicitation(made: ElicitationCard) -> Block:
    """What an open question is about: the server's words are text and nothing else."""
    elements = [rich_section(words(made.title, bold=True)), *_facts(made)]
    if made.message:
        elements += [rich_section(words("The server says:")), quote(made.message)]
    if made.warning:
        elements.append(rich_section(words(f"⚠ {made.warning}", bold=True)))
    return rich_text(*elements)


def expiry(made: ElicitationCard, now: float) -> list[Element]:
    """When the question goes away by itself; one that is not out yet begins to run off `now`."""
    if made.expires_in is None:
        return [words(made.expiry)]
    end = made.expires_at or now + made.expires_in
    return [words("expires "), moment(end, EXPIRES, f"within {format_duration(made.expires_in)}")]


def elicitation_buttons(offers: Sequence[ElicitationButton]) -> list[Block]:
    """The buttons of an open question."""
    return buttons(
        button(each.label, RunCommandInNewReply(each.words), "primary" if each.strong else "") for each in offers
    )


def _slot(step: ToolStep, elicitation: Elicitation, view: TurnView, now: float) -> OutgoingMessage:
    made = elicitation_card(step, elicitation, view)
    blocks = _open(made, view, now) if made.offers else _settled(made, elicitation)
    text = fallback_text(blocks)
    return OutgoingMessage(
        f"question-{elicitation.id}",
        tuple(blocks),
        fallback(f"Answer needed: {text}" if made.offers else text),
        asks=bool(made.offers),
    )


def _open(made: ElicitationCard, view: TurnView, now: float) -> list[Block]:
    author = view.turn.author
    about = [words("For "), person(author.id, author.name), words(f" alone · {ALONE} · "), *expiry(made, now)]
    return [open_elicitation(made), rich_text(rich_section(*about)), *elicitation_buttons(made.offers)]


def _facts(made: ElicitationCard) -> Iterator[Element]:
    """Whose question it is, and what it is after."""
    server = [words("Server ", bold=True), words(f"{made.server}   ")]
    yield rich_section(*server, words("Tool ", bold=True), words(made.tool))
    if made.fields:
        yield rich_section(words("It asks for ", bold=True), words(", ".join(made.fields)))
    if made.domain:
        yield rich_section(words("The page is on ", bold=True), words(made.domain, code=True))


def _settled(made: ElicitationCard, elicitation: Elicitation) -> list[Block]:
    """One line for what was asked, one for how it ended."""
    accepted = elicitation.reply is not None and elicitation.reply.action is ElicitationAction.ACCEPT
    title = words(f"✅ {made.title}", bold=True) if accepted else words(made.title, strike=True)
    return [rich_text(rich_section(title, words(f"\n{made.outcome} · {made.tool}")))]
