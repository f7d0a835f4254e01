"""Message of the chat layer as a layout (Components V2), which text of models and tools cannot imitate.

A layout stays within Discord's 40 components and 4,000 characters; omitted parts are counted. Text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import discord

from bot.chat.actions import FeedbackValue, SendFeedback, with_question
from bot.chat.message_model import (
    Arguments,
    Block,
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
    Message,
    Paragraph,
    Quote,
    Rule,
    Span,
    Spans,
    Text,
    Time,
    TimeFormat,
    Tone,
)
from bot.chat.turn_messages import Answer
from bot.domain.conversations import Author
from bot.platforms.discord.channels import PLATFORM, ROLE
from bot.platforms.discord.components import (
    DISPLAYED,
    Item,
    OutgoingMessage,
    button,
    display_length,
    rows,
)
from bot.platforms.discord.components import Button as DiscordButton
from bot.platforms.discord.markdown import code_block, inline_code
from bot.platforms.discord.markup import break_links, escape, escape_code_fence, escape_to_limit
from bot.platforms.discord.rest import FileUpload
from bot.rendering.approval_card import argument_lines
from bot.rendering.call_arguments import CardArgument
from bot.rendering.text_safety import single_line

SPARE = 60
LEAST_ROOM = 150
"""Characters for the arguments of a call."""
NAME = 70
ORANGE, GREEN, RED, GREY = 0xE67E22, 0x2ECC71, 0xE74C3C, 0x95A5A6
_COLORS = {Tone.PENDING: ORANGE, Tone.SUCCESS: GREEN, Tone.DANGER: RED, Tone.NEUTRAL: GREY}
_TIME_FORMATS = {TimeFormat.CLOCK: "t", TimeFormat.EXPIRY: "R"}
_BUTTON_STYLES = {
    ButtonStyle.PLAIN: discord.ButtonStyle.secondary,
    ButtonStyle.PRIMARY: discord.ButtonStyle.primary,
    ButtonStyle.POSITIVE: discord.ButtonStyle.success,
    ButtonStyle.DANGER: discord.ButtonStyle.danger,
}


def outgoing_message(message: Message) -> OutgoingMessage:
    """Return a message as it should be in Discord. It notifies the users and roles of `notifies`."""
    inside = message_components(message.blocks)
    layout: list[Item] = inside
    if message.tone is not None:
        layout = [discord.ui.Container(*inside, accent_colour=_COLORS[message.tone])]
    return OutgoingMessage(message.name, items=tuple(layout), asks=message.asks, calls=message.notifies)


def answer_message(answer: Answer) -> OutgoingMessage:
    """Return a message of an answer as it should be in Discord: content, with buttons below it."""
    buttons = [row for block in answer.ending for row in _button_rows(block)]
    content, file = content_text((*answer.body, *answer.ending)), answer.file
    if file is None:
        return OutgoingMessage(answer.name, content, tuple(buttons))
    unattached = content_text((*file.blocks, *answer.ending))
    upload = FileUpload(file.name, file.text.encode("utf-8", "replace"))
    return OutgoingMessage(answer.name, content, tuple(buttons), upload, unattached=unattached)


def content_text(blocks: Iterable[Block]) -> str:
    """Return the texts of blocks, with blank lines between texts of one kind, apart from captions."""
    content, before = "", ""
    for block in blocks:
        text = _text(block, None, None).strip("\n")
        if text.strip():
            kind = "" if isinstance(block, Caption) else type(block).__name__
            between = "\n\n" if kind and kind == before else "\n"
            content, before = f"{content}{between if content else ''}{text}", kind
    return content


def _button_rows(block: Block) -> list[Item]:
    match block:
        case Buttons():
            return button_components(block)
        case Feedback(turn_id):
            return rows(
                button("", SendFeedback(turn_id, opinion), discord.ButtonStyle.secondary, emoji)
                for opinion, emoji in ((FeedbackValue.GOOD, "👍"), (FeedbackValue.BAD, "👎"))
            )
        case _:
            return []


def caption(line: str) -> str:
    """Return one escaped line of small text."""
    return f"-# {escape(line)}"


def message_components(blocks: Sequence[Block]) -> list[Item]:
    """Return the components of a message. Adjacent texts share one component.

    The arguments come first: if they have little room, `Details` keep their first line.
    """
    count = sum(isinstance(block, Arguments) for block in blocks)
    for detail_lines in (None, 1):
        used = sum(display_length(_text(block, None, detail_lines)) for block in blocks)
        room = (DISPLAYED - SPARE - used) // max(count, 1) - SPARE
        if room >= LEAST_ROOM:
            break
    native: list[Item] = []
    for kind, group in groupby(blocks, key=_component_type):
        match kind:
            case "text":
                lines = filter(None, (_text(block, room, detail_lines) for block in group))
                if text := "\n".join(lines):
                    native.append(discord.ui.TextDisplay(text))
            case "rule":
                native.append(discord.ui.Separator())
            case _:
                native += [row for block in group for row in _button_rows(block)]
    return native


def mention(user: Author) -> str:
    """Return a user's name, as a mention for users of Discord. Messages are sent without notifications."""
    return f"<@{user.id}>" if _is_known(user) else escape_to_limit(user.name or user.id, NAME)


