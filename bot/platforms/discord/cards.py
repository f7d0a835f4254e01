"""Approval cards as Discord components, and remote cards: the card in its channel, the line in the thread that links to
it.

Calls of one model reply share a card; each has its own decision. A call with a hidden part that looks like a secret can
only be approved from the ephemeral messages that show all of it. A card uses Components V2, which text of models and
tools cannot imitate. It stays within Discord's 40 components and 4,000 characters; omitted parts are counted.

Links are built from message refs without a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bot.chat.actions import ApprovalRef, Approve, ApproveWithGrant, Edit, OpenDenyForm, ViewCall
from bot.domain.approvals import Approval, ChannelTarget, Destination, DirectTarget
from bot.domain.conversations import Author, ConversationKey
from bot.domain.secret_detection import redact
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import MessageRefs, TurnView
from bot.platforms.discord.channel_ref import PLATFORM, MessageRef, channel_id_of
from bot.platforms.discord.components import ButtonStyle, Component, button, container, rows, separator, text
from bot.platforms.discord.escaping import DISPLAYED, display_length, escape, escape_to_limit
from bot.platforms.discord.markdown import code_block, inline_code
from bot.platforms.discord.outgoing import OutgoingMessage
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
from bot.rendering.available_actions import RunAgainAction
from bot.rendering.call_arguments import CardArgument
from bot.rendering.remote_cards import group_by_target, is_pending, remote_approvals, remote_slot, targets_of
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import ApprovalEntry, tool_text
from bot.rendering.tool_status import tool_status

CALLS_A_CARD = 4
"""Each takes up to eight components while it waits."""
TITLE, NAME, REASON, OUTCOME, RESULT, CHANGE = 180, 70, 400, 240, 120, 120
"""Characters, so that CALLS_A_CARD calls fit onto a card and leave room for their arguments."""
SPARE = 60
LEAST_ROOM = 150
"""Characters for the arguments of a call."""
ORANGE, GREEN, RED, GREY = 0xE67E22, 0x2ECC71, 0xE74C3C, 0x95A5A6
_NOT_RUN = frozenset({StepStatus.DENIED, StepStatus.EXPIRED, StepStatus.CANCELLED})
_WENT_WRONG = frozenset({StepStatus.FAILED, StepStatus.UNKNOWN})


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
    return f"{why}-# Asked by {person(approvals[0].requested_for)} · {signing}{_expiry(approvals, now)} · {ids}"


def _expiry(approvals: Sequence[Approval], now: float) -> str:
    """Return the earliest expiry of these approvals."""
    end = earliest_expiry(approvals, now)
    return "does not expire" if end is None else f"expires {relative_time(end[0])}"


ADDRESS = "https://discord.com/channels"
DIRECTLY = "a direct conversation"


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
