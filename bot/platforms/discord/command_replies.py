"""Replies to commands as Discord messages: text and buttons as a value, and as components.

Cells and details of a reply are escaped; its text is trusted Markdown. A reply that exceeds a message says by how much
and has the whole text as a file. Replies use Components V2 throughout, because an edit cannot remove that flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import discord

from bot.chat.actions import ActionEncoder, OpenConfirmation, OpenForm, RunCommand
from bot.domain.commands import ActionStyle, Form, PageInfo, Reply, ReplyAction, ReplyFile
from bot.platforms.discord.components import (
    BUTTON_LABEL,
    BUTTONS_A_ROW,
    DISPLAYED,
    LINK,
    ROWS,
    display_length,
    to_custom_id,
)
from bot.platforms.discord.markdown import WIDEST_TABLE, dialect, inline_code
from bot.platforms.discord.markup import break_links, escape, escape_code_fence, shorten_label, utf16_length
from bot.rendering.text_columns import columns, widest
from bot.rendering.text_safety import open_label, safe_url, single_line, strip_control

V2 = 1 << 15
"""IS_COMPONENTS_V2 among the flags of a message."""

_STYLES = {
    ActionStyle.PLAIN: discord.ButtonStyle.secondary,
    ActionStyle.PRIMARY: discord.ButtonStyle.primary,
    ActionStyle.DANGER: discord.ButtonStyle.danger,
}
View = discord.ui.LayoutView


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Leave Discord for a page, without telling the bot."""

    address: str


@dataclass(frozen=True, slots=True)
class Button:
    """A button below a reply: runs a command, asks for a confirmation, or opens a form or a page."""

    label: str
    does: RunCommand | OpenConfirmation | OpenForm | OpenLink
    tone: ActionStyle = ActionStyle.PLAIN


@dataclass(frozen=True, slots=True)
class CommandReply:
    """An answer as it is shown, of at most DISPLAYED characters. `documents` go along with it as files."""

    text: str
    buttons: tuple[Button, ...] = ()
    documents: tuple[ReplyFile, ...] = ()


