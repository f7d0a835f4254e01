"""Automatic approvals by the rule of `--approve`. The engine gets the decision as one of the user at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, StrEnum, auto

from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    MoreApprovalsNeeded,
    NotAllowed,
    StaleRevision,
    ViewRequired,
)
from bot.domain.turns import ToolStep
from bot.i18n import DEFAULT_LANGUAGE, _, english, gettext_lazy, use_language
from bot.platforms.console.local_user import LocalUser
from bot.ports import EngineApi
from bot.rendering.approval_card import remaining_approvals_text
from bot.rendering.call_arguments import disguises_in
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import tool_name

UNSEEN = gettext_lazy("Part of it looks like a secret, so a person has to read the whole call.")
ALONE = gettext_lazy("No terminal was open to approve it.")
RULED_OUT = gettext_lazy("The person at the terminal approves nothing in this session.")
HOW_TO_ALLOW = gettext_lazy(
    "Approve it in a terminal (countersign chat), or in advance with --approve all; --approve reads is for calls that "
    "only read."
)


class ApproveMode(StrEnum):
    """Values of `--approve`."""

    ASK = "ask"
    NEVER = "never"
    READS = "reads"
    ALL = "all"

    def verdict(self, step: ToolStep) -> DecisionType | None:
        """Return the rule's decision on a call, or None to ask the user. A read-only call is known from the annotations
        of a trusted server only.
        """
        match self:
            case ApproveMode.ASK:
                return None
            case ApproveMode.ALL:
                return DecisionType.APPROVE
            case ApproveMode.READS:
                return DecisionType.APPROVE if step.tool is not None and step.tool.read_only else None
            case ApproveMode.NEVER:
                return DecisionType.DENY


class RuleResult(Enum):
    """Effect of the rule of `--approve` on a call."""

    SETTLED = auto()
    WAITS = auto()
    """Approved by this user, and waiting for another approver."""
    LEFT_TO_USER = auto()


class AutoApprover:
    """Decides by rule. `tell` receives one line for every decision."""

    def __init__(self, mode: ApproveMode, user: LocalUser, tell: Callable[[str], None]) -> None:
        self._mode = mode
        self._user = user
        self._tell = tell

    async def apply_rule(self, step: ToolStep, engine: EngineApi) -> RuleResult:
        """Apply the rule to a call."""
        match self._mode.verdict(step):
            case None:
                return RuleResult.LEFT_TO_USER
            case DecisionType.DENY:
                await self._deny(step, engine, RULED_OUT)
                return RuleResult.SETTLED
            case DecisionType.APPROVE:
                return await self._approve(step, engine)

    async def decide_alone(self, step: ToolStep, engine: EngineApi) -> RuleResult:
        """Apply the rule, and deny the calls it leaves open, because no user can be asked."""
        result = await self.apply_rule(step, engine)
        if result is not RuleResult.LEFT_TO_USER:
            return result
        await self._deny(step, engine, ALONE)
        return RuleResult.SETTLED

    async def _approve(self, step: ToolStep, engine: EngineApi) -> RuleResult:
        if disguise := _disguise(step):
            with use_language(DEFAULT_LANGUAGE):
                reason = _disguise(step)
            await self._refuse(step, engine, reason, shown=disguise)
            return RuleResult.SETTLED
        match await self._decide(step, engine, DecisionType.APPROVE, ""):
            case Decided():
                self._tell(_("{tool} approved by --approve {mode}.", tool=tool_name(step), mode=self._mode))
            case MoreApprovalsNeeded(needed):
                remaining = remaining_approvals_text(needed)
                text = _(
                    "{tool}, by --approve {mode}: {result}", tool=tool_name(step), mode=self._mode, result=remaining
                )
                self._tell(text)
                return RuleResult.WAITS
            case ViewRequired():
                await self._refuse(step, engine, UNSEEN)
            case NotAllowed(reason) as rejection:
                await self._refuse(step, engine, rejection.english, shown=reason)
            case AlreadyDecided(how):
                self._tell(single_line(how, 300))
            case StaleRevision() | ApprovalNotFound():
                pass  # a newer card is on its way, or the turn is gone
        return RuleResult.SETTLED

    async def _refuse(self, step: ToolStep, engine: EngineApi, reason: str, *, shown: str = "") -> None:
        text = single_line(shown or str(reason), 300)
        self._tell(_("{tool} could not be approved: {reason}", tool=tool_name(step), reason=text))
        await self._deny(step, engine, reason)

    async def _deny(self, step: ToolStep, engine: EngineApi, reason: str) -> None:
        """Deny a call that no user has denied."""
        match await self._decide(step, engine, DecisionType.DENY, reason):
            case Decided():
                hint = "" if self._mode is ApproveMode.ALL else str(HOW_TO_ALLOW)
                result = _("{tool} needs an approval and was not run.", tool=tool_name(step))
                self._tell(" ".join(filter(None, (result, hint))))
            case NotAllowed(why) | AlreadyDecided(why):
                self._tell(f"{tool_name(step)}: {single_line(why, 300)}")
            case MoreApprovalsNeeded() | StaleRevision() | ApprovalNotFound() | ViewRequired():
                return

    async def _decide(self, step: ToolStep, engine: EngineApi, verdict: DecisionType, reason: str) -> DecisionResult:
        approval = step.approval
        if approval is None:
            return ApprovalNotFound()
        by, is_automatic = self._user.author, verdict is DecisionType.DENY
        # The model reads the reason, in English whatever the language of the terminal.
        decision = Decision(approval.id, approval.revision, verdict, by, english(reason), is_automatic=is_automatic)
        return await engine.approvals.decide(decision, self._user.member)


def _disguise(step: ToolStep) -> str:
    """Return why a rule cannot approve a call that may deceive its reader; empty if it cannot."""
    warnings = disguises_in(step)
    if not warnings:
        return ""
    return _("Part of it can deceive a reader, so a person has to read the whole call: {warning}", warning=warnings[0])