def _is_known(user: Author) -> bool:
    return user.platform == PLATFORM and user.id.isdecimal()


def _component_type(block: Block) -> str:
    match block:
        case Rule():
            return "rule"
        case Buttons() | Feedback():
            return "buttons"
        case _:
            return "text"


def _text(  # noqa: PLR0911 - a case for each kind of block
    block: Block, arguments_room: int | None, detail_lines: int | None
) -> str:
    match block:
        case Heading(text, limit):
            return f"### {_escaped(text, limit)}"
        case Paragraph(spans):
            return spans_text(spans)
        case Footer(spans):
            return f"-# {spans_text(spans)}"
        case Details(lines, limit):
            return "\n".join(f"-# {_escaped(line, limit)}" for line in lines[:detail_lines])
        case Quote(text):
            return "\n".join(f"> {break_links(line)}" for line in text.split("\n"))
        case Markdown(text):
            return text
        case Code(text):
            return code_block(text)
        case Caption(lines):
            return "\n".join(map(caption, lines))
        case Arguments(arguments):
            return "" if arguments_room is None else _arguments(arguments, arguments_room)
        case _:
            return ""


def _arguments(arguments: Sequence[CardArgument], room: int) -> str:
    """Return the arguments in a code block. Omitted text is counted, including text that exceeds the room after
    escaping.
    """
    for narrower in (room, room // 2, room // 4, 0):
        if narrower >= 0 and (lines := argument_lines(arguments, narrower)):
            # One block, so that no argument can pass for a part of the card.
            block = code_block(escape_code_fence(lines))
            if display_length(block) <= room + SPARE:
                return block
    return ""


def spans_text(spans: Spans) -> str:
    """Return spans as Discord Markdown."""
    return "".join(map(_span, spans))


def _span(span: Span) -> str:
    match span:
        case Text():
            return _styled(span)
        case Mention(user):
            return mention(user)
        case GroupMention(principal, name):
            role = principal.removeprefix(ROLE)
            return f"<@&{role}>" if role.isdecimal() else escape_to_limit(name or role, NAME)
        case Time(at, time_format):
            return f"<t:{int(at)}:{_TIME_FORMATS[time_format]}>"
        case Link(url, text):
            return f"[{escape(text)}](<{url}>)"
        case ChannelLink(channel):
            return f"<#{channel}>" if channel.isdecimal() else escape(channel)


def _styled(span: Text) -> str:
    if span.code:
        return inline_code(span.text)
    if span.unlinked:
        text = break_links(single_line(span.text, span.limit) if span.limit else span.text)
    else:
        text = _escaped(span.text, span.limit)
    marks = ("**" if span.bold else "") + ("*" if span.italic else "") + ("~~" if span.strike else "")
    return f"{marks}{text}{marks[::-1]}" if text else ""


def _escaped(text: str, limit: int) -> str:
    return escape_to_limit(text, limit) if limit else escape(text)


def button_components(row: Buttons) -> list[Item]:
    """Return rows of buttons, without the menu."""
    return rows(_button(each) for each in row.buttons)


def _button(each: Button) -> DiscordButton | None:
    action = with_question(each.action) if each.confirmation is not None else each.action
    return button(each.label, action, _BUTTON_STYLES[each.style])
