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
from dataclasses import dataclass, replace
from itertools import groupby

from bot.chat.actions import (
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    Edit,
    FeedbackValue,
    OpenDenyForm,
    RunCommandInNewReply,
    SendFeedback,
    ViewCall,
)
from bot.domain.approvals import Approval, ChannelTarget, Destination, DirectTarget
from bot.domain.conversations import Author, ConversationKey
from bot.domain.elicitations import Elicitation, ElicitationAction
from bot.domain.secret_detection import redact
from bot.domain.turns import StepStatus, ToolStep, TurnStatus
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.discord.channels import PLATFORM, MessageRef, channel_id_of
from bot.platforms.discord.components import (
    DISPLAYED,
    ButtonStyle,
    Component,
    OutgoingMessage,
    button,
    container,
    display_length,
    rows,
    separator,
    text,
)
from bot.platforms.discord.markdown import code_block, dialect, inline_code
from bot.platforms.discord.markup import break_links, escape, escape_to_limit, utf16_length
from bot.platforms.discord.rest import FileUpload
from bot.rendering.approval_card import (
    ICONS,
    RISKS,
    VIEW_TO_APPROVE,
    ApprovalCard,
    approval_card,
    argument_lines,
    call_title,
    can_edit,
    earliest_expiry,
    edit_lines,
    grant_offers,
    headline,
    outcome_parts,
    signatures,
    summary_line,
    withheld_text,
)
from bot.rendering.available_actions import RunAgainAction, StopTurnAction, available_actions
from bot.rendering.call_arguments import CardArgument
from bot.rendering.elicitation_card import ElicitationCard, elicitation_card
from bot.rendering.markdown_split import SizeLimit, split
from bot.rendering.remote_cards import group_by_target, is_pending, remote_approvals, remote_slot, targets_of
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
    TimelineSection,
    ToolOutput,
    busy_text,
    drop_repeats,
    offer_label,
    timeline,
    tool_text,
    truncate_output,
)
from bot.rendering.tool_status import ToolStatus, tool_status

CALLS_A_CARD = 4
"""Each takes up to eight components while it waits."""
TITLE, NAME, REASON, OUTCOME, RESULT, CHANGE = 180, 70, 400, 240, 120, 120
"""Characters, so that CALLS_A_CARD calls fit onto a card and leave room for their arguments."""
SPARE = 60
LEAST_ROOM = 150
"""Characters for the arguments of a call."""
ORANGE, GREEN, RED, GREY = 0xE67E22, 0x2ECC71, 0xE74C3C, 0x95A5A6
ADDRESS = "https://discord.com/channels"
DIRECTLY = "a direct conversation"
_NOT_RUN = frozenset({StepStatus.DENIED, StepStatus.EXPIRED, StepStatus.CANCELLED})
_WENT_WRONG = frozenset({StepStatus.FAILED, StepStatus.UNKNOWN})


# -------------------- approval cards


