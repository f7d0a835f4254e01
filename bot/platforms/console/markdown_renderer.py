"""Renderer of Markdown and tables as colored text, with rich.

The input must be sanitized. The output is safe to print: its only escape sequences are colors.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import BlockQuote, CodeBlock, Heading, Markdown, TableElement
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text
from rich.theme import Theme

from bot.domain.commands import Reply, Table
from bot.i18n import _
from bot.platforms.console.lines import ConsoleTheme, cells, fold, remark, safe_lines
from bot.platforms.console.plain_output import next_steps, with_shell_commands

_ASCII_LINES = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_BLOCKS = MarkdownIt("commonmark", {"html": False}).enable("table").disable("reference")
_BLOCKS.core.ruler.enableOnly(["block"])
_GO_ON_AFTER_BLANK_LINES = ("bullet_list_open", "ordered_list_open", "code_block")
_BETWEEN = 3
"""Columns between two cells of a table."""
_LONG_WORD, _SHORT_CELL = 20, 12
"""Columns: longer words may be broken, shorter cells stay on one line."""
_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "dim",
        "markdown.item.number": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)


class MarkdownRenderer:
    """Turns Markdown and command replies into lines for a terminal of a given width."""

    def __init__(self, theme: ConsoleTheme) -> None:
        self._theme = theme

    @staticmethod
    def split_blocks(text: str) -> tuple[list[str], str]:
        """Split a growing text into finished blocks of Markdown and the rest. More text only adds blocks. Code, lists
        and tables stay in one piece; blank lines go to the block below.
        """
        whole = text[: text.rfind("\n") + 1]  # a line still being written decides nothing
        lines = whole.split("\n")
        # A word below the text shows if its last block goes on.
        tokens = [token for token in _BLOCKS.parse(f"{whole}x") if token.level == 0 and token.map]
        is_probe = tokens.pop().map == [len(lines) - 1, len(lines)]
        if is_probe and tokens and tokens[-1].type in _GO_ON_AFTER_BLANK_LINES:
            tokens.pop()
        ends = [0, *(token.map[1] for token in tokens if token.map)]
        finished = ["".join(f"{line}\n" for line in lines[begin:end]) for begin, end in pairwise(ends)]
        return finished, text[sum(map(len, finished)) :]

    def markdown(self, text: str, width: int) -> str:
        """Return Markdown as colored text, without blank lines around it."""
        return self._render(_Prose(safe_lines(text)), width)

    def reply(self, reply: Reply, width: int) -> str:
        """Return a command's reply: its text, table, details, next steps and document."""
        reply = with_shell_commands(reply)
        parts = [self.markdown(reply.text, width)] if reply.text else []
        if reply.table is not None:
            parts.append(self._table(_without_empty_columns(reply.table), width))
        if reply.details:
            parts.append(self._details(reply.details, width))
        parts.append("\n".join(self._step(mark, line, effect) for mark, line, effect in next_steps(reply)))
        if reply.document is not None:
            parts.append(safe_lines(reply.document.text).rstrip())
        return "\n\n".join(part for part in parts if part)

    def _table(self, table: Table, width: int) -> str:
        if (sum(least + _BETWEEN for least in _least_widths(table)) - _BETWEEN) <= width or not table.rows:
            return self._render(_grid(table, unicode=self._theme.unicode), width)
        return "\n\n".join("\n".join(self._row(table.headings, row, width)) for row in table.rows)

    def _row(self, headings: tuple[str, ...], row: tuple[str, ...], width: int) -> Iterator[str]:
        yield from (self._theme.bold(line) for line in fold(self._theme.own_text(safe_lines(row[0])), width))
        others = tuple((name, value) for name, value in zip(headings[1:], row[1:], strict=True) if value)
        if others:
            yield from (f"  {line}" for line in self._details(others, width - 2).split("\n"))

    def _details(self, details: tuple[tuple[str, str], ...], width: int) -> str:
        """Return values beside their names; below them if names take most of the width."""
        if max((cells(safe_lines(name)) for name, _ in details), default=0) <= width // 2:
            return self._render(_beside(details), width)
        lines: list[str] = []
        for name, value in details:
            lines += [self._theme.dim(line) for line in fold(self._theme.own_text(safe_lines(name)), width)]
            lines.append(remark(self._theme.own_text(safe_lines(value)), width, str))
        return "\n".join(lines)

    def _step(self, mark: str, line: str, effect: str) -> str:
        theme = self._theme
        mark, line, effect = map(theme.own_text, (mark, line, effect))
        return f"{theme.dim(mark)} {theme.accent(line)}   {theme.dim(effect)}"

    def _render(self, renderable: RenderableType, width: int) -> str:
        paper = io.StringIO() if self._theme.unicode else _AsciiPaper()
        console = Console(
            file=paper,
            width=max(width, 8),
            force_terminal=self._theme.colour,
            color_system="standard" if self._theme.colour else None,
            no_color=not self._theme.colour,
            theme=_THEME,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )
        console.print(renderable)
        lines = [line.rstrip() for line in paper.getvalue().split("\n")]
        return self._theme.own_text("\n".join(lines).strip("\n"))


