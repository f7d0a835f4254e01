"""Turns as Slack messages: answers, approval cards, elicitations, and cards in other channels.

The same view always gives the same blocks. Delete a posted message that is not in the result, for example after a
restarted, shorter reply. Text stays in its message while the section grows; blocks and streams split a reply alike.

Calls of one completion share a card; each has its own decision. A call with a hidden part that looks like a secret can
only be approved in the modal that shows all of it. The card of an elicitation mentions the user who must answer,
because Slack notifies when a message with a mention is posted, not when it is edited. Answers and page addresses never
appear on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
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
from bot.domain.conversations import ConversationKey
from bot.domain.elicitations import Elicitation, ElicitationAction
from bot.domain.secret_detection import redact
from bot.domain.turns import StepStatus, ToolStep, TurnStatus
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.slack.blocks import (
    MESSAGE_WEIGHT,
    Block,
    Element,
    OutgoingMessage,
    button,
    buttons,
    channel,
    confirmation,
    divider,
    encode,
    fallback,
    fallback_text,
    link,
    menu,
    moment,
    person,
    preformatted,
    quote,
    rich_section,
    rich_text,
    small,
    words,
)
from bot.platforms.slack.channels import MessageRef
from bot.platforms.slack.rich_text import RichTextBuilder
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
    format_duration,
    grant_offers,
    headline,
    outcome_parts,
    signatures,
    summary_line,
    withheld_text,
)
from bot.rendering.available_actions import RunAgainAction, StopTurnAction, available_actions
from bot.rendering.elicitation_card import ElicitationButton, ElicitationCard, elicitation_card
from bot.rendering.markdown_split import SizeLimit, split_once, text_weight
from bot.rendering.remote_cards import group_by_target, is_pending, remote_approvals, remote_slot, targets_of
from bot.rendering.text_safety import single_line, strip_control
from bot.rendering.timeline import (
    AI_NOTICE,
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
from bot.rendering.tool_status import tool_status

ROOM = SizeLimit(good=MESSAGE_WEIGHT * 2 // 3, most=MESSAGE_WEIGHT - 600)
"""Size limit of the text; the rest of the message is for the small lines at its end."""
LINE_WEIGHT = 250
"""Weight of a tool line, independent of its length, so that a changed line moves no text."""
ENTRIES = 20
CONTINUED = "(continued · {})"
OFFERS = 5
CALLS_A_CARD = 8
ARGUMENTS_WEIGHT = 5_000
"""Characters of arguments on one card; the calls on it share them."""
EXPIRES = "{date_short_pretty} at {time}"
DECIDED = "{time}"
ALONE = "the answer is private"
DIRECTLY = "a direct conversation"

# -------------------- approval cards


def card_messages(asking: ApprovalEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """Return the cards of calls that were requested together, at most CALLS_A_CARD in each."""
    pages = [asking.calls[start : start + CALLS_A_CARD] for start in range(0, len(asking.calls), CALLS_A_CARD)]
    return tuple(
        OutgoingMessage(
            f"card-{asking.number}" + (f"-{number}" if number else ""),
            *_card_blocks(calls, asking.reason, view, now),
            asks=any(step.status is StepStatus.AWAITING for step in calls),
        )
        for number, calls in enumerate(pages)
    )


def card_ref(approval: Approval) -> ApprovalRef:
    """Return the approval and revision that a button decides."""
    return ApprovalRef(approval.id, approval.revision)


def facts(card: ApprovalCard) -> Element:
    """Return the server, the tool and the risk of a call."""
    where = [words("Server ", bold=True), words(f"{card.server}   ")] if card.server else []
    tool = [words("Tool ", bold=True), words(f"{card.tool}   ")]
    return rich_section(*where, *tool, words("Risk ", bold=True), words(RISKS[card.risk]))


def decisions(step: ToolStep, card: ApprovalCard, *more: Element | None) -> list[Block]:
    """Return the buttons of one pending call, with `more` after the decisions. The approve buttons are missing if a
    part of the call is hidden.
    """
    ref = ApprovalRef(card.approval_id, card.revision)
    deny = button("Deny…", OpenDenyForm(ref))
    if card.withheld:
        return buttons([deny, *more])
    destructive = card.risk == "destructive"
    question = confirmation(headline(step, card), f"{card.tool} may destroy data, and cannot be taken back.", "Approve")
    approve = button(
        f"Approve: {single_line(call_title(step), 40)}",
        Approve((ref,)),
        "danger" if destructive else "primary",
        question if destructive else None,
    )
    offers = [(offer.label, ApproveWithGrant(ref, offer.word)) for offer in grant_offers(step)]
    allow = [button(label, press) for label, press in offers[:1]]
    return buttons([approve, *allow, deny, *more, menu(offers[1:])])


def _card_blocks(calls: Sequence[ToolStep], reason: str, view: TurnView, now: float) -> tuple[tuple[Block, ...], str]:
    blocks: list[Block] = []
    waiting = [step for step in calls if step.status is StepStatus.AWAITING]
    about = [rich_section(*_requirements_elements(waiting, reason, now))] if waiting else []
    room = ARGUMENTS_WEIGHT // max(len(waiting), 1)
    if len(calls) > 1:
        blocks.append(rich_text(rich_section(words(summary_line(len(calls), len(waiting)), bold=True))))
    for step in calls:
        made = approval_card(step)
        if made is None or step.approval is None:
            continue
        if blocks:
            blocks.append(divider())
        if step in waiting:
            blocks += _open(step, made, room, about if len(calls) == 1 else [])
        else:
            blocks += _settled(step, step.approval, made, view)
    if about and len(calls) > 1:
        blocks += [divider(), rich_text(*about), *_together(waiting)]
    said = fallback_text(blocks)
    return tuple(blocks), fallback(f"Approval needed: {said}" if waiting else said)


def _open(step: ToolStep, card: ApprovalCard, room: int, about: Sequence[Element]) -> list[Block]:
    elements = [rich_section(words(headline(step, card), bold=True)), facts(card)]
    if shown := argument_lines(card.arguments, room):
        elements.append(preformatted(shown))
    if changed := edit_lines(step):
        elements.append(rich_section(words("\n".join(changed), italic=True)))
    ref = ApprovalRef(card.approval_id, card.revision)
    edit = button("Edit…", Edit(ref)) if can_edit(step) else None
    if card.withheld:
        elements.append(rich_section(words(f"\n{withheld_text(card)}", bold=True)))
    view = button(VIEW_TO_APPROVE, ViewCall(ref), "primary") if card.withheld else button("View all", ViewCall(ref))
    return [rich_text(*elements, *about), *decisions(step, card, edit, view)]


def _settled(step: ToolStep, approval: Approval, card: ApprovalCard, view: TurnView) -> list[Block]:
    """Return one line for the call and one for its outcome. An expired call can be requested again after its turn has
    ended.
    """
    icon = ICONS.get(step.status, "")
    title = headline(step, card).removesuffix("?")
    first = words(f"{icon} {title}", bold=True) if icon else words(title, strike=True)
    at = (
        [words(" · "), moment(approval.decided_at, DECIDED, _in_utc(approval.decided_at))]
        if approval.decided_at
        else []
    )
    rest = [words(f" · {part}") for part in (*outcome_parts(step, view), card.short_id)]
    told = rich_text(rich_section(first, words("\n"), words(card.outcome), *at, *rest))
    timed_out = step.status is StepStatus.EXPIRED and view.turn.status.ended
    return [told, *(buttons([button("Ask again", RunAgainAction(view.turn.id, step.n))]) if timed_out else [])]


def _in_utc(at: float) -> str:
    """Return a UTC time for clients that cannot show local times: notifications, screen readers."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")


