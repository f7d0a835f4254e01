"""Markdown of models: as a small tree, split into messages, and without active content.

`parse` is for platforms that do not read Markdown themselves. Apart from the terminal, only this module uses the
parser. All text is kept: HTML is text, link definitions are text, and links to unsafe targets show their target.

`split` makes messages: each is complete Markdown, and none is larger than its limit. Pass text that `text_safety` has
cleaned. A growing text is split at the same places each time, and text once in a message stays there, except blanks at
its end, so that messages can be sent during the reply. An open code block is closed at the split and reopened, a table
restarts with its headings, a nested list moves to the left.

`sanitize` is for platforms that read Markdown themselves. Sanitized text mentions no user, fetches no picture, and
links only to permitted targets, shown beside deceptive labels. The words stay unchanged; an invisible word joiner
disables each active part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from bot.rendering.text_safety import find_urls, is_deceptive, safe_url, strip_control

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

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
    tokens = _parser().parse(text) if text.count("[") <= MOST_BRACKETS else []
    if text.strip() and (not tokens or any(token.level >= DEEPEST for token in tokens)):
        return (Paragraph(_with_addresses(Text(text))),)
    return tuple(_nodes(_Reader(tokens)))


def line_text(line: Line) -> str:
    """Return the text of a line."""
    return "".join(part.text for part in line)


def join_words(line: Iterable[Inline]) -> Iterator[Inline]:
    """Return the line with neighboring words of one style joined."""
    run: Text | None = None
    for part in line:
        if isinstance(part, Text) and run is not None and run.style == part.style:
            run = Text(run.text + part.text, run.style)
            continue
        if run is not None:
            yield run
        run = part if isinstance(part, Text) else None
        if isinstance(part, Link):
            yield part
    if run is not None:
        yield run


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - 60 modules, which no start needs

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST + 20})
    return parser.enable(["strikethrough", "table"]).disable("reference")


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
        """Return the text up to a closing token."""
        return tuple(part for token in self.until(end) for part in _inline(token.children or []))


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
    for _match_fence in reader.until(end):
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
            label.append(_token_text(token))
        elif token.type == "image":
            yield from _link(str(token.attrs.get("src", "")), token.content or "image", style)
        elif token.type == "code_inline":
            yield Text(token.content, replace(style, code=True))
        elif text := _token_text(token):
            yield from _with_addresses(Text(text, style))


def _token_text(token: Token) -> str:
    return "\n" if token.type in ("softbreak", "hardbreak") else token.content


def _link(url: str, label: str, style: Style) -> Iterator[Inline]:
    """Return a link, followed by its target if the label is deceptive."""
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


# -------------------- split into messages

_FENCE = re.compile(r"^(?P<indent> *(?:(?:[-*+]|\d{1,9}[.)]) +)*)(?P<fence>`{3,100}|~{3,100})(?P<info>[^\n]*)")
_ITEM = re.compile(r"^ *([-*+]|\d{1,9}[.)])(\s|$)")
_DELIMITER = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_LONGEST_INFO = 60
_LINES_FROM, _WORDS_FROM = 0.85, 0.92
"""From these fractions of `most` on a text is cut between lines that belong together, and within a line."""


def text_weight(text: str) -> int:
    """Return the size of a text in UTF-16 units, with those for escaping `&`, `<` and `>`."""
    return (
        len(text.encode("utf-16-le", "surrogatepass")) // 2
        + 4 * text.count("&")
        + 3 * (text.count("<") + text.count(">"))
    )


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Size limit of one message, as `weigh` counts: from `good` on it ends at the end of a block. It never exceeds
    `most`, which is at least 1,000.
    """

    good: int
    most: int
    weigh: Callable[[str], int] = text_weight

    def rest_after(self, used: int) -> SizeLimit:
        """Return the rest of the limit."""
        return SizeLimit(max(self.good - used, 0), max(self.most - used, 0), self.weigh)


def split(markdown: str, room: SizeLimit) -> tuple[str, ...]:
    """Return the messages of the whole text."""
    pieces = []
    rest = markdown
    while rest:
        part, rest = split_once(rest, room)
        pieces.append(part)
    return tuple(pieces)


def split_once(markdown: str, room: SizeLimit) -> tuple[str, str]:
    """Return the text of one message and the start of the next one; empty at the end of the text. Without any room
    the message is empty.
    """
    scan = _Scan(room)
    for line in _lines(markdown):
        if scan.ends_before(line) or scan.ends_within(line):
            return scan.message(markdown), scan.remainder(markdown)
        scan.read_line(line)
    return markdown, ""


def _lines(text: str) -> list[str]:
    pieces = text.split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


