"""Cards as messages: approvals, elicitations, and remote cards in other conversations.

Calls of one model reply share a card; each has its own decision. A call with a hidden part that looks like a secret can
only be approved in the private view of the whole call. Answers to an elicitation and page addresses never appear on a
card. A remote card stands in its channel; a line in the conversation links to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Generic, TypeVar

from bot.chat.actions import ApprovalRef, Approve, ApproveWithGrant, Edit, OpenDenyForm, RunCommandInNewReply, ViewCall
from bot.chat.message_model import (
    Arguments,
    Block,
    Button,
    Buttons,
    ButtonStyle,
    ChannelLink,
    Confirmation,
    Details,
    Footer,
    GroupMention,
    Heading,
    Link,
    Mention,
    MenuEntry,
    Message,
    Paragraph,
    Quote,
    Rule,
    Span,
    Spans,
    Text,
    Time,
    TimeFormat,
    Tone,
    clock_time,
    fill_spans,
)
from bot.domain.approvals import (
    Approval,
    ApprovalNotice,
    Approver,
    ChannelTarget,
    Destination,
    DirectTarget,
    approval_targets,
)
from bot.domain.commands import ActionStyle, ReplyAction
from bot.domain.conversations import HTTP, Author
from bot.domain.elicitations import ElicitationAction
from bot.domain.secrets import redact
from bot.domain.tools import Risk
from bot.domain.turns import StepStatus, ToolStep, Turn, TurnView
from bot.i18n import _, format_datetime, format_time, format_time_zone, gettext_lazy, ngettext
from bot.rendering.approval_card import (
    APPROVERS_LIMIT,
    ICONS,
    RISKS,
    VIEW_ALL,
    VIEW_TO_APPROVE,
    ApprovalCard,
    approval_card,
    approved_by_text,
    approver_name,
    approver_reason,
    asker_may_approve_text,
    both_sets,
    call_title,
    can_edit,
    earliest_expiry,
    edit_lines,
    either,
    excluded_names,
    grant_offers,
    headline,
    more_approvers,
    outcome_parts,
    required_approvers_phrase,
    required_approvers_text,
    summary_line,
    withheld_text,
)
from bot.rendering.elicitation_card import ElicitationCard, elicitation_card
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import ApprovalEntry, ElicitationEntry, RunAgainAction, timeline, tool_status, tool_text

_DAY = 86_400.0
TITLE, NAME, REASON, OUTCOME, RESULT, CHANGE, FIELDS, WARNING, PREVIEW = 180, 70, 400, 240, 120, 120, 700, 300, 240
LINE = 300
"""Maximum lengths on a platform with small messages, so that the calls of one card leave room for their arguments."""
OPEN_CARD = gettext_lazy("Open the card")
MOST_NAMES = 3
"""Names at the beginning of a notification."""
DIRECT_CONVERSATION = gettext_lazy("a direct conversation")
_NOT_RUN = frozenset({StepStatus.DENIED, StepStatus.EXPIRED, StepStatus.CANCELLED})
_WENT_WRONG = frozenset({StepStatus.FAILED, StepStatus.UNKNOWN})
_SEPARATOR = Text(" · ")
UNREACHED = "!"
"""The reference of a card that could not be posted in this place, but was in another one."""
NO_MEMBER = gettext_lazy("That person does not belong here any more.")
_BETWEEN = "@"

N = TypeVar("N")
CardAddress = Callable[[str], str]
"""Return the URL of a posted message by its slot; empty if it is not posted or has no URL."""


def without_address(slot: str) -> str:  # noqa: ARG001 - a CardAddress
    """Return no URL."""
    return ""


@dataclass(frozen=True, slots=True)
class RemoteMessage(Generic[N]):
    """A card in one of its places, in the form of a platform; `card` is its slot in the conversation."""

    card: str
    place: Destination
    message: N


def approval_messages(
    asking: ApprovalEntry, view: TurnView, now: float, *, calls_a_card: int, address: CardAddress = without_address
) -> Iterator[Message]:
    """Yield the messages for calls that were requested together: cards, or lines that link to remote cards.

    The expiry of an unposted card counts from `now` (epoch seconds).
    """
    notified: set[str] = set()
    for group in _group_by_target(asking):
        cards = _cards(group, view, now, calls_a_card, notified)
        if not (_targets_of(group) and any(step.status is StepStatus.AWAITING for step in group.calls)):
            yield from cards
            continue
        places = _places(cards[0].name, group, view.turn.conversation.platform, address)
        lines: list[Block] = []
        for step in group.calls:
            line = Text(tool_text(replace(tool_status(step, view), summary="", more="")))
            lines.append(Paragraph((line, *places) if step.status is StepStatus.AWAITING else (line,)))
        yield Message(cards[0].name, tuple(lines))


def remote_cards(
    view: TurnView, now: float, origin: Span, render: Callable[[Message], N], *, calls_a_card: int
) -> Iterator[RemoteMessage[N]]:
    """Yield the remote cards of a turn by channel; `origin` links to its conversation, `render` returns a card in the
    form of the platform. Of several channels the first one notifies. A direct message needs no mention.
    """
    asked_in = Footer(fill_spans(_("Asked in {conversation}"), conversation=origin))
    for asking in remote_approvals(view):
        targets = _targets_of(asking)
        loudest = next((target for target in targets if isinstance(target, ChannelTarget)), None)
        for card in _cards(asking, view, now, calls_a_card, set()):
            whole = replace(card, blocks=(*card.blocks, asked_in))
            for place in targets:
                notifies = card.notifies if place is loudest else frozenset[str]()
                posted = replace(whole, name=remote_slot(card.name, place), notifies=notifies)
                yield RemoteMessage(card.name, place, render(posted))


def distant_origin(turn: Turn) -> Text:
    """Return the origin of a call that was asked outside of the platform of its card."""
    author = turn.author
    return Text(author.name if author.platform == HTTP else _("the console"), limit=NAME)


def card_slots(view: TurnView, approval_id: str, calls_a_card: int) -> tuple[str, ...]:
    """Return the slots of the cards of a call, in all of its places; empty if it has none."""
    entries = [entry for entry in timeline(view) if isinstance(entry, ApprovalEntry)]
    for group in (group for entry in entries for group in _group_by_target(entry)):
        for name, calls in _pages(group, calls_a_card):
            if any(step.approval is not None and step.approval.id == approval_id for step in calls):
                return tuple(remote_slot(name, target) for target in _targets_of(group)) or (name,)
    return ()


def elicitation_messages(entry: ElicitationEntry, view: TurnView, now: float) -> Iterator[Message]:
    """Yield the elicitations of one call, one message each. An open one notifies its addressee."""
    for elicitation in entry.elicitations:
        card = elicitation_card(entry.step, elicitation, view)
        name = f"question-{elicitation.id}"
        if card.offers:
            author = view.turn.author
            blocks = (*open_elicitation(card, author, now), elicitation_buttons(card.offers))
            yield Message(
                name,
                blocks,
                Tone.PENDING,
                alert=_("Answer needed") + ": ",
                notifies=frozenset({author.principal}),
                asks=True,
            )
        else:
            accepted = elicitation.reply is not None and elicitation.reply.action is ElicitationAction.ACCEPT
            title = Text(card.title, bold=accepted, strike=not accepted, limit=TITLE)
            first = (Text("✅ "), title) if accepted else (title,)
            outcome = (Text(card.outcome, limit=OUTCOME), _SEPARATOR, Text(card.tool, limit=NAME))
            yield Message(
                name, (Paragraph((*first, Text("\n"), *outcome)),), Tone.SUCCESS if accepted else Tone.NEUTRAL
            )


def _group_by_target(asking: ApprovalEntry) -> Sequence[ApprovalEntry]:
    groups = [tuple(calls) for _, calls in groupby(asking.calls, lambda step: approval_targets(step.approval))]
    return [replace(asking, number=calls[0].n, calls=calls) for calls in groups]


def _targets_of(asking: ApprovalEntry) -> tuple[Destination, ...]:
    """Return the targets of these calls' cards outside the conversation; empty if they stay in it."""
    return approval_targets(asking.calls[0].approval)


