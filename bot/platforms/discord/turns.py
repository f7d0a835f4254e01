"""Turns as Discord messages: answers, approval cards, elicitations, and cards in other channels.

The same view always gives the same messages. Delete a posted message that is not in the result, for example after an
answer became a file.

Calls of one completion share a card; each has its own decision. A call with a hidden part that looks like a secret can
only be approved from the ephemeral messages that show all of it. A card uses Components V2, which text of models and
tools cannot imitate. It stays within Discord's 40 components and 4,000 characters; omitted parts are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from bot.chat import card_messages as chat_cards
from bot.chat.actions import (
    FeedbackValue,
    SendFeedback,
)
from bot.chat.card_messages import DIRECT_CONVERSATION, RemoteCard, approval_messages, elicitation_messages
from bot.chat.message_model import ChannelLink, Text
from bot.domain.conversations import ConversationKey
from bot.domain.turns import TurnStatus
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.discord.channels import MessageRef, channel_id_of
from bot.platforms.discord.components import (
    Component,
    OutgoingMessage,
    button,
    rows,
)
from bot.platforms.discord.markdown import code_block, dialect, inline_code
from bot.platforms.discord.markup import escape, utf16_length
from bot.platforms.discord.message_layout import outgoing_message
from bot.platforms.discord.rest import FileUpload
from bot.rendering.markdown import SizeLimit, split
from bot.rendering.text_safety import strip_control
from bot.rendering.timeline import (
    AI_NOTICE,
    MARKS,
    WORKING,
    ActivityLine,
    ApprovalEntry,
    CallLine,
    ElicitationEntry,
    Entry,
    Failure,
    Note,
    ReplyText,
    StopTurnAction,
    TimelineSection,
    ToolOutput,
    ToolStatus,
    available_actions,
    busy_text,
    drop_repeats,
    offer_label,
    timeline,
    tool_text,
    truncate_output,
)

CALLS_A_CARD = 4
"""Each takes up to eight components while it waits."""
ADDRESS = "https://discord.com/channels"


# -------------------- remote cards
# Links are built from message refs without a request.


def remote_cards(view: TurnView, now: float, *, direct: bool) -> Iterator[RemoteCard]:
    """Yield the remote cards of a turn by channel, each with a link to its conversation; `direct` is True for a direct
    conversation, which other users cannot open.
    """
    origin = Text(DIRECT_CONVERSATION) if direct else ChannelLink(channel_id_of(view.turn.conversation))
    return chat_cards.remote_cards(view, now, origin, calls_a_card=CALLS_A_CARD)


def message_address(conversation: ConversationKey, ref: MessageRef) -> str:
    """Return the URL of a message in the conversation's guild."""
    return f"{ADDRESS}/{conversation.workspace}/{ref.channel}/{ref.message}"


def _address_of(view: TurnView, refs: MessageRefs, slot: str) -> str:
    """Return the URL of a posted message; empty if it is not posted."""
    ref = MessageRef.parse(refs.get(slot, ""))
    return message_address(view.turn.conversation, ref) if ref is not None else ""


# -------------------- reply messages
# A section of more than MOST_PARTS messages becomes its first message and a file once it is complete.

ROOM = SizeLimit(good=1_450, most=1_840, weigh=utf16_length)
"""Size limit of the text: with prefixes and suffixes a message stays within 1,900 of Discord's 2,000 characters."""
MOST_PARTS = 3
TOOL_LINES = 10
"""Tool calls that stand in a row; earlier ones are counted."""
CONTINUED = "(continued {}/{})"
GROWING = "(continued {})"
STILL_WRITING = "Still writing: {:,} characters so far, which become a file"
IN_A_FILE = "The whole answer is in {}: {:,} characters."
NOT_ATTACHED = (
    "The whole answer, {:,} characters, could not be attached: the bot lacks the permission Attach Files here, or the "
    "file is too large for this server."
)
FILE_NAME = "answer.md"
SILENT = "The model said nothing."
"""Text of an answer without visible content."""


@dataclass(frozen=True, slots=True)
class ReplyMessage:
    """Part of a section in one message; `file` is the text of a section that became a file, and `unattached` is shown
    if the file cannot be posted.
    """

    number: int
    content: str
    file: str = ""
    unattached: str = ""


def split_reply(entries: Sequence[Entry], *, over: bool) -> tuple[ReplyMessage, ...]:
    """Split a section into one or more messages. `over` is True if the section is complete."""
    content = "".join(_texts(entries)).strip("\n")
    pages = [page for each in split(content, ROOM) if (page := each.strip("\n")).strip()]
    if not pages:
        return (ReplyMessage(0, small(SILENT if over else busy_text(WORKING))),)
    if len(pages) <= MOST_PARTS:
        return tuple(_numbered(pages, over=over))
    whole = _full_text(entries)
    if not over:
        shown = [*_numbered(pages[: MOST_PARTS - 1], over=False)]
        return (*shown, ReplyMessage(MOST_PARTS - 1, small(busy_text(STILL_WRITING.format(len(whole))))))
    told, missing = (small(each) for each in (IN_A_FILE.format(FILE_NAME, len(whole)), NOT_ATTACHED.format(len(whole))))
    return ReplyMessage(0, pages[0]), ReplyMessage(1, told, whole, missing)


