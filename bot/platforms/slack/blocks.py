"""Block Kit as JSON: messages, texts, tables, buttons with their actions, Markdown as rich text, and Slack's limits.

Text from outside goes into `plain_text` and `rich_text` only, where Slack reads no mention, link or style in it; links
are those that `rendering` allows. Only the fallback text of a message is `mrkdwn`, escaped here. A message may have one
`table` block (docs.slack.dev, table block). If there are more, or larger ones, all are text; no row is omitted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from bot.chat import actions
from bot.chat.actions import Action, FeedbackValue, SendFeedback
from bot.i18n import _, ngettext
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
from bot.rendering.tables import columns
from bot.rendering.text_safety import ELLIPSIS, safe_url, single_line, strip_control

# -------------------- limits
# From docs.slack.dev and the models of slack_sdk 3.47, in characters or items unless noted.

MESSAGE_WEIGHT = 9_000
"""Text of one message, in `markdown.text_weight`. Slack documents no limit for blocks; others measured about 13,200
characters.
"""
UPDATED_TEXT = 4_000
"""`text` of a message that is edited, in bytes of UTF-8."""

BUTTON_TEXT = 75
BUTTON_VALUE = 2_000
BUTTON_LINK = 3_000
BUTTONS_A_BLOCK = 25
PLAIN_TEXT = 3_000
"""`section` and `context` text."""
HEADER = 150
CONFIRM_TITLE, CONFIRM_TEXT, CONFIRM_BUTTON = 100, 300, 30

TABLE_ROWS, TABLE_COLUMNS, TABLE_CHARACTERS = 100, 20, 10_000
LIST_INDENT = 6

VIEW_TITLE = 24
PRIVATE_METADATA = 3_000
INPUT_LABEL, INPUT_HINT = 2_000, 2_000
INPUT_LENGTH = 3_000
OPTIONS = 100
MENU_OPTIONS = 5
OPTION_VALUE = 150
OPTION_TEXT = 75

TASK_TEXT = 256

# -------------------- messages

Block = dict[str, Any]
"""One Block Kit block as JSON."""
_SILENT = ("actions", "context_actions", "divider")
_LINES = (
    "rich_text_section",
    "rich_text_preformatted",
    "rich_text_quote",
    "section",
    "context",
    "header",
    "plain_text",
)
PREFIX = "cs"
PARAGRAPH = 1_000
"""Texts that may be this long are paragraphs, shorter ones labels."""
LINK_PRESSED = "cs.link"
"""Action id of link buttons. Slack reports these clicks too; the bot ignores them."""
COUNT_ROOM = 40
"""Characters for the count of omitted characters."""
Element = dict[str, Any]
"""A part of a block as JSON."""
USER_ID = re.compile(r"[UW][A-Z0-9]{1,20}")
GROUP_ID = re.compile(r"S[A-Z0-9]{1,20}")
_AT = re.compile(r"(?<![\w.])@(?=\w)")
_WORD_JOINER = "\N{WORD JOINER}"
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_RULE = "──────────"
_AS_IT_IS = Style()
MOST_ELEMENTS = 400
"""Elements of a rich text block. Slack documents no limit; a longer text starts a new block or loses its styles."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a turn. `name` is the same in every delivery of the turn; `text` is the escaped text of
    notifications and screen readers. Messages are listed in their order in Slack. If `asks` is True, the message has
    buttons that a user needs: it must not be posted without its layout. `place` is its channel, empty for the
    conversation's. `silent` are the blocks without mentions, for a message that replaces another one; empty if there
    is no difference.
    """

    name: str
    blocks: tuple[Block, ...]
    text: str
    asks: bool = False
    place: str = ""
    silent: tuple[Block, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class CommandReply:
    """One message outside a turn: a reply to a command, a notice. `is_whole` is False if something is omitted."""

    blocks: tuple[Block, ...]
    text: str
    is_whole: bool = True


def fallback_text(blocks: Iterable[Block]) -> str:
    """Return the text of blocks in order."""
    return "".join(piece for block in blocks if block.get("type") not in _SILENT for piece in _pieces(block)).strip()


def _pieces(part: Any) -> Iterator[str]:
    match part:
        case {"type": "text" | "link" | "plain_text", "text": str(text)} | {"type": "date", "fallback": str(text)}:
            yield text
        case {"type": "user", "user_id": str(user_id)}:
            yield user_id
        case {"type": "channel", "channel_id": str(channel_id)}:
            yield channel_id
        case dict():
            yield from _pieces(part.get("text"))
            for inner in (*part.get("elements", ()), *part.get("rows", ())):
                yield from _pieces(inner)
        case list():
            for cell in part:
                yield from _pieces(cell)
                yield "  "
            yield "\n"
        case _:
            return
    if isinstance(part, dict) and part.get("type") in _LINES:
        yield "\n"


# -------------------- actions of buttons


def encode(action: Action) -> tuple[str, str] | None:
    """Return a button's `action_id` and `value`, or None if they exceed Slack's limits."""
    value = actions.encode(action)
    return (f"{PREFIX}.{actions.kind_of(action)}", value) if len(value) <= BUTTON_VALUE else None


def decode(action_id: str, value: str) -> Action | None:
    """Return the action of a button, or None if it is not one of the bot's."""
    return actions.decode(value) if action_id.startswith(f"{PREFIX}.") else None