def remote_approvals(view: TurnView) -> Sequence[ApprovalEntry]:
    """Return the calls of a turn with cards in other places, in order, an entry for each card."""
    entries = [entry for entry in timeline(view) if isinstance(entry, ApprovalEntry)]
    return [group for entry in entries for group in _group_by_target(entry) if _targets_of(group)]


def remote_slot(card: str, place: Destination) -> str:
    """Return the slot of a card in one of its places; `card` is its slot in the conversation."""
    return f"{card}{_BETWEEN}{place.id}"


def is_remote_slot(slot: str) -> bool:
    """Return True for the slot of a remote card."""
    return _BETWEEN in slot


def call_facts(card: ApprovalCard) -> Paragraph:
    """Return the server, the tool and the risk of a call."""
    server = _fact(_("Server"), Text(card.server, limit=NAME)) if card.server else ()
    tool = _fact(_("Tool"), Text(card.tool, limit=NAME))
    return Paragraph((*server, *tool, Text(_("Risk"), bold=True), Text(f" {RISKS[card.risk]}")))


def _fact(name: str, value: Text) -> Spans:
    return Text(name, bold=True), Text(" "), value, Text("   ")


def decision_buttons(step: ToolStep, card: ApprovalCard, *more: Button) -> Buttons:
    """Return the buttons of one pending call, with `more` after the decisions. The approve buttons are missing if a
    part of the call is hidden.
    """
    ref = ApprovalRef(card.approval_id, card.revision)
    deny = Button(_("Deny…"), OpenDenyForm(ref))
    if card.withheld:
        return Buttons((deny, *more))
    question = approval_question(step, card) if step.may_destroy else None
    approve = Button(
        _("Approve: {call}", call=single_line(call_title(step), 40)),
        Approve((ref,)),
        ButtonStyle.DANGER if question else ButtonStyle.POSITIVE,
        question,
    )
    grants = [
        MenuEntry(str(offer.label), str(offer.hint), ApproveWithGrant(ref, offer.word)) for offer in grant_offers(step)
    ]
    allow = [Button(entry.label, entry.action) for entry in grants[:1]]
    return Buttons((approve, *allow, deny, *more), tuple(grants[1:]))


