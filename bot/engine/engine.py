"""The engine: what platforms may ask of it, and the loops that do the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bot.domain.answering import Answering, Inquiry, NotAnswerable
from bot.domain.approvals import (
    IN_A_FORM,
    WHOLE,
    AlreadySettled,
    Approval,
    Decision,
    Following,
    NoSuchApproval,
    NotAllowed,
    OutOfDate,
    Portion,
    Revision,
    Settlement,
    Signing,
    Verdict,
    fingerprint,
)
from bot.domain.argument_secrets import lookalikes, stored_secrets, with_masks
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.edits import Draft, Editing, NotNow, Revised
from bot.domain.elicitations import Elicited
from bot.domain.grants import Permission
from bot.domain.measurements import Observe, unobserved
from bot.domain.policies import TaintMode
from bot.domain.terms import NO_TERMS, Terms
from bot.domain.tools import Tool, ToolSearch
from bot.domain.turns import Claim, Receipt, StepStatus, ToolStep, Turn, TurnRecord
from bot.domain.views import TurnView
from bot.engine.checking import check_of
from bot.engine.drawing import Drawings
from bot.engine.editing import SETTLED, TOOL_CHANGED, draft_of, unfit
from bot.engine.editing import objection as not_editable
from bot.engine.estimates import Estimates
from bot.engine.grants import grant_of
from bot.engine.grants import objection as not_grantable
from bot.engine.instructions import NO_INSTRUCTIONS, Instructions
from bot.engine.memory import USUAL_MEMORY, Memory
from bot.engine.metering import Meters
from bot.engine.offering import RefusedTools
from bot.engine.prompting import PromptParts
from bot.engine.questions import objection as not_answerable
from bot.engine.questions import unfit as unfit_answer
from bot.engine.reminders import Reminders
from bot.engine.rules import RuleBook
from bot.engine.schedule import Job, Schedule
from bot.engine.signing import signing
from bot.engine.spending import unlimited
from bot.engine.surfaces import surface_for
from bot.engine.turn import TurnInProgress, TurnParts
from bot.engine.worker import Worker
from bot.errors import CountersignError, NotFound
from bot.ports import LanguageModels, Surface, Toolbox, TurnLog

log = logging.getLogger(__name__)

APPROVAL_SECONDS = 1800.0
MEMBER_SECONDS = 10.0
"""How long a platform may take to say who somebody is."""
TOOLS_SECONDS = 5.0
"""How long a decision waits for the tools' servers: by what is asked now it can only become stricter."""
UNCLEAR_ENDS = frozenset({StepStatus.UNKNOWN})
REPEATABLE_ENDS = frozenset(status for status in StepStatus if status.ended and status is not StepStatus.DONE)


