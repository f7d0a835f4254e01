"""Markdown as a small tree, for platforms that do not read Markdown themselves.

Apart from the terminal, only this module uses the Markdown parser. All text is kept: HTML is text, link definitions are
text, and links to unsafe targets show their target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from bot.rendering.text_safety import find_urls, is_deceptive, safe_url, strip_control

DEEPEST = 60
"""Beyond that many levels a text is not taken apart: the parser would drop the rest of it."""
MOST_BRACKETS = 1_000
"""Nor with more `[` than that, each of which it would try as the beginning of a link."""


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a run of text."""

    bold: bool = False
    italic: bool = False
    struck: bool = False
    code: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text in one style; line ends are line breaks."""

    text: str
    style: Style = Style()


@dataclass(frozen=True, slots=True)
class Link:
    """Text that leads to a web address or a mailbox."""

    url: str
    text: str
    style: Style = Style()


Inline = Text | Link
Line = tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    line: Line


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `level` is 1 to 6."""

    level: int
    line: Line


@dataclass(frozen=True, slots=True)
class Code:
    """A code block, without its last line end."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class List:
    """A list. Ordered ones count from `start`."""

    items: tuple[tuple[Node, ...], ...]
    start: int | None = None

    @property
    def ordered(self) -> bool:
        """The items are numbered."""
        return self.start is not None


@dataclass(frozen=True, slots=True)
class Quote:
    """Quoted blocks."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MarkdownTable:
    """A table: the first row are its headings. `aligned` says `left`, `center` or `right` for each column."""

    rows: tuple[tuple[Line, ...], ...]
    aligned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HorizontalRule:
    """A line across."""


Node = Paragraph | Heading | Code | List | Quote | MarkdownTable | HorizontalRule


@lru_cache(maxsize=128)
def parse(markdown: str) -> tuple[Node, ...]:
    """Return the tree of a text. Parts deeper than DEEPEST levels, and texts with more than MOST_BRACKETS, become one
    literal paragraph. Results are cached, because a turn is displayed repeatedly and only its end changes.
    """
    text = strip_control(markdown)
    tokens = _PARSER.parse(text) if text.count("[") <= MOST_BRACKETS else []
    if text.strip() and (not tokens or any(token.level >= DEEPEST for token in tokens)):
        return (Paragraph(_with_addresses(Text(text))),)
    return tuple(_nodes(_Reader(tokens)))


def line_text(line: Line) -> str:
    """Return the text of a line."""
    return "".join(each.text for each in line)


def joined(line: Iterable[Inline]) -> Iterator[Inline]:
    """The same line, with words of one look that follow each other as one."""
    run: Text | None = None
    for each in line:
        if isinstance(each, Text) and run is not None and run.style == each.style:
            run = Text(run.text + each.text, run.style)
            continue
        if run is not None:
            yield run
        run = each if isinstance(each, Text) else None
        if isinstance(each, Link):
            yield each
    if run is not None:
        yield run


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST + 20})
    return parser.enable(["strikethrough", "table"]).disable("reference")


_PARSER = _parser()


class _Reader:
    """Tokens, one after the other."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def until(self, end: str) -> Iterator[Token]:
        """Yield every token up to the one that closes the current block."""
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.type == end:
                return
            yield token

    def line(self, end: str) -> Line:
        """The text between here and a closing token."""
        return tuple(each for token in self.until(end) for each in _inline(token.children or []))


def _nodes(reader: _Reader, end: str = "") -> Iterator[Node]:
    for token in reader.until(end):
        match token.type:
            case "paragraph_open":
                yield Paragraph(reader.line("paragraph_close"))
            case "heading_open":
                yield Heading(int(token.tag[1:]), reader.line("heading_close"))
            case "fence" | "code_block":
                yield Code(
                    token.content.removesuffix("\n"),
                    token.info.strip().split(maxsplit=1)[0] if token.info.strip() else "",
                )
            case "bullet_list_open":
                yield List(tuple(_items(reader, "bullet_list_close")))
            case "ordered_list_open":
                yield List(tuple(_items(reader, "ordered_list_close")), int(token.attrs.get("start", 1)))
            case "blockquote_open":
                yield Quote(tuple(_nodes(reader, "blockquote_close")))
            case "table_open":
                yield _grid(reader)
            case "hr":
                yield HorizontalRule()
            case _:
                continue


def _items(reader: _Reader, end: str) -> Iterator[tuple[Node, ...]]:
    for _opened in reader.until(end):
        yield tuple(_nodes(reader, "list_item_close"))


def _grid(reader: _Reader) -> MarkdownTable:
    rows: list[tuple[Line, ...]] = []
    aligned: list[str] = []
    for token in reader.until("table_close"):
        if token.type != "tr_open":
            continue
        row = []
        for cell in reader.until("tr_close"):
            if not rows:
                aligned.append(str(cell.attrs.get("style", "")).removeprefix("text-align:") or "left")
            row.append(reader.line(f"{cell.tag}_close"))
        rows.append(tuple(row))
    return MarkdownTable(tuple(rows), tuple(aligned))


_STYLES = {"strong": "bold", "em": "italic", "s": "struck"}


def _inline(tokens: list[Token]) -> Iterator[Inline]:
    style = Style()
    link: str | None = None
    label: list[str] = []
    for token in tokens:
        kind, _, side = token.type.rpartition("_")
        if kind in _STYLES:
            style = replace(style, **{_STYLES[kind]: side == "open"})
        elif token.type == "link_open":
            link, label = str(token.attrs.get("href", "")), []
        elif token.type == "link_close":
            yield from _link(link or "", "".join(label), style)
            link = None
        elif link is not None:
            label.append(_said(token))
        elif token.type == "image":
            yield from _link(str(token.attrs.get("src", "")), token.content or "image", style)
        elif token.type == "code_inline":
            yield Text(token.content, replace(style, code=True))
        elif said := _said(token):
            yield from _with_addresses(Text(said, style))


def _said(token: Token) -> str:
    return "\n" if token.type in ("softbreak", "hardbreak") else token.content


def _link(url: str, label: str, style: Style) -> Iterator[Inline]:
    """A link, with its target beside it where the label is not to be trusted."""
    target = safe_url(url)
    if not target:
        yield Text(f"{label} ({url})" if url else label, style)
        return
    yield Link(target, label or target, style)
    if label and is_deceptive(label, target):
        yield Text(f" ({target})", style)


def _with_addresses(words: Text) -> Line:
    """Return text with its web addresses as links."""
    parts: list[Inline] = []
    done = 0
    for start, end in find_urls(words.text):
        if start > done:
            parts.append(Text(words.text[done:start], words.style))
        parts.append(Link(words.text[start:end], words.text[start:end], words.style))
        done = end
    if done < len(words.text):
        parts.append(Text(words.text[done:], words.style))
    return tuple(parts)
