"""Lines and cards of the terminal, with its colors and icons or plain substitutes for them.

Text from outside is sanitized by `rendering` before it is combined with own marks; the bar `▌` is reserved for cards.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from bot.chat.message_model import (
    Arguments,
    Block,
    ChannelLink,
    Details,
    Footer,
    GroupMention,
    Heading,
    Link,
    Mention,
    Paragraph,
    Quote,
    Span,
    Spans,
    Text,
    Time,
)
from bot.domain.tools import Risk
from bot.i18n import _, ngettext
from bot.rendering.approval_card import RISKS, ApprovalCard, card_warning_lines, warning_lines
from bot.rendering.call_arguments import CardArgument, cut_value
from bot.rendering.text_safety import strip_control
from bot.rendering.timeline import StatusIcon, ToolStatus

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_SIMPLE = str.maketrans(
    {
        PROMPT: ">",
        "·": "-",
        "…": "...",
        "▌": "|",
        "•": "*",
        "\N{EN DASH}": "-",
        "●": "*",
        "○": "-",
        "◌": "o",
        "✓": "+",
        "✗": "x",
        "→": "->",
        "◀": "<",
        "▶": ">",
        "⚠": "!",
    }
)
_ICONS = {
    StatusIcon.WAITING: "◇",
    StatusIcon.RUNNING: "◌",
    StatusIcon.DONE: "✓",
    StatusIcon.FAILED: "✗",
    StatusIcon.DENIED: "⊘",
    StatusIcon.UNKNOWN: "?",
    StatusIcon.SKIPPED: "\N{EN DASH}",
}
_ASCII_ICONS = {
    StatusIcon.WAITING: "=",
    StatusIcon.RUNNING: "o",
    StatusIcon.DONE: "+",
    StatusIcon.FAILED: "x",
    StatusIcon.DENIED: "!",
    StatusIcon.UNKNOWN: "?",
    StatusIcon.SKIPPED: "-",
}
_ICON_COLOURS = {
    StatusIcon.WAITING: "33",
    StatusIcon.RUNNING: "36",
    StatusIcon.DONE: "32",
    StatusIcon.FAILED: "31",
    StatusIcon.DENIED: "31",
    StatusIcon.UNKNOWN: "33",
    StatusIcon.SKIPPED: "2",
}
BAR = "▌"
_MARKS = re.compile(r"\*\*|`+|^#{1,6} |^> ", re.MULTILINE)
_QUIET = (StatusIcon.DONE, StatusIcon.RUNNING)
_SIGNS = str.maketrans("🟢🟠🔴", "●●●")
"""Not every terminal has coloured signs; the text has the colour."""
_LEAST_WIDTH = 8
_LEAST_VALUE_WIDTH = 24
_LONGEST_NAME_BESIDE = 24


@dataclass(frozen=True, slots=True)
class ConsoleTheme:
    """Support for colors and for characters outside of ASCII."""

    colour: bool
    unicode: bool

    @classmethod
    def for_stream(cls, stream: TextIO, environ: Mapping[str, str]) -> ConsoleTheme:
        """Return the theme of a stream. NO_COLOR (no-color.org) and TERM=dumb disable colors."""
        terminal = stream.isatty() and environ.get("TERM", "") != "dumb"
        return cls(terminal and not environ.get("NO_COLOR"), _is_utf8(getattr(stream, "encoding", None)))

    @property
    def prompt(self) -> str:
        """Prompt before a typed line."""
        return self.accent(self.own_text(f"{PROMPT} "))

    def dim(self, text: str) -> str:
        """Style less important text."""
        return self._in("2", text)

    def bold(self, text: str) -> str:
        """Style more important text."""
        return self._in("1", text)

    def accent(self, text: str) -> str:
        """Style text in the product's color."""
        return self._in("36", text)

    def success(self, text: str) -> str:
        """Style a success."""
        return self._in("32", text)

    def error(self, text: str) -> str:
        """Style an error."""
        return self._in("31", text)

    def warn(self, text: str) -> str:
        """Style a warning."""
        return self._in("33", text)

    def icon(self, mark: StatusIcon) -> str:
        """Return the icon of a tool line."""
        return self._in(_ICON_COLOURS[mark], (_ICONS if self.unicode else _ASCII_ICONS)[mark])

    def own_text(self, text: str) -> str:
        """Return own text with substitutes for unsupported characters."""
        return text if self.unicode else text.translate(_SIMPLE)

    def spinner(self, tick: int) -> str:
        """Return a frame of the spinner."""
        frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if self.unicode else "|/-\\"
        return self._in("36", frames[tick % len(frames)])

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False


