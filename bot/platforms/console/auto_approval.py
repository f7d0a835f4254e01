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
from bot.platforms.console.local_user import LocalUser
from bot.ports import EngineApi
from bot.rendering.approval_card import remaining_approvals_text
from bot.rendering.call_arguments import disguises_in
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import tool_name

UNSEEN = "Part of it looks like a secret, so a person has to read the whole call."
DISGUISED = "Part of it can deceive a reader, so a person has to read the whole call:"
ALONE = "No terminal was open to approve it."
RULED_OUT = "The person at the terminal approves nothing in this session."
HOW_TO_ALLOW = "Allow it with --approve all, or calls that only read with --approve reads."


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
            await self._refuse(step, engine, f"{DISGUISED} {disguises[0]}")
            return
        match await self._decide(step, engine, DecisionType.APPROVE, ""):
            case Decided():
                self._tell(f"{tool_name(step)} approved by --approve {self._mode}.")
            case MoreApprovalsNeeded(needed):
                self._tell(f"{tool_name(step)}, by --approve {self._mode}: {remaining_approvals_text(needed)}")
            case ViewRequired():
                await self._refuse(step, engine, UNSEEN)
            case NotAllowed(reason):
                await self._refuse(step, engine, reason)
            case AlreadyDecided(how):
                self._tell(single_line(how, 300))
            case StaleRevision() | ApprovalNotFound():
                return  # a newer card is on its way, or the turn is gone

    async def _refuse(self, step: ToolStep, engine: EngineApi, reason: str) -> None:
        self._tell(f"{tool_name(step)} could not be approved: {single_line(reason, 300)}")
        await self._deny(step, engine, reason)

    async def _deny(self, step: ToolStep, engine: EngineApi, reason: str) -> None:
        match await self._decide(step, engine, DecisionType.DENY, reason):
            case Decided():
                hint = "" if self._mode is ApproveMode.ALL else f" {HOW_TO_ALLOW}"
                self._tell(f"{tool_name(step)} needs an approval and was not run.{hint}")
            case NotAllowed(why) | AlreadyDecided(why):
                self._tell(f"{tool_name(step)}: {single_line(why, 300)}")
            case MoreApprovalsNeeded() | StaleRevision() | ApprovalNotFound() | ViewRequired():
                return

    async def _decide(self, step: ToolStep, engine: EngineApi, verdict: DecisionType, reason: str) -> DecisionResult:
        approval = step.approval
        if approval is None:
            return ApprovalNotFound()
        decision = Decision(approval.id, approval.revision, verdict, self._user.author, reason)
        return await engine.approvals.decide(decision, self._user.member)
