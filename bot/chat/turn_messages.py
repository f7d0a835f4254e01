"""Messages of a turn in its conversation: answers, approval cards and elicitations, composed once for all platforms.

The same view always gives the same messages. Text stays in its message while the answer grows, so that a longer answer
edits only its last message. Delete a posted message that is not in the result, for example after a restarted, shorter
reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import assert_never

from bot.chat.card_messages import CardAddress, approval_messages, elicitation_messages
from bot.chat.message_model import (
    Block,
    Button,
    Buttons,
    Caption,
    Code,
    Feedback,
    Markdown,
    Message,
    Paragraph,
    Text,
)
from bot.domain.turns import TurnStatus
from bot.domain.views import TurnView
from bot.rendering.markdown import SizeLimit, split_once
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
    available_actions,
    busy_text,
    drop_repeats,
    offer_label,
    timeline,
    tool_text,
    truncate_output,
)

MOST_ENTRIES = 20
"""Entries of one message."""
MOST_OFFERS = 5
CONTINUED = "(continued {})"
SILENT = "The model said nothing."
"""Text of an answer without visible content."""
STILL_WRITING = "Still writing: {:,} characters so far, which become a file"
IN_A_FILE = "The whole answer is in {}: {:,} characters."
NOT_ATTACHED = (
    "The whole answer, {:,} characters, could not be attached: the bot lacks the permission to share files here, or "
    "the file is too large."
)
FILE_NAME = "answer.md"


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of the messages of an answer.

    `room` is that of the text of one message. `weigh_line` returns the weight of a tool line, `format_text` the text in
    the platform's Markdown. An answer of more than `most_messages` ends in a file with all of it, below the messages of
    its beginning, which stay as they were read; 0 for a platform that takes any number. `latest_calls` is the number of
    calls in a row that are shown; earlier ones are counted. 0 shows all.
    """

    room: SizeLimit
    weigh_line: Callable[[str], int]
    format_text: Callable[[str], str] = str
    most_messages: int = 0
    latest_calls: int = 0


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """The text of an answer as a file. `blocks` replace the body of its message if the file cannot be posted."""

    name: str
    text: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One message of an answer: running text in `body`, and the buttons and the notice at its end."""

    name: str
    body: tuple[Block, ...]
    ending: tuple[Block, ...] = ()
    file: AnswerFile | None = None


@dataclass(frozen=True, slots=True)
class AnswerPage:
    """Entries of a section in one message. `last` is False if the section continues in another message."""

    name: str
    number: int
    entries: tuple[Entry, ...]
    last: bool = True


def turn_messages(
    view: TurnView, now: float, limits: AnswerLimits, calls_a_card: int, address: CardAddress
) -> Iterator[Message | Answer]:
    """Yield all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now` (epoch
    seconds). `address` returns the URL of a posted remote card.
    """
    sequence = timeline(view)
    last = max(number for number, entry in enumerate(sequence) if isinstance(entry, TimelineSection))
    for number, entry in enumerate(sequence):
        match entry:
            case ApprovalEntry():
                yield from approval_messages(entry, view, now, calls_a_card=calls_a_card, address=address)
            case ElicitationEntry():
                yield from elicitation_messages(entry, view, now)
            case TimelineSection():
                yield from _answers(entry, view, limits, ends=number == last)


def answer_pages(section: TimelineSection, limits: AnswerLimits) -> tuple[AnswerPage, ...]:
    """Split a section into one or more messages."""
    pages = [*_pages(section, limits)]
    return tuple(
        AnswerPage(_page_name(section, number), number, entries, number == len(pages) - 1)
        for number, entries in enumerate(pages)
    )


def _page_name(section: TimelineSection, number: int) -> str:
    return f"answer-{section.number}" + (f"-{number}" if number else "")


def _pages(section: TimelineSection, limits: AnswerLimits) -> Iterator[tuple[Entry, ...]]:
    page: list[Entry] = []
    used = 0
    for entry in _count_earlier_calls(section.entries, limits.latest_calls):
        if page and (len(page) >= MOST_ENTRIES or used + _weight(entry, limits) > limits.room.most):
            yield tuple(page)
            page, used = [], 0
        if not isinstance(entry, ReplyText):
            page.append(entry)
            used += _weight(entry, limits)
            continue
        rest = limits.format_text(strip_control(entry.text))
        while rest:
            head, rest = split_once(rest, limits.room.after(used))
            if head.strip():
                page.append(replace(entry, text=head, growing=entry.growing and not rest))
            used += limits.room.weigh(head)
            if rest:
                yield tuple(page)
                page, used = [], 0
    yield tuple(page)


def _count_earlier_calls(entries: Sequence[Entry], latest: int) -> Iterator[Entry]:
    """Yield the entries, with a summary in place of all but the latest calls of a row."""
    for kind, group in groupby(entries, key=type):
        row = list(group)
        if kind is CallLine and latest and len(row) > latest:
            counts = Counter(MARKS[entry.line.mark] for entry in row[:-latest] if isinstance(entry, CallLine))
            calls = "1 earlier call" if counts.total() == 1 else f"{counts.total()} earlier calls"
            yield Note(f"{calls}: {'  '.join(f'{count} {mark}' for mark, count in counts.items())}")
            row = row[-latest:]
        yield from row


def _weight(entry: Entry, limits: AnswerLimits) -> int:
    match entry:
        case CallLine(_, line):
            return limits.weigh_line(tool_text(line))
        case ReplyText():
            return 0
        case ToolOutput(text):
            return limits.room.weigh(truncate_output(text))
        case _:
            return limits.room.weigh(entry.text)


def _answers(section: TimelineSection, view: TurnView, limits: AnswerLimits, *, ends: bool) -> Iterator[Answer]:
    pages = answer_pages(section, limits)
    is_complete = view.turn.status.ended or not ends
    ending = _ending(section, view) if ends else ()
    if not limits.most_messages or len(pages) <= limits.most_messages:
        for page in pages:
            yield Answer(page.name, _body(page, view, is_complete=is_complete), ending if page.last else ())
        return
    for page in pages[: limits.most_messages - 1]:
        yield Answer(page.name, _body(page, view, is_complete=is_complete))
    text = _full_text(section.entries)
    if is_complete:
        in_file, missing = (Caption((notice,)) for notice in _file_notices(text))
        yield Answer(f"{pages[0].name}-file", (in_file,), ending, AnswerFile(FILE_NAME, text, (missing,)))
        return
    notice = Caption((busy_text(STILL_WRITING.format(len(text))),))
    yield Answer(pages[limits.most_messages - 1].name, (notice,), ending)


def _file_notices(text: str) -> tuple[str, str]:
    return IN_A_FILE.format(FILE_NAME, len(text)), NOT_ATTACHED.format(len(text))


def _full_text(entries: Sequence[Entry]) -> str:
    """Return the text as it was written."""
    texts = (entry.text for entry in entries if isinstance(entry, ReplyText | ToolOutput))
    return "\n\n".join(strip_control(text).strip() for text in texts)


def _body(page: AnswerPage, view: TurnView, *, is_complete: bool) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for kind, group in groupby(drop_repeats(page.entries, view), key=type):
        if kind is CallLine:
            blocks.append(Caption(tuple(tool_text(entry.line) for entry in group if isinstance(entry, CallLine))))
        else:
            blocks += map(_block, group)
    if not blocks:
        blocks = [Caption((SILENT if is_complete else busy_text(WORKING),))]
    return (Caption((CONTINUED.format(page.number + 1),)), *blocks) if page.number else tuple(blocks)


def _block(entry: Entry) -> Block:
    match entry:
        case ReplyText(text):
            return Markdown(text)
        case ToolOutput(text):
            return Code(truncate_output(text))
        case Note(text):
            return Caption((text,))
        case ActivityLine(text):
            return Caption((busy_text(text),))
        case Failure(text, reference):
            return Paragraph((Text(f"⚠ {text}  "), Text(f"ref {reference}", code=True)))
        case CallLine(_, line):
            return Caption((tool_text(line),))
        case _:
            assert_never(entry)


def _ending(section: TimelineSection, view: TurnView) -> tuple[Block, ...]:
    """Return the buttons and the notice at the end of a turn."""
    turn = view.turn
    offers = tuple(Button(offer_label(offer, view), offer) for offer in available_actions(view)[:MOST_OFFERS])
    if turn.status is TurnStatus.QUEUED:
        return (Buttons((*offers, Button("Withdraw", StopTurnAction(turn.id)))),)
    if not turn.status.ended:
        return (Buttons((Button("Stop", StopTurnAction(turn.id)),)),)
    is_answered = turn.status is TurnStatus.DONE and any(isinstance(entry, ReplyText) for entry in section.entries)
    notice = (Feedback(turn.id), Caption((AI_NOTICE,))) if is_answered else ()
    return (Buttons(offers), *notice) if offers else notice
