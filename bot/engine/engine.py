"""The engine: the operations that platforms call, and the background loops.

Possible approvers and the author may edit a call's arguments before its approval: they could as well request another
call. Guests, external users and bots may not. An edit approves nothing: all approvals start again, and under four eyes
an editor cannot approve.
"""

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
    ApprovalPolicy,
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
from bot.domain.argument_edits import EditableCall, EditResult, InvalidArguments, NotEditable, RevisionAccepted
from bot.domain.argument_secrets import lookalikes, stored_secrets, with_masks
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.elicitation_answers import AnswerRejected, AnswerResult, OpenElicitation
from bot.domain.elicitations import ElicitationResult
from bot.domain.grants import GrantRequest
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.policies import PolicyResult, TaintMode
from bot.domain.tools import ArgumentError, Tool, ToolSearch, canonical_json
from bot.domain.turns import Claim, Receipt, StepStatus, ToolStep, Turn, TurnRecord
from bot.domain.views import TurnView
from bot.engine.approver_check import check_approver
from bot.engine.elicitation import answer_rejection as not_answerable
from bot.engine.elicitation import invalid_answer as unfit_answer
from bot.engine.grants import build_grant
from bot.engine.grants import grant_rejection as not_grantable
from bot.engine.history import USUAL_MEMORY, HistoryBudget
from bot.engine.prompt_builder import PromptParts
from bot.engine.reminders import Reminders
from bot.engine.rules import RuleBook
from bot.engine.scheduler import Job, Scheduler
from bot.engine.surfaces import surface_for
from bot.engine.system_prompt import NO_INSTRUCTIONS, SystemPrompt
from bot.engine.token_estimates import Estimates
from bot.engine.tool_selection import RefusedTools
from bot.engine.turn_runner import TurnParts, TurnRunner, check_question
from bot.engine.usage_limits import no_limits
from bot.engine.usage_metering import UsageMeters
from bot.engine.view_delivery import ViewDelivery
from bot.engine.worker import Worker
from bot.errors import CountersignError, NotFound
from bot.ports import LanguageModels, Surface, Toolbox, TurnLog

log = logging.getLogger(__name__)

SETTLED = "That is decided already and cannot be edited."
TOOL_CHANGED = "The tool is missing or has changed since the request. Deny the call and ask again."
OUTSIDER = "Only full members of this workspace may edit a call."
UNCHANGED = "Nothing was changed."


def edit_rejection(step: ToolStep, revision: int, member: Member) -> NotEditable | None:
    """Return the reason why this revision cannot be edited now, before rights are checked; None if it can."""
    if member.guest or member.external:
        return NotAllowed(OUTSIDER)
    if step.status is not StepStatus.AWAITING or step.approval is None:
        return AlreadyDecided(SETTLED)
    return StaleRevision() if step.approval.revision != revision else None


def editable_call(
    turn: Turn, step: ToolStep, approval: Approval, tool: Tool | None, *, whole: bool
) -> EditableCall | NotAllowed:
    """Return the call for editing; NotAllowed if its tool has changed."""
    if tool is None or step.tool is None:
        return NotAllowed(TOOL_CHANGED)
    if fingerprint(tool, step.call.arguments) != approval.fingerprint:
        return NotAllowed(TOOL_CHANGED)
    return EditableCall(turn, step, tool.input_schema, whole)


def invalid_arguments(
    step: ToolStep, arguments: Mapping[str, Any], errors: tuple[ArgumentError, ...], result: PolicyResult
) -> InvalidArguments | None:
    """Return the errors of new arguments: unchanged, schema, or denied by a policy; None if they are valid."""
    if canonical_json(arguments) == canonical_json(step.call.arguments):
        return InvalidArguments((ArgumentError("", UNCHANGED),))
    if errors:
        return InvalidArguments(errors)
    if result.ruling.policy is ApprovalPolicy.ALWAYS_DENY:
        return InvalidArguments((ArgumentError("", "A policy forbids this call with these arguments."),))
    return None