def small(text: str) -> str:
    """Return one escaped line of small text."""
    return f"-# {escape(text)}"


def _numbered(pages: Sequence[str], *, over: bool) -> Iterator[ReplyMessage]:
    for number, page in enumerate(pages):
        mark = CONTINUED.format(number + 1, len(pages)) if over else GROWING.format(number + 1)
        yield ReplyMessage(number, f"{small(mark)}\n{page}" if number else page)


def _texts(entries: Iterable[Entry]) -> Iterator[str]:
    last: type[Entry] | None = None
    for kind, group in groupby(entries, key=type):
        if last is not None:
            yield "\n"
        if kind is CallLine:
            yield "\n".join(_call_lines([each.line for each in group if isinstance(each, CallLine)]))
        else:
            yield "\n\n".join(filter(None, map(_entry, group)))
        last = kind


def _call_lines(lines: Sequence[ToolStatus]) -> Iterator[str]:
    """Yield the latest calls of a row, after a summary of the earlier ones."""
    earlier = lines[:-TOOL_LINES]
    if earlier:
        counted = Counter(MARKS[line.mark] for line in earlier)
        calls = "1 earlier call" if len(earlier) == 1 else f"{len(earlier)} earlier calls"
        yield small(f"{calls}: {'  '.join(f'{count} {mark}' for mark, count in counted.items())}")
    yield from (small(tool_text(line)) for line in lines[-TOOL_LINES:])


def _entry(entry: Entry) -> str:
    match entry:
        case ReplyText(text):
            return dialect(text)
        case ToolOutput(text):
            return code_block(truncate_output(text))
        case Note(text):
            return small(text)
        case ActivityLine(text):
            return small(busy_text(text))
        case Failure(text, reference):
            return f"⚠ {escape(text)}  {inline_code(f'ref {reference}')}"
        case CallLine():
            return ""


def _full_text(entries: Iterable[Entry]) -> str:
    """Return the text as it was written."""
    return "\n\n".join(
        strip_control(entry.text).strip() for entry in entries if isinstance(entry, ReplyText | ToolOutput)
    )


OFFERS = 5
NONE_OUT: MessageRefs = {}


def turn_messages(view: TurnView, now: float, refs: MessageRefs = NONE_OUT) -> tuple[OutgoingMessage, ...]:
    """Return all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now`
    (epoch seconds); `refs` are of all posted messages, including remote cards.
    """
    sequence = timeline(view)
    last = max(number for number, each in enumerate(sequence) if isinstance(each, TimelineSection))
    slots: list[OutgoingMessage] = []
    for number, each in enumerate(sequence):
        match each:
            case ApprovalEntry():
                address = partial(_address_of, view, refs)
                cards = approval_messages(each, view, now, calls_a_card=CALLS_A_CARD, address=address)
                slots += map(outgoing_message, cards)
            case ElicitationEntry():
                slots += map(outgoing_message, elicitation_messages(each, view, now))
            case TimelineSection():
                slots += _section_messages(each, view, ends=number == last)
    return tuple(slots)


def _section_messages(passage: TimelineSection, view: TurnView, *, ends: bool) -> Iterator[OutgoingMessage]:
    over = view.turn.status.ended or not ends
    parts = split_reply(tuple(drop_repeats(passage.entries, view)), over=over)
    for part in parts:
        notice, below = _ending(passage, view) if ends and part is parts[-1] else ("", ())
        content, unattached = (
            "\n".join(filter(None, (each, notice))) if each else "" for each in (part.content, part.unattached)
        )
        yield OutgoingMessage(_name(passage, part), content, tuple(below), _file(part), unattached=unattached)


def _name(passage: TimelineSection, part: ReplyMessage) -> str:
    return f"answer-{passage.number}" + ("-file" if part.file else f"-{part.number}" if part.number else "")


def _file(part: ReplyMessage) -> FileUpload | None:
    return FileUpload(FILE_NAME, part.file.encode("utf-8", "replace")) if part.file else None


def _ending(passage: TimelineSection, view: TurnView) -> tuple[str, Sequence[Component]]:
    """Return the text and the buttons at the end of a turn."""
    turn = view.turn
    offered = [button(offer_label(action, view), action) for action in available_actions(view)[:OFFERS]]
    if turn.status is TurnStatus.QUEUED:
        return "", rows([*offered, button("Withdraw", StopTurnAction(turn.id))])
    if not turn.status.ended:
        return "", rows([button("Stop", StopTurnAction(turn.id))])
    if turn.status is not TurnStatus.DONE or not any(isinstance(entry, ReplyText) for entry in passage.entries):
        return "", rows(offered)
    opinions = [
        button("", SendFeedback(turn.id, FeedbackValue.GOOD), emoji="👍"),
        button("", SendFeedback(turn.id, FeedbackValue.BAD), emoji="👎"),
    ]
    return small(AI_NOTICE), [*rows(offered), *rows(opinions)]
