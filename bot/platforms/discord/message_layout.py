"""Messages of the chat layer as Discord messages: turns with their cards, and replies to commands.

An answer is the content of its messages. Cards and replies use Components V2, which text of models and tools cannot
imitate, and which an edit cannot remove. `rendering.approval_card` has the words of a card, `chat.card_messages` its
blocks, this module their layout. They stay within Discord's 40 components and 4,000 characters; omitted parts
are counted. Text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import discord

from bot.chat import card_messages as chat_cards
from bot.chat import turn_messages as chat_turns
from bot.chat.actions import ActionEncoder, FeedbackValue, SendFeedback, with_question
from bot.chat.card_messages import DIRECT_CONVERSATION, RemoteMessage, distant_origin
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
    Facts,
    Feedback,
    Footer,
    GroupMention,
    Heading,
    Link,
    LinkButton,
    Markdown,
    Mention,
    Message,
    Paragraph,
    Quote,
    Rule,
    Span,
    Spans,
    Table,
    Text,
    Time,
    TimeFormat,
    Tone,
)
from bot.chat.turn_messages import FILE_NAME, NO_REFS, Answer, AnswerLimits
from bot.domain.conversations import Author
from bot.domain.turns import MessageRefs, TurnView
from bot.i18n import _, ngettext
from bot.platforms.discord.components import (
    BUTTON_LABEL,
    BUTTONS_A_ROW,
    DISPLAYED,
    LINK,
    ROWS,
    Item,
    OutgoingMessage,
    button,
    display_length,
    layout_view,
    rows,
    to_custom_id,
)
from bot.platforms.discord.components import Button as DiscordButton
from bot.platforms.discord.markdown import (
    WIDEST_TABLE,
    break_links,
    code_block,
    dialect,
    escape,
    escape_code_fence,
    escape_to_limit,
    inline_code,
    shorten_label,
    utf16_length,
)
from bot.platforms.discord.rest import PLATFORM, ROLE, FileUpload, MessageRef, channel_id_of, message_url
from bot.rendering.approval_card import argument_lines
from bot.rendering.call_arguments import CardArgument
from bot.rendering.markdown import SizeLimit
from bot.rendering.tables import columns, widest
from bot.rendering.text_safety import single_line, strip_control

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

CALLS_A_CARD = 4
"""Each takes up to eight components while it waits."""
V2 = 1 << 15
"""IS_COMPONENTS_V2 among the flags of a message."""
View = discord.ui.LayoutView
ROOM = 3_600
"""Limit of a reply in `display_length`; the rest is for the page number and the count of omitted text."""
NAME_LIMIT, DETAIL_LIMIT = 60, 900


def outgoing_message(message: Message, place: str = "") -> OutgoingMessage:
    """Return a message as it should be in Discord. It notifies the users and roles of `notifies`. `place` is its
    channel, empty for that of its conversation.
    """
    inside = message_components(message.blocks)
    layout: list[Item] = inside
    if message.tone is not None:
        layout = [discord.ui.Container(*inside, accent_colour=_COLORS[message.tone])]
    return OutgoingMessage(message.name, items=tuple(layout), asks=message.asks, place=place, notifies=message.notifies)


def answer_message(answer: Answer) -> OutgoingMessage:
    """Return a message of an answer as it should be in Discord: content, with buttons below it."""
    buttons = [row for block in answer.ending for row in _button_rows(block)]
    content = content_text((*answer.body, *answer.ending))
    if not answer.without_file:
        return OutgoingMessage(answer.name, content, tuple(buttons), silent=answer.silent)
    unattached = content_text((*answer.without_file, *answer.ending))
    upload = FileUpload(FILE_NAME, answer.file_text.encode("utf-8", "replace"))
    return OutgoingMessage(answer.name, content, tuple(buttons), upload, unattached=unattached, silent=answer.silent)


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
    """Return a user's name, as a mention for users of Discord. `OutgoingMessage.notifies` decides if it notifies."""
    is_known = user.platform == PLATFORM and user.id.isdecimal()
    return f"<@{user.id}>" if is_known else escape_to_limit(user.name or user.id, NAME)


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
            return f"### {_escape_text(text, limit)}"
        case Paragraph(spans):
            return spans_text(spans)
        case Footer(spans):
            return f"-# {spans_text(spans)}"
        case Details(lines, limit):
            return "\n".join(f"-# {_escape_text(line, limit)}" for line in lines[:detail_lines])
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
            return _format_text(span)
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