def approval_question(step: ToolStep, card: ApprovalCard) -> Confirmation:
    """Return the question before a call is approved that may destroy data."""
    may = _("{tool} may destroy data, and cannot be taken back.", tool=card.tool)
    unknown = _("Nobody knows if {tool} reads or writes: its server is not trusted.", tool=card.tool)
    text = unknown if card.risk is Risk.UNKNOWN else may
    return Confirmation(headline(step, card), text, _("Approve"))


def confirmation_message(step: ToolStep, card: ApprovalCard) -> Message:
    """Return the same question as a message of its own, with the button that approves the call."""
    question = approval_question(step, card)
    approve = Approve((ApprovalRef(card.approval_id, card.revision),))
    blocks = (
        Heading(question.title, TITLE),
        Paragraph((Text(question.text),)),
        Buttons((Button(question.confirm, approve, ButtonStyle.DANGER),)),
    )
    return Message(f"confirm-{card.approval_id}", blocks, Tone.DANGER, asks=True)


def open_elicitation(card: ElicitationCard, author: Author, now: float) -> tuple[Block, ...]:
    """Return an open elicitation without its buttons. Only `author` may answer."""
    about = fill_spans(
        _("For {user} alone · the answer is private · {expiry}"),
        user=Mention(author),
        expiry=elicitation_expiry(card, now),
    )
    return (*elicitation_question(card), Footer(about))


def elicitation_question(card: ElicitationCard) -> tuple[Block, ...]:
    """Return the question of an open elicitation: server, requested data, message and warning."""
    server = _fact(_("Server"), Text(card.server, limit=NAME))
    blocks: list[Block] = [
        Heading(card.title, TITLE),
        Paragraph((*server, Text(_("Tool"), bold=True), Text(" "), Text(card.tool, limit=NAME))),
    ]
    if card.fields:
        asked = Text(", ".join(card.fields), limit=FIELDS, unlinked=True)
        blocks.append(Paragraph((Text(_("It asks for"), bold=True), Text(" "), asked)))
    if card.domain:
        blocks.append(Paragraph((Text(_("The page is on"), bold=True), Text(" "), Text(card.domain, code=True))))
    if card.message:
        blocks += [Paragraph((Text(_("The server says:"), bold=True),)), Quote(card.message)]
    if card.warning:
        blocks.append(Paragraph((Text("⚠ "), Text(card.warning, bold=True, limit=WARNING))))
    return tuple(blocks)


def elicitation_expiry(card: ElicitationCard, now: float) -> Spans:
    """Return the expiry of an elicitation; that of an unposted one counts from `now`."""
    if card.expires_in is None:
        return (Text(_("does not expire")),)
    return _expires(card.expires_at or now + card.expires_in, card.expires_in)


def elicitation_buttons(offers: Sequence[ReplyAction]) -> Buttons:
    """Return the buttons of an open elicitation."""
    styles = {ActionStyle.PRIMARY: ButtonStyle.POSITIVE}
    buttons = (
        Button(offer.label, RunCommandInNewReply(offer.words), styles.get(offer.tone, ButtonStyle.PLAIN))
        for offer in offers
    )
    return Buttons(tuple(buttons))


