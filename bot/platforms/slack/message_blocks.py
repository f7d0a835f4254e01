"""Messages of the chat layer as Block Kit blocks: turns with their cards, and replies to commands.

Slack notifies mentioned users when a message is posted, not when it is edited.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

from bot.chat import card_messages as chat_cards
from bot.chat import turn_messages as chat_turns
from bot.chat.card_messages import DIRECT_CONVERSATION, RemoteMessage, distant_origin
from bot.chat.message_model import (
    Arguments,
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
    Markdown,
    Mention,
    Message,
    Paragraph,
    Quote,
    Rule,
    Span,
    Table,
    Text,
    Time,
    TimeFormat,
    Title,
)
from bot.chat.message_model import Block as MessageBlock
from bot.chat.turn_messages import Answer, AnswerLimits
from bot.domain.turns import MessageRefs, TurnView
from bot.i18n import _, gettext_lazy, ngettext
from bot.platforms.slack.blocks import (
    MESSAGE_WEIGHT,
    Block,
    CommandReply,
    Element,
    OutgoingMessage,
    RichTextBuilder,
    button,
    buttons,
    channel,
    confirmation,
    divider,
    fallback,
    fallback_text,
    feedback_buttons,
    fits_a_table,
    header,
    link,
    link_button,
    menu,
    moment,
    more_characters,
    person,
    preformatted,
    quote,
    rich_section,
    rich_text,
    shorten,
    small,
    table,
    user_group,
    words,
)
from bot.platforms.slack.users import GROUP
from bot.platforms.slack.web_api import MessageRef
from bot.rendering.approval_card import argument_lines
from bot.rendering.markdown import SizeLimit, split, text_weight
from bot.rendering.tables import columns
from bot.rendering.text_safety import single_line

ARGUMENTS_WEIGHT = 5_000
"""Characters of arguments in one message; the calls in it share them."""
NAME = 80
_TIME_FORMATS = {TimeFormat.CLOCK: "{time}", TimeFormat.EXPIRY: gettext_lazy("{date_short_pretty} at {time}")}
_BUTTON_STYLES = {
    ButtonStyle.PLAIN: "",
    ButtonStyle.PRIMARY: "primary",
    ButtonStyle.POSITIVE: "primary",
    ButtonStyle.DANGER: "danger",
}

_TEXTS = (Heading, Paragraph, Footer, Details, Quote, Arguments)
LINE_WEIGHT = 250
"""Weight of a tool line, independent of its length, so that a changed line moves no text."""
ANSWER_LIMITS = AnswerLimits(
    # The rest of a message is for the small lines at its end.
    SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 600),
    weigh_line=lambda _line: LINE_WEIGHT,
)
CALLS_A_CARD = 8
ROOM = SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 1_000)
DETAIL_LIMIT = 1_500


def outgoing_message(message: Message, place: str = "") -> OutgoingMessage:
    """Return a message as it should be in Slack. `place` is its channel, empty for that of its conversation."""
    blocks, silent = (tuple(message_blocks(message.blocks, named)) for named in (message.notifies, frozenset[str]()))
    text = fallback(f"{message.alert}{fallback_text(silent)}")
    return OutgoingMessage(message.name, blocks, text, message.asks, place, silent)


def answer_message(answer: Answer) -> OutgoingMessage:
    """Return a message of an answer as it should be in Slack."""
    # The text for notifications has the words of the answer first, then its tool calls.
    texts = [block for block in answer.body if isinstance(block, Markdown | Code | Paragraph)]
    others = [block for block in answer.body if block not in texts]
    first, then = fallback_text(message_blocks(texts)), fallback_text(message_blocks(others))
    text = fallback("\n".join(filter(None, (first or answer.alert, then))))
    return OutgoingMessage(answer.name, tuple(message_blocks((*answer.body, *answer.ending))), text)


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
                    links = (link_button(link.label, link.url) for link in block.links)
                    more = menu((entry.label, entry.action) for entry in block.more)
                    builder.block(*buttons([*links, *map(_button, block.buttons), more]))
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
    """Return a span as an element of rich text. Slack notifies all mentioned users, so only those in `notifies`
    are mentioned, and users without a name.
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


def _button(entry: Button) -> Element | None:
    question = entry.confirmation
    dialog = confirmation(question.title, question.text, question.confirm) if question else None
    return button(entry.label, entry.action, _BUTTON_STYLES[entry.style], dialog)


def address_of(url: str, refs: MessageRefs, slot: str) -> str:
    """Return the permalink of a message of a turn; empty if it is not posted. `url` is that of the workspace."""
    ref = MessageRef.parse(refs.get(slot, ""))
    return message_address(url, ref) if ref is not None else ""


def message_address(url: str, ref: MessageRef) -> str:
    """Return the permalink of a message, as chat.getPermalink would, without a request."""
    return f"{url.rstrip('/')}/archives/{ref.channel}/p{ref.ts.replace('.', '')}" if url else ""


def remote_cards(view: TurnView, now: float, url: str) -> Iterator[RemoteMessage[OutgoingMessage]]:
    """Yield the remote cards of a turn by channel, each with a link to its conversation."""
    where = view.turn.conversation
    address = message_address(url, MessageRef(where.channel, where.thread)) if where.thread else ""
    origin: Span = Link(address, _("this thread")) if address else ChannelLink(where.channel)
    if where.channel.startswith("D"):
        origin = Text(str(DIRECT_CONVERSATION))
    elif not where.channel:
        origin = distant_origin(view.turn)
    return chat_cards.remote_cards(view, now, origin, outgoing_message, calls_a_card=CALLS_A_CARD)


def turn_messages(
    view: TurnView,
    now: float,
    url: str = "",
    refs: MessageRefs = chat_turns.NO_REFS,
    *,
    streams: bool = False,
) -> tuple[OutgoingMessage, ...]:
    """Return all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now`
    (epoch seconds); `url` is that of the workspace, for links to remote cards, `refs` are those of all messages. If
    `streams` is True, the first words are shown at once.
    """
    address = partial(address_of, url, refs)
    messages = chat_turns.turn_messages(view, now, ANSWER_LIMITS, CALLS_A_CARD, address, refs=refs, streams=streams)
    return tuple(
        answer_message(message) if isinstance(message, Answer) else outgoing_message(message) for message in messages
    )


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
    note = small(omitted_text(omitted)) if omitted else []
    values = (value for block in blocks if isinstance(block, Facts) for _, value in block.facts)
    is_whole = not omitted and all(len(value) <= DETAIL_LIMIT for value in values)
    return CommandReply((*shown, *note, *message_blocks(ending)), fallback(fallback_text(shown)), is_whole=is_whole)


def private_reply(message: Message) -> CommandReply:
    """Return a message that one user sees."""
    blocks = message_blocks(message.blocks)
    return CommandReply(tuple(blocks), fallback(fallback_text(blocks)))


def omitted_text(characters: int) -> str:
    """Return the note about omitted characters of a reply."""
    return ngettext("… {n} more character: see the file", "… {n} more characters: see the file", characters)


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
        more = len(value) - DETAIL_LIMIT
        shown = more_characters(value[:DETAIL_LIMIT], more) if more > 0 else shorten(value, DETAIL_LIMIT)
        lines += [words("\n")] if lines else []
        lines += [words(f"{name}: ", bold=True), words(shown)]
        if sum(text_weight(line["text"]) for line in lines) > ROOM.good // 2:
            yield [rich_text(rich_section(*lines))]
            lines = []
    if lines:
        yield [rich_text(rich_section(*lines))]