class Engine:
    """Receives messages, drives their turns, settles approvals, draws what people should see.

    The row is the truth and a signal only a doorbell: whoever receives, decides or stops writes first and rings then.
    `instructions` are what models are told first, `memory` how much of a conversation they remember;
    `approval_seconds` is None where approvals never expire; `on_change` hears that another process may have changed
    servers, policies or profiles; `taint` is what happens to calls that could send away what another server has said;
    `refused` keeps which tools models' services have refused; `tool_search` says whether models search where there are
    many tools; `observe` counts; `allow` is asked before a question reaches a model, and raises LimitReached if it may
    not.
    """

    def __init__(
        self,
        turn_log: TurnLog,
        models: LanguageModels,
        toolbox: Toolbox,
        surfaces: Sequence[Surface],
        *,
        rules: RuleBook,
        approval_seconds: float | None = APPROVAL_SECONDS,
        instructions: Instructions = NO_INSTRUCTIONS,
        memory: Memory = USUAL_MEMORY,
        taint: TaintMode = TaintMode.OFF,
        refused: RefusedTools | None = None,
        tool_search: ToolSearch = ToolSearch.AUTO,
        on_change: Callable[[], None] = lambda: None,
        jobs: Sequence[Job] = (),
        observe: Observe = unobserved,
        allow: Callable[[Turn], Awaitable[None]] = unlimited,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._schedule = Schedule(turn_log, jobs, pause=pause)
        self._rules = rules
        self._surfaces = surfaces
        self._reminders = Reminders(turn_log, surfaces, rules.rules, pause=pause)
        self._drawings = Drawings(turn_log, surfaces, on_settled=self._settled, observe=observe, pause=pause)
        estimates = Estimates()
        self._meters = Meters(turn_log, estimates, pause)
        self._parts = TurnParts(
            turn_log,
            models,
            toolbox,
            rules.rules,
            approval_seconds,
            self._drawings.show,
            self._fetch,
            PromptParts(turn_log, pause, self._meters, estimates, instructions, memory, refused or RefusedTools()),
            self._member,
            taint,
            allow=allow,
            tool_search=tool_search,
        )
        self._worker = Worker(
            turn_log,
            self._begin,
            self._drawings,
            lambda: tuple(surface.reach for surface in surfaces),
            on_change,
            pause=pause,
        )

    async def receive(self, message: InboundMessage) -> Receipt:
        """Put a message on disk; its turn begins as soon as those before it have ended."""
        receipt = await self._worker.take_in(message)
        if receipt.ahead:
            self._drawings.kick()
        return receipt

    async def decide(self, decision: Decision, member: Member) -> Settlement:
        """Settle an approval, if this member may and nobody was faster. Rights are checked here, whatever the
        platform has shown to whom.
        """
        asked = await self._log.approval(decision.approval_id)
        if asked is None:
            return NoSuchApproval()
        turn, step = asked
        found = await self._signing(turn, step, decision, member)
        if isinstance(found, NotAllowed):
            return await self._refuse(decision, found.reason)
        if _is_behind(step, decision):
            return OutOfDate()
        settlement = await self._log.decide(decision, found)
        self._settled(turn.id)
        self._drawings.kick()
        return settlement

    async def grant(self, decision: Decision, permission: Permission, member: Member) -> Settlement:
        """Approve a call and allow the next ones like it, if this member may do both and nobody was faster. Where only
        the signature would be right, nothing is signed either.
        """
        if decision.verdict is not Verdict.APPROVE:
            return await self.decide(decision, member)
        asked = await self._log.approval(decision.approval_id)
        if asked is None:
            return NoSuchApproval()
        turn, step = asked
        admin = self._rules.rules(turn.conversation).signatories.administers(member)
        found = await self._signing(turn, step, decision, member)
        if isinstance(found, NotAllowed):
            return await self._refuse(decision, found.reason)
        objection = not_grantable(permission, step, found, admin=admin)
        if objection:
            return await self._refuse(decision, objection)
        if _is_behind(step, decision):
            return OutOfDate()
        grant = grant_of(permission, step, turn.conversation, decision.by)
        settlement = await self._log.grant(decision, grant, found, await self._following(turn, step, decision, member))
        self._settled(turn.id)
        self._drawings.kick()
        return settlement

    async def draft(self, approval_id: str, revision: int, member: Member) -> Draft | NotNow:
        """A call that waits for a signature, for this member to change; or why they cannot."""
        asked = await self._log.approval(approval_id)
        if asked is None:
            return NoSuchApproval()
        turn, step = asked
        objection = not_editable(step, revision, member)
        if objection is not None or step.approval is None:
            return objection or NoSuchApproval()
        # Turning a call down takes the same as changing it: to be asked, or one who could be asked to sign.
        found = await self._signing(turn, step, Decision(approval_id, revision, Verdict.DENY, member.author), member)
        if isinstance(found, NotAllowed):
            return found
        approving = Decision(approval_id, revision, Verdict.APPROVE, member.author)
        whole = isinstance(await self._signing(turn, step, approving, member), Signing)
        drafted = draft_of(turn, step, step.approval, await self._tool(turn, step), whole=whole)
        if isinstance(drafted, Draft) and whole and lookalikes(step.call.arguments, step.approval.secrets):
            await self._log.record_view(approval_id, revision, IN_A_FORM, member.author)
        return drafted

    async def open_call(
        self, approval_id: str, revision: int, member: Member, portion: Portion = WHOLE
    ) -> ToolStep | NotNow:
        """Return a call that waits, for this member to see every character of it in private, if they may approve it.
        The page they are shown is on record before they see it.
        """
        asked = await self._log.approval(approval_id)
        if asked is None:
            return NoSuchApproval()
        turn, step = asked
        if step.status is not StepStatus.AWAITING or step.approval is None:
            return AlreadySettled(SETTLED)
        found = await self._signing(turn, step, Decision(approval_id, revision, Verdict.APPROVE, member.author), member)
        if isinstance(found, NotAllowed):
            return found
        if step.approval.revision != revision:
            return OutOfDate()
        recorded = await self._log.record_view(approval_id, revision, portion, member.author)
        return step if recorded else OutOfDate()

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> Editing:
        """Ask for a signature on other arguments instead, if this member may and nobody was faster. They have to fit
        the tool's schema, and no policy may deny them.
        """
        drafted = await self.draft(approval_id, revision, member)
        if isinstance(drafted, NotAllowed):
            await self._log.refuse(approval_id, member.author, drafted.reason)
        if not isinstance(drafted, Draft):
            return drafted
        turn, step = drafted.turn, drafted.step
        tool = await self._tool(turn, step)
        if tool is None or step.tool is None or not step.tool.is_still(tool):
            return NotAllowed(TOOL_CHANGED)  # since it was drafted
        rules, asker = self._rules.rules(turn.conversation), turn.author
        asking = await self._member(asker, turn.conversation) if rules.ask_who else None
        misfits = tuple(self._parts.toolbox.misfits(tool.input_schema, arguments))
        if (wrong := unfit(step, arguments, misfits, rules.judge(tool, arguments, asker, asking))) is not None:
            return wrong
        signed = fingerprint(tool, arguments)
        secrets = stored_secrets(arguments, partial(self._parts.toolbox.secret_spans, tool.server_id))
        made = Revision(approval_id, revision, arguments, signed, member.author, secrets)
        if not await self._log.revise(made):
            return OutOfDate()
        self._drawings.kick()
        return Revised(revision + 1)

    async def inquiry(self, elicitation_id: str, member: Member) -> Inquiry | NotAnswerable:
        """What a server has asked back and this member may answer now; or why they cannot."""
        inquiry = await self._log.inquiry(elicitation_id)
        if inquiry is None:
            return NoSuchApproval()
        return not_answerable(inquiry, member) or inquiry

    async def answer(self, elicitation_id: str, reply: Elicited, member: Member) -> Answering:
        """Answer what a server has asked back, if this member may, nobody was faster, and the values fit."""
        inquiry = await self.inquiry(elicitation_id, member)
        if not isinstance(inquiry, Inquiry):
            return inquiry
        if (wrong := unfit_answer(inquiry, reply, self._parts.toolbox)) is not None:
            return wrong
        answered = await self._log.answer(elicitation_id, reply, member.author)
        self._settled(inquiry.turn.id)
        self._drawings.kick()
        return answered

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn at whatever it is doing. False if it had ended."""
        stopped = await self._log.stop(turn_id, by)
        if stopped:
            self._worker.interrupt(turn_id)
            self._drawings.kick()
        return stopped

    async def again(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Run a call once more whose outcome is unknown, or that was not run: a turn of its own, with a fresh
        signature. Asked twice, it is one turn. Raises NotFound if there is no such call.
        """
        turn, step = await self._ended_call(turn_id, n, REPEATABLE_ENDS)
        name = step.tool.name if step.tool else step.call.name
        return await self.receive(
            InboundMessage(
                (f"again:{turn_id}:{n}",), turn.conversation, by, f"Run {name} again", call=step.call, again=True
            )
        )

    async def check(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Ask the model to find out whether a call of unknown outcome has happened. Asked twice, it is one turn.
        Raises NotFound.
        """
        turn, step = await self._ended_call(turn_id, n, UNCLEAR_ENDS)
        # The conversation reads this question, so it has the arguments as a card in a shared place has them.
        stored = step.approval.secrets if step.approval is not None else ()
        arguments = with_masks(step.call.arguments, stored, lookalikes(step.call.arguments, stored))
        text = check_of(step.call.name, arguments)
        return await self.receive(InboundMessage((f"check:{turn_id}:{n}",), turn.conversation, by, text))

    async def view(self, turn_id: str) -> TurnView:
        """A turn as it stands on disk. Raises NotFound."""
        return replace(await self._log.view(turn_id), read=partial(self._log.file, turn_id))

    async def recent(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last turns of a conversation as they stand on disk, oldest first."""
        return await self._log.recent(conversation, limit)

    async def run(self) -> None:
        """Drive turns and draw them until cancelled. Turns in hand are given back, drawings in hand get out."""
        drawing = asyncio.create_task(self._drawings.run(), name="drawings")
        working = asyncio.create_task(self._work(), name="work")
        try:
            await asyncio.wait({drawing, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # In this order: what the turns had to say when they were given back is drawn, too.
            for task in (working, drawing):
                task.cancel()
                await asyncio.wait({task})
        for task in (working, drawing):
            if not task.cancelled():
                task.result()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._worker.run(), name="worker")
            group.create_task(self._schedule.run(), name="schedule")
            group.create_task(self._reminders.run(), name="reminders")
            group.create_task(self._meters.run(), name="meters")

    async def _ended_call(self, turn_id: str, n: int, ends: Collection[StepStatus]) -> tuple[Turn, ToolStep]:
        view = await self._log.view(turn_id)
        step = next((each for each in view.steps if each.n == n), None)
        if not isinstance(step, ToolStep) or step.status not in ends:
            raise NotFound("There is no such call, or it needs no second try.")
        return view.turn, step

    async def _fetch(self, conversation: ConversationKey, attachment: Attachment) -> bytes:
        """The bytes of a file that came with a message there. Raises NotFound and what the surface raises."""
        surface = surface_for(self._surfaces, conversation)
        if surface is None:
            raise NotFound("The file is on a platform that is out of reach.")
        return await surface.fetch(attachment)

    async def _member(self, author: Author, where: ConversationKey) -> Member | None:
        """Who somebody is there, None if the platform cannot say: rules then take it for the worse."""
        surface = surface_for(self._surfaces, where)
        if surface is None:
            return None
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                return await surface.member(author, where)
        except (CountersignError, TimeoutError) as error:
            log.warning("it is not known who %s is: %s", author.principal, error or "the platform does not answer")
            return None

    async def _signing(self, turn: Turn, step: ToolStep, decision: Decision, member: Member) -> Signing | NotAllowed:
        """On which grounds this person's verdict counts, or why it does not."""
        if step.approval is None:
            return NotAllowed("This call waits for no signature.")
        terms = await self._terms(turn, step, step.approval)
        signatories = self._rules.rules(turn.conversation).signatories
        asked = step.approval
        found = signing(signatories, terms, member, decision.verdict, asker=asked.requested_for, editors=asked.editors)
        if isinstance(found, NotAllowed):
            return found
        return replace(found, must_view=bool(lookalikes(step.call.arguments, asked.secrets)))

    async def _following(self, turn: Turn, signed: ToolStep, decision: Decision, member: Member) -> Following:
        """The other calls of this tool that wait in the turn and that this person may sign alone: nobody signs with a
        grant what they could not sign with a press on its own card.
        """
        found: dict[tuple[str, int], Signing] = {}
        for step in (await self._log.view(turn.id)).awaiting:
            if step.approval is None or step.n == signed.n or step.tool != signed.tool:
                continue
            grounds = await self._signing(turn, step, decision, member)
            if isinstance(grounds, Signing) and grounds.quorum <= 1:
                found[step.approval.id, step.approval.revision] = grounds
        return found

    async def _terms(self, turn: Turn, step: ToolStep, approval: Approval) -> Terms:
        """On what terms the call was asked for, and what rules ask beyond that by now: a rule that has become weaker
        since changes nothing, one that has become stricter does.
        """
        rules = self._rules.rules(turn.conversation)
        if all(rule.terms == NO_TERMS for rule in rules.all):
            return approval.terms
        asker = approval.requested_for
        tool = await self._tool(turn, step)
        if tool is None:
            return approval.terms  # it is not sent anyway, as long as it is not there
        asking = await self._member(asker, turn.conversation) if rules.ask_who else None
        return approval.terms.joined(rules.judge(tool, step.call.arguments, asker, asking).terms)

    async def _tool(self, turn: Turn, step: ToolStep) -> Tool | None:
        """The tool of a call as it is offered now; None if that cannot be had soon."""
        try:
            async with asyncio.timeout(TOOLS_SECONDS):
                return (await self._parts.toolbox.offer(turn.conversation.home)).find(step.call.name)
        except TimeoutError:
            return None

    async def _refuse(self, decision: Decision, objection: str) -> NotAllowed:
        """Who may not and tries is on record."""
        await self._log.refuse(decision.approval_id, decision.by, objection)
        return NotAllowed(objection)

    def _settled(self, turn_id: str) -> None:
        """Calls of a turn wait for nobody any more: they were decided, or their cards cannot be posted."""
        self._worker.ring(turn_id)

    def _begin(self, claim: Claim, record: TurnRecord) -> TurnInProgress:
        if claim.fresh is not None and claim.fresh.revision == 0:
            self._drawings.begin(claim.turn_id)
        return TurnInProgress(claim, record, self._parts)


def _is_behind(step: ToolStep, decision: Decision) -> bool:
    """Whether a decision is about other arguments than the ones that rights were looked at for: somebody may have
    changed them since the step was read, or name a revision that is only about to come.
    """
    waits = step.status is StepStatus.AWAITING
    return waits and step.approval is not None and step.approval.revision != decision.revision