def _requirements_elements(waiting: Sequence[ToolStep], reason: str, now: float) -> list[Element]:
    """Return the requester, the model's reason, the expiry and the approval ids."""
    approvals = [step.approval for step in waiting if step.approval]
    made: list[Element] = [words(f"Reason given by the model: “{redact(reason)}”\n", italic=True)] if reason else []
    asker = approvals[0].requested_for
    made += [words("Asked by "), person(asker.id, asker.name)]
    made += [words(f" · {line}") for line in signatures(approvals)]
    made += [words(" · "), *_expiry(approvals, now), words(" · ")]
    return [*made, words(", ".join(single_line(approval.id, 200)[:8] for approval in approvals), code=True)]


def _expiry(approvals: Sequence[Approval], now: float) -> list[Element]:
    """Return the earliest expiry of these approvals."""
    end = earliest_expiry(approvals, now)
    if end is None:
        return [words("does not expire")]
    soonest, seconds = end
    return [words("expires "), moment(soonest, EXPIRES, f"within {format_duration(seconds)}")]


def _together(waiting: Sequence[ToolStep]) -> list[Block]:
    """Return the button that approves all calls, unless one is destructive or has a hidden part."""
    cards = [made for step in waiting if (made := approval_card(step))]
    if len(cards) < 2 or any(each.risk == "destructive" or each.withheld for each in cards):
        return []
    refs = tuple(ApprovalRef(each.approval_id, each.revision) for each in cards)
    return buttons([button(f"Approve all {len(cards)}", Approve(refs), "primary")])


