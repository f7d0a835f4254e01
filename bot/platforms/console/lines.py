"""Single lines and cards as the terminal shows them.

Called by the drawings of this folder. Every text that came from outside has been through `rendering` before it is
put between our own marks; the bar `▌` is the card's alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from bot.platforms.console.look import Look
from bot.rendering.call_arguments import CardArgument
from bot.rendering.card_words import card_warning_lines, warning_lines
from bot.rendering.cards import Card
from bot.rendering.inquiries import InquiryCard
from bot.rendering.plain import plain
from bot.rendering.tool_lines import Mark, ToolLine

BAR = "▌"
_MARKS = re.compile(r"\*\*|`+|^#{1,6} |^> ", re.MULTILINE)
_QUIET = (Mark.DONE, Mark.RUNNING)
_LEAST_WIDTH = 8
_LEAST_VALUE_WIDTH = 24
_LONGEST_NAME_BESIDE = 24


def outside(text: str) -> str:
    """Text from outside, safe to print, and unable to draw a card's bar."""
    return plain(text).replace(BAR, "|").expandtabs(4)


def unmarked(markdown: str) -> str:
    """Markdown for a place with no room to set it: without its commonest marks."""
    return _MARKS.sub("", markdown)


def tool_text(line: ToolLine, look: Look, width: int | None = None) -> str:
    """A tool call: `  ✓ notes.add_note  Added note 3`.

    In a window of `width` columns, what went well keeps to one line and is cut; what went wrong is told in full, on
    lines of its own if need be.
    """
    state = line.state if line.mark not in _QUIET or not line.summary else ""
    said = look.own(outside(line.summary))
    more = f" ({line.more})" if line.more else ""
    name = outside(line.name)
    rest: list[str] = []
    if width is not None:
        name = clipped(name, width - 4 - (cells(state) + 2 if state else 0), look)
        room = width - 4 - cells("  ".join(part for part in (name, state, "") if part)) - 2
        if line.mark in _QUIET:
            said, more = _cut(said, more, room, look)
        elif cells(said + more) > room:
            rest, said, more = folded(said + more, width - 4), "", ""
    told = [name, _state(line.mark, state, look), look.dim(said + more)]
    first = f"  {look.mark(line.mark)} {'  '.join(part for part in told if part)}"
    return "\n".join([first, *(f"    {look.dim(more_of_it)}" for more_of_it in rest)])


def card_text(card: Card, look: Look, width: int) -> str:
    """An approval card, every line of it behind the bar."""
    facts = [f"{card.server}.{card.tool}" if card.server else card.tool]
    facts += [f"asked by {card.asked_by}", *filter(None, (card.needs, card.signed)), card.expiry, card.short_id]
    about = look.own(" · ".join(outside(fact) for fact in facts))
    lines = [look.bold(look.own(line)) for line in folded(outside(card.title), width - 4)]
    risk, *rest = folded(f"{card.risk}{look.own(' · ')}{about}", width - 4)
    lines.append(_risk(card.risk, look) + look.dim(risk.removeprefix(card.risk)))
    lines += [look.dim(line) for line in rest]
    if card.arguments:
        lines.append("")
        lines += _arguments(card, look, width - 4)
    return "\n".join(barred(line, look) for line in lines)


def inquiry_text(card: InquiryCard, look: Look, width: int) -> str:
    """What a server asks back, every line of it behind the bar, and its own words marked line by line."""
    facts = [f"{card.server}.{card.tool}", f"asked of {card.asked_of}", card.expiry]
    lines = [look.bold(look.own(line)) for line in folded(outside(f"{card.title}:"), width - 4)]
    if card.message:
        lines += [f"> {line}" for line in folded(look.own(outside(card.message)), width - 6)]
    about = [f"wants: {', '.join(card.fields)}"] if card.fields else []
    about += [f"leads to {card.domain}"] if card.domain else []
    for each in (*about, " · ".join(facts)):
        lines += [look.dim(line) for line in folded(look.own(outside(each)), width - 4)]
    lines += [look.warn(line) for line in folded(card.warning, width - 4) if line]
    return "\n".join(barred(line, look) for line in lines)