def card_messages(asking: ApprovalEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """Return the cards of calls that were requested together, at most CALLS_A_CARD in each."""
    pages = [asking.calls[start : start + CALLS_A_CARD] for start in range(0, len(asking.calls), CALLS_A_CARD)]
    return tuple(
        OutgoingMessage(
            f"card-{asking.number}" + (f"-{number}" if number else ""),
            components=(_container(calls, asking.reason, view, now),),
            asks=any(step.status is StepStatus.AWAITING for step in calls),
        )
        for number, calls in enumerate(pages)
    )


def facts(card: ApprovalCard) -> str:
    """Return the server, the tool and the risk of a call."""
    where = f"**Server** {escape_to_limit(card.server, NAME)}   " if card.server else ""
    return f"{where}**Tool** {escape_to_limit(card.tool, NAME)}   **Risk** {RISKS[card.risk]}"


def decisions(step: ToolStep, card: ApprovalCard) -> list[Component | None]:
    """Return the buttons of one pending call, with the first grant. The other grants are offered below the whole call.
    The approve buttons are missing if a part of the call is hidden.
    """
    ref = ApprovalRef(card.approval_id, card.revision)
    if card.withheld:
        return [button("Deny…", OpenDenyForm(ref))]
    look = ButtonStyle.DANGER if card.risk == "destructive" else ButtonStyle.SUCCESS
    allow = [button(offer.label, ApproveWithGrant(ref, offer.word)) for offer in grant_offers(step)[:1]]
    return [
        button(f"Approve: {single_line(call_title(step), 40)}", Approve((ref,)), look),
        *allow,
        button("Deny…", OpenDenyForm(ref)),
    ]


def relative_time(at: float) -> str:
    """Return a timestamp that clients show as a countdown."""
    return f"<t:{int(at)}:R>"


def person(author: Author) -> str:
    """Return a user's name, as a mention for users of Discord. Messages are sent without notifications."""
    known = author.platform == PLATFORM and author.id.isdecimal()
    return f"<@{author.id}>" if known else escape_to_limit(author.name or author.id, NAME)


def _container(calls: Sequence[ToolStep], reason: str, view: TurnView, now: float) -> Component:
    waiting = [step for step in calls if step.status is StepStatus.AWAITING]
    summary = f"**{summary_line(len(calls), len(waiting))}**" if len(calls) > 1 else ""
    about = _requirements_text(waiting, reason, now) if waiting else ""
    made = [(step, shown) for step in calls if (shown := approval_card(step)) is not None]
    fixed = {step.n: _open(step, shown) if step in waiting else _settled(step, shown, view) for step, shown in made}
    for lines in (None, 1):
        changed = {step.n: _changed(step, shown, lines) for step, shown in made if step in waiting}
        used = sum(map(display_length, (summary, about, *fixed.values(), *changed.values())))
        room = (DISPLAYED - SPARE - used) // max(len(waiting), 1) - SPARE
        # The arguments come first: who has changed them fits in one line.
        if room >= LEAST_ROOM:
            break
    inside: list[Component] = [text(summary)] if summary else []
    for step, shown in made:
        if inside:
            inside.append(separator())
        told = fixed[step.n]
        if step in waiting:
            told = "\n".join(filter(None, (told, _arguments(shown.arguments, room), changed[step.n])))
        single = step in waiting and len(calls) == 1
        inside += [text(f"{told}\n{about}" if single else told), *_buttons(step, shown, view)]
    if about and len(calls) > 1:
        inside += [separator(), text(about)]
    return container(inside, _colour(calls, waiting))


def _colour(calls: Sequence[ToolStep], waiting: Sequence[ToolStep]) -> int:
    if waiting:
        return RED if any(step.tool is None or step.tool.destructive for step in waiting) else ORANGE
    if any(step.status in _WENT_WRONG for step in calls):
        return RED
    return GREY if all(step.status in _NOT_RUN for step in calls) else GREEN


def _open(step: ToolStep, card: ApprovalCard) -> str:
    return f"### {escape_to_limit(headline(step, card), TITLE)}\n{facts(card)}"


def _changed(step: ToolStep, card: ApprovalCard, lines: int | None) -> str:
    """Return the warning of hidden parts, and at most `lines` lines of edits in small text."""
    hidden = [f"**{withheld_text(card)}**"] if card.withheld else []
    return "\n".join((*hidden, *(f"-# {escape_to_limit(line, CHANGE)}" for line in edit_lines(step)[:lines])))


def _arguments(arguments: Sequence[CardArgument], room: int) -> str:
    """Return the arguments in a code block. Omitted text is counted, including text that exceeds the room after
    escaping.
    """
    for narrower in (room, room // 2, room // 4, 0):
        if narrower >= 0 and (shown := argument_lines(arguments, narrower)):
            block = code_block(shown)
            if display_length(block) <= room + SPARE:
                return block
    return ""


def _buttons(step: ToolStep, card: ApprovalCard, view: TurnView) -> list[Component]:
    if step.status is StepStatus.AWAITING:
        ref = ApprovalRef(card.approval_id, card.revision)
        edit = button("Edit…", Edit(ref)) if can_edit(step) else None
        if card.withheld:
            return rows([*decisions(step, card), edit, button(VIEW_TO_APPROVE, ViewCall(ref), ButtonStyle.PRIMARY)])
        return rows([*decisions(step, card), edit, button("View all", ViewCall(ref))])
    if step.status is StepStatus.EXPIRED and view.turn.status.ended:
        return rows([button("Ask again", RunAgainAction(view.turn.id, step.n))])
    return []


def _settled(step: ToolStep, card: ApprovalCard, view: TurnView) -> str:
    """Return the call and its outcome."""
    title = escape_to_limit(headline(step, card).removesuffix("?"), TITLE)
    icon = ICONS.get(step.status, "")
    first = f"{icon} **{title}**" if icon else f"~~{title}~~"
    decided_at = step.approval.decided_at if step.approval else None
    at = (f"<t:{int(decided_at)}:t>",) if decided_at else ()
    rest = (*at, *(escape_to_limit(part, RESULT) for part in outcome_parts(step, view)), inline_code(card.short_id))
    return " · ".join((f"{first}\n{escape_to_limit(card.outcome, OUTCOME)}", *rest))


def _requirements_text(waiting: Sequence[ToolStep], reason: str, now: float) -> str:
    """Return the requester, the model's reason, the expiry and the approval ids."""
    approvals = [step.approval for step in waiting if step.approval]
    why = f"*Reason given by the model: “{escape_to_limit(redact(reason), REASON)}”*\n" if reason else ""
    ids = ", ".join(inline_code(single_line(approval.id, 200)[:8]) for approval in approvals)
    signing = "".join(f"{escape_to_limit(line, OUTCOME)} · " for line in [" · ".join(signatures(approvals))] if line)
    return (
        f"{why}-# Asked by {person(approvals[0].requested_for)} · {signing}{_approval_expiry(approvals, now)} · {ids}"
    )


def _approval_expiry(approvals: Sequence[Approval], now: float) -> str:
    """Return the earliest expiry of these approvals."""
    end = earliest_expiry(approvals, now)
    return "does not expire" if end is None else f"expires {relative_time(end[0])}"


# -------------------- remote cards
# A remote card stands in its channel; a line in the thread links to it. Links are built from message refs without a
# request.


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """A card in one of its places; `card` is its slot in the conversation."""

    card: str
    place: Destination
    slot: OutgoingMessage


def approval_messages(
    asking: ApprovalEntry, view: TurnView, now: float, refs: MessageRefs
) -> Iterator[OutgoingMessage]:
    """Return the messages for calls that were requested together: cards, or lines that link to remote cards. `refs` are
    of the posted messages.
    """
    for each in group_by_target(asking):
        slots = card_messages(each, view, now)
        if targets_of(each) and is_pending(each):
            yield from (_line(slot.name, each, view, refs) for slot in slots[:1])
        else:
            yield from slots


def remote_cards(view: TurnView, now: float, *, direct: bool) -> Iterator[RemoteCard]:
    """Return the remote cards of a turn by channel, each with a link to its conversation; `direct` is True for a direct
    conversation, which other users cannot open.
    """
    origin = DIRECTLY if direct else channel_name(channel_id_of(view.turn.conversation))
    for asking in remote_approvals(view):
        for slot in card_messages(asking, view, now):
            whole = replace(slot, components=(*slot.components, text(f"-# Asked in {origin}")))
            for place in targets_of(asking):
                yield RemoteCard(slot.name, place, replace(whole, name=remote_slot(slot.name, place)))


def channel_name(channel: str) -> str:
    """Return a channel link, which shows the name only to users with access."""
    return f"<#{channel}>" if channel.isdecimal() else escape(channel)


def message_address(conversation: ConversationKey, ref: MessageRef) -> str:
    """Return the URL of a message in the conversation's guild."""
    return f"{ADDRESS}/{conversation.workspace}/{ref.channel}/{ref.message}"


def _line(name: str, asking: ApprovalEntry, view: TurnView, refs: MessageRefs) -> OutgoingMessage:
    """Return one line for each call: its remote card, or its outcome."""
    places = ", ".join(_place(name, each, view, refs) for each in targets_of(asking))
    return OutgoingMessage(name, components=(text("\n".join(_call_text(step, view, places) for step in asking.calls)),))


def _call_text(step: ToolStep, view: TurnView, places: str) -> str:
    line = escape(tool_text(replace(tool_status(step, view), summary="", more="")))
    return f"{line} {places}" if step.status is StepStatus.AWAITING else line


def _place(card: str, place: Destination, view: TurnView, refs: MessageRefs) -> str:
    match place:
        case ChannelTarget(channel):
            ref = MessageRef.parse(refs.get(remote_slot(card, place), ""))
            link = f" ({message_address(view.turn.conversation, ref)})" if ref is not None else ""
            return f"in {channel_name(channel)}{link}"
        case DirectTarget(user):
            return f"by {person(Author(PLATFORM, user, ''))}"


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


# -------------------- elicitation cards
# A card notifies the user who must answer, when it is posted. Answers and page addresses never appear on it, and
# the server's text contains no links.

FIELDS, WARNING = 700, 300
ALONE = "the answer is private"


def elicitation_messages(entry: ElicitationEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """Return the elicitations of one call, one message each."""
    return tuple(_elicitation_message(entry.step, elicitation, view, now) for elicitation in entry.elicitations)


def _elicitation_message(step: ToolStep, elicitation: Elicitation, view: TurnView, now: float) -> OutgoingMessage:
    made = elicitation_card(step, elicitation, view)
    asked = bool(made.offers)
    return OutgoingMessage(
        f"question-{elicitation.id}",
        components=(_open_card(made, view.turn.author, now) if asked else _closed_card(made, elicitation),),
        asks=asked,
        calls=_author_name(view.turn.author) if asked else "",
    )


def _open_card(card: ElicitationCard, author: Author, now: float) -> Component:
    lines = [
        f"### {escape_to_limit(card.title, TITLE)}",
        f"**Server** {escape_to_limit(card.server, NAME)}   **Tool** {_tool_name(card)}",
    ]
    if card.fields:
        lines.append(f"**It asks for** {break_links(single_line(', '.join(card.fields), FIELDS))}")
    if card.domain:
        lines.append(f"**The page is on** {inline_code(card.domain)}")
    if card.message:
        lines += ["**The server says:**", *(f"> {break_links(line)}" for line in card.message.split("\n"))]
    if card.warning:
        lines.append(f"⚠ **{escape_to_limit(card.warning, WARNING)}**")
    lines.append(f"-# For {person(author)} alone · {ALONE} · {_elicitation_expiry(card, now)}")
    offered = (
        button(
            offer.label, RunCommandInNewReply(offer.words), ButtonStyle.SUCCESS if offer.strong else ButtonStyle.PLAIN
        )
        for offer in card.offers
    )
    return container([text("\n".join(lines)), *rows(offered)], ORANGE)


def _closed_card(card: ElicitationCard, elicitation: Elicitation) -> Component:
    """Return one line for the question and one for its outcome."""
    accepted = elicitation.reply is not None and elicitation.reply.action is ElicitationAction.ACCEPT
    title = escape_to_limit(card.title, TITLE)
    first = f"✅ **{title}**" if accepted else f"~~{title}~~"
    return container(
        [text(f"{first}\n{escape_to_limit(card.outcome, OUTCOME)} · {_tool_name(card)}")],
        GREEN if accepted else GREY,
    )


def _tool_name(card: ElicitationCard) -> str:
    return escape_to_limit(card.tool, NAME)


def _elicitation_expiry(card: ElicitationCard, now: float) -> str:
    """Return the expiry of an elicitation; an unposted one counts from `now`."""
    if card.expires_in is None:
        return card.expiry
    return f"expires {relative_time(card.expires_at or now + card.expires_in)}"


def _author_name(author: Author) -> str:
    return author.id if author.platform == PLATFORM and author.id.isdecimal() else ""


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
                slots += approval_messages(each, view, now, refs)
            case ElicitationEntry():
                slots += elicitation_messages(each, view, now)
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
