"""A call with every argument in full, for one person who wants to see all of it before signing.

Called by the listener. A few messages, the last of them with the call's buttons while it waits; the arguments as a file
where they would need more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import indent

from bot.chat.actions import ApprovalRef, ApproveWithGrant
from bot.domain.turns import StepStatus, ToolStep
from bot.platforms.discord.cards import NAME, decisions, facts
from bot.platforms.discord.components import Component, menu, rows
from bot.platforms.discord.escaping import escape, escape_to_limit, truncate
from bot.platforms.discord.limits import utf16_length
from bot.platforms.discord.markdown import code_block
from bot.platforms.discord.outgoing import FileUpload
from bot.rendering.approval_card import ApprovalCard, approval_card, headline, whole_card
from bot.rendering.approval_text import warning_lines, withheld_text
from bot.rendering.call_arguments import CardArgument
from bot.rendering.grant_options import grant_offers

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
class CallDetails:
    """One message of a call."""

    content: str
    components: tuple[Component, ...] = ()
    file: FileUpload | None = None


def call_messages(step: ToolStep) -> tuple[CallDetails, ...]:
    """The messages that show a call as everybody may see it; none for one that never needed a signature."""
    return _messages(step, approval_card(step))


def whole_call_messages(step: ToolStep) -> tuple[CallDetails, ...]:
    """The same for somebody who may approve the call, with the parts that look like a secret."""
    return _messages(step, whole_card(step))


def _messages(step: ToolStep, made: ApprovalCard | None) -> tuple[CallDetails, ...]:
    if made is None:
        return ()
    title = f"**{escape(headline(step, made))}**\n{facts(made)}"
    outcome = [escape(each) for each in (made.outcome, withheld_text(made)) if each]
    arguments = [piece for each in made.arguments for piece in _pieces(each)]
    contents = _joined([title, *(arguments or [NO_ARGUMENTS]), *outcome])
    file: FileUpload | None = None
    if len(contents) > MOST_MESSAGES:
        contents, file = _joined([title, IN_THE_FILE, *outcome]), FileUpload(FILE, _text(made).encode())
    *before, last = contents
    return (*map(CallDetails, before), CallDetails(last, tuple(_buttons(step, made)), file))


def _buttons(step: ToolStep, made: ApprovalCard) -> list[Component]:
    if step.status is not StepStatus.AWAITING:
        return []
    ref = ApprovalRef(made.approval_id, made.revision)
    offers = [(offer.label, offer.hint, ApproveWithGrant(ref, offer.word)) for offer in grant_offers(step)]
    allowing = menu(made.approval_id, ALLOW, offers) if not made.withheld else []
    return [*rows(decisions(step, made)), *allowing]


def _pieces(argument: CardArgument) -> list[str]:
    """One argument in pieces that fit into a message each; its name stands before every one of them."""
    blocks = list(_blocks(argument.full))
    name, long_name = f"**{escape(argument.name)}**", list[str]()
    if utf16_length(name) > NAME:
        name, long_name = (
            f"**{escape_to_limit(argument.name, NAME)}**",
            [f"{NAME_IN_FULL}\n{each}" for each in _blocks(argument.name)],
        )
    many = len(blocks) > 1
    pieces = [
        f"{name}{f' ({number} of {len(blocks)})' if many else ''}\n{block}" for number, block in enumerate(blocks, 1)
    ]
    return [*long_name, *pieces, *(escape(truncate(each, PIECE // 2)) for each in warning_lines(argument))]


def _blocks(value: str) -> Iterator[str]:
    """A value in as many blocks as it takes; an empty one in one."""
    start = 0
    while True:
        end = min(start + PIECE, len(value))
        while utf16_length(block := code_block(value[start:end])) > PIECE and end - start > 1:
            end = start + (end - start) * 2 // 3
        yield block
        start = end
        if start >= len(value):
            return


def _joined(pieces: list[str]) -> list[str]:
    """As many pieces in one message as fit."""
    made = [pieces[0]]
    for piece in pieces[1:]:
        if utf16_length(made[-1]) + utf16_length(piece) < MESSAGE:
            made[-1] += f"\n{piece}"
        else:
            made.append(piece)
    return made


def _text(made: ApprovalCard) -> str:
    """Values are indented, so that no line of one reads like the name of another argument or like a warning."""
    arguments = (
        "\n".join((f"{each.name}:", indent(each.full, INDENT, lambda _: True), *warning_lines(each)))
        for each in made.arguments
    )
    return "\n\n".join(arguments) + "\n"
