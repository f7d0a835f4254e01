"""Replies to commands as Slack messages. Cells and details of a reply are plain text; its text is trusted Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.chat.actions import OpenConfirmation, RunCommand
from bot.domain.commands import ActionStyle, PageInfo, Reply, ReplyAction
from bot.platforms.slack.blocks import (
    MESSAGE_WEIGHT,
    Block,
    CommandReply,
    Element,
    button,
    buttons,
    fallback,
    fallback_text,
    fits_a_table,
    link_button,
    preformatted,
    rich_section,
    rich_text,
    shortened,
    small,
    table,
    words,
)
from bot.platforms.slack.rich_text import RichTextBuilder
from bot.rendering.markdown import SizeLimit, split, text_weight
from bot.rendering.text_columns import columns
from bot.rendering.text_safety import open_label, single_line, strip_control

ROOM = SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 1_000)
NAME_LIMIT = 60
CELL_LIMIT = 300
DETAIL_LIMIT = 1_500
DONE = "Done."
_STYLES = {ActionStyle.PLAIN: "", ActionStyle.PRIMARY: "primary", ActionStyle.DANGER: "danger"}


def reply_sheets(reply: Reply) -> tuple[CommandReply, ...]:
    """Return a reply as one or more messages; the buttons are in the last one."""
    pages = _pages(reply)
    way = link_button(open_label(reply.link), reply.link) if reply.link else None
    ends = [*buttons([way, *_actions(reply.actions)]), *(_turning(reply.page) if reply.page else [])]
    return tuple(_sheet(page, ends if number == len(pages) - 1 else []) for number, page in enumerate(pages))


def command_reply(reply: Reply) -> CommandReply:
    """Return a reply as one message, for places where the next message replaces it. Omitted parts are counted."""
    first, *others = reply_sheets(reply)
    if not others:
        return first
    left = sum(len(fallback_text(each.blocks)) for each in others)
    ends = [block for block in others[-1].blocks if block["type"] == "actions"]
    return CommandReply((*first.blocks, *small(f"… {left} more characters, which do not fit here"), *ends), first.text)


def _sheet(blocks: Sequence[Block], ends: Sequence[Block]) -> CommandReply:
    return CommandReply((*blocks, *ends), fallback(fallback_text(blocks)))


def _pages(reply: Reply) -> list[list[Block]]:
    """Return the blocks, joined into messages within the limits."""
    pages: list[list[Block]] = [[]]
    used = 0
    for piece in _pieces(reply):
        size = text_weight(fallback_text(piece))
        if pages[-1] and used + size > ROOM.most:
            pages.append([])
            used = 0
        pages[-1] += piece
        used += size
    return pages


def _pieces(reply: Reply) -> Iterator[list[Block]]:
    text = strip_control(reply.text).strip()
    rows = reply.table.rows if reply.table is not None else ()
    if not (text or rows or reply.details):
        text = DONE
    for part in split(f"⚠ {text}" if reply.failed else text, ROOM):
        prose = RichTextBuilder()
        prose.markdown(part)
        yield prose.blocks
    if reply.table is not None and rows:
        yield from _table((reply.table.headings, *rows))
    if reply.details:
        yield from _details(reply.details)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[list[Block]]:
    """Return a table block, or monospaced text over several messages if the table exceeds Slack's limits."""
    cells = [[single_line(cell, CELL_LIMIT) for cell in row] for row in rows]
    if fits_a_table(cells) and sum(text_weight(cell) for row in cells for cell in row) <= ROOM.most:
        heads, *body = cells
        elements: list[list[list[Element]]] = [[[words(cell, bold=True)] for cell in heads]]
        yield [table([*elements, *([[words(cell)] for cell in row] for row in body)])]
        return
    for part in split(columns(cells), ROOM):
        yield [rich_text(preformatted(part.rstrip("\n")))]


def _details(details: Sequence[tuple[str, str]]) -> Iterator[list[Block]]:
    """Return names and values, one below the other."""
    lines: list[Element] = []
    for name, value in details:
        lines += [words("\n")] if lines else []
        lines += [words(f"{single_line(name, NAME_LIMIT)}: ", bold=True), words(_value(value))]
        if sum(text_weight(line["text"]) for line in lines) > ROOM.good // 2:
            yield [rich_text(rich_section(*lines))]
            lines = []
    if lines:
        yield [rich_text(rich_section(*lines))]


def _value(value: str) -> str:
    text = strip_control(value).strip()
    more = len(text) - DETAIL_LIMIT
    return (
        f"{text[:DETAIL_LIMIT]}… ({more} more characters)"
        if more > 0
        else shortened(text or "\N{EN DASH}", DETAIL_LIMIT)
    )


def _actions(actions: Sequence[ReplyAction]) -> list[Element | None]:
    return [
        button(
            action.label,
            OpenConfirmation(action.words, action.confirm, action.label)
            if action.confirm
            else RunCommand(action.words),
            _STYLES[action.tone],
        )
        for action in actions
    ]


def _turning(page: PageInfo) -> list[Block]:
    back = button("◀ Back", RunCommand((*page.words, "--page", str(page.number - 1)))) if page.number > 1 else None
    on = button("More ▶", RunCommand((*page.words, "--page", str(page.number + 1)))) if page.number < page.of else None
    return [*small(f"Page {page.number} of {page.of}"), *buttons([back, on])]