def feedback_buttons(turn_id: str) -> Block:
    """Return the buttons for feedback on an answer."""
    good, bad = (encode(SendFeedback(turn_id, opinion)) for opinion in (FeedbackValue.GOOD, FeedbackValue.BAD))
    assert good is not None and bad is not None  # noqa: PT018 - a turn's id is short
    sides = {
        "positive_button": {"text": {"type": "plain_text", "text": _("Good answer")}, "value": good[1]},
        "negative_button": {"text": {"type": "plain_text", "text": _("Bad answer")}, "value": bad[1]},
    }
    return {"type": "context_actions", "elements": [{"type": "feedback_buttons", "action_id": good[0], **sides}]}


def fallback(text: str) -> str:
    """Return the `text` of a message: escaped, without mentions, and within the limit for edits."""
    text = defuse_mentions(single_line(text, 2 * UPDATED_TEXT))
    if len((whole := escape(text)).encode()) <= UPDATED_TEXT:
        return whole or ELLIPSIS
    pieces = [escape(character) for character in text]
    ends = list(accumulate(len(piece.encode()) for piece in pieces))
    return "".join(pieces[: bisect_right(ends, UPDATED_TEXT - len(ELLIPSIS.encode()))]) + ELLIPSIS


def plain_text(text: str, limit: int = PLAIN_TEXT) -> Element:
    """Return a `plain_text` object; only line ends keep their meaning."""
    return {"type": "plain_text", "text": shorten(text, limit), "emoji": False}


def shorten(text: str, limit: int) -> str:
    """Return plain text of 1 to `limit` characters. An ellipsis replaces the rest, or an empty text. The omitted
    characters of a paragraph are counted; a label has no room for the count.
    """
    text = strip_control(text).strip()
    if len(text) <= limit:
        return text or ELLIPSIS
    if limit < PARAGRAPH:
        return text[: limit - 1].rstrip() + ELLIPSIS
    length = limit - COUNT_ROOM
    return more_characters(text[:length].rstrip(), len(text) - length)


def more_characters(beginning: str, more: int) -> str:
    """Return the beginning of a text with the number of its omitted characters."""
    return ngettext(
        "{beginning}… ({n} more character)", "{beginning}… ({n} more characters)", more, beginning=beginning
    )


