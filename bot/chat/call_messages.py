"""The private view of a whole call: every argument in full, over several pages or messages if needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent

from bot.chat.card_messages import NAME, TITLE, call_facts, decision_buttons
from bot.chat.message_model import Block, Caption, Code, Heading, Paragraph, Text
from bot.domain.turns import StepStatus, ToolStep
from bot.i18n import _, gettext_lazy, ngettext
from bot.rendering.approval_card import (
    approval_card,
    headline,
    warning_lines,
    whole_card,
    withheld_text,
)
from bot.rendering.call_arguments import CardArgument
from bot.rendering.text_safety import ELLIPSIS

NO_ARGUMENTS = gettext_lazy("This call has no arguments.")
NAME_IN_FULL = gettext_lazy("The name in full:")
LONGEST_WARNING = 800
INDENT = "    "

Part = tuple[Block, ...]
"""Blocks that stay together."""


@dataclass(frozen=True, slots=True)
class PartLimits:
    """Limits of a page. `weigh` returns the weight of a block; a page has at most `page`, and `most_blocks` blocks. A
    value is split into pieces of at most `piece` characters, and of at most that weight if `weighs_pieces` is True.
    """

    weigh: Callable[[Block], int]
    piece: int
    page: int
    most_blocks: int = 1_000
    weighs_pieces: bool = False


@dataclass(frozen=True, slots=True)
class WholeCall:
    """A call as its reader sees it in private. `ending` is the outcome, or the number of hidden characters; `buttons`
    are those of a call that waits for an approval. `text` is all arguments as text for a file.
    """

    title: Part
    arguments: tuple[Part, ...]
    ending: Part
    buttons: Part
    text: str


def whole_call(step: ToolStep, limits: PartLimits, *, whole: bool) -> WholeCall | None:
    """Return the private view of a call, None without an approval. If `whole` is True, it contains the parts that look
    like a secret.
    """
    card = whole_card(step) if whole else approval_card(step)
    if card is None:
        return None
    parts = tuple(part for argument in card.arguments for part in _argument_parts(argument, limits))
    # Values are indented, so that no line imitates another argument's name or a warning.
    arguments = (
        "\n".join((f"{argument.name}:", indent(argument.full, INDENT, lambda _line: True), *warning_lines(argument)))
        for argument in card.arguments
    )
    ending: Part = ()
    if card.outcome:
        ending = (Paragraph((Text(card.outcome),)),)
    elif card.withheld:
        ending = (Caption((withheld_text(card),)),)
    return WholeCall(
        (Heading(headline(step, card), TITLE), call_facts(card)),
        parts or ((Paragraph((Text(str(NO_ARGUMENTS)),)),),),
        ending,
        (decision_buttons(step, card),) if step.status is StepStatus.AWAITING else (),
        "\n\n".join(arguments) + "\n",
    )


def join_parts(parts: Sequence[Part], limits: PartLimits) -> list[Part]:
    """Return the parts as pages, in order."""
    pages: list[Part] = []
    used = 0
    for part in parts:
        weight = sum(map(limits.weigh, part))
        if not pages or used + weight > limits.page or len(pages[-1]) + len(part) > limits.most_blocks:
            pages.append(())
            used = 0
        pages[-1] += part
        used += weight
    return pages


def _argument_parts(argument: CardArgument, limits: PartLimits) -> Iterator[Part]:
    """Yield one argument: each part begins with its name, the warnings come last."""
    pieces = list(_pieces(argument.full, limits))
    name = argument.name
    if len(name) > NAME:
        name = name[: NAME - 1] + ELLIPSIS
        yield from ((Paragraph((Text(str(NAME_IN_FULL)),)), Code(piece)) for piece in _pieces(argument.name, limits))
    for number, piece in enumerate(pieces, start=1):
        position = _("({number} of {count})", number=number, count=len(pieces)) if len(pieces) > 1 else ""
        size = ngettext("{n} character", "{n} characters", len(argument.full))
        shown_position = f" {position}" if position else ""
        shown_size = f"   {size}" if argument.shortened and number == 1 else ""
        yield Paragraph((Text(name, bold=True), Text(shown_position + shown_size))), Code(piece)
    yield from ((Paragraph((Text(line, bold=True, limit=LONGEST_WARNING),)),) for line in warning_lines(argument))


def _pieces(value: str, limits: PartLimits) -> Iterator[str]:
    """Split a value, into one piece at least."""
    start = 0
    while True:
        end = min(start + limits.piece, len(value))
        while limits.weighs_pieces and limits.weigh(Code(value[start:end])) > limits.piece and end - start > 1:
            end = start + (end - start) * 2 // 3
        yield value[start:end]
        start = end
        if start >= len(value):
            return