def layout(sheet: CommandReply, encoder: ActionEncoder) -> View:
    """Return a reply as components. The view has no listeners: any process that receives a click decodes it from the
    button.
    """
    view = View(timeout=None)
    view.add_item(discord.ui.TextDisplay(sheet.text[:DISPLAYED]))
    texts: list[str] = []
    row: discord.ui.ActionRow[View] = discord.ui.ActionRow()
    for button in sheet.buttons[: BUTTONS_A_ROW * ROWS]:
        if len(row.children) % BUTTONS_A_ROW == 0:
            row = discord.ui.ActionRow()
            view.add_item(row)
        label = shorten_label(button.label, BUTTON_LABEL) or "…"
        if isinstance(button.does, OpenLink):
            row.add_item(discord.ui.Button(label=label, url=button.does.address))
            continue
        texts.append(encoder.encode(button.does, texts))
        row.add_item(discord.ui.Button(label=label, style=_STYLES[button.tone], custom_id=to_custom_id(texts[-1])))
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
NAME_LIMIT, CELL_LIMIT, DETAIL_LIMIT = 60, 300, 900
DONE = "Done."
NEEDS_FORM = "This needs a form."


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines that belong together; in a code block if they are `fenced`."""

    lines: tuple[str, ...]
    fenced: bool = False

    @property
    def text(self) -> str:
        text = "\n".join(self.lines)
        return f"```\n{text}\n```" if self.fenced else text


def command_reply(reply: Reply) -> CommandReply:
    """Return a reply as a message."""
    pieces = list(_pieces(reply))
    text, left = _fitting(pieces)
    if left:
        text = f"{text}\n-# … {left} more characters: see the file"
    if reply.page is not None:
        text = f"{text}\n-# Page {reply.page.number} of {reply.page.of}"
    buttons = (*_link(reply.link), *map(_button, reply.actions), *(_turning(reply.page) if reply.page else ()))
    documents = (reply.document,) if reply.document is not None else ()
    if left or any(len(value) > DETAIL_LIMIT for _, value in reply.details):
        documents = (ReplyFile("answer.txt", whole(reply), "text/plain"), *documents)
    return CommandReply(text, buttons, documents)


def form_reply(form: Form, *, begun: bool = False) -> CommandReply:
    """Return a message with a button that opens a form, and the form's errors. `begun` is True after a step of the form
    was filled in.
    """
    wrong = [_fact(field.label, field.error) for field in form.fields if field.error]
    lines = [break_links(strip_control(form.intro).strip())] if form.intro else []
    if wrong:
        lines += ["⚠ Not yet right:", *wrong]
    elif begun:
        lines += [f"**{escape(single_line(form.title, NAME_LIMIT))}**: there is more to fill in."]
    else:
        lines += [NEEDS_FORM]
        if form.instead:
            lines += [f"-# or on one line: {inline_code(single_line(form.instead, 500))}"]
    label = "Correct it" if wrong else "Continue" if begun else "Open the form"
    text, _ = _fitting([_Piece(tuple(lines))])
    return CommandReply(text, (Button(label, OpenForm(form), ActionStyle.PRIMARY),))


def whole(reply: Reply) -> str:
    """Return the whole reply as plain text, for a file."""
    parts = [strip_control(reply.text).strip()]
    if reply.table is not None and reply.table.rows:
        parts.append(
            columns([[strip_control(cell) for cell in row] for row in (reply.table.headings, *reply.table.rows)])
        )
    parts += [f"{strip_control(name)}: {strip_control(value)}" for name, value in reply.details]
    return "\n\n".join(filter(None, parts)) + "\n"


def _pieces(reply: Reply) -> Iterator[_Piece]:
    text = strip_control(reply.text).strip()
    rows = reply.table.rows if reply.table is not None else ()
    if not (text or rows or reply.details):
        text = DONE
    if text:
        yield _Piece(tuple(dialect(f"⚠ {text}" if reply.failed else text).split("\n")))
    if reply.table is not None and rows:
        yield _table(reply.table.headings, rows)
    if reply.details:
        # Beside a link that somebody is to follow with care there is no other.
        drawn = break_links if reply.link else escape
        yield _Piece(tuple(_fact(name, value, drawn) for name, value in reply.details))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> _Piece:
    """Return a monospaced table, or a list if the table is too wide for a screen."""
    heads, *body = [[single_line(cell, CELL_LIMIT) for cell in row] for row in (headings, *rows)]
    lines = columns([heads, *body])
    if widest(lines) <= WIDEST_TABLE:
        return _Piece(tuple(escape_code_fence(lines).split("\n")), fenced=True)
    return _Piece(tuple(_row(heads, row) for row in body))


def _row(heads: Sequence[str], row: Sequence[str]) -> str:
    first, *others = row
    facts = [f"{escape(head)}: {escape(cell)}" for head, cell in zip(heads[1:], others, strict=False) if cell]
    return " · ".join([f"**{escape(first) or 'none'}**", *facts])


def _fact(name: str, value: str, drawn: Callable[[str], str] = escape) -> str:
    text = strip_control(value).strip()
    more = len(text) - DETAIL_LIMIT
    text = f"{text[:DETAIL_LIMIT]}… ({more} more characters)" if more > 0 else text or "\N{EN DASH}"
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


def _button(action: ReplyAction) -> Button:
    does = OpenConfirmation(action.words, action.confirm, action.label) if action.confirm else RunCommand(action.words)
    return Button(action.label, does, action.tone)


def _link(address: str) -> Iterator[Button]:
    """Yield a link button; a URL that exceeds Discord's limit is only in the text."""
    if safe_url(address) and utf16_length(address) <= LINK:
        yield Button(open_label(address), OpenLink(address))


def _turning(page: PageInfo) -> Iterator[Button]:
    if page.number > 1:
        yield Button("◀ Back", RunCommand((*page.words, "--page", str(page.number - 1))))
    if page.number < page.of:
        yield Button("More ▶", RunCommand((*page.words, "--page", str(page.number + 1))))