def _cards(
    asking: ApprovalEntry, view: TurnView, now: float, calls_a_card: int, notified: set[str]
) -> tuple[Message, ...]:
    """Return the cards of calls that were requested together, at most `calls_a_card` in each. A card notifies the
    approvers that are not in `notified` yet, and adds them.
    """
    cards: list[Message] = []
    for name, calls in _pages(asking, calls_a_card):
        card = _card(name, calls, asking.reason, view, now)
        # Whether the calls are decided by now or not.
        mentioned = {
            approver.principal
            for step in calls
            if step.approval is not None
            for approver in step.approval.possible_approvers.with_notice(ApprovalNotice.MENTION)
        }
        cards.append(replace(card, notifies=frozenset(mentioned - notified)))
        notified |= mentioned
    return tuple(cards)


def _pages(asking: ApprovalEntry, calls_a_card: int) -> Iterator[tuple[str, Sequence[ToolStep]]]:
    for number, start in enumerate(range(0, len(asking.calls), calls_a_card)):
        yield f"card-{asking.number}" + (f"-{number}" if number else ""), asking.calls[start : start + calls_a_card]


def _card(name: str, calls: Sequence[ToolStep], reason: str, view: TurnView, now: float) -> Message:
    waiting = [step for step in calls if step.status is StepStatus.AWAITING]
    about = _requirements(waiting, reason, now, view.turn.question.agent_name) if waiting else ()
    several = len(calls) > 1
    blocks: list[Block] = []
    if several:
        blocks.append(Paragraph((Text(summary_line(len(calls), len(waiting)), bold=True),)))
    for step in calls:
        card = approval_card(step)
        if card is None or step.approval is None:
            continue
        if blocks:
            blocks.append(Rule())
        if step in waiting:
            blocks += [*_open_call(step, card), *(() if several else about), open_call_buttons(step, card)]
        else:
            blocks += _decided_call(step, step.approval, card, view)
    if about and several:
        blocks += [Rule(), *about, *_approve_all(waiting)]
    if waiting:
        cards = filter(None, map(approval_card, waiting))
        tone = Tone.DANGER if any(card.risk is Risk.DESTRUCTIVE for card in cards) else Tone.PENDING
    elif any(step.status in _WENT_WRONG for step in calls):
        tone = Tone.DANGER
    else:
        tone = Tone.NEUTRAL if all(step.status in _NOT_RUN for step in calls) else Tone.SUCCESS
    alert = f"{_alert(waiting)}: " if waiting else ""
    return Message(name, tuple(blocks), tone, alert=alert, asks=bool(waiting))


def pending_call(step: ToolStep, card: ApprovalCard, now: float, agent: str = "") -> tuple[Block, ...]:
    """Return a call that waits for an approval, without its buttons and the reason of the model. `agent` is the name of
    the agent that was asked.
    """
    return (*_open_call(step, card), *_requirements((step,), "", now, agent))


def pending_line(step: ToolStep, card: ApprovalCard, now: float, agent: str = "") -> tuple[Block, ...]:
    """Return the same with the call and all of its arguments in one line, if there is room."""
    line = " · ".join(f"{argument.label}: {argument.preview}" for argument in card.arguments)
    is_whole = not card.shortened and not any(argument.warnings for argument in card.arguments)
    if not is_whole or card.withheld or card.preview or edit_lines(step) or "\n" in line or len(line) > LINE:
        return pending_call(step, card, now, agent)
    title = Text(headline(step, card).removesuffix("?"), bold=True, limit=TITLE)
    arguments = (_SEPARATOR, Text(line, unlinked=True)) if line else ()
    shown = Paragraph((title, *arguments, _SEPARATOR, Text(str(RISKS[card.risk]))))
    return (shown, *_requirements((step,), "", now, agent))


def alike_button(steps: Sequence[ToolStep]) -> Button | None:
    """Return the button that approves all of these calls, if they are of one tool, none of them may destroy data, and
    no part is hidden.
    """
    cards = [card for step in steps if (card := approval_card(step))]
    is_one_tool = len({(card.server, card.tool) for card in cards}) == 1
    is_harmless = not any(step.may_destroy for step in steps)
    if len(cards) < 2 or not (is_one_tool and is_harmless) or any(card.shortened or card.withheld for card in cards):
        return None
    refs = tuple(ApprovalRef(card.approval_id, card.revision) for card in cards)
    call = single_line(call_title(steps[0]), 40)
    label = _("Approve these {n} alike: {call}", n=len(cards), call=call)
    return Button(label, Approve(refs), ButtonStyle.POSITIVE)


