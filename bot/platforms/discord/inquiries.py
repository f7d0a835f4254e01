"""Cards of what servers ask back: what everybody in the thread sees of a question, and in the same place how it ended.

Called by the drawing of a turn. A card calls whoever is asked when it is posted, and nobody after that. What is
answered, and the address of a page, never stand on it; nothing that the server writes can be followed or pressed.
"""

from __future__ import annotations

from bot.domain.conversations import Author
from bot.domain.elicitations import Action, Elicitation
from bot.domain.turns import ToolStep
from bot.domain.views import TurnView
from bot.platforms.discord.cards import GREEN, GREY, NAME, ORANGE, OUTCOME, TITLE, person, relative
from bot.platforms.discord.components import Component, Look, button, container, rows, text
from bot.platforms.discord.markdown import inline_code
from bot.platforms.discord.references import PLATFORM
from bot.platforms.discord.slots import Slot
from bot.platforms.discord.wording import fitted, inert
from bot.reception.presses import RunBeside
from bot.rendering.inquiries import InquiryCard, inquiry_card
from bot.rendering.passages import Inquired
from bot.rendering.plain import one_line

FIELDS, WARNING = 700, 300
ALONE = "nobody else sees the answer"


def inquiry_slots(inquired: Inquired, view: TurnView, now: float) -> tuple[Slot, ...]:
    """What the server of one call has asked back, a message for each question."""
    return tuple(_slot(inquired.step, each, view, now) for each in inquired.elicitations)


def _slot(step: ToolStep, elicitation: Elicitation, view: TurnView, now: float) -> Slot:
    made = inquiry_card(step, elicitation, view)
    asked = bool(made.offers)
    return Slot(
        f"question-{elicitation.id}",
        components=(_open(made, view.turn.author, now) if asked else _settled(made, elicitation),),
        asks=asked,
        calls=_called(view.turn.author) if asked else "",
    )


def _open(made: InquiryCard, author: Author, now: float) -> Component:
    lines = [f"### {fitted(made.title, TITLE)}", f"**Server** {fitted(made.server, NAME)}   **Tool** {_name(made)}"]
    if made.fields:
        lines.append(f"**It asks for** {inert(one_line(', '.join(made.fields), FIELDS))}")
    if made.domain:
        lines.append(f"**The page is on** {inline_code(made.domain)}")
    if made.message:
        lines += ["**The server says:**", *(f"> {inert(line)}" for line in made.message.split("\n"))]
    if made.warning:
        lines.append(f"⚠ **{fitted(made.warning, WARNING)}**")
    lines.append(f"-# For {person(author)} alone · {ALONE} · {_expiry(made, now)}")
    offered = (
        button(each.label, RunBeside(each.words), Look.SUCCESS if each.strong else Look.PLAIN) for each in made.offers
    )
    return container([text("\n".join(lines)), *rows(offered)], ORANGE)


def _settled(made: InquiryCard, elicitation: Elicitation) -> Component:
    """One line for what was asked, one for how it ended."""
    accepted = elicitation.reply is not None and elicitation.reply.action is Action.ACCEPT
    title = fitted(made.title, TITLE)
    first = f"✅ **{title}**" if accepted else f"~~{title}~~"
    return container([text(f"{first}\n{fitted(made.outcome, OUTCOME)} · {_name(made)}")], GREEN if accepted else GREY)


def _name(made: InquiryCard) -> str:
    return fitted(made.tool, NAME)


def _expiry(made: InquiryCard, now: float) -> str:
    """When the question goes away by itself; one that is not out yet begins to run off `now`."""
    if made.expires_in is None:
        return made.expiry
    return f"expires {relative(made.expires_at or now + made.expires_in)}"


def _called(author: Author) -> str:
    return author.id if author.platform == PLATFORM and author.id.isdecimal() else ""
