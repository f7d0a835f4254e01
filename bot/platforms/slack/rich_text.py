"""Markdown as Slack's rich text.

Rich text types each piece, so untrusted text stays text: no mentions, no fetched images, and only the links that
`rendering` allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bot.platforms.slack.blocks import LIST_INDENT, TABLES_A_MESSAGE, Block, Element, fits_a_table, table
from bot.rendering.markdown import (
    Code,
    Heading,
    HorizontalRule,
    Inline,
    Line,
    Link,
    List,
    MarkdownTable,
    Node,
    Paragraph,
    Quote,
    Style,
    Text,
    join_words,
    line_text,
    parse,
)
from bot.rendering.text_columns import columns

_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_RULE = "──────────"
_AS_IT_IS = Style()
_MANY = 400
"""Elements of a rich text block. Slack documents no limit; a longer text starts a new block or loses its styles."""


class RichTextBuilder:
    """The rich text of one message: pieces of Markdown, one below the other."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._tables = 0
        self._elements: list[Element] = []

    def markdown(self, text: str) -> None:
        """Add Markdown."""
        self._nodes(parse(text), indent=0)
        self._end_block()

    def block(self, *blocks: Block) -> None:
        """Add blocks other than Markdown."""
        self.blocks += blocks

    def _nodes(self, nodes: Iterable[Node], indent: int) -> None:
        for node in nodes:
            match node:
                case Paragraph(line):
                    self._line(line)
                case Heading(_, line):
                    self._line(line, Style(bold=True))
                case Code(text):
                    self._add({"type": "rich_text_preformatted", "elements": [_text(text or " ")]})
                case List():
                    self._items(node, indent)
                case Quote(inner):
                    self._add({"type": "rich_text_quote", "elements": _elements(tuple(_flat(inner)))})
                case MarkdownTable():
                    self._grid(node)
                case HorizontalRule():
                    self._line((Text(_RULE),))

    def _line(self, line: Line, style: Style = _AS_IT_IS) -> None:
        """Add a paragraph, after a blank line where one is needed. A paragraph of many elements gets several blocks."""
        first, rest = line[:_MANY], line[_MANY:]
        self._paragraph(first, style)
        if rest:
            self._line(rest, style)

    def _paragraph(self, line: Line, style: Style) -> None:
        last = self._elements[-1] if self._elements else {}
        made = _elements(line, style)
        match last.get("type"):
            case "rich_text_section" if len(last["elements"]) + len(made) < _MANY:
                last["elements"] += [_text("\n\n"), *made]
            case "rich_text_list":
                self._add({"type": "rich_text_section", "elements": [_text("\n"), *made]})
            case _:
                self._add({"type": "rich_text_section", "elements": made})

    def _items(self, items: List, indent: int) -> None:
        """Add a list. Blocks other than text interrupt it; its numbering continues after them."""
        run: list[Element] = []
        begun = items.start or 0
        for number, nodes in enumerate(items.items, start=begun):
            lines, rest = _leading(nodes)
            if not run:
                begun = number
            run.append({"type": "rich_text_section", "elements": _elements(_as_task(lines))})
            if rest or len(run) >= _MANY:
                self._run(run, items, begun, indent)
                run = []
                self._nodes_of_item(rest, indent)
        self._run(run, items, begun, indent)

    def _nodes_of_item(self, nodes: Sequence[Node], indent: int) -> None:
        for node in nodes:
            match node:
                case Paragraph(line) | Heading(_, line):
                    self._add({"type": "rich_text_section", "elements": _elements(line)})
                case _:
                    self._nodes((node,), indent + 1)

    def _run(self, run: list[Element], items: List, begun: int, indent: int) -> None:
        if not run:
            return
        made: Element = {
            "type": "rich_text_list",
            "style": "ordered" if items.ordered else "bullet",
            "indent": min(indent, LIST_INDENT),
            "elements": run,
        }
        if items.ordered and begun > 1:
            made["offset"] = begun - 1
        self._add(made)

    def _grid(self, grid: MarkdownTable) -> None:
        rows = [[line_text(cell) for cell in row] for row in grid.rows]
        if self._tables < TABLES_A_MESSAGE and fits_a_table(rows):
            self._end_block()
            self._tables += 1
            heads, *body = grid.rows
            bold = [[_elements(cell, Style(bold=True)) for cell in heads]]
            self.blocks.append(table([*bold, *([_elements(cell) for cell in row] for row in body)], grid.aligned))
        else:
            self._add({"type": "rich_text_preformatted", "elements": [_text(columns(rows) or " ")]})

    def _add(self, element: Element) -> None:
        if len(self._elements) >= _MANY:
            self._end_block()
        self._elements.append(element)

    def _end_block(self) -> None:
        if self._elements:
            self.blocks.append({"type": "rich_text", "elements": self._elements})
        self._elements = []


