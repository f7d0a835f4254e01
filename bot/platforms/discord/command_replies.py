"""Replies to commands as Discord messages: text and buttons as a value, and as components.

Cells and details of a reply are escaped. Replies use Components V2 throughout, because an edit cannot remove that flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import discord

from bot.chat.actions import ActionEncoder
from bot.chat.message_model import (
    Block,
    Button,
    Buttons,
    ButtonStyle,
    Caption,
    Facts,
    LinkButton,
    Markdown,
    Message,
    Paragraph,
    Table,
)
from bot.platforms.discord.components import (
    BUTTON_LABEL,
    BUTTONS_A_ROW,
    DISPLAYED,
    LINK,
    ROWS,
    display_length,
    to_custom_id,
)
from bot.platforms.discord.markdown import WIDEST_TABLE, dialect
from bot.platforms.discord.markup import break_links, escape, escape_code_fence, shorten_label, utf16_length
from bot.platforms.discord.message_layout import content_text
from bot.rendering.text_columns import columns, widest
from bot.rendering.text_safety import single_line, strip_control

V2 = 1 << 15
"""IS_COMPONENTS_V2 among the flags of a message."""

_STYLES = {
    ButtonStyle.PLAIN: discord.ButtonStyle.secondary,
    ButtonStyle.PRIMARY: discord.ButtonStyle.primary,
    ButtonStyle.POSITIVE: discord.ButtonStyle.success,
    ButtonStyle.DANGER: discord.ButtonStyle.danger,
}
View = discord.ui.LayoutView


@dataclass(frozen=True, slots=True)
class CommandReply:
    """A reply as it is shown, of at most DISPLAYED characters. `is_whole` is False if something is omitted."""

    text: str
    buttons: tuple[Button | LinkButton, ...] = ()
    is_whole: bool = True


def layout(reply: CommandReply, encoder: ActionEncoder) -> View:
    """Return a reply as components. The view has no listeners: any process that receives a click decodes it from the
    button.
    """
    view = View(timeout=None)
    view.add_item(discord.ui.TextDisplay(reply.text[:DISPLAYED]))
    texts: list[str] = []
    row: discord.ui.ActionRow[View] = discord.ui.ActionRow()
    for button in reply.buttons[: BUTTONS_A_ROW * ROWS]:
        if len(row.children) % BUTTONS_A_ROW == 0:
            row = discord.ui.ActionRow()
            view.add_item(row)
        label = shorten_label(button.label, BUTTON_LABEL) or "…"
        if isinstance(button, LinkButton):
            row.add_item(discord.ui.Button(label=label, url=button.url))
            continue
        texts.append(encoder.encode(button.action, texts))
        custom_id = to_custom_id(texts[-1])
        row.add_item(discord.ui.Button(label=label, style=_STYLES[button.style], custom_id=custom_id))
    view.stop()
    return view


def note_layout(text: str) -> View:
    """Return one plain sentence as components."""
    view = View(timeout=None)
    view.add_item(discord.ui.TextDisplay(escape(single_line(text, DISPLAYED // 2)) or "…"))
    view.stop()
    return view


def message_body(view: View) -> dict[str, Any]:
    """Return the body of a message with a view, for the bot's token, without notifications."""
    components: list[dict[str, Any]] = view.to_components()  # type: ignore[no-untyped-call]
    return {"components": components, "flags": V2, "allowed_mentions": {"parse": []}}


ROOM = 3_600
"""Limit of a reply in `display_length`; the rest is for the page number and the count of omitted text."""
NAME_LIMIT, DETAIL_LIMIT = 60, 900


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines that belong together; in a code block if they are `fenced`."""

    lines: tuple[str, ...]
    fenced: bool = False

    @property
    def text(self) -> str:
        text = "\n".join(self.lines)
        return f"```\n{text}\n```" if self.fenced else text


def command_reply(message: Message) -> CommandReply:
    """Return a reply as it is shown."""
    blocks = message.blocks
    text, omitted = _fitting([piece for block in blocks if (piece := _piece(block)) is not None])
    if omitted:
        text = f"{text}\n-# … {omitted} more characters: see the file"
    captions = (f"-# {escape(line)}" for block in blocks if isinstance(block, Caption) for line in block.lines)
    values = (value for block in blocks if isinstance(block, Facts) for _, value in block.facts)
    is_whole = not omitted and all(len(value) <= DETAIL_LIMIT for value in values)
    buttons = tuple(button for block in blocks if isinstance(block, Buttons) for button in _buttons(block))
    return CommandReply("\n".join((text, *captions)), buttons, is_whole)


def _piece(block: Block) -> _Piece | None:
    """Return the lines of a block, None for captions and buttons."""
    match block:
        case Markdown(text):
            return _Piece(tuple(dialect(text).split("\n")))
        case Paragraph():
            return _Piece(tuple(content_text((block,)).split("\n")))
        case Table(headings, rows):
            return _table(headings, rows)
        case Facts(facts, unlinked):
            drawn = break_links if unlinked else escape
            return _Piece(tuple(_fact(name, value, drawn) for name, value in facts))
        case _:
            return None


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> _Piece:
    """Return a monospaced table, or a list if the table is too wide for a screen."""
    lines = columns([headings, *rows])
    if widest(lines) <= WIDEST_TABLE:
        return _Piece(tuple(escape_code_fence(lines).split("\n")), fenced=True)
    return _Piece(tuple(_row(headings, row) for row in rows))


def _row(heads: Sequence[str], row: Sequence[str]) -> str:
    first, *others = row
    facts = [f"{escape(head)}: {escape(cell)}" for head, cell in zip(heads[1:], others, strict=False) if cell]
    return " · ".join([f"**{escape(first) or 'none'}**", *facts])


def _fact(name: str, value: str, drawn: Callable[[str], str] = escape) -> str:
    text = strip_control(value).strip()
    more = len(text) - DETAIL_LIMIT
    text = f"{text[:DETAIL_LIMIT]}… ({more} more characters)" if more > 0 else text
    # A second line must not look like a fact of ours.
    value = drawn(text).replace("\n", "\n> ")
    return f"**{escape(single_line(name, NAME_LIMIT))}:** {value}"


def _fitting(pieces: Sequence[_Piece]) -> tuple[str, int]:
    """Return the lines that fit, and the number of characters that do not."""
    shown: list[str] = []
    room, left = ROOM, 0
    for piece in pieces:
        taken: list[str] = []
        for line in piece.lines:
            if left or display_length(line) >= room:
                left += len(line)
                continue
            taken.append(line)
            room -= display_length(line) + 1
        room -= 10
        if taken:
            shown.append(_Piece(tuple(taken), piece.fenced).text)
    if not shown:
        beginning = pieces[0].lines[0][: ROOM // 2]
        return beginning, max(left - len(beginning), 0)
    return "\n".join(shown), left


def _buttons(block: Buttons) -> Iterator[Button | LinkButton]:
    """Yield the buttons. A URL that exceeds Discord's limit is only in the text."""
    yield from (link for link in block.links if utf16_length(link.url) <= LINK)
    yield from block.buttons
