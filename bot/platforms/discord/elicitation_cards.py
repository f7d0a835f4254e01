"""Cards of what servers ask back: what everybody in the thread sees of a question, and in the same place how it ended.

Called by the drawing of a turn. A card calls whoever is asked when it is posted, and nobody after that. What is
answered, and the address of a page, never stand on it; nothing that the server writes can be followed or pressed.
"""

from __future__ import annotations

from bot.chat.actions import RunCommandInNewReply
from bot.domain.conversations import Author
from bot.domain.elicitations import Elicitation, ElicitationAction
from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.platforms.discord.cards import GREEN, GREY, NAME, ORANGE, OUTCOME, TITLE, person, relative_time
from bot.platforms.discord.components import ButtonStyle, Component, button, container, rows, text
from bot.platforms.discord.escaping import break_links, escape_to_limit
from bot.platforms.discord.ids import PLATFORM
from bot.platforms.discord.markdown import inline_code
from bot.platforms.discord.outgoing import OutgoingMessage
from bot.rendering.elicitation_card import ElicitationCard, elicitation_card
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import ElicitationEntry

FIELDS, WARNING = 700, 300
ALONE = "nobody else sees the answer"


def elicitation_messages(inquired: ElicitationEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """What the server of one call has asked back, a message for each question."""
    return tuple(_slot(inquired.step, each, view, now) for each in inquired.elicitations)


def _slot(step: ToolStep, elicitation: Elicitation, view: TurnView, now: float) -> OutgoingMessage:
    made = elicitation_card(step, elicitation, view)
    asked = bool(made.offers)
    return OutgoingMessage(
        f"question-{elicitation.id}",
        components=(_open(made, view.turn.author, now) if asked else _settled(made, elicitation),),
        asks=asked,
        calls=_called(view.turn.author) if asked else "",
    )


def _open(made: ElicitationCard, author: Author, now: float) -> Component:
    lines = [
        f"### {escape_to_limit(made.title, TITLE)}",
        f"**Server** {escape_to_limit(made.server, NAME)}   **Tool** {_name(made)}",
    ]
    if made.fields:
        lines.append(f"**It asks for** {break_links(single_line(', '.join(made.fields), FIELDS))}")
    if made.domain:
        lines.append(f"**The page is on** {inline_code(made.domain)}")
    if made.message:
        lines += ["**The server says:**", *(f"> {break_links(line)}" for line in made.message.split("\n"))]
    if made.warning:
        lines.append(f"⚠ **{escape_to_limit(made.warning, WARNING)}**")
    lines.append(f"-# For {person(author)} alone · {ALONE} · {_expiry(made, now)}")
    offered = (
        button(each.label, RunCommandInNewReply(each.words), ButtonStyle.SUCCESS if each.strong else ButtonStyle.PLAIN)
        for each in made.offers
    )
    return container([text("\n".join(lines)), *rows(offered)], ORANGE)


def _settled(made: ElicitationCard, elicitation: Elicitation) -> Component:
    """One line for what was asked, one for how it ended."""
    accepted = elicitation.reply is not None and elicitation.reply.action is ElicitationAction.ACCEPT
    title = escape_to_limit(made.title, TITLE)
    first = f"✅ **{title}**" if accepted else f"~~{title}~~"
    return container(
        [text(f"{first}\n{escape_to_limit(made.outcome, OUTCOME)} · {_name(made)}")], GREEN if accepted else GREY
    )


def _name(made: ElicitationCard) -> str:
    return escape_to_limit(made.tool, NAME)


def _expiry(made: ElicitationCard, now: float) -> str:
    """When the question goes away by itself; one that is not out yet begins to run off `now`."""
    if made.expires_in is None:
        return made.expiry
    return f"expires {relative_time(made.expires_at or now + made.expires_in)}"


def _called(author: Author) -> str:
    return author.id if author.platform == PLATFORM and author.id.isdecimal() else ""
