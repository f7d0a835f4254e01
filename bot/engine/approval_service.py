"""Approvals: decisions, grants, edits and whole views of calls that await one. Each checks the rights of the member.

Possible approvers and the author may edit a call's arguments before its approval: they could as well request another
call. Guests, external users and bots may not. An edit approves nothing: all approvals start again, and under four eyes
an editor cannot approve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
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
from bot.domain.conversations import Author, Member
from bot.domain.grants import GrantRequest
from bot.domain.policies import PolicyResult
from bot.domain.secret_detection import lookalikes, stored_secrets
from bot.domain.tools import ArgumentError, Tool, canonical_json
from bot.domain.turns import StepStatus, ToolStep, Turn
from bot.engine.approver_check import check_approver
from bot.engine.grants import build_grant, grant_rejection
from bot.engine.rules import RuleBook
from bot.engine.surfaces import MemberLookup
from bot.ports import ApprovalLog, Toolbox

SETTLED = "That is decided already and cannot be edited."
TOOL_CHANGED = "The tool is missing or has changed since the request. Deny the call and ask again."
OUTSIDER = "Only full members of this workspace may edit a call."
UNCHANGED = "Nothing was changed."

TOOLS_SECONDS = 5.0
"""Time limit, in seconds, of a tool lookup during a decision. Without the tool, the stored requirements apply."""


class ApprovalService:
    """Approvals of all turns. `wake_turn` gets the id of a turn whose approval was decided, `wake_delivery` is called
    when approval cards may have changed.
    """

    def __init__(
        self,
        turn_log: ApprovalLog,
        toolbox: Toolbox,
        rules: RuleBook,
        members: MemberLookup,
        *,
        wake_turn: Callable[[str], None],
        wake_delivery: Callable[[], None],
    ) -> None:
        self._log = turn_log
        self._toolbox = toolbox
        self._rules = rules
        self._members = members
        self._wake_turn = wake_turn
        self._wake_delivery = wake_delivery

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
        self._wake(turn)
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
        rejection = grant_rejection(request, step, evidence, admin=admin)
        if rejection:
            return await self._reject(decision, rejection)
        if _is_stale(step, decision):
            return StaleRevision()
        grant = build_grant(request, step, turn.conversation, decision.by)
        result = await self._log.grant(
            decision, grant, evidence, await self._similar_calls(turn, step, decision, member)
        )
        self._wake(turn)
        return result

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

    async def get_editable_call(self, approval_id: str, revision: int, member: Member) -> EditableCall | NotEditable:
        """Return a call that awaits approval, for this member to edit; or the reason why they cannot."""
        pending = await self._log.get_approval(approval_id)
        if pending is None:
            return ApprovalNotFound()
        turn, step = pending
        rejection = _edit_rejection(step, revision, member)
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
        editable = _editable_call(turn, step, step.approval, await self._tool(turn, step), whole=whole)
        if isinstance(editable, EditableCall) and whole and lookalikes(step.call.arguments, step.approval.secrets):
            await self._log.record_view(approval_id, revision, IN_A_FORM, member.author)
        return editable

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
        argument_errors = tuple(self._toolbox.validate(tool.input_schema, arguments))
        invalid = _invalid_arguments(
            step, arguments, argument_errors, await self._evaluate(turn, tool, arguments, turn.author)
        )
        if invalid is not None:
            return invalid
        digest = fingerprint(tool, arguments)
        secrets = stored_secrets(arguments, partial(self._toolbox.secret_spans, tool.server_id))
        if not await self._log.revise(Revision(approval_id, revision, arguments, digest, member.author, secrets)):
            return StaleRevision()
        self._wake_delivery()
        return RevisionAccepted(revision + 1)

    # ------------------------------------------------------------------ rights

    async def _check_rights(
        self, turn: Turn, step: ToolStep, decision: Decision, member: Member
    ) -> ApproverEvidence | NotAllowed:
        """Return the evidence on which this member's decision counts, or the reason why it does not."""
        pending = step.approval
        if pending is None:
            return NotAllowed("This call does not await approval.")
        terms = await self._requirements(turn, step, pending)
        signatories = self._rules.rules(turn.conversation).signatories
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
        if all(rule.terms == NO_TERMS for rule in self._rules.rules(turn.conversation).all):
            return approval.terms
        tool = await self._tool(turn, step)
        if tool is None:
            return approval.terms  # a missing tool is never called
        return approval.terms.joined(
            (await self._evaluate(turn, tool, step.call.arguments, approval.requested_for)).terms
        )

    async def _evaluate(self, turn: Turn, tool: Tool, arguments: Mapping[str, Any], author: Author) -> PolicyResult:
        """Return the policy for a call by the current rules of the turn's conversation."""
        rules = self._rules.rules(turn.conversation)
        member = await self._members.find(author, turn.conversation) if rules.ask_who else None
        return rules.judge(tool, arguments, author, member)

    async def _tool(self, turn: Turn, step: ToolStep) -> Tool | None:
        """Return the tool as its server offers it now; None after TOOLS_SECONDS."""
        try:
            async with asyncio.timeout(TOOLS_SECONDS):
                return (await self._toolbox.offer(turn.conversation.workspace_key)).find(step.call.name)
        except TimeoutError:
            return None

    async def _reject(self, decision: Decision, rejection: str) -> NotAllowed:
        """Record a rejected attempt and return its reason."""
        await self._log.record_rejection(decision.approval_id, decision.by, rejection)
        return NotAllowed(rejection)

    def _wake(self, turn: Turn) -> None:
        self._wake_turn(turn.id)
        self._wake_delivery()


def _is_stale(step: ToolStep, decision: Decision) -> bool:
    """Return True if a decision names other arguments than those whose rights were checked, because the call was edited
    in between.
    """
    awaits = step.status is StepStatus.AWAITING
    return awaits and step.approval is not None and step.approval.revision != decision.revision


def _edit_rejection(step: ToolStep, revision: int, member: Member) -> NotEditable | None:
    """Return the reason why this revision cannot be edited now, before rights are checked; None if it can."""
    if member.guest or member.external:
        return NotAllowed(OUTSIDER)
    if step.status is not StepStatus.AWAITING or step.approval is None:
        return AlreadyDecided(SETTLED)
    return StaleRevision() if step.approval.revision != revision else None


def _editable_call(
    turn: Turn, step: ToolStep, approval: Approval, tool: Tool | None, *, whole: bool
) -> EditableCall | NotAllowed:
    if tool is None or step.tool is None:
        return NotAllowed(TOOL_CHANGED)
    if fingerprint(tool, step.call.arguments) != approval.fingerprint:
        return NotAllowed(TOOL_CHANGED)
    return EditableCall(turn, step, tool.input_schema, whole)


def _invalid_arguments(
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