def rich_blocks(markdown: str) -> list[Block]:
    """Return the blocks of Markdown that is a whole message or a part of a modal."""
    prose = RichTextBuilder()
    prose.markdown(markdown)
    return prose.blocks


def _leading(nodes: Sequence[Node]) -> tuple[Line, Sequence[Node]]:
    """Split an item into its leading text and the nodes after it."""
    lines: list[Inline] = []
    for number, node in enumerate(nodes):
        match node:
            case Paragraph(line):
                lines += [*([Text("\n")] if lines else []), *line]
            case Heading(_, line):
                lines += [*([Text("\n")] if lines else []), *_apply_style(line, Style(bold=True))]
            case _:
                return tuple(lines), nodes[number:]
    return tuple(lines), ()


def _as_task(line: Line) -> Line:
    """Replace `[ ]` and `[x]` at the beginning of an item by boxes."""
    if not line or not isinstance(line[0], Text) or line[0].text[:4] not in _TASKS:
        return line
    first = line[0]
    return (Text(_TASKS[first.text[:4]] + first.text[4:], first.style), *line[1:])


def _flat(nodes: Iterable[Node], before: str = "") -> Iterator[Inline]:
    """Flatten blocks to running text, because Slack allows nothing else in a quote."""
    for number, node in enumerate(nodes):
        if number or before:
            yield Text("\n" if before or isinstance(node, List) else "\n\n")
        match node:
            case Paragraph(line):
                yield from line
            case Heading(_, line):
                yield from _apply_style(line, Style(bold=True))
            case Code(text):
                yield Text(text, Style(code=True))
            case Quote(inner):
                yield Text("> ")
                yield from _flat(inner)
            case List():
                yield from _flat_items(node)
            case MarkdownTable(rows):
                yield Text(columns([[line_text(cell) for cell in row] for row in rows]))
            case HorizontalRule():
                yield Text(_RULE)


def _flat_items(items: List) -> Iterator[Inline]:
    for number, nodes in enumerate(items.items):
        mark = f"{items.start + number}. " if items.start is not None else "• "
        yield Text(mark if not number else f"\n{mark}")
        yield from _flat(nodes)


def _apply_style(line: Line, style: Style) -> Iterator[Inline]:
    for each in line:
        merged = Style(
            each.style.bold or style.bold,
            each.style.italic or style.italic,
            each.style.struck or style.struck,
            each.style.code or style.code,
        )
        yield Text(each.text, merged) if isinstance(each, Text) else Link(each.url, each.text, merged)


def _elements(line: Line, style: Style = _AS_IT_IS) -> list[Element]:
    """Return the elements of a line, merging runs of one style. Slack rejects empty lines and empty texts."""
    made: list[Element] = []
    for each in _few(tuple(join_words(_apply_style(line, style)))):
        element: Element = _text(each.text)
        if isinstance(each, Link):
            element = {"type": "link", "url": each.url, "text": each.text}
        if looks := _looks(each.style):
            element["style"] = looks
        if each.text:
            made.append(element)
    return made or [_text(" ")]


def _few(line: Line) -> Line:
    """Return the line, or its text with link targets if it has more than `_MANY` elements."""
    if len(line) <= _MANY:
        return line
    return (Text("".join(each.text if isinstance(each, Text) else _link_text(each) for each in line)),)


def _link_text(link: Link) -> str:
    return link.text if link.text == link.url else f"{link.text} ({link.url})"


def _looks(style: Style) -> dict[str, bool]:
    looks = {"bold": style.bold, "italic": style.italic, "strike": style.struck, "code": style.code}
    return {name: True for name, chosen in looks.items() if chosen}


def _text(text: str) -> Element:
    return {"type": "text", "text": text}