def full_arguments(card: Card, look: Look, width: int) -> list[str]:
    """Every argument in full, line by line, behind the bar."""
    lines: list[str] = []
    for argument in card.arguments:
        size = look.own(f"{argument.name} · {len(argument.full)} characters")
        lines += [look.dim(line) for line in folded(outside(size), width - 4)]
        lines += folded(look.own(outside(argument.full)), width - 4)
        lines += [*_warned(warning_lines(argument), look, width - 4), ""]
    return [barred(line, look) for line in lines[:-1] or ["This call has no arguments."]]


def barred(text: str, look: Look) -> str:
    """A line that belongs to a card."""
    return f"  {look.warn(look.own(BAR))} {text}".rstrip()


def remark(text: str, width: int, paint: Callable[[str], str]) -> str:
    """Plain text on lines of its own, a little to the right."""
    return "\n".join(f"  {paint(line)}" for line in folded(text, width - 2))


def cells(text: str) -> int:
    """How many columns a plain text takes."""
    return sum(_cells(character) for character in text)


def clipped(text: str, width: int, look: Look) -> str:
    """A plain line of at most `width` columns, an ellipsis for what did not fit; empty where nothing fits."""
    if cells(text) <= width:
        return text
    end = look.own("…")
    kept = text[: _columns(text, width - cells(end))].rstrip(" .…")
    return f"{kept}{end}" if kept else ""


def folded(text: str, width: int) -> list[str]:
    """Plain text on lines of at most `width` columns, broken at blanks where there are any."""
    return [folded_line for line in text.split("\n") for folded_line in _fold(line, max(width, _LEAST_WIDTH))]


def _state(mark: Mark, state: str, look: Look) -> str:
    match mark:
        case Mark.FAILED | Mark.DENIED:
            return look.bad(state)
        case Mark.UNKNOWN | Mark.WAITING:
            return look.warn(state)
        case _:
            return look.dim(state)


def _cut(said: str, more: str, room: int, look: Look) -> tuple[str, str]:
    """What a call said, cut so that how much more there is stays readable; that goes first if there is no room."""
    if cells(said + more) <= room:
        return said, more
    short = clipped(said, room - cells(more), look)
    if cells(short) >= _LEAST_WIDTH:
        return short, more
    return clipped(said, room, look), ""


def _arguments(card: Card, look: Look, width: int) -> Iterator[str]:
    """Values beside their names; below them where a name is long or the window narrow."""
    names = [cells(argument.label) for argument in card.arguments]
    widest = max((size for size in names if size <= _LONGEST_NAME_BESIDE), default=0)
    for argument, size in zip(card.arguments, names, strict=True):
        name = outside(argument.label)
        if size > widest or width - widest - 2 < _LEAST_VALUE_WIDTH:
            yield from map(look.dim, folded(name, width))
            yield from (f"  {line}" for line in folded(_shown(argument, look), width - 2))
            yield from _warned(card_warning_lines(argument, "v to view all"), look, width)
            continue
        first, *more = folded(_shown(argument, look), width - widest - 2)
        yield look.dim(name + " " * (widest - size)) + f"  {first}"
        yield from (" " * (widest + 2) + line for line in more)
        yield from _warned(card_warning_lines(argument, "v to view all"), look, width)


def _warned(lines: Iterable[str], look: Look, width: int) -> Iterator[str]:
    for each in lines:
        yield from map(look.warn, folded(look.own(outside(each)), width))


def _shown(argument: CardArgument, look: Look) -> str:
    shown = outside(argument.shown)
    if argument.shown != argument.full:
        shown = f"{shown.removesuffix(')')}, v to view all)"
    return look.own(shown)


def _risk(risk: str, look: Look) -> str:
    match risk:
        case "reads":
            return look.good(risk)
        case "writes":
            return look.warn(risk)
        case _:
            return look.bad(risk)


def _fold(line: str, width: int) -> Iterator[str]:
    while (cut := _columns(line, width)) < len(line):
        cut = max(cut, 1)
        blank = line.rfind(" ", 1, cut + 1)
        end = blank if blank > width // 3 else cut
        yield line[:end].rstrip()
        line = line[end:].lstrip(" ")
    yield line


def _columns(line: str, width: int) -> int:
    """How many characters fit into `width` columns."""
    taken = 0
    for index, character in enumerate(line):
        taken += _cells(character)
        if taken > width:
            return index
    return len(line)


def _cells(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
