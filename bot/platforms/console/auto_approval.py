"""Automatic approvals by the rule of `--approve`. The engine gets the decision as one of the user at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

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
from bot.i18n import _, gettext_lazy
from bot.platforms.console.local_user import LocalUser
from bot.ports import EngineApi
from bot.rendering.approval_card import remaining_approvals_text
from bot.rendering.call_arguments import disguises_in
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import tool_name

UNSEEN = gettext_lazy("Part of it looks like a secret, so a person has to read the whole call.")
ALONE = gettext_lazy("No terminal was open to approve it.")
RULED_OUT = gettext_lazy("The person at the terminal approves nothing in this session.")
HOW_TO_ALLOW = gettext_lazy("Allow it with --approve all, or calls that only read with --approve reads.")


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


class AutoApprover:
    """Decides by rule. `tell` receives one line for every decision."""

    def __init__(self, mode: ApproveMode, user: LocalUser, tell: Callable[[str], None]) -> None:
        self._mode = mode
        self._user = user
        self._tell = tell

    async def apply_rule(self, step: ToolStep, engine: EngineApi) -> bool:
        """Apply the rule. Return False if it leaves the call to the user."""
        match self._mode.verdict(step):
            case None:
                return False
            case DecisionType.DENY:
                await self._deny(step, engine, RULED_OUT)
            case DecisionType.APPROVE:
                await self._approve(step, engine)
        return True

    async def deny_rest(self, step: ToolStep, engine: EngineApi) -> None:
        """Apply the rule, and deny the calls it leaves open, because no user can be asked."""
        if not await self.apply_rule(step, engine):
            await self._deny(step, engine, ALONE)

    async def _approve(self, step: ToolStep, engine: EngineApi) -> None:
        if disguises := disguises_in(step):
            reason = _(
                "Part of it can deceive a reader, so a person has to read the whole call: {warning}",
                warning=disguises[0],
            )
            await self._refuse(step, engine, reason)
            return
        match await self._decide(step, engine, DecisionType.APPROVE, ""):
            case Decided():
                self._tell(_("{tool} approved by --approve {mode}.", tool=tool_name(step), mode=self._mode))
            case MoreApprovalsNeeded(needed):
                remaining = remaining_approvals_text(needed)
                text = _(
                    "{tool}, by --approve {mode}: {result}", tool=tool_name(step), mode=self._mode, result=remaining
                )
                self._tell(text)
            case ViewRequired():
                await self._refuse(step, engine, UNSEEN)
            case NotAllowed(reason):
                await self._refuse(step, engine, reason)
            case AlreadyDecided(how):
                self._tell(single_line(how, 300))
            case StaleRevision() | ApprovalNotFound():
                return  # a newer card is on its way, or the turn is gone

    async def _refuse(self, step: ToolStep, engine: EngineApi, reason: str) -> None:
        self._tell(_("{tool} could not be approved: {reason}", tool=tool_name(step), reason=single_line(reason, 300)))
        await self._deny(step, engine, reason)

    async def _deny(self, step: ToolStep, engine: EngineApi, reason: str) -> None:
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
        decision = Decision(approval.id, approval.revision, verdict, self._user.author, str(reason))
        return await engine.approvals.decide(decision, self._user.member)