def _open_call(step: ToolStep, card: ApprovalCard) -> Iterator[Block]:
    yield Heading(headline(step, card), TITLE)
    yield call_facts(card)
    yield Arguments(card.arguments)
    if card.preview:
        yield Details((_("Shows now: {text}", text=card.preview),), PREVIEW)
    if changed := edit_lines(step):
        yield Details(changed, CHANGE)
    if card.withheld:
        yield Paragraph((Text(withheld_text(card), bold=True),))


def open_call_buttons(step: ToolStep, card: ApprovalCard) -> Buttons:
    """Return the buttons of one pending call on its card."""
    ref = ApprovalRef(card.approval_id, card.revision)
    edit = (Button(_("Edit…"), Edit(ref)),) if can_edit(step) else ()
    whole = Button(str(VIEW_ALL), ViewCall(ref))
    if card.withheld:
        whole = Button(str(VIEW_TO_APPROVE), ViewCall(ref), ButtonStyle.PRIMARY)
    return decision_buttons(step, card, *edit, whole)


def _decided_call(step: ToolStep, approval: Approval, card: ApprovalCard, view: TurnView) -> Iterator[Block]:
    """Yield the call and its outcome. An expired call can be requested again after its turn has ended."""
    icon = ICONS.get(step.status, "")
    title = headline(step, card).removesuffix("?")
    first = (
        (Text(f"{icon} "), Text(title, bold=True, limit=TITLE)) if icon else (Text(title, strike=True, limit=TITLE),)
    )
    at = approval.decided_at
    decided = (_SEPARATOR, clock_time(at)) if at else ()
    # A card is not edited again when its call is sent.
    sent = replace(step, status=StepStatus.STARTED) if step.status is StepStatus.READY else step
    rest = [span for part in outcome_parts(sent, view) for span in (_SEPARATOR, Text(part, limit=RESULT))]
    outcome = Text(card.outcome, limit=OUTCOME)
    yield Paragraph(
        (*first, Text("\n"), outcome, *decided, *rest, _SEPARATOR, Text(single_line(approval.id, 200)[:8], code=True))
    )
    if step.status is StepStatus.EXPIRED and view.turn.status.ended:
        yield Buttons((Button(_("Ask again"), RunAgainAction(view.turn.id, step.n)),))


def _requirements(waiting: Sequence[ToolStep], reason: str, now: float, agent: str) -> tuple[Block, ...]:
    """Return the model's reason, the requester, the agent, the required approvers, the expiry and the approval ids."""
    approvals = [step.approval for step in waiting if step.approval]
    why = Text(_("Reason given by the model: “{reason}”", reason=redact(reason)), italic=True, limit=REASON)
    ids = [Text(single_line(approval.id, 200)[:8], code=True) for approval in approvals]
    listed = [span for number, text in enumerate(ids) for span in ((Text(", "), text) if number else (text,))]
    asked = fill_spans(_("Asked by {user}"), user=Mention(approvals[0].requested_for))
    if agent:
        asked = (*asked, _SEPARATOR, Text(_("Agent: {name}", name=single_line(agent, NAME))))
    lines = [span for line in _approver_lines(waiting) for span in (_SEPARATOR, *line)]
    end = earliest_expiry(approvals, now)
    expiry = (Text(_("does not expire")),) if end is None else _expires(*end)
    footer = Footer((*asked, *lines, _SEPARATOR, *expiry, _SEPARATOR, *listed))
    notes = dict.fromkeys(approval.possible_approvers.note for approval in approvals)
    stays = (
        Footer((Text(_("The approvers get no card of their own: {reason}.", reason=note), limit=OUTCOME),))
        for note in notes
        if note
    )
    return (Paragraph((why,)), footer, *stays) if reason else (footer, *stays)


def _approver_lines(waiting: Sequence[ToolStep]) -> list[Spans]:
    """Return the required approvers and the approvers so far, each once."""
    named: dict[Spans, None] = {}
    texts: dict[str, None] = {}
    for step in waiting:
        approval = step.approval
        if approval is None:
            continue
        if sets := approval.possible_approvers.sets:
            named[_required_approvers(step, approval, sets)] = None
        else:
            texts[required_approvers_text(step, approval)] = None
        texts[approved_by_text(approval)] = None
    text = " · ".join(filter(None, texts))
    return [*named, (Text(text, limit=OUTCOME),)] if text else list(named)


