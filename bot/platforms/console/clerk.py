"""Approvals that nobody presses a key for: the rule given with `--approve`.

Called by the listeners. The decision goes through the engine like any other, as the person at the terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from bot.domain.approvals import (
    AlreadySettled,
    Counted,
    Decision,
    NoSuchApproval,
    NotAllowed,
    OutOfDate,
    Settled,
    Settlement,
    Verdict,
    ViewRequired,
)
from bot.domain.turns import ToolStep
from bot.platforms.console.person import Person
from bot.ports import FrontDoor
from bot.rendering.call_arguments import disguises_in
from bot.rendering.cards import still_needed
from bot.rendering.plain import one_line
from bot.rendering.tool_lines import tool_name

UNSEEN = "Part of it looks like a secret, so a person has to read the whole call."
DISGUISED = "Part of it can deceive a reader, so a person has to read the whole call:"
ALONE = "Nobody was at the terminal to approve it."
RULED_OUT = "The person at the terminal approves nothing in this session."
HOW_TO_ALLOW = "Allow it with --approve all, or calls that only read with --approve reads."


class ApproveMode(StrEnum):
    """What `--approve` may say."""

    ASK = "ask"
    NEVER = "never"
    READS = "reads"
    ALL = "all"

    def verdict(self, step: ToolStep) -> Verdict | None:
        """The rule's verdict on a call, None if a person should say. Only calls that read can be told apart from
        others by the word of a server that the operator trusts.
        """
        match self:
            case ApproveMode.ASK:
                return None
            case ApproveMode.ALL:
                return Verdict.APPROVE
            case ApproveMode.READS:
                return Verdict.APPROVE if step.tool is not None and step.tool.read_only else None
            case ApproveMode.NEVER:
                return Verdict.DENY


class Clerk:
    """Decides by rule. `tell` receives one line for every decision."""

    def __init__(self, mode: ApproveMode, person: Person, tell: Callable[[str], None]) -> None:
        self._mode = mode
        self._person = person
        self._tell = tell

    async def by_rule(self, step: ToolStep, engine: FrontDoor) -> bool:
        """Decide if the rule says how; False leaves the call to a person."""
        match self._mode.verdict(step):
            case None:
                return False
            case Verdict.DENY:
                await self._deny(step, engine, RULED_OUT)
            case Verdict.APPROVE:
                await self._approve(step, engine)
        return True

    async def alone(self, step: ToolStep, engine: FrontDoor) -> None:
        """Decide by the rule, and deny what it leaves open: there is nobody to ask."""
        if not await self.by_rule(step, engine):
            await self._deny(step, engine, ALONE)

    async def _approve(self, step: ToolStep, engine: FrontDoor) -> None:
        if found := disguises_in(step):
            await self._refuse(step, engine, f"{DISGUISED} {found[0]}")
            return
        match await self._decide(step, engine, Verdict.APPROVE, ""):
            case Settled():
                self._tell(f"{tool_name(step)} approved by --approve {self._mode}.")
            case Counted(needed):
                self._tell(f"{tool_name(step)}, by --approve {self._mode}: {still_needed(needed)}")
            case ViewRequired():
                await self._refuse(step, engine, UNSEEN)
            case NotAllowed(reason):
                await self._refuse(step, engine, reason)
            case AlreadySettled(how):
                self._tell(one_line(how, 300))
            case OutOfDate() | NoSuchApproval():
                return  # a newer card is on its way, or the turn is gone

    async def _refuse(self, step: ToolStep, engine: FrontDoor, reason: str) -> None:
        self._tell(f"{tool_name(step)} could not be approved: {one_line(reason, 300)}")
        await self._deny(step, engine, reason)

    async def _deny(self, step: ToolStep, engine: FrontDoor, reason: str) -> None:
        match await self._decide(step, engine, Verdict.DENY, reason):
            case Settled():
                hint = "" if self._mode is ApproveMode.ALL else f" {HOW_TO_ALLOW}"
                self._tell(f"{tool_name(step)} needs an approval and was not run.{hint}")
            case NotAllowed(why) | AlreadySettled(why):
                self._tell(f"{tool_name(step)}: {one_line(why, 300)}")
            case Counted() | OutOfDate() | NoSuchApproval() | ViewRequired():
                return

    async def _decide(self, step: ToolStep, engine: FrontDoor, verdict: Verdict, reason: str) -> Settlement:
        approval = step.approval
        if approval is None:
            return NoSuchApproval()
        decision = Decision(approval.id, approval.revision, verdict, self._person.author, reason)
        return await engine.decide(decision, self._person.member)