def small(*lines: str) -> list[Block]:
    """Return context blocks (small grey text), as many as the lines need."""
    blocks: list[Block] = []
    text = ""
    for line in (shorten(line, PLAIN_TEXT) for line in lines):
        if text and len(text) + 1 + len(line) > PLAIN_TEXT:
            blocks.append(_context(text))
            text = ""
        text = f"{text}\n{line}" if text else line
    return [*blocks, _context(text)] if text else blocks


def _context(text: str) -> Block:
    return {"type": "context", "elements": [plain_text(text)]}


def section(text: str) -> Block:
    """Return a section of plain text."""
    return {"type": "section", "text": plain_text(text)}


def header(text: str) -> Block:
    """Return a header."""
    return {"type": "header", "text": plain_text(single_line(text, HEADER), HEADER)}


def divider() -> Block:
    """Return a divider."""
    return {"type": "divider"}


def rich_text(*elements: Element) -> Block:
    """Return a rich text block."""
    return {"type": "rich_text", "elements": list(elements)}


def rich_section(*elements: Element) -> Element:
    """Return running text of a rich text block."""
    return {"type": "rich_text_section", "elements": list(elements)}


def preformatted(text: str) -> Element:
    """Return monospaced text."""
    return {"type": "rich_text_preformatted", "elements": [words(text)]}


def quote(text: str) -> Element:
    """Return a run of quoted text."""
    return {"type": "rich_text_quote", "elements": [words(text)]}


def words(text: str, **style: bool) -> Element:
    """Return a run of literal text; `bold`, `italic`, `strike` and `code` are its styles."""
    element: Element = {"type": "text", "text": strip_control(text) or " "}
    return {**element, "style": style} if style else element


def person(user_id: str, name: str = "") -> Element:
    """Return a mention of a user in rich text. An invalid id is shown as text."""
    return {"type": "user", "user_id": user_id} if USER_ID.fullmatch(user_id) else words(name or user_id)


def user_group(group_id: str, name: str = "") -> Element:
    """Return a mention of a user group in rich text. An invalid id is shown as text."""
    if GROUP_ID.fullmatch(group_id):
        return {"type": "usergroup", "usergroup_id": group_id}
    return words(name or group_id)


def channel(channel_id: str) -> Element:
    """Return a channel link, which shows the name only to users with access."""
    return {"type": "channel", "channel_id": channel_id}


def link(address: str, text: str) -> Element:
    """Return a link of the bot's own."""
    return {"type": "link", "url": address, "text": str(text)}


def moment(at: float, fmt: str, otherwise: str) -> Element:
    """Return a timestamp in the reader's time zone."""
    return {"type": "date", "timestamp": int(at), "format": str(fmt), "fallback": str(otherwise)}


def button(label: str, press: Action, style: str = "", confirm: Element | None = None) -> Element | None:
    """Return a button, or None if its action exceeds Slack's limits. `style` is `primary`, `danger` or empty."""
    names = encode(press)
    if names is None:
        return None
    action_id, value = names
    element: Element = {
        "type": "button",
        "text": plain_text(single_line(label, BUTTON_TEXT), BUTTON_TEXT),
        "action_id": action_id,
        "value": value,
    }
    if style:
        element["style"] = style
    return {**element, "confirm": confirm} if confirm else element


def link_button(label: str, address: str) -> Element | None:
    """Return a button that opens a URL, or None if the URL exceeds Slack's limit."""
    if len(address) > BUTTON_LINK or not safe_url(address):
        return None
    text = plain_text(single_line(label, BUTTON_TEXT), BUTTON_TEXT)
    return {"type": "button", "text": text, "action_id": LINK_PRESSED, "url": address}


def menu(entries: Iterable[tuple[str, Action]]) -> Element | None:
    """Return an overflow menu of labels and their actions, or None if it is empty."""
    named = [(label, encode(press)) for label, press in entries]
    options = [
        (names[0], {"text": plain_text(single_line(label, OPTION_TEXT), OPTION_TEXT), "value": names[1]})
        for label, names in named
        if names is not None and len(names[1]) <= OPTION_VALUE
    ][:MENU_OPTIONS]
    if not options:
        return None
    return {"type": "overflow", "action_id": options[0][0], "options": [option for _name, option in options]}