def safe_lines(text: str) -> str:
    """Return sanitized text without a card's bar."""
    return strip_control(text).replace(BAR, "|").expandtabs(4)


def strip_markdown(markdown: str) -> str:
    """Return Markdown without its common marks."""
    return _MARKS.sub("", markdown)


def tool_text(line: ToolStatus, theme: ConsoleTheme, width: int | None = None) -> str:
    """Return the line of a tool call: `  ✓ notes.add_note  Added note 3`.

    In a window of `width` columns a success is cut to one line; an error is complete, on further lines if needed.
    """
    state = line.state if line.mark not in _QUIET or not line.summary else ""
    summary = theme.own_text(safe_lines(line.summary))
    more = f" ({line.more})" if line.more else ""
    name = safe_lines(line.name)
    continuation: list[str] = []
    if width is not None:
        name = clip(name, width - 4 - (cells(state) + 2 if state else 0), theme)
        room = width - 4 - cells("  ".join(part for part in (name, state, "") if part)) - 2
        if line.mark in _QUIET:
            summary, more = _cut_summary(summary, more, room, theme)
        elif cells(summary + more) > room:
            continuation, summary, more = fold(summary + more, width - 4), "", ""
    parts = [name, _state(line.mark, state, theme), theme.dim(summary + more)]
    first = f"  {theme.icon(line.mark)} {'  '.join(part for part in parts if part)}"
    return "\n".join([first, *(f"    {theme.dim(more_of_it)}" for more_of_it in continuation)])


def message_text(blocks: Iterable[Block], theme: ConsoleTheme, width: int) -> str:
    """Return a message of the chat layer, every line behind the bar; texts of a server are marked. Buttons are keys."""
    lines = (line for block in blocks for line in _block_lines(block, theme, width - 4))
    return "\n".join(card_line(line, theme) for line in lines)


def _block_lines(  # noqa: PLR0911 - one case for each kind of block
    block: Block, theme: ConsoleTheme, width: int
) -> Iterable[str]:
    match block:
        case Heading(text):
            return [theme.bold(line) for line in fold(theme.own_text(safe_lines(text)), width)]
        case Paragraph(spans):
            return _span_lines(spans, theme, width)
        case Footer(spans):
            text = "".join(map(_span_text, spans))
            return [theme.dim(line) for line in fold(theme.own_text(safe_lines(text)), width)]
        case Details(texts):
            return [theme.warn(line) for text in texts for line in fold(theme.own_text(safe_lines(text)), width)]
        case Quote(text):
            return [f"> {line}" for line in fold(theme.own_text(safe_lines(text)), width - 2)]
        case Arguments(arguments):
            shown = _arguments(arguments, theme, width) if arguments else [theme.dim(_("This call has no arguments."))]
            return ["", *shown, ""]
        case _:
            return ()


def _span_lines(spans: Spans, theme: ConsoleTheme, width: int) -> list[str]:
    """Return running text, with its styles if it fits on one line."""
    texts = [theme.own_text(safe_lines(_span_text(span))) for span in spans]
    lines = fold("".join(texts), width)
    if len(lines) > 1:
        return lines
    return ["".join(_apply_style(text, span, theme) for text, span in zip(texts, spans, strict=True))]


def _apply_style(text: str, span: Span, theme: ConsoleTheme) -> str:
    if isinstance(span, Text) and span.bold:
        return theme.bold(text)
    paints = {Risk.READS: theme.success, Risk.DESTRUCTIVE: theme.error}
    words = {str(text).translate(_SIGNS): paints.get(risk, theme.warn) for risk, text in RISKS.items()}
    paint = words.get(_span_text(span).strip())
    return paint(text) if paint is not None else text


def _span_text(span: Span) -> str:
    match span:
        case Text(text):
            return text.translate(_SIGNS)
        case Mention(user):
            return user.name or user.id
        case GroupMention(principal, name):
            return name or principal
        case Time():
            return span.fallback
        case Link(url, text):
            return f"{text} ({url})"
        case ChannelLink(channel):
            return channel


