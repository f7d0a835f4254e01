"""A passage of a turn cut into the messages that show it, in Discord's own Markdown.

Called by the drawing of a turn. What would take more than MOST_PARTS messages becomes the first of them and a file,
once it is written to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bot.platforms.discord.escaping import escape
from bot.platforms.discord.limits import utf16_length
from bot.platforms.discord.markdown import code_block, dialect, inline_code
from bot.rendering.markdown_split import SizeLimit, split
from bot.rendering.status_text import MARKS, WORKING, busy_text, tool_text, truncate_output
from bot.rendering.text_safety import strip_control
from bot.rendering.timeline import ActivityLine, CallLine, Entry, Failure, Note, ReplyText, ToolOutput
from bot.rendering.tool_status import ToolStatus

ROOM = SizeLimit(good=1_450, most=1_840, weigh=utf16_length)
"""With what is put before and behind it, a message stays within 1,900 characters of the 2,000 that Discord takes."""
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
"""Where an answer has ended in which there is nothing to see."""


@dataclass(frozen=True, slots=True)
class ReplyMessage:
    """What one message shows of a passage; `file` is the text of the whole, where that became a file, and
    `unattached` what is shown if the file cannot be.
    """

    number: int
    content: str
    file: str = ""
    unattached: str = ""


def split_reply(entries: Sequence[Entry], *, over: bool) -> tuple[ReplyMessage, ...]:
    """A passage, message by message; one at least. `over` says that nothing more is added to it."""
    content = "".join(_drawn(entries)).strip("\n")
    pages = [page for each in split(content, ROOM) if (page := each.strip("\n")).strip()]
    if not pages:
        return (ReplyMessage(0, small(SILENT if over else busy_text(WORKING))),)
    if len(pages) <= MOST_PARTS:
        return tuple(_numbered(pages, over=over))
    whole = _whole(entries)
    if not over:
        shown = [*_numbered(pages[: MOST_PARTS - 1], over=False)]
        return (*shown, ReplyMessage(MOST_PARTS - 1, small(busy_text(STILL_WRITING.format(len(whole))))))
    told, missing = (small(each) for each in (IN_A_FILE.format(FILE_NAME, len(whole)), NOT_ATTACHED.format(len(whole))))
    return ReplyMessage(0, pages[0]), ReplyMessage(1, told, whole, missing)


def small(text: str) -> str:
    """One line of small text, as it stands."""
    return f"-# {escape(text)}"


def _numbered(pages: Sequence[str], *, over: bool) -> Iterator[ReplyMessage]:
    for number, page in enumerate(pages):
        mark = CONTINUED.format(number + 1, len(pages)) if over else GROWING.format(number + 1)
        yield ReplyMessage(number, f"{small(mark)}\n{page}" if number else page)


def _drawn(entries: Iterable[Entry]) -> Iterator[str]:
    last: type[Entry] | None = None
    for kind, group in groupby(entries, key=type):
        if last is not None:
            yield "\n"
        if kind is CallLine:
            yield "\n".join(_called([each.line for each in group if isinstance(each, CallLine)]))
        else:
            yield "\n\n".join(filter(None, map(_entry, group)))
        last = kind


def _called(lines: Sequence[ToolStatus]) -> Iterator[str]:
    """Calls in a row: the latest ones, and how many came before them and how those went."""
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


def _whole(entries: Iterable[Entry]) -> str:
    """What was said, as it was written."""
    return "\n\n".join(strip_control(each.text).strip() for each in entries if isinstance(each, ReplyText | ToolOutput))