def confirmation(title: str, text: str, yes: str) -> Element:
    """Return the confirmation dialog of a button."""
    return {
        "title": plain_text(title, CONFIRM_TITLE),
        "text": plain_text(text, CONFIRM_TEXT),
        "confirm": plain_text(yes, CONFIRM_BUTTON),
        "deny": plain_text(_("Cancel"), CONFIRM_BUTTON),
        "style": "danger",
    }


def buttons(elements: Iterable[Element | None]) -> list[Block]:
    """Return buttons in as many blocks as they need, with unique `action_id`s."""
    blocks: list[Block] = []
    seen: set[str] = set()
    for number, element in enumerate(element for element in elements if element is not None):
        if number % BUTTONS_A_BLOCK == 0:
            blocks.append({"type": "actions", "elements": []})
            seen.clear()
        name = element["action_id"]
        unique = {**element, "action_id": f"{name}.{number % BUTTONS_A_BLOCK}"} if name in seen else element
        blocks[-1]["elements"].append(unique)
        seen.add(name)
    return blocks


def fits_a_table(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if a `table` block takes these cells."""
    return (
        0 < len(rows) <= TABLE_ROWS
        and all(0 < len(row) <= TABLE_COLUMNS for row in rows)
        and sum(len(cell) for row in rows for cell in row) <= TABLE_CHARACTERS
    )


def table(rows: Sequence[Sequence[Sequence[Element]]], aligned: Sequence[str] = ()) -> Block:
    """Return a `table` block; the first row contains the headings."""
    return {
        "type": "table",
        "rows": [[rich_text(rich_section(*(cell or [_text(" ")]))) for cell in row] for row in rows],
        "column_settings": [
            {"align": side if side in ("center", "right") else "left", "is_wrapped": True}
            for side in (aligned or ["left"] * len(rows[0]))
        ],
    }


def escape(text: str) -> str:
    """Escape text, so that Slack reads no mention, link or format in it."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def defuse_mentions(text: str) -> str:
    """Return text in which `@here` notifies no user."""
    return _AT.sub(f"@{_WORD_JOINER}", str(text))


# -------------------- Markdown as rich text


class RichTextBuilder:
    """The rich text of one message: pieces of Markdown, one below the other."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._table: tuple[int, str] | None = None
        """Position of the `table` block, and its table as text."""
        self._draws_tables = True
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
        last = self._elements[-1] if self._elements else {}
        elements_of_line = _elements(line[:MOST_ELEMENTS], style)
        match last.get("type"):
            case "rich_text_section" if len(last["elements"]) + len(elements_of_line) < MOST_ELEMENTS:
                last["elements"] += [_text("\n\n"), *elements_of_line]
            case "rich_text_list":
                self._add(rich_section(_text("\n"), *elements_of_line))
            case _:
                self._add(rich_section(*elements_of_line))
        if rest := line[MOST_ELEMENTS:]:
            self._line(rest, style)

    def _items(self, items: List, indent: int) -> None:
        """Add a list. Blocks other than text interrupt it; its numbering continues after them."""
        run: list[Element] = []
        begun = items.start or 0
        for number, nodes in enumerate(items.items, start=begun):
            lines, rest = _leading(nodes)
            if not run:
                begun = number
            run.append(rich_section(*_elements(_as_task(lines))))
            if rest or len(run) >= MOST_ELEMENTS:
                self._run(run, items, begun, indent)
                run = []
                for node in rest:
                    if isinstance(node, Paragraph | Heading):
                        self._add(rich_section(*_elements(node.line)))
                    else:
                        self._nodes((node,), indent + 1)
        self._run(run, items, begun, indent)

    def _run(self, run: list[Element], items: List, begun: int, indent: int) -> None:
        if not run:
            return
        list_element: Element = {
            "type": "rich_text_list",
            "style": "ordered" if items.ordered else "bullet",
            "indent": min(indent, LIST_INDENT),
            "elements": run,
        }
        if items.ordered and begun > 1:
            list_element["offset"] = begun - 1
        self._add(list_element)

    def _grid(self, grid: MarkdownTable) -> None:
        rows = [[line_text(cell) for cell in row] for row in grid.rows]
        text = columns(rows) or " "
        if self._table is None and self._draws_tables and fits_a_table(rows):
            self._end_block()
            self._table = len(self.blocks), text
            heads, *body = grid.rows
            bold = [[_elements(cell, Style(bold=True)) for cell in heads]]
            self.blocks.append(table([*bold, *([_elements(cell) for cell in row] for row in body)], grid.aligned))
            return
        if self._table is not None:  # tables that are not all blocks are all texts
            at, earlier = self._table
            self.blocks[at] = rich_text({"type": "rich_text_preformatted", "elements": [_text(earlier)]})
        self._table, self._draws_tables = None, False
        self._add({"type": "rich_text_preformatted", "elements": [_text(text)]})

    def _add(self, element: Element) -> None:
        if len(self._elements) >= MOST_ELEMENTS:
            self._end_block()
        self._elements.append(element)

    def _end_block(self) -> None:
        if self._elements:
            self.blocks.append({"type": "rich_text", "elements": self._elements})
        self._elements = []


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


def _flat(nodes: Iterable[Node]) -> Iterator[Inline]:  # noqa: C901 - one case for each kind of block
    """Flatten blocks to running text, because Slack allows nothing else in a quote."""
    for number, node in enumerate(nodes):
        if number:
            yield Text("\n" if isinstance(node, List) else "\n\n")
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
            case List(start=start):
                for place, inner in enumerate(node.items):
                    mark = f"{start + place}. " if start is not None else "• "
                    yield Text(mark if not place else f"\n{mark}")
                    yield from _flat(inner)
            case MarkdownTable(rows):
                yield Text(columns([[line_text(cell) for cell in row] for row in rows]))
            case HorizontalRule():
                yield Text(_RULE)


def _apply_style(line: Line, style: Style) -> Iterator[Inline]:
    for inline in line:
        merged = Style(
            inline.style.bold or style.bold,
            inline.style.italic or style.italic,
            inline.style.struck or style.struck,
            inline.style.code or style.code,
        )
        yield Text(inline.text, merged) if isinstance(inline, Text) else Link(inline.url, inline.text, merged)


def _elements(line: Line, style: Style = _AS_IT_IS) -> list[Element]:
    """Return the elements of a line, merging runs of one style. Slack rejects empty lines and empty texts."""
    elements: list[Element] = []
    for inline in _few(tuple(join_words(_apply_style(line, style)))):
        element = link(inline.url, inline.text) if isinstance(inline, Link) else _text(inline.text)
        style = inline.style
        looks = {"bold": style.bold, "italic": style.italic, "strike": style.struck, "code": style.code}
        if chosen := {name: True for name, is_chosen in looks.items() if is_chosen}:
            element["style"] = chosen
        if inline.text:
            elements.append(element)
    return elements or [_text(" ")]


def _few(line: Line) -> Line:
    """Return the line, or its text with link targets if it has more than `MOST_ELEMENTS` elements."""
    if len(line) <= MOST_ELEMENTS:
        return line
    return (Text("".join(inline.text if isinstance(inline, Text) else _link_text(inline) for inline in line)),)


def _link_text(link: Link) -> str:
    return link.text if link.text == link.url else f"{link.text} ({link.url})"


def _text(text: str) -> Element:
    return {"type": "text", "text": text}
