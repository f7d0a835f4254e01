"""Elicitation cards: the question of a server in the thread, and its outcome.

A card mentions the user who must answer. Slack notifies when a message with a mention is posted, not when it is edited.
Answers and page addresses never appear on a card.
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

ALONE = "only you see the answer"


def elicitation_messages(inquired: ElicitationEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """Return the elicitations of one call, one message each."""
    return tuple(_slot(inquired.step, each, view, now) for each in inquired.elicitations)


def open_elicitation(made: ElicitationCard) -> Block:
    """Return the question of an open elicitation, as plain text."""
    elements = [rich_section(words(made.title, bold=True)), *_facts(made)]
    if made.message:
        elements += [rich_section(words("The server says:")), quote(made.message)]
    if made.warning:
        elements.append(rich_section(words(f"⚠ {made.warning}", bold=True)))
    return rich_text(*elements)


def expiry(made: ElicitationCard, now: float) -> list[Element]:
    """Return the expiry of an elicitation; an unposted one counts from `now`."""
    if made.expires_in is None:
        return [words(made.expiry)]
    end = made.expires_at or now + made.expires_in
    return [words("expires "), moment(end, EXPIRES, f"within {format_duration(made.expires_in)}")]


def elicitation_buttons(offers: Sequence[ElicitationButton]) -> list[Block]:
    """Return the buttons of an open elicitation."""
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
    """Return the server, the addressee and the requested data."""
    server = [words("Server ", bold=True), words(f"{made.server}   ")]
    yield rich_section(*server, words("Tool ", bold=True), words(made.tool))
    if made.fields:
        yield rich_section(words("It asks for ", bold=True), words(", ".join(made.fields)))
    if made.domain:
        yield rich_section(words("The page is on ", bold=True), words(made.domain, code=True))


def _settled(made: ElicitationCard, elicitation: Elicitation) -> list[Block]:
    """Return one line for the question and one for its outcome."""
    accepted = elicitation.reply is not None and elicitation.reply.action is ElicitationAction.ACCEPT
    title = words(f"✅ {made.title}", bold=True) if accepted else words(made.title, strike=True)
    return [rich_text(rich_section(title, words(f"\n{made.outcome} · {made.tool}")))]
