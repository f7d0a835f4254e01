"""A passage of a turn cut into the messages that show it.

Called by the two drawings of a turn, which must agree: as blocks, and as a stream. A message keeps what it has once
shown, however the passage grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bot.platforms.slack.sizes import MESSAGE_WEIGHT
from bot.rendering.markdown_parts import Room, cut, weight
from bot.rendering.passages import Called, Entry, Passage, Returned, Said
from bot.rendering.plain import plain
from bot.rendering.thread_lines import shown_of_returned

ROOM = Room(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 600)
"""What is left beside it takes the small lines at the end of a message."""
LINE_WEIGHT = 250
"""What a tool line counts, however long it is now: it changes, and no text may move because of it."""
ENTRIES = 20


@dataclass(frozen=True, slots=True)
class Part:
    """What one message shows of a passage. `last` is false if the passage goes on in another one."""

    name: str
    number: int
    entries: tuple[Entry, ...]
    last: bool = True


def parts_of(passage: Passage) -> tuple[Part, ...]:
    """The passage, message by message; one at least."""
    pages = [*_pages(passage)]
    return tuple(
        Part(_name(passage, number), number, entries, number == len(pages) - 1) for number, entries in enumerate(pages)
    )


def _name(passage: Passage, number: int) -> str:
    return f"answer-{passage.number}" + (f"-{number}" if number else "")


def _pages(passage: Passage) -> Iterator[tuple[Entry, ...]]:
    page: list[Entry] = []
    used = 0
    for entry in passage.entries:
        if page and (len(page) >= ENTRIES or used + _weight(entry) > ROOM.most):
            yield tuple(page)
            page, used = [], 0
        if not isinstance(entry, Said):
            page.append(entry)
            used += _weight(entry)
            continue
        rest = plain(entry.text)
        while rest:
            head, rest = cut(rest, ROOM.after(used))
            if head.strip():
                page.append(replace(entry, text=head, growing=entry.growing and not rest))
            used += weight(head)
            if rest:
                yield tuple(page)
                page, used = [], 0
    yield tuple(page)


def _weight(entry: Entry) -> int:
    match entry:
        case Called():
            return LINE_WEIGHT
        case Said():
            return 0
        case Returned(text):
            return weight(shown_of_returned(text))
        case _:
            return weight(entry.text)
