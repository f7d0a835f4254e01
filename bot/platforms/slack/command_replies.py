"""Replies to commands as Slack messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.chat.message_model import Block as MessageBlock
from bot.chat.message_model import Buttons, Caption, Facts, Markdown, Message, Table
from bot.platforms.slack.blocks import (
    MESSAGE_WEIGHT,
    Block,
    CommandReply,
    Element,
    fallback,
    fallback_text,
    fits_a_table,
    preformatted,
    rich_section,
    rich_text,
    shortened,
    small,
    table,
    words,
)
from bot.platforms.slack.message_blocks import message_blocks
from bot.rendering.markdown import SizeLimit, split, text_weight
from bot.rendering.text_columns import columns

ROOM = SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 1_000)
DETAIL_LIMIT = 1_500
OMITTED = "… {} more characters: see the file"


def command_reply(message: Message) -> CommandReply:
    """Return a reply as one message in Slack. Omitted characters are counted."""
    blocks = message.blocks
    ending = [block for block in blocks if isinstance(block, Caption | Buttons)]
    shown: list[Block] = []
    used = omitted = 0
    for piece in (piece for block in blocks if block not in ending for piece in _pieces(block)):
        text = fallback_text(piece)
        if shown and (omitted or used + text_weight(text) > ROOM.most):
            omitted += len(text)
            continue
        shown += piece
        used += text_weight(text)
    note = small(OMITTED.format(omitted)) if omitted else []
    values = (value for block in blocks if isinstance(block, Facts) for _, value in block.facts)
    is_whole = not omitted and all(len(value) <= DETAIL_LIMIT for value in values)
    return CommandReply((*shown, *note, *message_blocks(ending)), fallback(fallback_text(shown)), is_whole=is_whole)


def _pieces(block: MessageBlock) -> Iterator[list[Block]]:
    """Yield a block as parts that fit into a message each."""
    match block:
        case Markdown(text):
            for part in split(text, ROOM):
                yield message_blocks((Markdown(part),))
        case Table(headings, rows):
            yield from _table((headings, *rows))
        case Facts(facts):
            yield from _facts(facts)
        case _:
            yield message_blocks((block,))


def _table(rows: Sequence[Sequence[str]]) -> Iterator[list[Block]]:
    """Yield a table block, or monospaced text in parts if the table exceeds Slack's limits."""
    if fits_a_table(rows) and sum(text_weight(cell) for row in rows for cell in row) <= ROOM.most:
        heads, *body = rows
        elements: list[list[list[Element]]] = [[[words(cell, bold=True)] for cell in heads]]
        yield [table([*elements, *([[words(cell)] for cell in row] for row in body)])]
        return
    for part in split(columns(rows), ROOM):
        yield [rich_text(preformatted(part.rstrip("\n")))]


def _facts(facts: Sequence[tuple[str, str]]) -> Iterator[list[Block]]:
    """Yield names and values, one below the other."""
    lines: list[Element] = []
    for name, value in facts:
        lines += [words("\n")] if lines else []
        lines += [words(f"{name}: ", bold=True), words(_value(value))]
        if sum(text_weight(line["text"]) for line in lines) > ROOM.good // 2:
            yield [rich_text(rich_section(*lines))]
            lines = []
    if lines:
        yield [rich_text(rich_section(*lines))]


def _value(value: str) -> str:
    more = len(value) - DETAIL_LIMIT
    return f"{value[:DETAIL_LIMIT]}… ({more} more characters)" if more > 0 else shortened(value, DETAIL_LIMIT)