class _AsciiPaper(io.StringIO):
    """Console options for terminals with ASCII only; rich selects lines and frames by the encoding."""

    encoding = "ascii"


class _Heading(Heading):
    """Headings on the left, without a frame."""

    LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _Code(CodeBlock):
    """Code indented and coloured, on the terminal's own background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        lexer = self.lexer_name if console.color_system else "text"
        yield Padding(Syntax(code, lexer, theme="ansi_dark", background_color="default", word_wrap=True), (0, 0, 0, 2))


class _Quote(BlockQuote):
    """A quote behind a thin line: the thick bar belongs to approval cards."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.elements, options.update(width=options.max_width - 2), style=self.style):
            yield Segment("│ " if options.encoding.startswith("utf") else "| ", self.style)
            yield from line
            yield Segment("\n")


class _Table(TableElement):
    """Table with a line below its headings and no frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = _empty_grid(unicode=options.encoding.startswith("utf"))
        for column in self.header.row.cells if self.header is not None and self.header.row is not None else []:
            grid.add_column(column.content, justify=column.justify, overflow="fold")
        for row in self.body.rows if self.body is not None else []:
            grid.add_row(*(cell.content for cell in row.cells))
        yield grid


class _Prose(Markdown):
    """Markdown of chats: line ends count, and HTML and link targets are visible."""

    elements = {  # noqa: RUF012 - rich's own class attribute
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "blockquote_open": _Quote,
        "table_open": _Table,
    }

    def __init__(self, markup: str) -> None:
        super().__init__("", hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
        self.parsed = parser.parse(markup)
        for token in self.parsed:
            if token.children:
                token.children = list(_spelled_out(token.children))


def _spelled_out(tokens: list[Token]) -> Iterator[Token]:
    """Yield inline tokens with links and images as text, and every line end."""
    target, label = "", ""
    for token in tokens:
        match token.type:
            case "softbreak":
                yield Token("hardbreak", "br", 0)
            case "link_open":
                target, label = str(token.attrs.get("href", "")), ""
            case "link_close":
                if target and target not in (label, f"mailto:{label}"):
                    yield _text(f" ({target})")
            case "image":
                image = _("[image: {description}]", description=token.content)
                yield _text(f"{image} ({token.attrs.get('src', '')})")
            case _:
                label += token.content
                yield token


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _grid(table: Table, *, unicode: bool) -> Grid:
    grid = _empty_grid(unicode=unicode)
    for heading, least in zip(table.headings, _least_widths(table), strict=True):
        grid.add_column(Text(safe_lines(heading)), overflow="fold", min_width=least)
    for row in table.rows:
        grid.add_row(*(Text(safe_lines(cell)) for cell in row))
    return grid


def _empty_grid(*, unicode: bool) -> Grid:
    lines = box.SIMPLE_HEAD if unicode else _ASCII_LINES
    return Grid(box=lines, show_edge=False, pad_edge=False, border_style="dim", header_style="bold")


def _without_empty_columns(table: Table) -> Table:
    indexes = [index for index, column in enumerate(zip(*table.rows, strict=True)) if index == 0 or any(column)]
    rows = tuple(tuple(row[index] for index in indexes) for row in table.rows)
    return Table(tuple(str(table.headings[index]) for index in indexes), rows) if table.rows else table


def _least_widths(table: Table) -> list[int]:
    """Return the least width of every column."""
    columns = list(zip(table.headings, *table.rows, strict=True))
    words = [max((cells(word) for cell in column for word in cell.split()), default=0) for column in columns]
    whole = [max(cells(cell) for cell in column) for column in columns]
    return [max(min(word, _LONG_WORD), min(cell, _SHORT_CELL)) for word, cell in zip(words, whole, strict=True)]


def _beside(details: tuple[tuple[str, str], ...]) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in details:
        grid.add_row(Text(safe_lines(name)), Text(safe_lines(value)))
    return grid
