"""Replies to commands and offers of forms as messages, and replies as text for a file if they exceed a message."""

from __future__ import annotations

from collections.abc import Iterator

from bot.chat.actions import Action, OpenConfirmation, RunCommand
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
    Text,
)
from bot.domain.commands import ActionStyle, Form, PageInfo, Reply, ReplyAction
from bot.rendering.text_columns import columns
from bot.rendering.text_safety import open_label, safe_url, single_line, strip_control

NAME_LIMIT = 60
CELL_LIMIT = 300
INSTEAD_LIMIT = 500
DONE = "Done."
NEEDS_FORM = "This needs a form."
NOT_YET_RIGHT = "⚠ Not yet right:"
NO_VALUE = "\N{EN DASH}"
_STYLES = {
    ActionStyle.PLAIN: ButtonStyle.PLAIN,
    ActionStyle.PRIMARY: ButtonStyle.PRIMARY,
    ActionStyle.DANGER: ButtonStyle.DANGER,
}


def reply_message(reply: Reply) -> Message:
    """Return a reply as a message. Its text is the bot's own Markdown; cells and details are literal."""
    return Message("reply", tuple(_blocks(reply)))


def form_offer(form: Form, action: Action, *, begun: bool) -> Message:
    """Return a message with a button that opens a form by `action`, and the form's errors. `begun` is True after a step
    of the form was filled in.
    """
    errors = tuple((single_line(field.label, NAME_LIMIT), field.error) for field in form.fields if field.error)
    blocks: list[Block] = []
    if form.intro:
        blocks.append(Paragraph((Text(strip_control(form.intro).strip(), unlinked=True),)))
    if errors:
        blocks += [Paragraph((Text(NOT_YET_RIGHT),)), Facts(errors)]
        label = "Correct it"
    elif begun:
        title = Text(single_line(form.title, NAME_LIMIT), bold=True)
        blocks.append(Paragraph((title, Text(": there is more to fill in."))))
        label = "Continue"
    else:
        blocks.append(Paragraph((Text(NEEDS_FORM),)))
        if form.instead:
            command = Text(single_line(form.instead, INSTEAD_LIMIT), code=True)
            blocks.append(Paragraph((Text("Or on one line: "), command)))
        label = "Open the form"
    return Message("form", (*blocks, Buttons((Button(label, action, ButtonStyle.PRIMARY),))))


def reply_text(reply: Reply) -> str:
    """Return the whole reply as plain text."""
    parts = [strip_control(reply.text).strip()]
    if reply.table is not None and reply.table.rows:
        parts.append(
            columns([[strip_control(cell) for cell in row] for row in (reply.table.headings, *reply.table.rows)])
        )
    parts += [f"{strip_control(name)}: {strip_control(value)}" for name, value in reply.details]
    return "\n\n".join(filter(None, parts)) + "\n"


def _blocks(reply: Reply) -> Iterator[Block]:
    text = strip_control(reply.text).strip()
    rows = reply.table.rows if reply.table is not None else ()
    if not (text or rows or reply.details):
        text = DONE
    if text:
        yield Markdown(f"⚠ {text}" if reply.failed else text)
    if reply.table is not None and rows:
        yield Table(_cells(reply.table.headings), tuple(map(_cells, rows)))
    if reply.details:
        facts = ((single_line(name, NAME_LIMIT), strip_control(value).strip()) for name, value in reply.details)
        # A user who is to follow the reply's link with care sees no other link.
        yield Facts(tuple((name, value or NO_VALUE) for name, value in facts), unlinked=bool(reply.link))
    if reply.page is not None:
        yield Caption((f"Page {reply.page.number} of {reply.page.of}",))
    buttons = (*map(_button, reply.actions), *(_page_buttons(reply.page) if reply.page is not None else ()))
    links = (LinkButton(open_label(reply.link), reply.link),) if safe_url(reply.link) else ()
    if buttons or links:
        yield Buttons(buttons, links=links)


def _cells(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(single_line(cell, CELL_LIMIT) for cell in row)


def _button(action: ReplyAction) -> Button:
    style = _STYLES[action.tone]
    if action.confirm:
        return Button(action.label, OpenConfirmation(action.words, action.confirm, action.label), style)
    return Button(action.label, RunCommand(action.words), style)


def _page_buttons(page: PageInfo) -> Iterator[Button]:
    if page.number > 1:
        yield Button("◀ Back", RunCommand((*page.words, "--page", str(page.number - 1))))
    if page.number < page.of:
        yield Button("More ▶", RunCommand((*page.words, "--page", str(page.number + 1))))
