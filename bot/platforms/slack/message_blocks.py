"""Message of the chat layer as Block Kit blocks."""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import groupby

from bot.chat.message_model import (
    Arguments,
    Button,
    Buttons,
    ButtonStyle,
    Caption,
    ChannelLink,
    Code,
    Details,
    Feedback,
    Footer,
    GroupMention,
    Heading,
    Link,
    Markdown,
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
    Title,
)
from bot.chat.message_model import Block as MessageBlock
from bot.chat.turn_messages import Answer
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
    feedback_buttons,
    header,
    link,
    link_button,
    menu,
    moment,
    person,
    preformatted,
    quote,
    rich_section,
    rich_text,
    small,
    user_group,
    words,
)
from bot.platforms.slack.rich_text import RichTextBuilder
from bot.platforms.slack.users import GROUP
from bot.rendering.approval_card import argument_lines
from bot.rendering.text_safety import single_line

ARGUMENTS_WEIGHT = 5_000
"""Characters of arguments in one message; the calls in it share them."""
NAME = 80
_TIME_FORMATS = {TimeFormat.CLOCK: "{time}", TimeFormat.EXPIRY: "{date_short_pretty} at {time}"}
_BUTTON_STYLES = {
    ButtonStyle.PLAIN: "",
    ButtonStyle.PRIMARY: "primary",
    ButtonStyle.POSITIVE: "primary",
    ButtonStyle.DANGER: "danger",
}


def outgoing_message(message: Message) -> OutgoingMessage:
    """Return a message as it should be in Slack."""
    blocks, silent = (tuple(message_blocks(message.blocks, who)) for who in (message.notifies, frozenset[str]()))
    text = fallback(f"{message.alert}{fallback_text(silent)}")
    return OutgoingMessage(message.name, blocks, text, asks=message.asks, silent=silent)


def answer_message(answer: Answer) -> OutgoingMessage:
    """Return a message of an answer as it should be in Slack."""
    text = _answer_text(answer)
    return OutgoingMessage(answer.name, tuple(message_blocks((*answer.body, *answer.ending))), fallback(text))


def _answer_text(answer: Answer) -> str:
    """Return the text of an answer for notifications: the words of the answer first, then its tool calls."""
    texts = [block for block in answer.body if isinstance(block, Markdown | Code | Paragraph)]
    others = [block for block in answer.body if block not in texts]
    first, then = fallback_text(message_blocks(texts)), fallback_text(message_blocks(others))
    return "\n".join(filter(None, (first or answer.alert, then)))


def message_blocks(  # noqa: C901 - one case for each kind of block
    blocks: Iterable[MessageBlock], notifies: Container[str] = frozenset()
) -> list[Block]:
    """Return the blocks of a message, which mention the principals in `notifies`. Adjacent texts share one rich text
    block.
    """
    blocks = tuple(blocks)
    room = ARGUMENTS_WEIGHT // max(sum(isinstance(block, Arguments) for block in blocks), 1)
    builder = RichTextBuilder()
    for is_text, group in groupby(blocks, key=lambda block: isinstance(block, _TEXTS)):
        if is_text:
            if elements := [element for block in group for element in _elements(block, room, notifies)]:
                builder.block(rich_text(*elements))
            continue
        for block in group:
            match block:
                case Markdown(text):
                    builder.markdown(text)
                case Code(text):
                    builder.block(rich_text(preformatted(text)))
                case Caption(lines):
                    builder.block(*small(*lines))
                case Feedback(turn_id):
                    builder.block(feedback_buttons(turn_id))
                case Title(text):
                    builder.block(header(text))
                case Rule():
                    builder.block(divider())
                case Buttons():
                    builder.block(*_buttons(block))
    return builder.blocks


def _elements(block: MessageBlock, arguments_room: int, notifies: Container[str]) -> Iterable[Element]:
    match block:
        case Heading(text):
            yield rich_section(words(text, bold=True))
        case Paragraph(spans) | Footer(spans):
            yield rich_section(*(span_element(span, notifies) for span in spans))
        case Details(lines):
            yield rich_section(words("\n".join(lines), italic=True))
        case Quote(text):
            yield quote(text)
        case Arguments(arguments):
            if shown := argument_lines(arguments, arguments_room):
                yield preformatted(shown)
        case _:
            return


def span_element(span: Span, notifies: Container[str] = frozenset()) -> Element:
    """Return a span as an element of rich text. Slack notifies everybody whom a message mentions, so only those in
    `notifies` are mentioned, and users without a name.
    """
    match span:
        case Text(text):
            styles = {"bold": span.bold, "italic": span.italic, "strike": span.strike, "code": span.code}
            return words(text, **{name: True for name, chosen in styles.items() if chosen})
        case Mention(user):
            is_mention = user.principal in notifies or not user.name
            return person(user.id, user.name) if is_mention else words(single_line(user.name, NAME))
        case GroupMention(principal, name):
            group = principal.removeprefix(GROUP)
            return user_group(group, name) if principal in notifies else words(f"@{single_line(name or group, NAME)}")
        case Time(at, time_format, otherwise):
            return moment(at, _TIME_FORMATS[time_format], otherwise)
        case Link(url, text):
            return link(url, text)
        case ChannelLink(channel_id):
            return channel(channel_id)


_TEXTS = (Heading, Paragraph, Footer, Details, Quote, Arguments)


def _buttons(row: Buttons) -> list[Block]:
    links = (link_button(link.label, link.url) for link in row.links)
    return buttons([*links, *map(_button, row.buttons), _menu(row.more)])


def _button(each: Button) -> Element | None:
    question = each.confirmation
    dialog = confirmation(question.title, question.text, question.confirm) if question else None
    return button(each.label, each.action, _BUTTON_STYLES[each.style], dialog)


def _menu(entries: Iterable[MenuEntry]) -> Element | None:
    return menu((entry.label, entry.action) for entry in entries)
