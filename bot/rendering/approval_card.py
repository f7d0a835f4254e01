"""Approval card as data: the text to read before a decision, and the line that replaces the buttons afterwards.

Platforms choose keys and buttons. The card shows the call exactly as it would run (`call_arguments`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.domain.approval_requirements import ASKER, MEMBERS
from bot.domain.approvals import Approval
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.rendering.call_arguments import VALUE_LIMIT, CallArguments, CardArgument, shared_arguments, whole_arguments
from bot.rendering.grant_options import format_grant
from bot.rendering.text_safety import single_line

ABOUT_LIMIT = 60
SIGNERS_LIMIT = 5
_NAMING = ("title", "summary", "subject", "name", "key", "path", "file", "url", "id", "query")
_WORDS = re.compile(r"[_\-.\s]+|(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class ApprovalCard:
    """An approval card. All text is safe to draw; `expires_in` is in seconds, `expires_at` epoch seconds."""

    approval_id: str
    revision: int
    short_id: str
    title: str
    risk: str
    server: str
    tool: str
    arguments: tuple[CardArgument, ...]
    asked_by: str
    expires_in: float | None
    expires_at: float | None
    outcome: str = ""
    needs: str = ""
    """Required approvers, if a rule names them: `needs 2 of test-group:ops, not Ana`."""
    signed: str = ""
    """Approvers so far, if several are required: `1 of 2 approved by Ben`."""
    withheld: int = 0
    """Characters that are hidden here because they look like a secret. With any, the call is not approved from here."""

    @property
    def expiry(self) -> str:
        """When the question goes away by itself, in words."""
        return "does not expire" if self.expires_in is None else f"expires in {format_duration(self.expires_in)}"

    @property
    def shortened(self) -> bool:
        """True if the card shortens the name or value of at least one argument."""
        return any(argument.shortened for argument in self.arguments)


def approval_card(step: ToolStep) -> ApprovalCard | None:
    """The card of a call for a place with several readers, None for one that never needed a signature."""
    return None if step.approval is None else _card(step, step.approval, shared_arguments(step))


def whole_card(step: ToolStep) -> ApprovalCard | None:
    """Return the card for an approver who reads the whole call in private, None without an approval."""
    return None if step.approval is None else _card(step, step.approval, whole_arguments(step))


def _card(step: ToolStep, approval: Approval, shown: CallArguments) -> ApprovalCard:
    tool = step.tool
    return ApprovalCard(
        approval_id=approval.id,
        revision=approval.revision,
        short_id=single_line(approval.id, 200)[:8],
        title=_title(step),
        risk=risk_word(tool),
        server=single_line(tool.server, 60) if tool else "",
        tool=single_line(tool.name if tool else step.call.name, 60),
        arguments=shown.arguments,
        withheld=shown.withheld,
        asked_by=single_line(approval.requested_for.name, 60) or single_line(approval.requested_for.id, 60),
        expires_in=approval.expires_in,
        expires_at=approval.expires_at,
        outcome=outcome(step.status, approval),
        needs=required_approvers_text(approval),
        signed=approved_by_text(approval) if step.status is StepStatus.AWAITING else "",
    )


def outcome(status: StepStatus, approval: Approval) -> str:
    """Return the result of the approval, one line; empty while it is open."""
    by = f" by {decider}" if (decider := single_line(approval.decided_by, 60 * max(len(approval.signers), 1))) else ""
    match status:
        case StepStatus.AWAITING:
            return ""
        case StepStatus.DENIED:
            reason = single_line(approval.reason, VALUE_LIMIT)
            return f"Denied{by}: {reason}" if reason else f"Denied{by}"
        case StepStatus.EXPIRED:
            return "Timed out. Not run."
        case StepStatus.CANCELLED:
            return "Cancelled. Not run."
        case _:
            return " · ".join(filter(None, (f"Approved{by}", format_grant(approval.granted))))


def required_approvers_text(approval: Approval) -> str:
    """Return the required approvers, one line; empty if any approver is enough."""
    terms = approval.terms
    if not terms.say_who:
        return ""
    asker = single_line(approval.requested_for.name, 60)
    sets = [_one_of([_signer(each, asker) for each in sorted(entries)]) for entries in terms.approvers]
    who = " and of ".join(sets) or "the approvers"
    editor = single_line(approval.revised_by, 60)
    others = dict.fromkeys(name for name in (asker, editor) if name) if terms.four_eyes else {}
    return f"needs {terms.quorum} of {who}{', not ' if others else ''}{' or '.join(others)}"


def remaining_approvals_text(more: int) -> str:
    """Return the text for an approver whose approval is not the last one required."""
    return f"Approved. {more} more {'approval is' if more == 1 else 'approvals are'} needed."


def approved_by_text(approval: Approval) -> str:
    """Return the approvers so far, one line; empty without any, or if one is enough."""
    if not approval.signers or approval.terms.quorum == 1:
        return ""
    names = " and ".join(single_line(name, 60) for name in approval.signers)
    return f"{len(approval.signers)} of {approval.terms.quorum} approved by {names}"


def signatures(approvals: Iterable[Approval]) -> list[str]:
    """Return the approver lines of cards in one message, each line once."""
    return list(
        dict.fromkeys(
            line for each in approvals for line in (required_approvers_text(each), approved_by_text(each)) if line
        )
    )


def headline(step: ToolStep, made: ApprovalCard) -> str:
    """Return the title with the subject of the call, for cards in a list: `Create issue “Login fails” (jira)?`.

    The subject is the only argument, or the one with a naming argument name, if it is short.
    """
    about = _about(made)
    scope = f" ({made.server})" if made.server else ""
    return f"{call_title(step)} “{about}”{scope}?" if about else made.title


def risk_word(tool: ToolRef | None) -> str:
    """Return the risk of a call, one word."""
    if tool is None or tool.destructive:
        return "destructive"
    return "reads" if tool.read_only else "writes"


def format_duration(seconds: float) -> str:
    """A span of time in its largest unit that fits: `45 s`, `30 min`, `2 h`, `3 days`."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            count = round(seconds / size)
            return "1 day" if (count, unit) == (1, "days") else f"{count} {unit}"
    return f"{max(round(seconds), 0)} s"


