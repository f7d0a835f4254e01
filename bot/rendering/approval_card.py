"""Approval card as data: the text before a decision, the edits so far, the grants on offer, and the line after it.

Platforms choose keys and buttons. The card shows the call exactly as it would run (`call_arguments`). Edited values are
as safe to show as those of the card itself. The button of a grant carries only the option's `word`, which
`parse_grant_option` reads back; the engine checks if the user may give the grant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from bot.domain.approvals import (
    ADMINISTRATOR,
    ASKER,
    MEMBERS,
    Approval,
    Approver,
    ArgumentsScope,
    HoursScope,
    PermanentScope,
    Scope,
    SelfApproval,
    ThreadScope,
)
from bot.domain.conversations import CONSOLE
from bot.domain.grants import GrantRequest
from bot.domain.secrets import mask_arguments, redact
from bot.domain.tools import PartChange, Risk, canonical_json
from bot.domain.turns import PreviewProblem, StepStatus, ToolStep, TurnView, changed_names
from bot.i18n import LazyFields, _, format_list, gettext_lazy, ngettext
from bot.rendering.call_arguments import (
    VALUE_LIMIT,
    WARNINGS_LIMIT,
    CallArguments,
    CardArgument,
    cut_with_length,
    shared_arguments,
    whole_arguments,
)
from bot.rendering.deceptive_text import name_spelled_out, spelled_out, text_warnings
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import denial_reason, tool_status

ABOUT_LIMIT = 60
APPROVERS_LIMIT = 5
SOURCES_LIMIT = 80
_NAMING = ("title", "summary", "subject", "name", "key", "path", "file", "url", "id", "query")
_LIKE_A_NAME = re.compile(r"[\w-]+(?:__|[._/:])[\w./:-]*\w")
_WORDS = re.compile(r"[_\-.\s]+|(?<=[a-z0-9])(?=[A-Z])")
MOST_CHANGES = 5
_NAME, _VALUE = 40, 80
_NO_VALUE: tuple[str, None] = ("", None)
RISKS: Mapping[Risk, str] = {
    Risk.READS: gettext_lazy("🟢 Reads data"),
    Risk.WRITES: gettext_lazy("🟠 Writes data"),
    Risk.DESTRUCTIVE: gettext_lazy("🔴 May destroy data"),
    Risk.UNKNOWN: gettext_lazy("🟠 May read or write: unknown"),
}
ICONS: Mapping[StepStatus, str] = {
    **dict.fromkeys((StepStatus.READY, StepStatus.STARTED, StepStatus.ASKING, StepStatus.DONE), "✅"),
    **dict.fromkeys((StepStatus.FAILED, StepStatus.UNKNOWN), "⚠️"),
}
"""Icons before a decided call. The title of a call that was not run is struck out."""
VIEW_ALL = gettext_lazy("View all")
VIEW_TO_APPROVE = gettext_lazy("View all to approve")
"""Label of the button that opens a call with hidden parts on its card."""


@dataclass(frozen=True, slots=True)
class GrantOption(LazyFields):
    """Option for a grant. `hint` explains it in a sentence."""

    TEXTS = ("label", "hint")
    word: str
    label: str
    hint: str
    permission: GrantRequest


OFFERS = (
    GrantOption(
        "thread",
        "Allow in this thread",
        "Calls of this tool run here without asking, until there was none for an hour.",
        GrantRequest(ThreadScope()),
    ),
    GrantOption(
        "arguments",
        "Allow this very call",
        "The same call runs here without asking, until there was none for an hour. Any other asks.",
        GrantRequest(ArgumentsScope()),
    ),
    GrantOption(
        "8h",
        "Allow for 8 hours",
        "Calls of this tool by the same person run in this workspace without asking, for 8 hours.",
        GrantRequest(HoursScope(8)),
    ),
    GrantOption(
        "always",
        "Always allow (admins)",
        "Calls of this tool by the same user run in this workspace without asking, until the grant is revoked.",
        GrantRequest(PermanentScope()),
    ),
)
"""The narrowest that is of use comes first: a card has room for one."""


def grant_offers(step: ToolStep) -> tuple[GrantOption, ...]:
    """Return the grants offered with an approval; empty for a destructive call, for several required approvals, and
    for a closed approval.
    """
    tool, approval = step.tool, step.approval
    if step.status is not StepStatus.AWAITING or tool is None or approval is None:
        return ()
    if tool.destructive or approval.requirements.quorum > 1:
        return ()
    return OFFERS


def format_grant(scope: Scope | None) -> str:
    """Return the text of the grant on a decided card; empty without a grant."""
    match scope:
        case None:
            return ""
        case ThreadScope():
            what = _("allowed in this thread until it goes unused for an hour")
        case ArgumentsScope():
            what = _("this very call allowed in this thread until it goes unused for an hour")
        case HoursScope(hours):
            count = 1 if hours == 1 else 2
            what = ngettext("allowed for {hours} hour", "allowed for {hours} hours", count, hours=f"{hours:g}")
        case PermanentScope():
            what = _("always allowed")
    return f"{what} · /mcp grants list"


def parse_grant_option(word: str) -> GrantRequest | None:
    """Return the grant of a button; None if its word is unknown."""
    return next((offer.permission for offer in OFFERS if offer.word == word), None)


@dataclass(frozen=True, slots=True)
class ApprovalCard:
    """Card of an approval. All text is safe to draw; `expires_in` is in seconds, `expires_at` epoch seconds."""

    approval_id: str
    revision: int
    title: str
    risk: Risk
    server: str
    tool: str
    arguments: tuple[CardArgument, ...]
    expires_in: float | None
    expires_at: float | None
    outcome: str = ""
    preview: str = ""
    """Answer of another tool about the call, or the reason why it is missing; empty without a preview."""
    withheld: int = 0
    """Characters that are hidden here because they look like a secret. With any, the call is not approved from here."""

    @property
    def shortened(self) -> bool:
        """True if the card shortens the name or value of at least one argument."""
        return any(argument.shortened for argument in self.arguments)


def approval_card(step: ToolStep) -> ApprovalCard | None:
    """Return the card of a call for a conversation with several readers, None for a call without an approval."""
    return None if step.approval is None else _card(step, step.approval, shared_arguments(step))


def whole_card(step: ToolStep) -> ApprovalCard | None:
    """Return the card for an approver with the whole call in private, None without an approval."""
    return None if step.approval is None else _card(step, step.approval, whole_arguments(step))


def _card(step: ToolStep, approval: Approval, call_arguments: CallArguments) -> ApprovalCard:
    tool = step.tool
    scope = f" ({single_line(step.tool.server, 60)})" if step.tool else ""
    return ApprovalCard(
        approval_id=approval.id,
        revision=approval.revision,
        title=f"{call_title(step)}{scope}?",
        risk=tool.risk if tool else Risk.DESTRUCTIVE,
        server=single_line(tool.server, 60) if tool else "",
        tool=single_line(tool.name if tool else step.call.name, 60),
        arguments=call_arguments.arguments,
        preview=_preview(step, approval),
        withheld=call_arguments.withheld,
        expires_in=approval.expires_in,
        expires_at=approval.expires_at,
        outcome=outcome(step.status, approval),
    )


def asker_name(approval: Approval) -> str:
    """Return the name of the user who asked for the call, one line."""
    return single_line(approval.requested_for.name, 60) or single_line(approval.requested_for.id, 60)


def _preview(step: ToolStep, approval: Approval) -> str:
    """Return the preview of a call with the arguments that it still has."""
    if step.preview is None or approval.proposed is not None:
        return ""
    match step.preview.problem:
        case PreviewProblem.TIMEOUT:
            return _("(timeout)")
        case PreviewProblem.FAILED:
            return _("(failed)")
        case None:
            return cut_with_length(spelled_out(redact(step.preview.text)), VALUE_LIMIT)


def outcome(status: StepStatus, approval: Approval) -> str:
    """Return the result of the approval, one line; empty while it is open."""
    name = single_line(approval.decided_by, 60 * max(len(approval.approver_names), 1))
    match status:
        case StepStatus.AWAITING:
            return ""
        case StepStatus.DENIED:
            reason = single_line(denial_reason(approval), VALUE_LIMIT)
            if not name:
                return _("Denied: {reason}", reason=reason) if reason else _("Denied")
            by = _("Denied by {name}: {reason}", name=name, reason=reason) if reason else ""
            return by or _("Denied by {name}", name=name)
        case StepStatus.EXPIRED:
            return _("Timed out. Not run.")
        case StepStatus.CANCELLED if not name:
            return _("Cancelled. Not run.")
        case _:
            approved = _("Approved by {name}", name=name) if name else _("Approved")
            return " · ".join(filter(None, (approved, format_grant(approval.granted))))


def approver_reason(step: ToolStep) -> str:
    """Return why an approver must approve the call, one line; empty if the rules of the call say so. Of words of others
    it names the sources, and how to get rid of them if a rule allows the call.
    """
    approval, result = step.approval, step.policy_result
    if approval is None:
        return ""
    reason = approval.requirements.self_approval
    sources = single_line(result.sources, SOURCES_LIMIT) if result is not None else ""
    if not sources:
        return reason.reason
    if result is None or not result.is_allowed:
        if reason is not SelfApproval.TAINT:
            return reason.reason
        return _(
            "An approver must approve this, because the model has read words of others ({sources})", sources=sources
        )
    is_console = approval.requested_for.platform == CONSOLE
    parts = [
        _("A rule allows this, but the model has read words of others ({sources})", sources=sources),
        "" if reason is SelfApproval.TAINT else reason.reason,
        _("/new starts a conversation without them") if is_console else _("A new conversation starts without them"),
    ]
    return " · ".join(filter(None, parts))


def required_approvers_text(step: ToolStep, approval: Approval) -> str:
    """Return the required approvers, one line; empty if any approver is enough and no reason is known."""
    requirements = approval.requirements
    asker = single_line(approval.requested_for.name, 60)
    if requirements.asker_may_approve:
        return asker_may_approve_text(asker)
    if not requirements.say_who:
        return approver_reason(step)
    special = {ASKER: asker, MEMBERS: _("the members here")}
    sets = [
        _one_of([special.get(entry, single_line(entry, 60)) for entry in sorted(entries)])
        for entries in requirements.approvers
    ]
    names = reduce(both_sets, sets) if sets else _("the approvers")
    excluded = excluded_names(approval)
    return required_approvers_phrase(approval).format(quorum=requirements.quorum, approvers=names, names=excluded)


def asker_may_approve_text(asker: str) -> str:
    """Return that the asker may approve the call. `asker` is a name or its placeholder."""
    return _("{name} may approve this", name=asker)


def required_approvers_phrase(approval: Approval) -> str:
    """Return the phrase for the required approvers, with the open values `quorum`, `approvers` and `names`."""
    match approval.requirements.say_who, bool(excluded_names(approval)):
        case True, True:
            return _("needs {quorum} of {approvers}, not {names}")
        case True, False:
            return _("needs {quorum} of {approvers}")
        case False, True:
            return _("can be approved by {approvers}, not {names}")
        case _:
            return _("can be approved by {approvers}")


def either(first: str, second: str) -> str:
    """Join two alternatives."""
    return _("{first} or {second}", first=first, second=second)


def more_approvers(names: str, count: int) -> str:
    """Return approvers with the number of others."""
    return ngettext("{names} or {n} more", "{names} or {n} more", count, names=names)


def both_sets(first: str, second: str) -> str:
    """Join two sets of approvers, both of which are needed."""
    return _("{first} and of {second}", first=first, second=second)


def excluded_names(approval: Approval) -> str:
    """Return the names of the excluded users; empty without any."""
    if not approval.requirements.four_eyes:
        return ""
    names = (single_line(name, 60) for name in (approval.requested_for.name, approval.revised_by))
    others = list(dict.fromkeys(filter(None, names)))
    return reduce(either, others) if others else ""


def approver_name(approver: Approver) -> str:
    """Return the name of a possible approver."""
    special = {MEMBERS: _("the members here"), ADMINISTRATOR: _("an administrator")}
    name = single_line(approver.name, 60) or single_line(approver.principal.partition(":")[2], 60)
    return special.get(approver.principal, name)


def remaining_approvals_text(more: int) -> str:
    """Return the text for an approver if further approvals are required."""
    return ngettext("Approved. {n} more approval is needed.", "Approved. {n} more approvals are needed.", more)


def approved_by_text(approval: Approval) -> str:
    """Return the approvers so far, one line; empty without any, or if one is enough."""
    if not approval.approver_names or approval.requirements.quorum == 1:
        return ""
    names = format_list([single_line(name, 60) for name in approval.approver_names])
    return _(
        "{count} of {quorum} approved by {names}",
        count=len(approval.approver_names),
        quorum=approval.requirements.quorum,
        names=names,
    )


def headline(step: ToolStep, card: ApprovalCard) -> str:
    """Return the title with the subject of the call, for cards in a list: `Create issue “Login fails” (jira)?`.

    The subject is the only argument, or the one with a naming argument name, if it is short.
    """
    about = _about(card)
    scope = f" ({card.server})" if card.server else ""
    return f"{call_title(step)} “{about}”{scope}?" if about else card.title


def format_duration(seconds: float) -> str:
    """Format seconds in the largest unit that fits: `45 s`, `30 min`, `2 h`, `3 days`."""
    if _fits(seconds, 86_400):
        return ngettext("{n} day", "{n} days", round(seconds / 86_400))
    if _fits(seconds, 3_600):
        return ngettext("{n} h", "{n} h", round(seconds / 3_600))
    if _fits(seconds, 60):
        return ngettext("{n} min", "{n} min", round(seconds / 60))
    return ngettext("{n} s", "{n} s", max(round(seconds), 0))


def _fits(seconds: float, unit: int) -> bool:
    return seconds >= 2 * unit or (seconds >= unit and seconds % unit == 0)


def call_title(step: ToolStep) -> str:
    """Return the title of a call, from its server: `Create issue`. The name of the tool replaces a title that is
    deceptive, or written like the name of another tool.
    """
    tool = step.tool
    if tool is None:
        return single_line(step.call.name, 60)
    is_another_name = _LIKE_A_NAME.fullmatch(tool.title.strip()) and tool.title != tool.name
    words = "" if is_another_name or text_warnings(tool.title) else single_line(tool.title, 80)
    words = words or " ".join(part.lower() for part in _WORDS.split(single_line(tool.name, 80)) if part)
    return f"{words[:1].upper()}{words[1:].rstrip('?')}"


def _one_of(approvers: Sequence[str]) -> str:
    more = len(approvers) - APPROVERS_LIMIT
    names = reduce(either, approvers[:APPROVERS_LIMIT])
    return more_approvers(names, more) if more > 0 else names


def _about(card: ApprovalCard) -> str:
    """Return the argument that is the subject of a call; empty if it is long, partly hidden or deceptive."""
    by_name = {argument.name.lower(): argument for argument in card.arguments}
    naming = next((by_name[name] for name in _NAMING if name in by_name and by_name[name].full), None)
    about = naming or (card.arguments[0] if len(card.arguments) == 1 else None)
    if about is None or about.masked or about.warnings:
        return ""
    line = single_line(about.full, ABOUT_LIMIT + 1).replace("“", "").replace("”", "")
    return line if len(line) <= ABOUT_LIMIT else ""


def can_edit(step: ToolStep) -> bool:
    """Return True if a card offers to edit the call. The engine decides which users may."""
    return step.status is StepStatus.AWAITING and step.tool is not None


def edit_lines(step: ToolStep) -> tuple[str, ...]:
    """Return the editors of a call, and each argument before and after; empty without edits."""
    if step.approval is None or step.approval.proposed is None:
        return ()
    by = single_line(step.approval.revised_by, 60)
    first = (
        _("Changed by {name} since the model asked for it.", name=by)
        if by
        else _("Changed since the model asked for it.")
    )
    changed = format_changes(step)
    more = len(changed) - MOST_CHANGES
    lines = [
        f"{cut_with_length(name_spelled_out(change.name), _NAME)}: {_value(change.before)} → {_value(change.after)}"
        for change in changed[:MOST_CHANGES]
    ]
    return (first, *([*lines, ngettext("{n} more", "{n} more", more)] if more > 0 else lines))


def edit_summary(step: ToolStep) -> str:
    """Return the edits of a call that has run, on one line."""
    _first, *different = edit_lines(step) or ("",)
    if not different or step.approval is None:
        return ""
    name, changes = single_line(step.approval.revised_by, 60), "; ".join(different)
    if not name:
        return _("Changed: {changes}", changes=changes)
    return _("Changed by {name}: {changes}", name=name, changes=changes)


def format_changes(step: ToolStep) -> tuple[PartChange, ...]:
    """Return the users' changes as JSON, for a place with several readers."""
    approval = step.approval
    if approval is None or approval.proposed is None:
        return ()
    before = _displayed_arguments(approval.proposed, mask_arguments(approval.proposed, approval.proposed_secrets))
    after = _displayed_arguments(step.call.arguments, step.masked_arguments)
    return tuple(
        PartChange((after.get(name) or before[name])[0], before.get(name, _NO_VALUE)[1], after.get(name, _NO_VALUE)[1])
        for name in changed_names(step)
    )


