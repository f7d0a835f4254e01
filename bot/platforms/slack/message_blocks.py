"""Message of the chat layer as Block Kit blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from bot.chat.message_model import (
    Arguments,
    Button,
    Buttons,
    ButtonStyle,
    ChannelLink,
    Details,
    Footer,
    Heading,
    Link,
    Mention,
    MenuEntry,
    Message,
    Paragraph,
    Quote,
    Rule,
    Span,
    Text,
    Time,
    TimeFormat,
)
from bot.chat.message_model import Block as MessageBlock
from bot.platforms.slack.blocks import (
    Block,
    Element,
    OutgoingMessage,
    button,
    buttons,
    channel,
    confirmation,
    divider,
    fallback,
    fallback_text,
    link,
    menu,
    moment,
    person,
    preformatted,
    quote,
    rich_section,
    rich_text,
    words,
)
from bot.rendering.approval_card import argument_lines

ARGUMENTS_WEIGHT = 5_000
"""Characters of arguments in one message; the calls in it share them."""
_TIME_FORMATS = {TimeFormat.CLOCK: "{time}", TimeFormat.EXPIRY: "{date_short_pretty} at {time}"}
_BUTTON_STYLES = {
    ButtonStyle.PLAIN: "",
    ButtonStyle.PRIMARY: "primary",
    ButtonStyle.POSITIVE: "primary",
    ButtonStyle.DANGER: "danger",
}


def outgoing_message(message: Message) -> OutgoingMessage:
    """Return a message as it should be in Slack."""
    blocks = tuple(message_blocks(message.blocks))
    text = fallback(f"{message.alert}{fallback_text(blocks)}")
    return OutgoingMessage(message.name, blocks, text, asks=message.asks)


def message_blocks(blocks: Iterable[MessageBlock]) -> list[Block]:
    """Return the blocks of a message. Adjacent texts share one rich text block."""
    blocks = tuple(blocks)
    room = ARGUMENTS_WEIGHT // max(sum(isinstance(block, Arguments) for block in blocks), 1)
    native: list[Block] = []
    elements: list[Element] = []
    for block in blocks:
        match block:
            case Rule() | Buttons():
                if elements:
                    native.append(rich_text(*elements))
                    elements = []
                native += [divider()] if isinstance(block, Rule) else _buttons(block)
            case _:
                elements += _elements(block, room)
    return [*native, rich_text(*elements)] if elements else native


def _elements(
    block: Heading | Paragraph | Footer | Details | Quote | Arguments, arguments_room: int
) -> Iterable[Element]:
    match block:
        case Heading(text):
            yield rich_section(words(text, bold=True))
        case Paragraph(spans) | Footer(spans):
            yield rich_section(*map(span_element, spans))
        case Details(lines):
            yield rich_section(words("\n".join(lines), italic=True))
        case Quote(text):
            yield quote(text)
        case Arguments(arguments):
            if shown := argument_lines(arguments, arguments_room):
                yield preformatted(shown)
        case _:
            assert_never(block)


def span_element(span: Span) -> Element:
    """Return a span as an element of rich text."""
    match span:
        case Text(text):
            styles = {"bold": span.bold, "italic": span.italic, "strike": span.strike, "code": span.code}
            return words(text, **{name: True for name, chosen in styles.items() if chosen})
        case Mention(user):
            return person(user.id, user.name)
        case Time(at, time_format, otherwise):
            return moment(at, _TIME_FORMATS[time_format], otherwise)
        case Link(url, text):
            return link(url, text)
        case ChannelLink(channel_id):
            return channel(channel_id)


def _buttons(row: Buttons) -> list[Block]:
    return buttons([*map(_button, row.buttons), _menu(row.more)])


def _button(each: Button) -> Element | None:
    question = each.confirmation
    dialog = confirmation(question.title, question.text, question.confirm) if question else None
    return button(each.label, each.action, _BUTTON_STYLES[each.style], dialog)


def _menu(entries: Iterable[MenuEntry]) -> Element | None:
    return menu((entry.label, entry.action) for entry in entries)
