"""The engine: what platforms may ask of it, and the loops that do the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bot.domain.approval_requirements import NO_TERMS, ApprovalRequirements
from bot.domain.approvals import (
    IN_A_FORM,
    WHOLE,
    AlreadyDecided,
    Approval,
    ApprovalNotFound,
    ApprovedTogether,
    ApproverEvidence,
    Decision,
    DecisionResult,
    DecisionType,
    NotAllowed,
    Portion,
    Revision,
    StaleRevision,
    fingerprint,
)
from bot.domain.argument_edits import EditableCall, EditResult, NotEditable, RevisionAccepted
from bot.domain.argument_secrets import lookalikes, stored_secrets, with_masks
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.elicitation_answers import AnswerRejected, AnswerResult, OpenElicitation
from bot.domain.elicitations import ElicitationResult
from bot.domain.grants import GrantRequest
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.policies import TaintMode
from bot.domain.tools import Tool, ToolSearch
from bot.domain.turns import Claim, Receipt, StepStatus, ToolStep, Turn, TurnRecord
from bot.domain.views import TurnView
from bot.engine.approver_check import check_approver
from bot.engine.argument_editing import SETTLED, TOOL_CHANGED, editable_call, invalid_arguments
from bot.engine.argument_editing import edit_rejection as not_editable
from bot.engine.elicitation import answer_rejection as not_answerable
from bot.engine.elicitation import invalid_answer as unfit_answer
from bot.engine.grants import build_grant
from bot.engine.grants import grant_rejection as not_grantable
from bot.engine.history import USUAL_MEMORY, HistoryBudget
from bot.engine.outcome_checks import check_question
from bot.engine.prompt_builder import PromptParts
from bot.engine.reminders import Reminders
from bot.engine.rules import RuleBook
from bot.engine.scheduler import Job, Scheduler
from bot.engine.surfaces import surface_for
from bot.engine.system_prompt import NO_INSTRUCTIONS, SystemPrompt
from bot.engine.token_estimates import Estimates
from bot.engine.tool_selection import RefusedTools
from bot.engine.turn_runner import TurnParts, TurnRunner
from bot.engine.usage_limits import no_limits
from bot.engine.usage_metering import UsageMeters
from bot.engine.view_delivery import ViewDelivery
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
        instructions: SystemPrompt = NO_INSTRUCTIONS,
        memory: HistoryBudget = USUAL_MEMORY,
        taint: TaintMode = TaintMode.OFF,
        refused: RefusedTools | None = None,
        tool_search: ToolSearch = ToolSearch.AUTO,
        on_change: Callable[[], None] = lambda: None,
        jobs: Sequence[Job] = (),
        observe: MetricSink = null_sink,
        allow: Callable[[Turn], Awaitable[None]] = no_limits,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._schedule = Scheduler(turn_log, jobs, pause=pause)
        self._rules = rules
        self._surfaces = surfaces
        self._reminders = Reminders(turn_log, surfaces, rules.rules, pause=pause)
        self._drawings = ViewDelivery(turn_log, surfaces, on_settled=self._settled, observe=observe, pause=pause)
        estimates = Estimates()
        self._meters = UsageMeters(turn_log, estimates, pause)
        self._parts = TurnParts(
            turn_log,
            models,
            toolbox,
            rules.rules,
            approval_seconds,
            self._drawings.deliver,
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
            lambda: tuple(surface.key_prefix for surface in surfaces),
            on_change,
            pause=pause,
        )

    async def receive(self, message: InboundMessage) -> Receipt:
        """Put a message on disk; its turn begins as soon as those before it have ended."""
        receipt = await self._worker.receive(message)
        if receipt.queue_position:
            self._drawings.wake()
        return receipt

    async def decide(self, decision: Decision, member: Member) -> DecisionResult:
        """Settle an approval, if this member may and nobody was faster. Rights are checked here, whatever the
        platform has shown to whom.
        """
        asked = await self._log.get_approval(decision.approval_id)
        if asked is None:
            return ApprovalNotFound()
        turn, step = asked
        found = await self._signing(turn, step, decision, member)
        if isinstance(found, NotAllowed):
            return await self._refuse(decision, found.reason)
        if _is_behind(step, decision):
            return StaleRevision()
        settlement = await self._log.decide(decision, found)
        self._settled(turn.id)
        self._drawings.wake()
        return settlement

    async def grant(self, decision: Decision, permission: GrantRequest, member: Member) -> DecisionResult:
        """Approve a call and allow the next ones like it, if this member may do both and nobody was faster. Where only
        the signature would be right, nothing is signed either.
        """
        if decision.verdict is not DecisionType.APPROVE:
            return await self.decide(decision, member)
        asked = await self._log.get_approval(decision.approval_id)
        if asked is None:
            return ApprovalNotFound()
        turn, step = asked
        admin = self._rules.rules(turn.conversation).signatories.administers(member)
        found = await self._signing(turn, step, decision, member)
        if isinstance(found, NotAllowed):
            return await self._refuse(decision, found.reason)
        objection = not_grantable(permission, step, found, admin=admin)
        if objection:
            return await self._refuse(decision, objection)
        if _is_behind(step, decision):
            return StaleRevision()
        grant = build_grant(permission, step, turn.conversation, decision.by)
        settlement = await self._log.grant(decision, grant, found, await self._following(turn, step, decision, member))
        self._settled(turn.id)
        self._drawings.wake()
        return settlement

    async def get_editable_call(self, approval_id: str, revision: int, member: Member) -> EditableCall | NotEditable:
        """A call that waits for a signature, for this member to change; or why they cannot."""
        asked = await self._log.get_approval(approval_id)
        if asked is None:
            return ApprovalNotFound()
        turn, step = asked
        objection = not_editable(step, revision, member)
        if objection is not None or step.approval is None:
            return objection or ApprovalNotFound()
        # Turning a call down takes the same as changing it: to be asked, or one who could be asked to sign.
        found = await self._signing(
            turn, step, Decision(approval_id, revision, DecisionType.DENY, member.author), member
        )
        if isinstance(found, NotAllowed):
            return found
        approving = Decision(approval_id, revision, DecisionType.APPROVE, member.author)
        whole = isinstance(await self._signing(turn, step, approving, member), ApproverEvidence)
        drafted = editable_call(turn, step, step.approval, await self._tool(turn, step), whole=whole)
        if isinstance(drafted, EditableCall) and whole and lookalikes(step.call.arguments, step.approval.secrets):
            await self._log.record_view(approval_id, revision, IN_A_FORM, member.author)
        return drafted

    async def open_call(
        self, approval_id: str, revision: int, member: Member, portion: Portion = WHOLE
    ) -> ToolStep | NotEditable:
        """Return a call that waits, for this member to see every character of it in private, if they may approve it.
        The page they are shown is on record before they see it.
        """
        asked = await self._log.get_approval(approval_id)
        if asked is None:
            return ApprovalNotFound()
        turn, step = asked
        if step.status is not StepStatus.AWAITING or step.approval is None:
            return AlreadyDecided(SETTLED)
        found = await self._signing(
            turn, step, Decision(approval_id, revision, DecisionType.APPROVE, member.author), member
        )
        if isinstance(found, NotAllowed):
            return found
        if step.approval.revision != revision:
            return StaleRevision()
        recorded = await self._log.record_view(approval_id, revision, portion, member.author)
        return step if recorded else StaleRevision()

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> EditResult:
        """Ask for a signature on other arguments instead, if this member may and nobody was faster. They have to fit
        the tool's schema, and no policy may deny them.
        """
        drafted = await self.get_editable_call(approval_id, revision, member)
        if isinstance(drafted, NotAllowed):
            await self._log.record_rejection(approval_id, member.author, drafted.reason)
        if not isinstance(drafted, EditableCall):
            return drafted
        turn, step = drafted.turn, drafted.step
        tool = await self._tool(turn, step)
        if tool is None or step.tool is None or not step.tool.is_still(tool):
            return NotAllowed(TOOL_CHANGED)  # since it was drafted
        rules, asker = self._rules.rules(turn.conversation), turn.author
        asking = await self._member(asker, turn.conversation) if rules.ask_who else None
        misfits = tuple(self._parts.toolbox.validate(tool.input_schema, arguments))
        if (
            wrong := invalid_arguments(step, arguments, misfits, rules.judge(tool, arguments, asker, asking))
        ) is not None:
            return wrong
        signed = fingerprint(tool, arguments)
        secrets = stored_secrets(arguments, partial(self._parts.toolbox.secret_spans, tool.server_id))
        made = Revision(approval_id, revision, arguments, signed, member.author, secrets)
        if not await self._log.revise(made):
            return StaleRevision()
        self._drawings.wake()
        return RevisionAccepted(revision + 1)

    async def get_elicitation(self, elicitation_id: str, member: Member) -> OpenElicitation | AnswerRejected:
        """What a server has asked back and this member may answer now; or why they cannot."""
        inquiry = await self._log.get_elicitation(elicitation_id)
        if inquiry is None:
            return ApprovalNotFound()
        return not_answerable(inquiry, member) or inquiry

    async def answer_elicitation(self, elicitation_id: str, reply: ElicitationResult, member: Member) -> AnswerResult:
        """Answer what a server has asked back, if this member may, nobody was faster, and the values fit."""
        inquiry = await self.get_elicitation(elicitation_id, member)
        if not isinstance(inquiry, OpenElicitation):
            return inquiry
        if (wrong := unfit_answer(inquiry, reply, self._parts.toolbox)) is not None:
            return wrong
        answered = await self._log.answer_elicitation(elicitation_id, reply, member.author)
        self._settled(inquiry.turn.id)
        self._drawings.wake()
        return answered

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn at whatever it is doing. False if it had ended."""
        stopped = await self._log.stop(turn_id, by)
        if stopped:
            self._worker.cancel(turn_id)
            self._drawings.wake()
        return stopped

    async def run_again(self, turn_id: str, n: int, by: Author) -> Receipt:
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

    async def check_outcome(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Ask the model to find out whether a call of unknown outcome has happened. Asked twice, it is one turn.
        Raises NotFound.
        """
        turn, step = await self._ended_call(turn_id, n, UNCLEAR_ENDS)
        # The conversation reads this question, so it has the arguments as a card in a shared place has them.
        stored = step.approval.secrets if step.approval is not None else ()
        arguments = with_masks(step.call.arguments, stored, lookalikes(step.call.arguments, stored))
        text = check_question(step.call.name, arguments)
        return await self.receive(InboundMessage((f"check:{turn_id}:{n}",), turn.conversation, by, text))

    async def view(self, turn_id: str) -> TurnView:
        """A turn as it stands on disk. Raises NotFound."""
        return replace(await self._log.get_view(turn_id), read=partial(self._log.get_file, turn_id))

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last turns of a conversation as they stand on disk, oldest first."""
        return await self._log.recent_turns(conversation, limit)

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
        view = await self._log.get_view(turn_id)
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

    async def _signing(
        self, turn: Turn, step: ToolStep, decision: Decision, member: Member
    ) -> ApproverEvidence | NotAllowed:
        """On which grounds this person's verdict counts, or why it does not."""
        if step.approval is None:
            return NotAllowed("This call waits for no signature.")
        terms = await self._terms(turn, step, step.approval)
        signatories = self._rules.rules(turn.conversation).signatories
        asked = step.approval
        found = check_approver(
            signatories, terms, member, decision.verdict, asker=asked.requested_for, editors=asked.editors
        )
        if isinstance(found, NotAllowed):
            return found
        return replace(found, must_view=bool(lookalikes(step.call.arguments, asked.secrets)))

    async def _following(self, turn: Turn, signed: ToolStep, decision: Decision, member: Member) -> ApprovedTogether:
        """The other calls of this tool that wait in the turn and that this person may sign alone: nobody signs with a
        grant what they could not sign with a press on its own card.
        """
        found: dict[tuple[str, int], ApproverEvidence] = {}
        for step in (await self._log.get_view(turn.id)).awaiting:
            if step.approval is None or step.n == signed.n or step.tool != signed.tool:
                continue
            grounds = await self._signing(turn, step, decision, member)
            if isinstance(grounds, ApproverEvidence) and grounds.quorum <= 1:
                found[step.approval.id, step.approval.revision] = grounds
        return found

    async def _terms(self, turn: Turn, step: ToolStep, approval: Approval) -> ApprovalRequirements:
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
                return (await self._parts.toolbox.offer(turn.conversation.workspace_key)).find(step.call.name)
        except TimeoutError:
            return None

    async def _refuse(self, decision: Decision, objection: str) -> NotAllowed:
        """Who may not and tries is on record."""
        await self._log.record_rejection(decision.approval_id, decision.by, objection)
        return NotAllowed(objection)

    def _settled(self, turn_id: str) -> None:
        """Calls of a turn wait for nobody any more: they were decided, or their cards cannot be posted."""
        self._worker.wake(turn_id)

    def _begin(self, claim: Claim, record: TurnRecord) -> TurnRunner:
        if claim.initial_record is not None and claim.initial_record.revision == 0:
            self._drawings.begin(claim.turn_id)
        return TurnRunner(claim, record, self._parts)


def _is_behind(step: ToolStep, decision: Decision) -> bool:
    """Whether a decision is about other arguments than the ones that rights were looked at for: somebody may have
    changed them since the step was read, or name a revision that is only about to come.
    """
    waits = step.status is StepStatus.AWAITING
    return waits and step.approval is not None and step.approval.revision != decision.revision