def _format_text(span: Text) -> str:
    if span.code:
        return inline_code(span.text)
    if span.unlinked:
        text = break_links(single_line(span.text, span.limit) if span.limit else span.text)
    else:
        text = _escape_text(span.text, span.limit)
    marks = ("**" if span.bold else "") + ("*" if span.italic else "") + ("~~" if span.strike else "")
    return f"{marks}{text}{marks[::-1]}" if text else ""


def _escape_text(text: str, limit: int) -> str:
    return escape_to_limit(text, limit) if limit else escape(text)


def button_components(row: Buttons) -> list[Item]:
    """Return rows of buttons, without the menu."""
    return rows(map(_button, row.buttons))


def _button(entry: Button) -> DiscordButton | None:
    action = with_question(entry.action) if entry.confirmation is not None else entry.action
    return button(entry.label, action, _BUTTON_STYLES[entry.style])


ANSWER_LIMITS = AnswerLimits(
    # With prefixes and suffixes a message stays within 1,900 of Discord's 2,000 characters.
    SizeLimit(good=1_450, most=1_800, weigh=utf16_length),
    weigh_line=lambda line: utf16_length(caption(line)) + 1,
    format_text=dialect,
    most_messages=10,
    latest_calls=10,
    words_first=True,
)


def remote_cards(view: TurnView, now: float, *, direct: bool) -> Iterator[RemoteMessage[OutgoingMessage]]:
    """Yield the remote cards of a turn by channel, each with a link to its conversation; `direct` is True for a direct
    conversation, which other users cannot open.
    """
    origin: Span = Text(str(DIRECT_CONVERSATION)) if direct else ChannelLink(channel_id_of(view.turn.conversation))
    if not view.turn.conversation.channel:
        origin = distant_origin(view.turn)
    return chat_cards.remote_cards(view, now, origin, outgoing_message, calls_a_card=CALLS_A_CARD)


def address_of(view: TurnView, refs: MessageRefs, slot: str) -> str:
    """Return the URL of a posted message; empty if it is not posted."""
    ref = MessageRef.parse(refs.get(slot, ""))
    return message_url(view.turn.conversation.workspace, ref) if ref is not None else ""


def turn_messages(view: TurnView, now: float, refs: MessageRefs = NO_REFS) -> tuple[OutgoingMessage, ...]:
    """Return all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now`
    (epoch seconds); `refs` are of all posted messages, including remote cards.
    """
    messages = chat_turns.turn_messages(
        view, now, ANSWER_LIMITS, CALLS_A_CARD, partial(address_of, view, refs), refs=refs
    )
    return tuple(
        answer_message(message) if isinstance(message, Answer) else outgoing_message(message) for message in messages
    )


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
    texts: list[str] = []
    buttons: list[DiscordButton] = []
    for entry in reply.buttons[: BUTTONS_A_ROW * ROWS]:
        label = shorten_label(entry.label, BUTTON_LABEL) or "…"
        if isinstance(entry, LinkButton):
            buttons.append(discord.ui.Button(label=label, url=entry.url))
            continue
        texts.append(encoder.encode(entry.action, texts))
        style, custom_id = _BUTTON_STYLES[entry.style], to_custom_id(texts[-1])
        buttons.append(discord.ui.Button(label=label, style=style, custom_id=custom_id))
    return layout_view([discord.ui.TextDisplay(reply.text[:DISPLAYED]), *rows(buttons)])


