"""Messages of a turn in its conversation: answers, approval cards and elicitations, composed once for all platforms.

The same view with the same refs always gives the same messages. Text stays in its message while the answer grows, so
that a longer answer edits only its last message. Delete a posted message that is not in the result, for example after a
restarted, shorter reply.

Each message disturbs people, so there are few. A message that waits in the queue gets none. Beside a card there is no
message about the work: its last card has the activity and the button that stops the turn, and the calls before it are
told with the answer. Where a platform allows it, only the first message of an answer notifies.

Platforms notify when a message is posted, not when it is edited. So an answer begins a message of its own if earlier
messages of its turn are posted already: `answer-N` is the first message of section N, `reply-N` has the text that came
after it was posted, and `final-N` the last reply after further calls. In the first seconds (`TurnView.early`) nothing
is posted unless a user must act, so that a quick answer is one message, posted once. The ref of a message that was
posted unfinished begins with a mark, which decides alike in every process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from bot.domain.turns import MessageRefs, TurnStatus, TurnView
from bot.i18n import _, gettext_lazy, ngettext
from bot.rendering.markdown import SizeLimit, split_once
from bot.rendering.text_safety import single_line, strip_control
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
    TimelineEntry,
    TimelineSection,
    ToolOutput,
    activity_text,
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
SILENT = gettext_lazy("The model said nothing.")
"""Text of an answer without visible content."""
FILE_NAME = "answer.md"
QUESTION_LIMIT = 80
NAME_LIMIT = 100
REMOVED = "-"
"""Mark of the ref of a message that a turn had and has no more."""
WITHOUT_TEXT, WITH_TEXT = "~", "+"
"""Marks of refs of messages that were posted before the turn had ended: before their text began, or with text."""
NO_REFS: MessageRefs = {}
_ANSWERS = (ReplyText, ToolOutput)
_ANSWER_KINDS = ("answer", "reply", "final")


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of the messages of an answer.

    `room` is that of the text of one message. `weigh_line` returns the weight of a tool line, `format_text` the text in
    the platform's Markdown. An answer of more than `most_messages` ends in a file with all of it, below the messages of
    its beginning, which stay as they were read; 0 for a platform that takes any number. `latest_calls` is the number of
    calls in a row that are shown; earlier ones are counted. 0 shows all. `words_first` is True where a notification
    shows the beginning of a message: there a text of one message stands before the calls that led to it.
    """

    room: SizeLimit
    weigh_line: Callable[[str], int]
    format_text: Callable[[str], str] = str
    most_messages: int = 0
    latest_calls: int = 0
    words_first: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One message of an answer: running text in `body`, and the buttons and the notice at its end. `alert` begins the
    text of its notification while there is no text of the answer. A `silent` one needs no notification. `file_text` is
    the content of its file FILE_NAME, if any; `without_file` replaces the body if the file cannot be posted.
    """

    name: str
    body: tuple[Block, ...]
    ending: tuple[Block, ...] = ()
    file_text: str = ""
    without_file: tuple[Block, ...] = ()
    alert: str = ""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class AnswerSegment:
    """Entries of a section that begin with a message of their own. `is_last` is True for the end of the section."""

    name: str
    entries: tuple[Entry, ...]
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class AnswerPage:
    """Entries of a segment in one message. `last` is False if the section continues in another message."""

    name: str
    number: int
    entries: tuple[Entry, ...]
    last: bool = True


def turn_messages(
    view: TurnView,
    now: float,
    limits: AnswerLimits,
    calls_a_card: int,
    address: CardAddress,
    *,
    refs: MessageRefs = NO_REFS,
    streams: bool = False,
) -> Iterator[Message | Answer]:
    """Yield all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now` (epoch
    seconds). `address` returns the URL of a posted remote card. `refs` are those of the turn, as they are stored. If
    `streams` is True, the first words are shown at once.
    """
    if view.turn.status is TurnStatus.QUEUED and not view.turn.begun:
        return
    sequence = shown_timeline(view, refs)
    last = last_section(sequence)
    for number, entry in enumerate(sequence):
        progress = _progress(view) if number == len(sequence) - 1 else ()
        match entry:
            case ApprovalEntry():
                cards = approval_messages(entry, view, now, calls_a_card=calls_a_card, address=address)
                yield from _with_progress(cards, progress)
            case ElicitationEntry():
                yield from _with_progress(elicitation_messages(entry, view, now), progress)
            case TimelineSection():
                for segment in answer_segments(entry, view, refs, ends=number == last):
                    if _is_due(segment, view, refs, streams=streams):
                        ends = segment.is_last and number == last and (view.turn.status.ended or bool(progress))
                        ending = _ending(entry, view) if ends else ()
                        is_complete = view.turn.status.ended or number != last or not segment.is_last
                        yield from _answers(segment, view, limits, ending, is_complete=is_complete)


def shown_timeline(view: TurnView, refs: MessageRefs) -> tuple[TimelineEntry, ...]:
    """Return the timeline as it is posted. Entries of a section whose words are on a card, if it has any, follow in the
    next section. While the turn goes on, a card stands for such a section.
    """
    sequence, is_ended = timeline(view), view.turn.status.ended
    shown: list[TimelineEntry] = []
    carried: tuple[Entry, ...] = ()
    number = 0
    for n, entry in enumerate(sequence):
        if not isinstance(entry, TimelineSection):
            shown.append(entry)
            continue
        following, number = next(iter(sequence[n + 1 :]), None), entry.number
        whole = replace(entry, entries=(*carried, *entry.entries))
        is_beside_card = following is not None or (n > 0 and not is_ended)
        if is_beside_card and _is_told_by_card(entry, following, refs):
            carried = whole.entries
        else:
            shown.append(whole)
            carried = ()
    return (*shown, TimelineSection(number, carried)) if carried and is_ended else tuple(shown)


def _is_told_by_card(section: TimelineSection, following: TimelineEntry | None, refs: MessageRefs) -> bool:
    """Return True if a section has no words, or none but the reason on the card that follows."""
    words = [entry for entry in section.entries if isinstance(entry, (*_ANSWERS, Failure))]
    if not words:
        return True
    is_posted = any(_mark(refs, f"{kind}-{section.number}") == WITH_TEXT for kind in ("answer", "reply"))
    if is_posted or len(words) > 1 or not isinstance(following, ApprovalEntry):
        return False
    return isinstance(words[0], ReplyText) and single_line(words[0].text, len(words[0].text) + 1) == following.reason


def last_section(sequence: Sequence[TimelineEntry]) -> int:
    """Return the position of the last section; -1 if there is none."""
    return max((number for number, entry in enumerate(sequence) if isinstance(entry, TimelineSection)), default=-1)


def _with_progress(cards: Iterator[Message], progress: tuple[Block, ...]) -> Iterator[Message]:
    *others, last = cards
    yield from others
    yield replace(last, blocks=(*last.blocks, *progress))


def _progress(view: TurnView) -> tuple[Block, ...]:
    """Return the activity of a turn and its stop button, for the last card; nothing in the first seconds of work."""
    stop = Buttons((Button(_("Stop"), StopTurnAction(view.turn.id)),))
    if view.awaiting or view.asks:
        return (stop,)
    if view.turn.status is not TurnStatus.RUNNING or view.early:
        return ()
    return Caption((busy_text(activity_text(view)),)), stop


def answer_segments(
    section: TimelineSection, view: TurnView, refs: MessageRefs, *, ends: bool
) -> tuple[AnswerSegment, ...]:
    """Split a section where a message of its own begins. `ends` is True for the last section of the turn."""
    first, reply, final = (f"{kind}-{section.number}" for kind in ("answer", "reply", "final"))
    entries, name, parts = section.entries, first, list[tuple[str, tuple[Entry, ...]]]()
    begin = next((n for n, entry in enumerate(entries) if isinstance(entry, _ANSWERS)), None)
    if begin is not None and _mark(refs, first) == WITHOUT_TEXT:
        parts.append((first, entries[:begin]))
        entries, name = entries[begin:], reply
    is_answered = view.turn.status in (TurnStatus.DONE, TurnStatus.FAILED)
    cut = _begin_of_last_reply(entries) if ends and is_answered and _mark(refs, name) else len(entries)
    parts += ((name, entries[:cut]), (final, entries[cut:]))
    filled = [(name, part) for name, part in parts if part] or [(first, ())]
    return tuple(AnswerSegment(name, part, n == len(filled)) for n, (name, part) in enumerate(filled, start=1))


def _begin_of_last_reply(entries: Sequence[Entry]) -> int:
    """Return the number of the entry with which a message about the end of the turn begins: a failure, or the last
    reply if calls precede it. It is the number of entries if there is none.
    """
    for n in range(len(entries) - 1, -1, -1):
        match entries[n]:
            case Failure():
                return n
            case ReplyText() | ToolOutput():
                return n if any(isinstance(entry, CallLine) for entry in entries[:n]) else len(entries)
            case _:
                pass
    return len(entries)


def _is_due(segment: AnswerSegment, view: TurnView, refs: MessageRefs, *, streams: bool) -> bool:
    """Return True if the segment is posted, or is to be posted now."""
    if view.turn.status.ended or view.awaiting or view.asks or not view.early:
        return True
    is_posted = not refs.get(segment.name, REMOVED).startswith(REMOVED)
    return is_posted or (streams and any(isinstance(entry, ReplyText) for entry in segment.entries))


def is_activity_shown(view: TurnView, refs: MessageRefs) -> bool:
    """Return True if a posted message shows the activity of the turn."""
    last = next(reversed(shown_timeline(view, refs)), None)
    if not isinstance(last, TimelineSection):
        return last is not None and not view.early
    *_, segment = answer_segments(last, view, refs, ends=True)
    return not refs.get(segment.name, REMOVED).startswith(REMOVED)


def unfinished_mark(view: TurnView, name: str, refs: MessageRefs) -> str:
    """Return the mark for the ref of a message of this name that is posted now; empty for a message that has none."""
    kind, _, number = name.partition("-")
    if view.turn.status.ended or kind not in ("answer", "reply") or not number.isdecimal():
        return ""
    sections = (entry for entry in shown_timeline(view, refs) if isinstance(entry, TimelineSection))
    section = next((entry for entry in sections if entry.number == int(number)), None)
    has_text = section is not None and any(isinstance(entry, _ANSWERS) for entry in section.entries)
    return WITH_TEXT if has_text else WITHOUT_TEXT


def split_mark(ref: str) -> tuple[str, str]:
    """Return the mark of a stored ref, empty if it has none, and the ref as the platform knows it."""
    return (ref[0], ref[1:]) if ref.startswith((REMOVED, WITHOUT_TEXT, WITH_TEXT)) else ("", ref)


def _mark(refs: MessageRefs, name: str) -> str:
    mark, _ = split_mark(refs.get(name, ""))
    return WITHOUT_TEXT if mark == REMOVED else mark


def find_answers(posted: Mapping[str, MessageRefs]) -> Mapping[str, str]:
    """Return the turn of each posted message with text of an answer, by the message's ref. `posted` are the stored refs
    of turns.
    """
    return {
        split_mark(ref)[1]: turn_id
        for turn_id, refs in posted.items()
        for slot, ref in refs.items()
        if slot.partition("-")[0] in _ANSWER_KINDS and not ref.startswith(REMOVED)
    }


def answer_pages(segment: AnswerSegment, limits: AnswerLimits) -> tuple[AnswerPage, ...]:
    """Split a segment into one or more messages."""
    pages = [*_pages(segment, limits)]
    names = (f"{segment.name}-{number}" if number else segment.name for number in range(len(pages)))
    return tuple(
        AnswerPage(name, number, entries, segment.is_last and number == len(pages) - 1)
        for number, (name, entries) in enumerate(zip(names, pages, strict=True))
    )


def _pages(segment: AnswerSegment, limits: AnswerLimits) -> Iterator[tuple[Entry, ...]]:
    page: list[Entry] = []
    used = 0
    for entry in _count_earlier_calls(segment.entries, limits.latest_calls):
        if page and (len(page) >= MOST_ENTRIES or used + _weight(entry, limits) > limits.room.most):
            yield tuple(page)
            page, used = [], 0
        if not isinstance(entry, ReplyText):
            page.append(entry)
            used += _weight(entry, limits)
            continue
        rest = limits.format_text(strip_control(entry.text))
        while rest:
            head, rest = split_once(rest, limits.room.rest_after(used))
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
            outcomes = "  ".join(f"{count} {mark}" for mark, count in counts.items())
            calls = ngettext(
                "{n} earlier call: {outcomes}", "{n} earlier calls: {outcomes}", counts.total(), outcomes=outcomes
            )
            yield Note(calls)
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


def _answers(
    segment: AnswerSegment, view: TurnView, limits: AnswerLimits, ending: tuple[Block, ...], *, is_complete: bool
) -> Iterator[Answer]:
    pages = answer_pages(segment, limits)
    words_first = limits.words_first and len(pages) == 1
    question = single_line(view.turn.question.text, QUESTION_LIMIT)
    alert = "" if is_complete else _("Working on “{question}”.", question=question) + " "
    if not limits.most_messages or len(pages) <= limits.most_messages:
        for page in pages:
            yield Answer(
                page.name,
                _body(page, view, is_complete=is_complete, words_first=words_first),
                ending if page is pages[-1] else (),
                alert=alert,
                silent=page.number > 0 or not (is_complete or any(isinstance(e, _ANSWERS) for e in page.entries)),
            )
        return
    for page in pages[: limits.most_messages - 1]:
        body = _body(page, view, is_complete=is_complete, words_first=words_first)
        yield Answer(page.name, body, alert=alert, silent=page.number > 0)
    texts = (entry.text for entry in segment.entries if isinstance(entry, ReplyText | ToolOutput))
    text = "\n\n".join(strip_control(text).strip() for text in texts)
    if is_complete:
        in_file = ngettext(
            "The whole answer is in {file}: {n} character.",
            "The whole answer is in {file}: {n} characters.",
            len(text),
            file=FILE_NAME,
        )
        missing = ngettext(
            "The whole answer, {n} character, could not be attached: the bot lacks the permission to share files here, "
            "or the file is too large.",
            "The whole answer, {n} characters, could not be attached: the bot lacks the permission to share files "
            "here, or the file is too large.",
            len(text),
        )
        name = f"{pages[0].name}-file"
        yield Answer(name, (Caption((in_file,)),), ending, text, (Caption((missing,)),), silent=True)
        return
    writing = ngettext(
        "Still writing: {n} character so far, which becomes a file",
        "Still writing: {n} characters so far, which become a file",
        len(text),
    )
    notice = Caption((busy_text(writing),))
    yield Answer(pages[limits.most_messages - 1].name, (notice,), ending, alert=alert, silent=True)


def _body(page: AnswerPage, view: TurnView, *, is_complete: bool, words_first: bool) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for kind, group in groupby(drop_repeats(page.entries, view, is_settled=is_complete), key=type):
        if kind is CallLine:
            blocks.append(Caption(tuple(tool_text(entry.line) for entry in group if isinstance(entry, CallLine))))
        else:
            blocks += map(_block, group)
    if not blocks:
        blocks = [Caption((str(SILENT) if is_complete else busy_text(WORKING),))]
    if page.number:
        return (Caption((_("(continued {number})", number=page.number + 1),)), *blocks)
    begin = next((n for n, block in enumerate(blocks) if isinstance(block, Markdown)), 0)
    ordered = (blocks[begin], *blocks[:begin], *blocks[begin + 1 :]) if words_first else tuple(blocks)
    name = view.turn.question.agent_name
    return (*((Caption((_("Agent: {name}", name=single_line(name, NAME_LIMIT)),)),) if name else ()), *ordered)


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
            return Paragraph((Text(f"⚠ {text}  "), Text(_("ref {reference}", reference=reference), code=True)))
        case CallLine(_, line):
            return Caption((tool_text(line),))
        case _:
            assert_never(entry)


def _ending(section: TimelineSection, view: TurnView) -> tuple[Block, ...]:
    """Return the buttons and the notice at the end of a turn."""
    turn = view.turn
    offers = tuple(Button(offer_label(offer, view), offer) for offer in available_actions(view)[:MOST_OFFERS])
    if not turn.status.ended:
        return (Buttons((Button(_("Stop"), StopTurnAction(turn.id)),)),)
    is_answered = turn.status is TurnStatus.DONE and any(isinstance(entry, ReplyText) for entry in section.entries)
    notice = (Feedback(turn.id), Caption((str(AI_NOTICE),))) if is_answered else ()
    return (Buttons(offers), *notice) if offers else notice