def _required_approvers(step: ToolStep, approval: Approval, sets: Sequence[Sequence[Approver]]) -> Spans:
    requirements = approval.requirements
    if requirements.asker_may_approve:
        return fill_spans(asker_may_approve_text("{name}"), name=Mention(approval.requested_for))
    approvers = _joined(both_sets, [_any_of(approvers, approval.requested_for.platform) for approvers in sets])
    named = fill_spans(
        required_approvers_phrase(approval),
        quorum=Text(str(requirements.quorum)),
        approvers=approvers,
        names=Text(excluded_names(approval)),
    )
    reason = approver_reason(step)
    return (Text(reason), _SEPARATOR, *named) if reason else named


def _any_of(approvers: Sequence[Approver], platform: str) -> Spans:
    """Return approvers, the notified ones first; without those at most APPROVERS_LIMIT."""
    ordered = sorted(approvers, key=lambda approver: approver.notice is ApprovalNotice.NONE)
    count = max(APPROVERS_LIMIT, sum(approver.notice is not ApprovalNotice.NONE for approver in ordered))
    named: list[Spans] = []
    for approver in ordered[:count]:
        kind, colon, user = approver.principal.partition(":")
        if not colon:
            named.append((Text(approver_name(approver)),))
        elif kind == platform:
            named.append((Mention(Author(platform, user, approver.name)),))
        else:
            named.append((GroupMention(approver.principal, approver.name),))
    spans = _joined(either, named) if named else ()
    if (more := len(ordered) - count) > 0:
        return fill_spans(more_approvers("{names}", more), names=spans)
    return spans


def _joined(phrase: Callable[[str, str], str], spans: Sequence[Spans]) -> Spans:
    template = phrase("{first}", "{second}")
    return reduce(lambda first, second: fill_spans(template, first=first, second=second), spans)


def _alert(waiting: Sequence[ToolStep]) -> str:
    """Return the beginning of a notification, with the approvers. The call follows it."""
    approvers = [
        approver
        for step in waiting
        if step.approval is not None
        for approver in step.approval.possible_approvers.all
        if approver.principal != step.approval.requested_for.principal
    ]
    names = list(dict.fromkeys(map(approver_name, approvers)))
    if not names:
        return _("Approval needed")
    listed, more = reduce(either, names[:MOST_NAMES]), len(names) - MOST_NAMES
    return _("Approval needed from {names}", names=more_approvers(listed, more) if more > 0 else listed)


def _expires(at: float, seconds: float) -> Spans:
    values = {"time": format_time(at) if seconds < _DAY else format_datetime(at), "zone": format_time_zone()}
    fallback = _("at {time} {zone}", **values)
    return fill_spans(_("expires {time}"), time=Time(at, TimeFormat.EXPIRY, fallback))


def _approve_all(waiting: Sequence[ToolStep]) -> Iterator[Block]:
    """Yield the button that approves all calls, unless one is destructive or has a hidden part."""
    cards = [card for step in waiting if (card := approval_card(step))]
    if len(cards) < 2 or any(step.may_destroy for step in waiting) or any(card.withheld for card in cards):
        return
    refs = tuple(ApprovalRef(card.approval_id, card.revision) for card in cards)
    label = ngettext("Approve all {n}", "Approve all {n}", len(cards))
    yield Buttons((Button(label, Approve(refs), ButtonStyle.POSITIVE),))


def _places(card: str, asking: ApprovalEntry, platform: str, address: CardAddress) -> Spans:
    """Return where a card is."""
    approvals = [step.approval for step in asking.calls if step.approval is not None]
    approvers = [approver for approval in approvals for approver in approval.possible_approvers.all]
    names = {approver.principal.partition(":")[2]: approver.name for approver in approvers}
    spans: list[Span] = []
    for number, place in enumerate(_targets_of(asking)):
        spans.append(Text(", " if number else " "))
        match place:
            case ChannelTarget(channel):
                url = address(remote_slot(card, place))
                link: Spans = (Text(" ("), Link(url, _("card")), Text(")")) if url else ()
                spans += [*fill_spans(_("in {channel}"), channel=ChannelLink(channel)), *link]
            case DirectTarget(user):
                mention = Mention(Author(platform, user, names.get(user, "")))
                spans += fill_spans(_("by {name}"), name=mention)
    return tuple(spans)