def call_title(step: ToolStep) -> str:
    """Return the title of a call, from its server: `Create issue`."""
    tool = step.tool
    if tool is None:
        return single_line(step.call.name, 60)
    words = single_line(tool.title, 80) or " ".join(
        part.lower() for part in _WORDS.split(single_line(tool.name, 80)) if part
    )
    return f"{words[:1].upper()}{words[1:].rstrip('?')}"


def _title(step: ToolStep) -> str:
    scope = f" ({single_line(step.tool.server, 60)})" if step.tool else ""
    return f"{call_title(step)}{scope}?"


def _one_of(signers: Sequence[str]) -> str:
    more = len(signers) - SIGNERS_LIMIT
    return " or ".join([*signers[:SIGNERS_LIMIT], *([f"{more} more"] if more > 0 else [])])


def _signer(entry: str, asker: str) -> str:
    match entry:
        case _ if entry == ASKER:
            return asker
        case _ if entry == MEMBERS:
            return "the members here"
        case _:
            return single_line(entry, 60)


def _about(made: ApprovalCard) -> str:
    """Return the argument that is the subject of a call; empty if it is long, partly hidden or deceptive."""
    by_name = {argument.name.lower(): argument for argument in made.arguments}
    naming = next((by_name[name] for name in _NAMING if name in by_name and by_name[name].full), None)
    about = naming or (made.arguments[0] if len(made.arguments) == 1 else None)
    if about is None or about.masked or about.warnings:
        return ""
    line = single_line(about.full, ABOUT_LIMIT + 1).replace("“", "").replace("”", "")
    return line if len(line) <= ABOUT_LIMIT else ""
