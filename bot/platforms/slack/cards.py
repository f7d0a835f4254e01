"""Approval cards as Slack blocks.

Calls of one model reply share a card; each has its own decision. A call with a hidden part that looks like a secret can
only be approved in the modal that shows all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from bot.chat.actions import ApprovalRef, Approve, ApproveWithGrant, Edit, OpenDenyForm, ViewCall
from bot.domain.approvals import Approval
from bot.domain.secret_detection import redact
from bot.domain.turns import StepStatus, ToolStep
from bot.domain.views import TurnView
from bot.platforms.slack.blocks import (
    Element,
    button,
    buttons,
    confirmation,
    divider,
    fallback,
    menu,
    moment,
    person,
    preformatted,
    rich_section,
    rich_text,
    words,
)
from bot.platforms.slack.notification_text import fallback_text
from bot.platforms.slack.outgoing import Block, OutgoingMessage
from bot.rendering.approval_card import ApprovalCard, approval_card, call_title, format_duration, headline, signatures
from bot.rendering.approval_text import (
    ICONS,
    RISKS,
    VIEW_TO_APPROVE,
    argument_lines,
    earliest_expiry,
    outcome_parts,
    summary_line,
    withheld_text,
)
from bot.rendering.argument_diff import can_edit, edit_lines
from bot.rendering.available_actions import RunAgainAction
from bot.rendering.grant_options import grant_offers
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import ApprovalEntry

CALLS_A_CARD = 8
ARGUMENTS_WEIGHT = 5_000
"""Characters of arguments on one card; the calls on it share them."""
EXPIRES = "{date_short_pretty} at {time}"
DECIDED = "{time}"


def card_messages(asking: ApprovalEntry, view: TurnView, now: float) -> tuple[OutgoingMessage, ...]:
    """Return the cards of calls that were requested together, at most CALLS_A_CARD in each."""
    pages = [asking.calls[start : start + CALLS_A_CARD] for start in range(0, len(asking.calls), CALLS_A_CARD)]
    return tuple(
        OutgoingMessage(
            f"card-{asking.number}" + (f"-{number}" if number else ""),
            *_drawn(calls, asking.reason, view, now),
            asks=any(step.status is StepStatus.AWAITING for step in calls),
        )
        for number, calls in enumerate(pages)
    )


def card_ref(approval: Approval) -> ApprovalRef:
    """Return the approval and revision that a button decides."""
    return ApprovalRef(approval.id, approval.revision)


def facts(made: ApprovalCard) -> Element:
    """Return the server, the tool and the risk of a call."""
    where = [words("Server ", bold=True), words(f"{made.server}   ")] if made.server else []
    tool = [words("Tool ", bold=True), words(f"{made.tool}   ")]
    return rich_section(*where, *tool, words("Risk ", bold=True), words(RISKS[made.risk]))


def decisions(step: ToolStep, made: ApprovalCard, *more: Element | None) -> list[Block]:
    """Return the buttons of one pending call, with `more` after the decisions. The approve buttons are missing if a
    part of the call is hidden.
    """
    ref = ApprovalRef(made.approval_id, made.revision)
    deny = button("Deny…", OpenDenyForm(ref))
    if made.withheld:
        return buttons([deny, *more])
    destructive = made.risk == "destructive"
    question = confirmation(headline(step, made), f"{made.tool} may destroy data, and cannot be taken back.", "Approve")
    approve = button(
        f"Approve: {single_line(call_title(step), 40)}",
        Approve((ref,)),
        "danger" if destructive else "primary",
        question if destructive else None,
    )
    offers = [(offer.label, ApproveWithGrant(ref, offer.word)) for offer in grant_offers(step)]
    allow = [button(label, press) for label, press in offers[:1]]
    return buttons([approve, *allow, deny, *more, menu(offers[1:])])


def _drawn(calls: Sequence[ToolStep], reason: str, view: TurnView, now: float) -> tuple[tuple[Block, ...], str]:
    blocks: list[Block] = []
    waiting = [step for step in calls if step.status is StepStatus.AWAITING]
    about = [rich_section(*_about(waiting, reason, now))] if waiting else []
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


def _open(step: ToolStep, made: ApprovalCard, room: int, about: Sequence[Element]) -> list[Block]:
    elements = [rich_section(words(headline(step, made), bold=True)), facts(made)]
    if shown := argument_lines(made.arguments, room):
        elements.append(preformatted(shown))
    if changed := edit_lines(step):
        elements.append(rich_section(words("\n".join(changed), italic=True)))
    ref = ApprovalRef(made.approval_id, made.revision)
    edit = button("Edit…", Edit(ref)) if can_edit(step) else None
    if made.withheld:
        elements.append(rich_section(words(f"\n{withheld_text(made)}", bold=True)))
    view = button(VIEW_TO_APPROVE, ViewCall(ref), "primary") if made.withheld else button("View all", ViewCall(ref))
    return [rich_text(*elements, *about), *decisions(step, made, edit, view)]


def _settled(step: ToolStep, approval: Approval, made: ApprovalCard, view: TurnView) -> list[Block]:
    """Return one line for the call and one for its outcome. An expired call can be requested again after its turn has
    ended.
    """
    icon = ICONS.get(step.status, "")
    title = headline(step, made).removesuffix("?")
    first = words(f"{icon} {title}", bold=True) if icon else words(title, strike=True)
    at = (
        [words(" · "), moment(approval.decided_at, DECIDED, _in_utc(approval.decided_at))]
        if approval.decided_at
        else []
    )
    rest = [words(f" · {part}") for part in (*outcome_parts(step, view), made.short_id)]
    told = rich_text(rich_section(first, words("\n"), words(made.outcome), *at, *rest))
    timed_out = step.status is StepStatus.EXPIRED and view.turn.status.ended
    return [told, *(buttons([button("Ask again", RunAgainAction(view.turn.id, step.n))]) if timed_out else [])]


def _in_utc(at: float) -> str:
    """Return a UTC time for clients that cannot show local times: notifications, screen readers."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")


def _about(waiting: Sequence[ToolStep], reason: str, now: float) -> list[Element]:
    """Return the requester, the model's reason, the expiry and the approval ids."""
    approvals = [step.approval for step in waiting if step.approval]
    made: list[Element] = [words(f"Reason given by the model: “{redact(reason)}”\n", italic=True)] if reason else []
    asker = approvals[0].requested_for
    made += [words("Asked by "), person(asker.id, asker.name)]
    made += [words(f" · {line}") for line in signatures(approvals)]
    made += [words(" · "), *_expiry(approvals, now), words(" · ")]
    return [*made, words(", ".join(single_line(each.id, 200)[:8] for each in approvals), code=True)]


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
