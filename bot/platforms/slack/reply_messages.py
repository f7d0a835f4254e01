"""A section of a turn, split into messages.

Blocks and streams must split alike. Text stays in its message while the section grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.platforms.slack.limits import MESSAGE_WEIGHT
from bot.rendering.markdown_split import SizeLimit, split_once, text_weight
from bot.rendering.status_text import truncate_output
from bot.rendering.text_safety import strip_control
from bot.rendering.timeline import CallLine, Entry, ReplyText, TimelineSection, ToolOutput

ROOM = SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 600)
"""Size limit of the text; the rest of the message is for the small lines at its end."""
LINE_WEIGHT = 250
"""Weight of a tool line, independent of its length, so that a changed line moves no text."""
ENTRIES = 20


@dataclass(frozen=True, slots=True)
class ReplyMessage:
    """Part of a section in one message. `last` is False if the section continues in another message."""

    name: str
    number: int
    entries: tuple[Entry, ...]
    last: bool = True


def split_reply(passage: TimelineSection) -> tuple[ReplyMessage, ...]:
    """Split a section into one or more messages."""
    pages = [*_pages(passage)]
    return tuple(
        ReplyMessage(_name(passage, number), number, entries, number == len(pages) - 1)
        for number, entries in enumerate(pages)
    )


def _name(passage: TimelineSection, number: int) -> str:
    return f"answer-{passage.number}" + (f"-{number}" if number else "")


def _pages(passage: TimelineSection) -> Iterator[tuple[Entry, ...]]:
    page: list[Entry] = []
    used = 0
    for entry in passage.entries:
        if page and (len(page) >= ENTRIES or used + _weight(entry) > ROOM.most):
            yield tuple(page)
            page, used = [], 0
        if not isinstance(entry, ReplyText):
            page.append(entry)
            used += _weight(entry)
            continue
        rest = strip_control(entry.text)
        while rest:
            head, rest = split_once(rest, ROOM.after(used))
            if head.strip():
                page.append(replace(entry, text=head, growing=entry.growing and not rest))
            used += text_weight(head)
            if rest:
                yield tuple(page)
                page, used = [], 0
    yield tuple(page)


def _weight(entry: Entry) -> int:
    match entry:
        case CallLine():
            return LINE_WEIGHT
        case ReplyText():
            return 0
        case ToolOutput(text):
            return text_weight(truncate_output(text))
        case _:
            return text_weight(entry.text)