# -------------------- elicitations


def elicitation_messages(entry: ElicitationEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """Return the elicitations of one call, one message each."""
    return tuple(_slot(entry.step, elicitation, view, now) for elicitation in entry.elicitations)


def open_elicitation(card: ElicitationCard) -> Block:
    """Return the question of an open elicitation, as plain text."""
    elements = [rich_section(words(card.title, bold=True)), *_facts(card)]
    if card.message:
        elements += [rich_section(words("The server says:")), quote(card.message)]
    if card.warning:
        elements.append(rich_section(words(f"⚠ {card.warning}", bold=True)))
    return rich_text(*elements)


def expiry(card: ElicitationCard, now: float) -> list[Element]:
    """Return the expiry of an elicitation; an unposted one counts from `now`."""
    if card.expires_in is None:
        return [words(card.expiry)]
    end = card.expires_at or now + card.expires_in
    return [words("expires "), moment(end, EXPIRES, f"within {format_duration(card.expires_in)}")]


def elicitation_buttons(offers: Sequence[ElicitationButton]) -> list[Block]:
    """Return the buttons of an open elicitation."""
    return buttons(
        button(offer.label, RunCommandInNewReply(offer.words), "primary" if offer.strong else "") for offer in offers
    )


def _slot(step: ToolStep, elicitation: Elicitation, view: TurnView, now: float) -> OutgoingMessage:
    made = elicitation_card(step, elicitation, view)
    blocks = _open_elicitation(made, view, now) if made.offers else _settled_elicitation(made, elicitation)
    text = fallback_text(blocks)
    return OutgoingMessage(
        f"question-{elicitation.id}",
        tuple(blocks),
        fallback(f"Answer needed: {text}" if made.offers else text),
        asks=bool(made.offers),
    )


def _open_elicitation(card: ElicitationCard, view: TurnView, now: float) -> list[Block]:
    author = view.turn.author
    about = [words("For "), person(author.id, author.name), words(f" alone · {ALONE} · "), *expiry(card, now)]
    return [open_elicitation(card), rich_text(rich_section(*about)), *elicitation_buttons(card.offers)]


def _facts(card: ElicitationCard) -> Iterator[Element]:
    """Return the server, the addressee and the requested data."""
    server = [words("Server ", bold=True), words(f"{card.server}   ")]
    yield rich_section(*server, words("Tool ", bold=True), words(card.tool))
    if card.fields:
        yield rich_section(words("It asks for ", bold=True), words(", ".join(card.fields)))
    if card.domain:
        yield rich_section(words("The page is on ", bold=True), words(card.domain, code=True))


def _settled_elicitation(card: ElicitationCard, elicitation: Elicitation) -> list[Block]:
    """Return one line for the question and one for its outcome."""
    accepted = elicitation.reply is not None and elicitation.reply.action is ElicitationAction.ACCEPT
    title = words(f"✅ {card.title}", bold=True) if accepted else words(card.title, strike=True)
    return [rich_text(rich_section(title, words(f"\n{card.outcome} · {card.tool}")))]


# -------------------- remote cards
# A remote card stands in its channel; a line in the thread links to it. Links are built from message refs without a
# request.


@dataclass(frozen=True, slots=True)
class SentCards:
    """Posted remote cards of a turn, and the URL of the workspace."""

    url: str = ""
    refs: MessageRefs = field(default_factory=dict)

    def address(self, slot: str) -> str:
        """Return the permalink of a message; empty if it is not posted."""
        ref = MessageRef.parse(self.refs.get(slot, ""))
        return message_address(self.url, ref) if ref is not None else ""


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """A card in one of its places; `card` is its slot in the conversation."""

    card: str
    place: Destination
    slot: OutgoingMessage


def approval_messages(
    asking: ApprovalEntry, view: TurnView, now: float, outside: SentCards
) -> Iterator[OutgoingMessage]:
    """Return the messages for calls that were requested together: cards, or lines that link to remote cards."""
    for each in group_by_target(asking):
        slots = card_messages(each, view, now)
        if targets_of(each) and is_pending(each):
            yield from (_line(slot.name, each, view, outside) for slot in slots[:1])
        else:
            yield from slots


def remote_cards(view: TurnView, now: float, url: str) -> Iterator[RemoteCard]:
    """Return the remote cards of a turn by channel, each with a link to its conversation."""
    asked_in = rich_text(rich_section(words("Asked in "), _origin(view.turn.conversation, url)))
    for asking in remote_approvals(view):
        for slot in card_messages(asking, view, now):
            whole = replace(slot, blocks=(*slot.blocks, asked_in))
            for place in targets_of(asking):
                yield RemoteCard(slot.name, place, replace(whole, name=remote_slot(slot.name, place)))


def message_address(url: str, ref: MessageRef) -> str:
    """Return the permalink of a message, as chat.getPermalink would, without a request."""
    return f"{url.rstrip('/')}/archives/{ref.channel}/p{ref.ts.replace('.', '')}" if url else ""


def _origin(conversation: ConversationKey, url: str) -> Element:
    if conversation.channel.startswith("D"):
        return words(DIRECTLY)
    address = message_address(url, MessageRef(conversation.channel, conversation.thread)) if conversation.thread else ""
    return link(address, "this thread") if address else channel(conversation.channel)


def _line(name: str, asking: ApprovalEntry, view: TurnView, outside: SentCards) -> OutgoingMessage:
    """Return one line for each call: its remote card, or its outcome."""
    places = _places(name, targets_of(asking), outside)
    sections = [rich_section(*_call_elements(step, view, places)) for step in asking.calls]
    blocks = (rich_text(*sections),)
    return OutgoingMessage(name, blocks, fallback(fallback_text(blocks)))


def _call_elements(step: ToolStep, view: TurnView, places: Sequence[Element]) -> list[Element]:
    line = words(tool_text(replace(tool_status(step, view), summary="", more="")))
    return [line, *places] if step.status is StepStatus.AWAITING else [line]


def _places(card: str, places: Sequence[Destination], outside: SentCards) -> list[Element]:
    elements: list[Element] = []
    for number, place in enumerate(places):
        elements.append(words(", " if number else " "))
        match place:
            case ChannelTarget(id):
                elements += [words("in "), channel(id)]
                if address := outside.address(remote_slot(card, place)):
                    elements += [words(" ("), link(address, "card"), words(")")]
            case DirectTarget(id):
                elements += [words("by "), person(id)]
    return elements


# -------------------- turns


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


NOWHERE = SentCards()


def turn_messages(view: TurnView, now: float, outside: SentCards = NOWHERE) -> tuple[OutgoingMessage, ...]:
    """Return all messages of a turn in its conversation, in order. The expiry of unposted cards counts from `now`
    (epoch seconds); `outside` are the posted remote cards.
    """
    sequence = timeline(view)
    last = max(number for number, each in enumerate(sequence) if isinstance(each, TimelineSection))
    slots: list[OutgoingMessage] = []
    for number, each in enumerate(sequence):
        match each:
            case ApprovalEntry():
                slots += approval_messages(each, view, now, outside)
            case ElicitationEntry():
                slots += elicitation_messages(each, view, now)
            case TimelineSection():
                parts = split_reply(each)
                slots += [_reply_message(part, view, ends=number == last and part.last) for part in parts]
    return tuple(slots)


def _reply_message(part: ReplyMessage, view: TurnView, *, ends: bool) -> OutgoingMessage:
    prose = RichTextBuilder()
    if part.number:
        prose.block(*small(CONTINUED.format(part.number + 1)))
    for kind, group in groupby(drop_repeats(part.entries, view), key=type):
        _add_entries(prose, kind, list(group))
    if not prose.blocks:
        prose.block(*small(busy_text(WORKING)))
    text = fallback(fallback_text(prose.blocks))
    if ends:
        prose.block(*_ending(view, part))
    return OutgoingMessage(part.name, tuple(prose.blocks), text)


def _add_entries(prose: RichTextBuilder, kind: type[Entry], entries: list[Entry]) -> None:
    """Add consecutive entries of one kind."""
    if kind is CallLine:
        prose.block(*small(*(tool_text(each.line) for each in entries if isinstance(each, CallLine))))
        return
    for entry in entries:
        match entry:
            case ReplyText(text):
                prose.markdown(text)
            case ToolOutput(text):
                prose.block(rich_text(preformatted(truncate_output(text))))
            case Note(text):
                prose.block(*small(text))
            case ActivityLine(text):
                prose.block(*small(busy_text(text)))
            case Failure(text, reference):
                prose.block(rich_text(rich_section(words(f"⚠ {text}  "), words(f"ref {reference}", code=True))))
            case CallLine():
                continue


def _ending(view: TurnView, part: ReplyMessage) -> list[Block]:
    """Return the buttons at the end of a turn."""
    turn = view.turn
    if turn.status is TurnStatus.QUEUED:
        return buttons(
            [
                *(button(offer_label(action, view), action) for action in available_actions(view)[:OFFERS]),
                button("Withdraw", StopTurnAction(turn.id)),
            ]
        )
    if not turn.status.ended:
        return buttons([button("Stop", StopTurnAction(turn.id))])
    ways = buttons(button(offer_label(action, view), action) for action in available_actions(view)[:OFFERS])
    answered = turn.status is TurnStatus.DONE and any(isinstance(entry, ReplyText) for entry in part.entries)
    return [*ways, *([_feedback(turn.id), *small(AI_NOTICE)] if answered else [])]


def _feedback(turn_id: str) -> Block:
    good, bad = (encode(SendFeedback(turn_id, opinion)) for opinion in (FeedbackValue.GOOD, FeedbackValue.BAD))
    assert good is not None and bad is not None  # noqa: PT018 - a turn's id is short
    sides = {
        "positive_button": {"text": {"type": "plain_text", "text": "Good answer"}, "value": good[1]},
        "negative_button": {"text": {"type": "plain_text", "text": "Bad answer"}, "value": bad[1]},
    }
    return {"type": "context_actions", "elements": [{"type": "feedback_buttons", "action_id": good[0], **sides}]}
