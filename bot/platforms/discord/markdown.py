"""Discord's Markdown: Markdown of models in its dialect, escaping of text that is sent, and plain text of messages that
are received.

Discord has no tables, images or nested quotes, and three heading sizes ("Markdown Text 101"). Its small text, spoilers,
times and mentions are reserved for the bot: no format, mention, time, emoji or command of escaped text remains. A
backslash escapes a mark; an invisible word joiner splits a token. Received text is untrusted data: escape it before it
is sent to Discord.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby

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
from bot.rendering.tables import columns, widest
from bot.rendering.text_safety import find_urls, single_line

JOINER = "\N{WORD JOINER}"
_MARKS = re.compile(
    r"""
      (?P<mark>
          [\\*`\[\]]                             # bold, italic, code, links
        | (?<![0-9A-Za-z])_ | _(?![0-9A-Za-z])   # italic, underlined: one alone in a word, of ASCII, does nothing
        | ~(?=~) | (?<=~)~ | \|(?=\|) | (?<=\|)\|   # struck, hidden
      )
    | (?P<lead>^[^\S\n]*(?:\d{1,9}(?=\.\s))?)    # a heading, small text, an item of a list, a quote; any blank counts
      (?P<first>\#(?=\#{0,5}\s) | -(?=\#|\s) | [+.](?=\s) | >)
    """,
    re.VERBOSE | re.MULTILINE,
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?=/)", re.IGNORECASE)
_NAMES = re.compile(r"<(?=[@#:/a-zA-Z])(?!https?://)|@(?=everyone|here)", re.IGNORECASE)
_TOKEN = re.compile(
    r"""
      <@!?(?P<user>\d{1,20})>
    | <@&(?P<role>\d{1,20})>
    | <\#(?P<channel>\d{1,20})>
    | <a?(?P<emoji>:\w{2,32}:)\d{1,20}>
    | <t:(?P<time>-?\d{1,13})(?::[tTdDfFRsS])?>
    | <(?P<command>/[^<>:\n]{1,100}):\d{1,20}>
    """,
    re.VERBOSE | re.ASCII,
)
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
FENCE = "```"
WIDEST_TABLE = 60
"""Columns of letters; a telephone shows about forty and breaks the rest, a wider table becomes a list."""
DEEPEST_INDENT = 12
_RULE = "──────────"
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_LANGUAGE = re.compile(r"[A-Za-z0-9_+.#-]{1,30}")
_EDGES = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)
_WEB = ("http://", "https://")


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, the highest count that Discord may use."""
    return len(text) + sum(character > "\uffff" for character in text)


def escape(text: str) -> str:
    """Escape text. Web addresses in it stay links, because Discord links them by itself."""
    urls = find_urls(text)
    starts = [start for start, _ in urls]

    def in_address(at: int) -> bool:
        before = bisect_right(starts, at) - 1
        return before >= 0 and at < urls[before][1]

    def mark(match: re.Match[str]) -> str:
        if in_address(match.start()):
            return match.group()
        return f"\\{match['mark']}" if match["mark"] else f"{match['lead']}\\{match['first']}"

    return defuse_mentions(_MARKS.sub(mark, str(text)))


def break_links(text: str) -> str:
    """Escape text and break each web address after its scheme, so that Discord does not link it."""
    return escape(_SCHEME.sub(lambda match: f"{match.group()}{JOINER}", str(text)))


def truncate(text: str, limit: int) -> str:
    """Return the beginning of a text, at most `limit` characters as Discord counts them."""
    while (over := utf16_length(text) - limit) > 0:
        text = text[: len(text) - (over + 1) // 2]
    return text


def shorten_label(text: str, limit: int) -> str:
    """Return a label on one line, at most `limit` characters as Discord counts them, for places without Markdown."""
    room = limit
    while utf16_length(line := single_line(text, room)) > limit:
        room -= max((utf16_length(line) - limit) // 2, 1)
    return line


def escape_to_limit(text: str, limit: int) -> str:
    """Return escaped text on one line, at most `limit` characters as Discord counts them."""
    room = limit
    while utf16_length(line := escape(single_line(text, room))) > limit:
        room -= max(utf16_length(line) - limit, 1)
    return line


def defuse_mentions(text: str) -> str:
    """Return Discord Markdown without mentions: `<@1>` and `@everyone` notify no user."""
    return _NAMES.sub(lambda match: match.group() + JOINER, text)


def escape_code_fence(text: str) -> str:
    """Return text that cannot end a code block, for cards and tables: joiners separate its backticks."""
    return text.replace("``", f"`{JOINER}`").replace("``", f"`{JOINER}`")


@dataclass(frozen=True, slots=True)
class MentionResolver:
    """Known names of users, roles and channels, by id."""

    people: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def to_plain_text(text: str, names: MentionResolver) -> str:
    """Return the text as Discord displays it. Code stays unchanged."""
    pieces = _CODE.split(text)
    return "".join(
        piece if index % 2 else _TOKEN.sub(lambda match: _token(match, names), piece)
        for index, piece in enumerate(pieces)
    )


def strip_bot_mention(text: str, calls: tuple[str, ...]) -> str:
    """Return the text without a mention at its beginning or end; `calls` are the mentions of the bot."""
    if not calls:
        return text.strip()
    mention = "|".join(map(re.escape, calls))
    text = re.sub(rf"^(?:\s*(?:{mention})[\s,:]*)+", "", text)
    return re.sub(rf"(?:\s*(?:{mention}))+\s*$", "", text).strip()


def _token(match: re.Match[str], names: MentionResolver) -> str:
    value = match.group()
    match match.lastgroup:
        case "user":
            value = f"@{names.people.get(match['user'], match['user'])}"
        case "role":
            value = f"@{names.roles.get(match['role'], match['role'])}"
        case "channel":
            value = f"#{names.channels.get(match['channel'], match['channel'])}"
        case "emoji":
            value = match["emoji"]
        case "time":
            value = _time(int(match["time"])) or value
        case "command":
            value = match["command"]
    return value


def _time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""


def dialect(markdown: str) -> str:
    """Return Markdown for Discord; empty if nothing is visible."""
    return _join_nodes(parse(markdown)).strip("\n")


def code_block(text: str, language: str = "") -> str:
    """Return a code block. No block can contain three backticks: a line with them stands between blocks, as inline
    code. The displayed text is the given one, so that users can copy it.
    """
    if FENCE not in text:
        return _format_fence(text, language)
    pieces: list[str] = []
    for has_fence, lines in groupby(text.split("\n"), key=lambda line: FENCE in line):
        if has_fence:
            pieces += map(inline_code, lines)
        else:
            block = "\n".join(lines)
            pieces.append(_format_fence(block, language) if block.strip() else block)
    return "\n".join(pieces)


def inline_code(text: str) -> str:
    """Return inline code. Backticks that no delimiter can contain stand between pieces of code."""
    if not text.strip():
        return text
    if "`" not in text:
        return f"`{text}`"
    if "``" not in text and text == text.strip("`"):
        return f"``{text}``"
    return "".join(escape(piece) if "`" in piece else inline_code(piece) for piece in re.split("(`+)", text))


def _format_fence(text: str, language: str) -> str:
    known = language if _LANGUAGE.fullmatch(language) else ""
    return f"{FENCE}{known}\n{text or ' '}\n{FENCE}"


def _join_nodes(nodes: Sequence[Node]) -> str:
    pieces: list[str] = []
    last: Node | None = None
    for node in nodes:
        block = _block(node)
        if pieces:
            close = isinstance(last, Heading) or (isinstance(last, Paragraph) and isinstance(node, List))
            pieces.append("\n" if close else "\n\n")
        pieces.append(block)
        last = node
    return "".join(pieces)


def _block(node: Node) -> str:  # noqa: PLR0911 - one case for each kind of block
    match node:
        case Paragraph(line):
            return _line(line)
        case Heading(level, line) if level <= 3:
            return f"{'#' * level} {_line(line).replace(chr(10), ' ')}"
        case Heading(_, line):
            return f"**{_line(line)}**"
        case Code(text, language):
            return code_block(text, language)
        case List():
            return "\n".join(_items(node, 0))
        case Quote(inner):
            return "\n".join(f"> {line}" for line in _format_quote(inner).split("\n"))
        case MarkdownTable():
            return _grid(node)
        case HorizontalRule():
            return _RULE


def _format_quote(nodes: Sequence[Node]) -> str:
    """Return the content of a quote. A nested quote is marked by `>`."""
    blocks = []
    for node in nodes:
        match node:
            case Quote(inner):
                blocks.append("\n".join(f"\\> {line}" for line in _format_quote(inner).split("\n")))
            case _:
                blocks.append(_block(node))
    return "\n".join(blocks)


def _items(items: List, indent: int) -> Iterator[str]:
    """Yield the lines of a list. Code is not indented, because Discord would show the indent."""
    for number, nodes in enumerate(items.items):
        mark = f"{items.start + number}. " if items.start is not None else "- "
        before, behind = " " * indent, " " * (indent + len(mark))
        text, rest = _leading(nodes)
        first, *lines = (_as_task(text) or " ").split("\n")
        yield f"{before}{mark}{first}"
        yield from (f"{behind}{line}" for line in lines)
        for node in rest:
            match node:
                case List():
                    yield from _items(node, min(indent + len(mark), DEEPEST_INDENT))
                case Code() | MarkdownTable() | Quote():
                    yield from _block(node).split("\n")
                case _:
                    yield from (f"{behind}{line}" for line in _block(node).split("\n"))


def _leading(nodes: Sequence[Node]) -> tuple[str, Sequence[Node]]:
    """Split an item into its leading text and the nodes after it."""
    match nodes:
        case [Paragraph(line), *rest]:
            return _line(line), rest
        case [Heading(_, line), *rest]:
            return f"**{_line(line)}**", rest
        case _:
            return "", nodes


def _as_task(text: str) -> str:
    """Replace `[ ]` and `[x]` at the beginning of an item by boxes."""
    bare = text[:8].replace("\\", "")
    box = _TASKS.get(bare[:4])
    return f"{box}{text[6:]}" if box else text


def _grid(grid: MarkdownTable) -> str:
    rows = [[line_text(cell) for cell in row] for row in grid.rows]
    table = columns(rows, grid.aligned)
    if widest(table) <= WIDEST_TABLE:
        return code_block(table)
    heads, *body = grid.rows
    return "\n".join("- " + " · ".join(_cells(heads, row)) for row in body) or _line(heads[0])


def _cells(heads: Sequence[Line], row: Sequence[Line]) -> Iterator[str]:
    for head, cell in zip(heads, row, strict=False):
        value = _line(cell).replace("\n", " ").strip()
        name = escape(" ".join(line_text(head).split()))
        if value:
            yield f"{name}: {value}" if name else value


def _line(line: Line) -> str:
    """Return running text. Adjacent marks are separated."""
    pieces: list[str] = []
    was_marked = False
    for inline in join_words(line):
        piece = _inline(inline)
        if not piece:
            continue
        is_marked = inline.style != Style()
        if pieces and was_marked and is_marked and not pieces[-1][-1:].isspace() and not piece[:1].isspace():
            pieces.append(JOINER)
        pieces.append(piece)
        was_marked = is_marked
    return "".join(pieces)


def _inline(inline: Inline) -> str:
    match inline:
        case Text(text, style) if style.code:
            return _apply_style(inline_code(text), style)
        case Text(text, style):
            return _apply_style(escape(text), style)
        case Link(url, text, style):
            return _apply_style(_link(url, text, code=style.code), style)


def _link(url: str, label: str, *, code: bool) -> str:
    """Return a link in angle brackets, which delimit the URL and prevent an embed."""
    if not url.lower().startswith(_WEB):
        address = url.partition(":")[2]
        return escape(label if address in label else f"{label} ({address})")
    target = url.replace("<", "%3C").replace(">", "%3E")
    if label == url:
        return f"<{target}>"
    words = " ".join(label.split())
    if not words:
        return f"<{target}>"
    if code and "://" in words:
        return f"{inline_code(words)} (<{target}>)"
    named = inline_code(words) if code else escape(words)
    # Discord makes no link of a label that holds an address.
    return f"[{named.replace('://', f':{JOINER}//')}](<{target}>)"


def _apply_style(text: str, style: Style) -> str:
    """Return text between marks, with its outer spaces outside."""
    marks = ("**" if style.bold else "") + ("*" if style.italic else "") + ("~~" if style.struck else "")
    match = _EDGES.fullmatch(text)
    if not marks or match is None or not match[2]:
        return text
    return f"{match[1]}{marks}{match[2]}{marks[::-1]}{match[3]}"
