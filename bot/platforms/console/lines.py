"""Single lines and cards as the terminal shows them.

Called by the drawings of this folder. Every text that came from outside has been through `rendering` before it is
put between our own marks; the bar `▌` is the card's alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from bot.platforms.console.look import Look
from bot.rendering.cards import Card
from bot.rendering.plain import plain
from bot.rendering.tool_lines import Mark, ToolLine

BAR = "▌"
_QUIET = (Mark.DONE, Mark.RUNNING)


def outside(text: str) -> str:
    """Text from outside, safe to print, and unable to draw a card's bar."""
    return plain(text).replace(BAR, "|").expandtabs(4)


def tool_text(line: ToolLine, look: Look) -> str:
    """A tool call: `  ✓ notes.add_note  Added note 3`."""
    state = line.state if line.mark not in _QUIET or not line.summary else ""
    if line.mark is Mark.FAILED or line.mark is Mark.DENIED:
        state = look.bad(state)
    elif line.mark is Mark.UNKNOWN or line.mark is Mark.WAITING:
        state = look.warn(state)
    else:
        state = look.dim(state)
    told = [outside(line.name), state, look.dim(look.own(outside(line.summary)))]
    return f"  {look.mark(line.mark)} {'  '.join(part for part in told if part)}"


def card_text(card: Card, look: Look, width: int) -> str:
    """An approval card, every line of it behind the bar."""
    facts = [f"{card.server}.{card.tool}" if card.server else card.tool]
    facts += [f"asked by {card.asked_by}", card.expiry, card.short_id]
    about = look.own(" · ".join(outside(fact) for fact in facts))
    lines = [look.bold(look.own(line)) for line in folded(outside(card.title), width - 4)]
    risk, *rest = folded(f"{card.risk}{look.own(' · ')}{about}", width - 4)
    lines.append(_risk(card.risk, look) + look.dim(risk.removeprefix(card.risk)))
    lines += [look.dim(line) for line in rest]
    if card.arguments:
        lines.append("")
        lines += _arguments(card, look, width - 4)
    return "\n".join(barred(line, look) for line in lines)


def full_arguments(card: Card, look: Look, width: int) -> list[str]:
    """Every argument in full, line by line, behind the bar."""
    lines: list[str] = []
    for argument in card.arguments:
        size = look.own(f"{argument.name} · {len(argument.full)} characters")
        lines += [look.dim(outside(size)), *folded(look.own(outside(argument.full)), width - 4), ""]
    return [barred(line, look) for line in lines[:-1]]


def barred(text: str, look: Look) -> str:
    """A line that belongs to a card."""
    return f"  {look.warn(look.own(BAR))} {text}".rstrip()


def cells(text: str) -> int:
    """How many columns a plain text takes."""
    return sum(_cells(character) for character in text)


def folded(text: str, width: int) -> list[str]:
    """Plain text on lines of at most `width` columns, broken at blanks where there are any."""
    return [folded_line for line in text.split("\n") for folded_line in _fold(line, max(width, 8))]


def _arguments(card: Card, look: Look, width: int) -> Iterator[str]:
    widest = min(max(cells(argument.name) for argument in card.arguments), 24)
    for argument in card.arguments:
        name = outside(argument.name)
        shown = outside(argument.shown)
        if argument.shortened:
            shown = f"{shown.removesuffix(')')}, v to view all)"
        first, *more = folded(look.own(shown), width - widest - 2)
        yield look.dim(name + " " * max(widest - cells(name), 0)) + f"  {first}"
        yield from (" " * (widest + 2) + line for line in more)


def _risk(risk: str, look: Look) -> str:
    match risk:
        case "reads":
            return look.good(risk)
        case "writes":
            return look.warn(risk)
        case _:
            return look.bad(risk)


def _fold(line: str, width: int) -> Iterator[str]:
    while cells(line) > width:
        cut = _columns(line, width)
        blank = line.rfind(" ", 1, cut + 1)
        end = blank if blank > width // 3 else cut
        yield line[:end].rstrip()
        line = line[end:].lstrip(" ")
    yield line


def _columns(line: str, width: int) -> int:
    """How many characters fit into `width` columns, at least one."""
    taken = 0
    for index, character in enumerate(line):
        taken += _cells(character)
        if taken > width:
            return max(index, 1)
    return len(line)


def _cells(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