def full_arguments(card: ApprovalCard, theme: ConsoleTheme, width: int) -> list[str]:
    """Return every argument in full, behind the bar."""
    lines: list[str] = []
    for argument in card.arguments:
        length = ngettext("{n} character", "{n} characters", len(argument.full))
        size = theme.own_text(f"{argument.name} · {length}")
        lines += [theme.dim(line) for line in fold(safe_lines(size), width - 4)]
        lines += fold(theme.own_text(safe_lines(argument.full)), width - 4)
        lines += [*_warning_lines(warning_lines(argument), theme, width - 4), ""]
    return [card_line(line, theme) for line in lines[:-1]]


def card_line(text: str, theme: ConsoleTheme) -> str:
    """Return a line of a card."""
    return f"  {theme.warn(theme.own_text(BAR))} {text}".rstrip()


def remark(text: str, width: int, paint: Callable[[str], str]) -> str:
    """Return indented plain text on its own lines."""
    return "\n".join(f"  {paint(line)}" for line in fold(text, width - 2))


def cells(text: str) -> int:
    """Return the number of columns of a plain text."""
    return sum(_cells(character) for character in text)


def clip(text: str, width: int, theme: ConsoleTheme) -> str:
    """Cut a plain line to `width` columns with an ellipsis; empty if nothing fits."""
    if cells(text) <= width:
        return text
    end = theme.own_text("…")
    beginning = text[: _columns(text, width - cells(end))].rstrip(" .…")
    return f"{beginning}{end}" if beginning else ""


def fold(text: str, width: int) -> list[str]:
    """Wrap plain text at `width` columns, at spaces where possible."""
    return [folded_line for line in text.split("\n") for folded_line in _fold(line, max(width, _LEAST_WIDTH))]


def _state(mark: StatusIcon, state: str, theme: ConsoleTheme) -> str:
    match mark:
        case StatusIcon.FAILED | StatusIcon.DENIED:
            return theme.error(state)
        case StatusIcon.UNKNOWN | StatusIcon.WAITING:
            return theme.warn(state)
        case _:
            return theme.dim(state)


def _cut_summary(summary: str, more: str, room: int, theme: ConsoleTheme) -> tuple[str, str]:
    """Cut a call's result, so that the count of further lines stays visible; the count is cut first without room."""
    if cells(summary + more) <= room:
        return summary, more
    short = clip(summary, room - cells(more), theme)
    if cells(short) >= _LEAST_WIDTH:
        return short, more
    return clip(summary, room, theme), ""


def _arguments(arguments: Sequence[CardArgument], theme: ConsoleTheme, width: int) -> Iterator[str]:
    """Yield values beside their names; below them if a name is long or the window narrow."""
    names = [cells(argument.label) for argument in arguments]
    widest = max((size for size in names if size <= _LONGEST_NAME_BESIDE), default=0)
    for argument, size in zip(arguments, names, strict=True):
        name = safe_lines(argument.label)
        if size > widest or width - widest - 2 < _LEAST_VALUE_WIDTH:
            yield from map(theme.dim, fold(name, width))
            yield from (f"  {line}" for line in fold(_argument_text(argument, theme), width - 2))
            yield from _warning_lines(card_warning_lines(argument, _("v to view all")), theme, width)
            continue
        first, *more = fold(_argument_text(argument, theme), width - widest - 2)
        yield theme.dim(name + " " * (widest - size)) + f"  {first}"
        yield from (" " * (widest + 2) + line for line in more)
        yield from _warning_lines(card_warning_lines(argument, _("v to view all")), theme, width)


def _warning_lines(lines: Iterable[str], theme: ConsoleTheme, width: int) -> Iterator[str]:
    for line in lines:
        yield from map(theme.warn, fold(theme.own_text(safe_lines(line)), width))


def _argument_text(argument: CardArgument, theme: ConsoleTheme) -> str:
    return theme.own_text(safe_lines(cut_value(argument.full, _("v to view all"))))


def _fold(line: str, width: int) -> Iterator[str]:
    while (cut := _columns(line, width)) < len(line):
        cut = max(cut, 1)
        blank = line.rfind(" ", 1, cut + 1)
        end = blank if blank > width // 3 else cut
        yield line[:end].rstrip()
        line = line[end:].lstrip(" ")
    yield line


def _columns(line: str, width: int) -> int:
    """Return the number of characters that fit into `width` columns."""
    width_so_far = 0
    for index, character in enumerate(line):
        width_so_far += _cells(character)
        if width_so_far > width:
            return index
    return len(line)


def _cells(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