@dataclass(slots=True)
class _Scan:
    """Lines in, the place of the cut out."""

    room: SizeLimit
    at: int = 0
    used: int = 0
    blank: bool = True
    listed: bool = False
    last: str = ""
    fence: str = ""
    info: str = ""
    indent: int = 0
    head: list[str] = field(default_factory=list)
    """The headings of the table that is being read, and the line below them."""

    @property
    def most(self) -> int:
        """A cut in a code block needs room for its end."""
        return self.room.most - (len(self.fence) + self.indent + 2 if self.fence else 0)

    def read_line(self, line: str) -> None:
        """Go past a line."""
        self.at += len(line)
        self.used += self.room.weigh(line)
        if self.fence:
            closing = line.strip()
            if closing.startswith(self.fence) and not closing.strip(self.fence[0]):
                self.fence, self.indent = "", 0
        else:
            if _ITEM.match(line):
                self.listed = True
            elif self.blank and line.strip() and not line[0].isspace():
                self.listed = False
            if not line.strip():
                self.head = []
            elif not self.head and "|" in self.last and _DELIMITER.match(line.rstrip("\n")):
                self.head = [self.last, line] if self.room.weigh(self.last + line) <= self.room.good // 2 else []
            if opened := self._match_fence(line):
                self.fence, self.indent = opened["fence"], len(opened["indent"])
                self.info = opened["info"].strip()[:_LONGEST_INFO]
        self.blank = not line.strip()
        self.last = line

    def ends_before(self, line: str) -> bool:
        """Return True if the message ends here. Blanks at an unfinished end decide nothing."""
        if not line.strip() and not line.endswith("\n"):
            return False
        if (
            not self.fence
            and self.used >= self.room.good
            and (line[0] == "#" or (self.blank and not line[0].isspace()))
        ):
            return True
        if self.used < self.room.most * _LINES_FROM or not self.used:
            return False
        if self.fence:
            return not line.lstrip().startswith(self.fence[0])
        return bool(self.head) or "|" not in self.last

    def ends_within(self, line: str) -> bool:
        """Return True if the message ends within this line: after a blank, if one is late enough."""
        if self.used + self.room.weigh(line) < self.room.most * _WORDS_FROM:
            return False
        used = self.used
        for index, character in enumerate(line):
            used += self.room.weigh(character)
            over = used > self.most
            wordwise = character == " " and used >= self.room.most * _WORDS_FROM and line[: index + 1].strip()
            if over or (wordwise and line[index + 1 :].strip()):
                self.at += index if over else index + 1
                self.indent = self.indent if self.fence else _indent(line)
                self.blank = self.blank and not index
                return True
        return False

    def message(self, text: str) -> str:
        head = text[: self.at]
        if not self.fence:
            return head
        return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{' ' * self.indent}{self.fence}"

    def remainder(self, text: str) -> str:
        """Return the text of the next message and everything after it."""
        rest = text[self.at :]
        if self.fence:
            return f"{self.fence}{self.info}\n{_dedent(rest, self.indent)}"
        if self.head:
            return "".join(self.head) + rest
        return _dedent(rest, _indent(rest) or self.indent) if self.listed else rest

    def _match_fence(self, line: str) -> re.Match[str] | None:
        """Return the code block that a line opens. The info string after backticks contains no backtick (CommonMark
        4.5).
        """
        match = _FENCE.match(line)
        if not match or (match["fence"][0] == "`" and "`" in match["info"]):
            return None
        return match if self.listed or len(match["indent"]) <= 3 else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _dedent(text: str, columns: int) -> str:
    """Return the text with an indentation that is smaller by `columns`, up to the first line with less indentation."""
    lines = _lines(text)
    for number, line in enumerate(lines):
        if line.strip() and _indent(line) < columns and number:
            break
        lines[number] = line[min(columns, _indent(line)) :]
    return "".join(lines)


# -------------------- without active content

JOINER = "\N{WORD JOINER}"

_LABEL, _TARGET = r"[^\[\]\n]{0,300}", r"[^()\s]{0,500}(?:\([^()\s]{0,100}\)[^()\s]{0,500})?"
_LINK = rf"!?\[(?P<label>{_LABEL})\]\((?P<target>{_TARGET})\)"
_ANGLE = r"<(?P<angle>[^<>\s]{0,500})>"
_ACTIVE = re.compile(
    rf"{_LINK}|{_ANGLE}"
    r"|(?P<call>(?<![\w.+/?=&%-])[@#](?=[A-Za-z]))"  # @here, @ana, #general
    r"|(?P<entity>&(?:lt|#0*60|#[xX]0*3[cC]);(?=[!@#a-zA-Z]))"  # also if it is unescaped twice
    r"|(?P<mark><(?=[!@#a-zA-Z]))"  # <!channel>, <@U1>, <https://x|y>
    r"|(?P<join>\](?=[(\[:]))"  # other text must not become a link
)
_MARKED = re.compile(r"[<>]|&(?:lt|#0*60|#[xX]0*3[cC]);")
"""Characters that no address contains; a renderer that reads mentions first would find one in them."""
_UNDECIDED = re.compile(rf"(?:!|!?\[{_LABEL}(?:\](?:\([^\s]{{0,1100}})?)?|<[^<>\s]{{0,500}})\Z")


def sanitize(markdown: str) -> str:
    """Return a whole text without active content."""
    return _ACTIVE.sub(_disable_match, strip_control(markdown))


def sanitize_partial(markdown: str) -> str:
    """Return a growing text without active content. Each result begins with the one before; the last equals `sanitize`
    without trailing blanks. A possible beginning of a link is held back.
    """
    text = strip_control(markdown)
    if waits := _UNDECIDED.search(text[-2000:]):
        text = text[: len(text) - len(waits.group())]
    return _ACTIVE.sub(_disable_match, text).rstrip()


def _disable_match(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "target":
            return _sanitized_link(match["label"], match["target"])
        case "angle":
            inside = match["angle"]
            if _is_permitted(inside) and "|" not in inside:
                return f"<{inside}>"
            return f"<{JOINER}{_ACTIVE.sub(_disable_match, inside)}>"
        case _:
            return match.group() + JOINER


def _sanitized_link(label: str, target: str) -> str:
    inside = _ACTIVE.sub(_disable_match, label)
    if not _is_permitted(target):
        return f"[{inside}]{JOINER}({_ACTIVE.sub(_disable_match, target)})"
    link_text = f"[{inside or target}]({target})"
    return f"{link_text} ({target})" if label and is_deceptive(label, target) else link_text


def _is_permitted(target: str) -> bool:
    return bool(safe_url(target)) and not _MARKED.search(target)