APPROVAL_SECONDS = 1800.0
MEMBER_SECONDS = 10.0
"""Time limit, in seconds, of a platform's member lookup."""
TOOLS_SECONDS = 5.0
"""Time limit, in seconds, of a tool lookup during a decision. Without the tool, the stored requirements apply."""
UNCLEAR_ENDS = frozenset({StepStatus.UNKNOWN})
REPEATABLE_ENDS = frozenset(status for status in StepStatus if status.ended and status is not StepStatus.DONE)


class Engine:
    """Entry point of the engine: receives messages, runs turns, decides approvals, delivers views.

    The database row is the state and a wakeup only a hint: every operation writes first and wakes afterwards.
    `instructions` is the system prompt, `memory` the history budget. `approval_seconds` is None if approvals never
    expire. `on_change` runs when another process may have changed servers, policies or profiles. `taint` is the mode
    for calls that could send one server's data to another. `refused` holds the tools that model services rejected.
    `tool_search` sets when models search for tools. `observe` takes metrics. `allow` runs before a turn's first model
    request and raises LimitReached to reject it.
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
        self._scheduler = Scheduler(turn_log, jobs, pause=pause)
        self._rules = rules
        self._surfaces = surfaces
        self._reminders = Reminders(turn_log, surfaces, rules.rules, pause=pause)
        self._delivery = ViewDelivery(turn_log, surfaces, on_settled=self._on_decided, observe=observe, pause=pause)
        estimates = Estimates()
        self._meters = UsageMeters(turn_log, estimates, pause)
        self._parts = TurnParts(
            turn_log,
            models,
            toolbox,
            rules.rules,
            approval_seconds,
            self._delivery.deliver,
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
            self._delivery,
            lambda: tuple(surface.key_prefix for surface in surfaces),
            on_change,
            pause=pause,
        )

    async def receive(self, message: InboundMessage) -> Receipt:
        """Store a message. Its turn starts after all earlier turns of the conversation."""
        receipt = await self._worker.receive(message)
        if receipt.queue_position:
            self._delivery.wake()
        return receipt

    async def decide(self, decision: Decision, member: Member) -> DecisionResult:
        """Decide an approval, if this member may and it is still open. Rights are checked here, independently of the
        buttons that the platform displayed.
        """
        pending = await self._log.get_approval(decision.approval_id)
        if pending is None:
            return ApprovalNotFound()
        turn, step = pending
        evidence = await self._check_rights(turn, step, decision, member)
        if isinstance(evidence, NotAllowed):
            return await self._reject(decision, evidence.reason)
        if _is_stale(step, decision):
            return StaleRevision()
        result = await self._log.decide(decision, evidence)
        self._on_decided(turn.id)
        self._delivery.wake()
        return result

    async def grant(self, decision: Decision, request: GrantRequest, member: Member) -> DecisionResult:
        """Approve a call and grant later calls like it, if this member may do both and the approval is still open. If
        the grant is rejected, the call is not approved either.
        """
        if decision.verdict is not DecisionType.APPROVE:
            return await self.decide(decision, member)
        pending = await self._log.get_approval(decision.approval_id)
        if pending is None:
            return ApprovalNotFound()
        turn, step = pending
        admin = self._rules.rules(turn.conversation).signatories.administers(member)
        evidence = await self._check_rights(turn, step, decision, member)
        if isinstance(evidence, NotAllowed):
            return await self._reject(decision, evidence.reason)
        rejection = not_grantable(request, step, evidence, admin=admin)
        if rejection:
            return await self._reject(decision, rejection)
        if _is_stale(step, decision):
            return StaleRevision()
        grant = build_grant(request, step, turn.conversation, decision.by)
        result = await self._log.grant(
            decision, grant, evidence, await self._similar_calls(turn, step, decision, member)
        )
        self._on_decided(turn.id)
        self._delivery.wake()
        return result

    async def get_editable_call(self, approval_id: str, revision: int, member: Member) -> EditableCall | NotEditable:
        """Return a call that awaits approval, for this member to edit; or the reason why they cannot."""
        pending = await self._log.get_approval(approval_id)
        if pending is None:
            return ApprovalNotFound()
        turn, step = pending
        rejection = edit_rejection(step, revision, member)
        if rejection is not None or step.approval is None:
            return rejection or ApprovalNotFound()
        # Edits need the same rights as a denial: those of the author or of a possible approver.
        evidence = await self._check_rights(
            turn, step, Decision(approval_id, revision, DecisionType.DENY, member.author), member
        )
        if isinstance(evidence, NotAllowed):
            return evidence
        approving = Decision(approval_id, revision, DecisionType.APPROVE, member.author)
        whole = isinstance(await self._check_rights(turn, step, approving, member), ApproverEvidence)
        editable = editable_call(turn, step, step.approval, await self._tool(turn, step), whole=whole)
        if isinstance(editable, EditableCall) and whole and lookalikes(step.call.arguments, step.approval.secrets):
            await self._log.record_view(approval_id, revision, IN_A_FORM, member.author)
        return editable

    async def open_call(
        self, approval_id: str, revision: int, member: Member, portion: Portion = WHOLE
    ) -> ToolStep | NotEditable:
        """Return a call that awaits approval with all its characters, if this member may approve it. The view is
        recorded before the member gets it.
        """
        pending = await self._log.get_approval(approval_id)
        if pending is None:
            return ApprovalNotFound()
        turn, step = pending
        if step.status is not StepStatus.AWAITING or step.approval is None:
            return AlreadyDecided(SETTLED)
        evidence = await self._check_rights(
            turn, step, Decision(approval_id, revision, DecisionType.APPROVE, member.author), member
        )
        if isinstance(evidence, NotAllowed):
            return evidence
        if step.approval.revision != revision:
            return StaleRevision()
        recorded = await self._log.record_view(approval_id, revision, portion, member.author)
        return step if recorded else StaleRevision()

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> EditResult:
        """Replace the arguments of a call that awaits approval, if this member may and nothing changed meanwhile. The
        arguments must fit the tool's schema, and no policy may deny them.
        """
        editable = await self.get_editable_call(approval_id, revision, member)
        if isinstance(editable, NotAllowed):
            await self._log.record_rejection(approval_id, member.author, editable.reason)
        if not isinstance(editable, EditableCall):
            return editable
        turn, step = editable.turn, editable.step
        tool = await self._tool(turn, step)
        if tool is None or step.tool is None or not step.tool.is_still(tool):
            return NotAllowed(TOOL_CHANGED)  # changed since the form was opened
        rules, asker = self._rules.rules(turn.conversation), turn.author
        member_now = await self._member(asker, turn.conversation) if rules.ask_who else None
        argument_errors = tuple(self._parts.toolbox.validate(tool.input_schema, arguments))
        if (
            wrong := invalid_arguments(
                step, arguments, argument_errors, rules.judge(tool, arguments, asker, member_now)
            )
        ) is not None:
            return wrong
        digest = fingerprint(tool, arguments)
        secrets = stored_secrets(arguments, partial(self._parts.toolbox.secret_spans, tool.server_id))
        edited = Revision(approval_id, revision, arguments, digest, member.author, secrets)
        if not await self._log.revise(edited):
            return StaleRevision()
        self._delivery.wake()
        return RevisionAccepted(revision + 1)

    async def get_elicitation(self, elicitation_id: str, member: Member) -> OpenElicitation | AnswerRejected:
        """Return an open elicitation that this member may answer; or the reason why they cannot."""
        elicitation = await self._log.get_elicitation(elicitation_id)
        if elicitation is None:
            return ApprovalNotFound()
        return not_answerable(elicitation, member) or elicitation

    async def answer_elicitation(self, elicitation_id: str, result: ElicitationResult, member: Member) -> AnswerResult:
        """Answer an elicitation, if this member may, it is still open, and the values fit."""
        elicitation = await self.get_elicitation(elicitation_id, member)
        if not isinstance(elicitation, OpenElicitation):
            return elicitation
        if (wrong := unfit_answer(elicitation, result, self._parts.toolbox)) is not None:
            return wrong
        answer = await self._log.answer_elicitation(elicitation_id, result, member.author)
        self._on_decided(elicitation.turn.id)
        self._delivery.wake()
        return answer

    async def stop(self, turn_id: str, by: Author) -> bool:
        """Stop a turn in any state. Return False if it had ended."""
        stopped = await self._log.stop(turn_id, by)
        if stopped:
            self._worker.cancel(turn_id)
            self._delivery.wake()
        return stopped

    async def run_again(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Start a turn that runs a failed or unknown call again, with a fresh approval. Repeated requests return the
        same turn. Raises NotFound if there is no such call.
        """
        turn, step = await self._ended_call(turn_id, n, REPEATABLE_ENDS)
        name = step.tool.name if step.tool else step.call.name
        return await self.receive(
            InboundMessage(
                (f"again:{turn_id}:{n}",), turn.conversation, by, f"Run {name} again", call=step.call, again=True
            )
        )

    async def check_outcome(self, turn_id: str, n: int, by: Author) -> Receipt:
        """Start a turn in which the model checks if a call of unknown outcome has run. Repeated requests return the
        same turn. Raises NotFound if there is no such call.
        """
        turn, step = await self._ended_call(turn_id, n, UNCLEAR_ENDS)
        # The question is posted in the conversation, so its secrets are masked as on an approval card.
        stored = step.approval.secrets if step.approval is not None else ()
        arguments = with_masks(step.call.arguments, stored, lookalikes(step.call.arguments, stored))
        text = check_question(step.call.name, arguments)
        return await self.receive(InboundMessage((f"check:{turn_id}:{n}",), turn.conversation, by, text))

    async def view(self, turn_id: str) -> TurnView:
        """Return the stored view of a turn. Raises NotFound."""
        return replace(await self._log.get_view(turn_id), read=partial(self._log.get_file, turn_id))

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """Return the stored views of the last `limit` turns of a conversation, oldest first."""
        return await self._log.recent_turns(conversation, limit)

    async def run(self) -> None:
        """Run turns and deliver their views until cancelled. Then release turns and finish deliveries."""
        delivering = asyncio.create_task(self._delivery.run(), name="delivery")
        working = asyncio.create_task(self._work(), name="work")
        try:
            await asyncio.wait({delivering, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Workers stop first, so that the last views of released turns are still delivered.
            for task in (working, delivering):
                task.cancel()
                await asyncio.wait({task})
        for task in (working, delivering):
            if not task.cancelled():
                task.result()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._worker.run(), name="worker")
            group.create_task(self._scheduler.run(), name="schedule")
            group.create_task(self._reminders.run(), name="reminders")
            group.create_task(self._meters.run(), name="meters")

    async def _ended_call(self, turn_id: str, n: int, ends: Collection[StepStatus]) -> tuple[Turn, ToolStep]:
        view = await self._log.get_view(turn_id)
        step = next((view_step for view_step in view.steps if view_step.n == n), None)
        if not isinstance(step, ToolStep) or step.status not in ends:
            raise NotFound("The call does not exist or needs no second try.")
        return view.turn, step

    async def _fetch(self, conversation: ConversationKey, attachment: Attachment) -> bytes:
        """Return the bytes of a message's attachment. Raises NotFound and the errors of the surface."""
        surface = surface_for(self._surfaces, conversation)
        if surface is None:
            raise NotFound("The file's platform is not connected.")
        return await surface.fetch(attachment)

    async def _member(self, author: Author, conversation: ConversationKey) -> Member | None:
        """Return the author as a member of the conversation; None if the platform cannot tell. Rules then take the
        stricter case.
        """
        surface = surface_for(self._surfaces, conversation)
        if surface is None:
            return None
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                return await surface.member(author, conversation)
        except (CountersignError, TimeoutError) as error:
            log.warning("member %s was not looked up: %s", author.principal, error or "the platform does not answer")
            return None

    async def _check_rights(
        self, turn: Turn, step: ToolStep, decision: Decision, member: Member
    ) -> ApproverEvidence | NotAllowed:
        """Return the evidence on which this member's decision counts, or the reason why it does not."""
        if step.approval is None:
            return NotAllowed("This call does not await approval.")
        terms = await self._requirements(turn, step, step.approval)
        signatories = self._rules.rules(turn.conversation).signatories
        pending = step.approval
        evidence = check_approver(
            signatories, terms, member, decision.verdict, asker=pending.requested_for, editors=pending.editors
        )
        if isinstance(evidence, NotAllowed):
            return evidence
        return replace(evidence, must_view=bool(lookalikes(step.call.arguments, pending.secrets)))

    async def _similar_calls(
        self, turn: Turn, approved: ToolStep, decision: Decision, member: Member
    ) -> ApprovedTogether:
        """Return the turn's other pending calls of the same tool that this member may approve alone. A grant approves
        no call that the member could not approve on its own card.
        """
        evidence_by_revision: dict[tuple[str, int], ApproverEvidence] = {}
        for step in (await self._log.get_view(turn.id)).awaiting:
            if step.approval is None or step.n == approved.n or step.tool != approved.tool:
                continue
            evidence = await self._check_rights(turn, step, decision, member)
            if isinstance(evidence, ApproverEvidence) and evidence.quorum <= 1:
                evidence_by_revision[step.approval.id, step.approval.revision] = evidence
        return evidence_by_revision

    async def _requirements(self, turn: Turn, step: ToolStep, approval: Approval) -> ApprovalRequirements:
        """Return the stored approval requirements joined with those of the current rules. A rule that became weaker
        changes nothing; a stricter one applies.
        """
        rules = self._rules.rules(turn.conversation)
        if all(rule.terms == NO_TERMS for rule in rules.all):
            return approval.terms
        asker = approval.requested_for
        tool = await self._tool(turn, step)
        if tool is None:
            return approval.terms  # a missing tool is never called
        member_now = await self._member(asker, turn.conversation) if rules.ask_who else None
        return approval.terms.joined(rules.judge(tool, step.call.arguments, asker, member_now).terms)

    async def _tool(self, turn: Turn, step: ToolStep) -> Tool | None:
        """Return the tool as its server offers it now; None after TOOLS_SECONDS."""
        try:
            async with asyncio.timeout(TOOLS_SECONDS):
                return (await self._parts.toolbox.offer(turn.conversation.workspace_key)).find(step.call.name)
        except TimeoutError:
            return None

    async def _reject(self, decision: Decision, rejection: str) -> NotAllowed:
        """Record a rejected attempt and return its reason."""
        await self._log.record_rejection(decision.approval_id, decision.by, rejection)
        return NotAllowed(rejection)

    def _on_decided(self, turn_id: str) -> None:
        """Wake a turn after a decision, or after its approval card failed to post."""
        self._worker.wake(turn_id)

    def _begin(self, claim: Claim, record: TurnRecord) -> TurnRunner:
        if claim.initial_record is not None and claim.initial_record.revision == 0:
            self._delivery.begin(claim.turn_id)
        return TurnRunner(claim, record, self._parts)


def _is_stale(step: ToolStep, decision: Decision) -> bool:
    """Return True if a decision names other arguments than those whose rights were checked, because the call was edited
    in between.
    """
    waits = step.status is StepStatus.AWAITING
    return waits and step.approval is not None and step.approval.revision != decision.revision
