"""A call with every argument in full, for one person who wants to see all of it before signing.

Called by the listener. A few messages, the last of them with the call's buttons while it waits; the arguments as a file
where they would need more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import indent

from bot.domain.turns import StepStatus, ToolStep
from bot.platforms.discord.cards import NAME, decisions, facts
from bot.platforms.discord.components import Component, menu, rows
from bot.platforms.discord.markdown import code_block
from bot.platforms.discord.sizes import measure
from bot.platforms.discord.slots import Upload
from bot.platforms.discord.wording import cut, escaped, fitted
from bot.reception.presses import Allow, CardRef
from bot.rendering.call_arguments import CardArgument
from bot.rendering.card_words import warning_lines, withheld_text
from bot.rendering.cards import Card, card, headline, whole_card
from bot.rendering.grant_offers import grant_offers

PIECE = 1_600
"""Of one value in one message, with what keeps it from ending its block."""
MESSAGE = 1_900
MOST_MESSAGES = 4
NO_ARGUMENTS = "This call has no arguments."
IN_THE_FILE = "All of its arguments are in the file."
NAME_IN_FULL = "The name in full:"
FILE = "arguments.txt"
INDENT = "    "
ALLOW = "Approve and allow…"


@dataclass(frozen=True, slots=True)
class Shown:
    """One message of a call."""

    content: str
    components: tuple[Component, ...] = ()
    file: Upload | None = None


def call_messages(step: ToolStep) -> tuple[Shown, ...]:
    """The messages that show a call as everybody may see it; none for one that never needed a signature."""
    return _messages(step, card(step))


def whole_call_messages(step: ToolStep) -> tuple[Shown, ...]:
    """The same for somebody who may approve the call, with the parts that look like a secret."""
    return _messages(step, whole_card(step))


def _messages(step: ToolStep, made: Card | None) -> tuple[Shown, ...]:
    if made is None:
        return ()
    title = f"**{escaped(headline(step, made))}**\n{facts(made)}"
    outcome = [escaped(each) for each in (made.outcome, withheld_text(made)) if each]
    arguments = [piece for each in made.arguments for piece in _pieces(each)]
    contents = _joined([title, *(arguments or [NO_ARGUMENTS]), *outcome])
    file: Upload | None = None
    if len(contents) > MOST_MESSAGES:
        contents, file = _joined([title, IN_THE_FILE, *outcome]), Upload(FILE, _text(made).encode())
    *before, last = contents
    return (*map(Shown, before), Shown(last, tuple(_buttons(step, made)), file))


def _buttons(step: ToolStep, made: Card) -> list[Component]:
    if step.status is not StepStatus.AWAITING:
        return []
    ref = CardRef(made.approval_id, made.revision)
    offers = [(offer.label, offer.hint, Allow(ref, offer.word)) for offer in grant_offers(step)]
    allowing = menu(made.approval_id, ALLOW, offers) if not made.withheld else []
    return [*rows(decisions(step, made)), *allowing]


def _pieces(argument: CardArgument) -> list[str]:
    """One argument in pieces that fit into a message each; its name stands before every one of them."""
    blocks = list(_blocks(argument.full))
    name, long_name = f"**{escaped(argument.name)}**", list[str]()
    if measure(name) > NAME:
        name, long_name = (
            f"**{fitted(argument.name, NAME)}**",
            [f"{NAME_IN_FULL}\n{each}" for each in _blocks(argument.name)],
        )
    many = len(blocks) > 1
    pieces = [
        f"{name}{f' ({number} of {len(blocks)})' if many else ''}\n{block}" for number, block in enumerate(blocks, 1)
    ]
    return [*long_name, *pieces, *(escaped(cut(each, PIECE // 2)) for each in warning_lines(argument))]


def _blocks(value: str) -> Iterator[str]:
    """A value in as many blocks as it takes; an empty one in one."""
    start = 0
    while True:
        end = min(start + PIECE, len(value))
        while measure(block := code_block(value[start:end])) > PIECE and end - start > 1:
            end = start + (end - start) * 2 // 3
        yield block
        start = end
        if start >= len(value):
            return


def _joined(pieces: list[str]) -> list[str]:
    """As many pieces in one message as fit."""
    made = [pieces[0]]
    for piece in pieces[1:]:
        if measure(made[-1]) + measure(piece) < MESSAGE:
            made[-1] += f"\n{piece}"
        else:
            made.append(piece)
    return made


def _text(made: Card) -> str:
    """Values are indented, so that no line of one reads like the name of another argument or like a warning."""
    arguments = (
        "\n".join((f"{each.name}:", indent(each.full, INDENT, lambda _: True), *warning_lines(each)))
        for each in made.arguments
    )
    return "\n\n".join(arguments) + "\n"