def note_layout(text: str) -> View:
    """Return one plain sentence as components."""
    return layout_view([discord.ui.TextDisplay(escape(single_line(text, DISPLAYED // 2)) or "…")])


def message_body(view: View) -> dict[str, Any]:
    """Return the body of a message with a view, for the bot's token, without notifications."""
    components: list[dict[str, Any]] = view.to_components()  # type: ignore[no-untyped-call]
    return {"components": components, "flags": V2, "allowed_mentions": {"parse": []}}


Piece = tuple[Sequence[str], bool]
"""Lines that belong together, and whether they are in a code block."""


def command_reply(message: Message) -> CommandReply:
    """Return a reply as it is shown."""
    blocks = message.blocks
    text, omitted = _fitting([piece for block in blocks if (piece := _piece(block)) is not None])
    if omitted:
        note = ngettext("… {n} more character: see the file", "… {n} more characters: see the file", omitted)
        text = f"{text}\n-# {note}"
    captions = (f"-# {escape(line)}" for block in blocks if isinstance(block, Caption) for line in block.lines)
    values = (value for block in blocks if isinstance(block, Facts) for _name, value in block.facts)
    is_whole = not omitted and all(len(value) <= DETAIL_LIMIT for value in values)
    buttons: list[Button | LinkButton] = []
    for block in blocks:
        if isinstance(block, Buttons):  # a URL that exceeds Discord's limit is only in the text
            buttons += [*(link for link in block.links if utf16_length(link.url) <= LINK), *block.buttons]
    return CommandReply("\n".join((text, *captions)), tuple(buttons), is_whole)


def _piece(block: Block) -> Piece | None:
    """Return the lines of a block of a command reply. None for captions and buttons, which `command_reply` adds."""
    match block:
        case Markdown(text):
            return dialect(text).split("\n"), False
        case Paragraph():
            return content_text((block,)).split("\n"), False
        case Table(headings, rows):
            # A table that is too wide for a screen becomes a list.
            lines = columns([headings, *rows])
            if widest(lines) <= WIDEST_TABLE:
                return escape_code_fence(lines).split("\n"), True
            return [_row(headings, row) for row in rows], False
        case Facts(facts, unlinked):
            return [_fact(name, value, break_links if unlinked else escape) for name, value in facts], False
        case _:
            return None


def _row(heads: Sequence[str], row: Sequence[str]) -> str:
    first, *others = row
    name = escape(first) or _("none")
    facts = [f"{escape(head)}: {escape(cell)}" for head, cell in zip(heads[1:], others, strict=False) if cell]
    return " · ".join([f"**{name}**", *facts])


def _fact(name: str, value: str, drawn: Callable[[str], str]) -> str:
    text = strip_control(value).strip()
    more = len(text) - DETAIL_LIMIT
    if more > 0:
        beginning = text[:DETAIL_LIMIT]
        text = ngettext(
            "{beginning}… ({n} more character)", "{beginning}… ({n} more characters)", more, beginning=beginning
        )
    # A second line must not look like a fact of ours.
    value = drawn(text).replace("\n", "\n> ")
    return f"**{escape(single_line(name, NAME_LIMIT))}:** {value}"


def _fitting(pieces: Sequence[Piece]) -> tuple[str, int]:
    """Return the lines that fit, and the number of characters that do not."""
    shown: list[str] = []
    room, left = ROOM, 0
    for lines, is_fenced in pieces:
        taken: list[str] = []
        for line in lines:
            if left or display_length(line) >= room:
                left += len(line)
                continue
            taken.append(line)
            room -= display_length(line) + 1
        room -= 10
        if taken:
            text = "\n".join(taken)
            shown.append(f"```\n{text}\n```" if is_fenced else text)
    if not shown:
        beginning = pieces[0][0][0][: ROOM // 2]
        return beginning, max(left - len(beginning), 0)
    return "\n".join(shown), left