def _displayed_arguments(arguments: Mapping[str, Any], masked: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    pairs = zip(arguments, masked.items(), strict=True)
    return {name: (text, canonical_json(value)) for name, (text, value) in pairs}


def _value(text: str | None) -> str:
    return _("nothing") if text is None else cut_with_length(spelled_out(text), _VALUE)


def summary_line(count: int, waiting: int) -> str:
    """Return the number of open approvals on a card as text."""
    if not waiting:
        return ngettext("{n} call, all decided", "{n} calls, all decided", count)
    if waiting == count:
        return ngettext("{n} call needs an approval", "{n} calls need an approval", count)
    return ngettext(
        "{waiting} of {n} call needs an approval", "{waiting} of {n} calls need an approval", count, waiting=waiting
    )


def withheld_text(card: ApprovalCard) -> str:
    """Return the reason against approving from a card, and the way to approve; empty if the card hides nothing."""
    if not card.withheld:
        return ""
    return ngettext(
        "{n} character looks like a secret and is hidden here. An approver opens the whole call in private.",
        "{n} characters look like a secret and are hidden here. An approver opens the whole call in private.",
        card.withheld,
    )


def argument_lines(arguments: Sequence[CardArgument], room: int) -> str:
    """Return `name: value` lines within `room` characters, each with its warnings below. Omitted lines are counted."""
    widest = max((len(entry.label) for entry in arguments if len(entry.label) <= 20), default=0)
    lines: list[str] = []
    for number, argument in enumerate(arguments):
        value = argument.preview.replace("\n", "\n" + " " * (widest + 2))
        line = "\n".join((f"{argument.label + ':':<{widest + 1}} {value}", *card_warning_lines(argument, VIEW_ALL)))
        if sum(map(len, lines)) + len(line) > room:
            lines.append(_omitted(arguments[number:]))
            break
        lines.append(line)
    return "\n".join(lines)


def _omitted(arguments: Sequence[CardArgument]) -> str:
    count = len(arguments)
    if not any(argument.warnings for argument in arguments):
        return ngettext("… {n} more argument: {view}", "… {n} more arguments: {view}", count, view=VIEW_ALL)
    return ngettext(
        "… {n} more argument: {view} (with warnings)",
        "… {n} more arguments: {view} (with warnings)",
        count,
        view=VIEW_ALL,
    )


def warning_lines(argument: CardArgument) -> tuple[str, ...]:
    """Return the warnings about an argument, one line each."""
    return tuple(f"⚠ {warning}" for warning in argument.warnings)


def card_warning_lines(argument: CardArgument, view: str) -> tuple[str, ...]:
    """Return the first WARNINGS_LIMIT warnings and the number of others. `view` names the view with all of them."""
    lines, more = warning_lines(argument), len(argument.warnings) - WARNINGS_LIMIT
    if more <= 0:
        return lines
    others = ngettext("⚠ {n} more warning: {view}", "⚠ {n} more warnings: {view}", more, view=view)
    return (*lines[:WARNINGS_LIMIT], others)


def outcome_parts(step: ToolStep, view: TurnView) -> Sequence[str]:
    """Return the edits of an approved call and its outcome."""
    line = tool_status(step, view)
    changed = edit_summary(step)
    match step.status:
        case StepStatus.READY | StepStatus.STARTED | StepStatus.ASKING:
            parts = [changed, line.summary or line.state]
        case StepStatus.DONE:
            parts = [changed, line.summary or _("done")]
        case StepStatus.FAILED:
            failed = _("but it failed: {reason}", reason=line.summary) if line.summary else _("but it failed")
            parts = [changed, failed]
        case StepStatus.UNKNOWN:
            parts = [changed, _("it may or may not have happened"), line.summary]
        case StepStatus.CANCELLED if step.approval is not None and step.approval.decided_by:
            parts = [changed, line.state]
        case _:
            parts = []
    return tuple(filter(None, parts))


def earliest_expiry(approvals: Sequence[Approval], now: float) -> tuple[float, float] | None:
    """Return the first expiry of these approvals in epoch seconds, and the seconds of that approval; None if none
    expires. The time of a card that is not posted yet begins at `now`.
    """
    ends = [
        (approval.expires_at or now + approval.expires_in, approval.expires_in)
        for approval in approvals
        if approval.expires_in is not None
    ]
    return min(ends) if ends else None
