"""A passage of a turn cut into the messages that show it.

Called by the two drawings of a turn, which must agree: as blocks, and as a stream. A message keeps what it has once
shown, however the passage grows.
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
"""What is left beside it takes the small lines at the end of a message."""
LINE_WEIGHT = 250
"""What a tool line counts, however long it is now: it changes, and no text may move because of it."""
ENTRIES = 20


@dataclass(frozen=True, slots=True)
class ReplyMessage:
    """What one message shows of a passage. `last` is false if the passage goes on in another one."""

    name: str
    number: int
    entries: tuple[Entry, ...]
    last: bool = True


def split_reply(passage: TimelineSection) -> tuple[ReplyMessage, ...]:
    """The passage, message by message; one at least."""
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
