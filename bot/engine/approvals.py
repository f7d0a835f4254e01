"""Approvals: decisions, grants, edits and whole views of calls that await one, and notices to approvers.

Each operation checks the rights of the member. Possible approvers and the author may edit a call's arguments before its
approval: they could as well request another call. Guests, external users and bots may not. An edit approves nothing:
all approvals start again, and under four eyes an editor cannot approve.

Approvers are mentioned on the card, or notified in private once it is posted. An approval gets one reminder, at half of
its time, if its requirements want it. Every process that delivers polls for due notices. The database assigns each to
one process, at most once: after a crash a notice is lost, not repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any

from bot.domain.approvals import (
    ASKER,
    IN_A_FORM,
    NO_REQUIREMENTS,
    WHOLE,
    AlreadyDecided,
    Approval,
    ApprovalNotFound,
    ApprovalNotice,
    ApprovalPolicy,
    ApprovalRequirements,
    ApprovedTogether,
    Approver,
    ApproverEvidence,
    ArgumentsScope,
    ChannelTarget,
    Decision,
    DecisionResult,
    DecisionType,
    HoursScope,
    NotAllowed,
    PermanentScope,
    Portion,
    Revision,
    SelfApproval,
    StaleRevision,
    ThreadScope,
    approval_targets,
    fingerprint,
    scope_name,
)
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.flows import Words
from bot.domain.grants import IDLE_SECONDS, LONGEST_HOURS, Grant, GrantRequest, requirements_digest
from bot.domain.locales import use_locale
from bot.domain.policies import PolicyResult, is_person
from bot.domain.secrets import lookalikes, stored_secrets
from bot.domain.tools import ArgumentError, Tool, canonical_json
from bot.domain.turns import Notice, NoticeTarget, StepStatus, ToolStep, Turn
from bot.engine.delegations import find_delegators
from bot.engine.external_calls import toolbox_of_turn
from bot.engine.locales import LocaleResolver
from bot.engine.policy.approvers import check_approver
from bot.engine.policy.rules import RuleBook
from bot.engine.possible_approvers import MAX_NOTIFIED_APPROVERS, ApproverResolver, named_people
from bot.engine.surfaces import Surfaces
from bot.engine.view_delivery import call_name
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.i18n import DEFAULT_LANGUAGE, _, format_alternatives, gettext_lazy, use_language
from bot.ports import ApprovalLog, Surface, Toolbox
from bot.ports.platform import (
    ApproverDirectory,
    EditableCall,
    EditResult,
    InvalidValues,
    NotEditable,
    RevisionAccepted,
)

log = logging.getLogger(__name__)

_HOUR = 3600.0

SETTLED = gettext_lazy("That is decided already and cannot be edited.")
TOOL_CHANGED = gettext_lazy("The tool is missing or has changed since the request. Deny the call and ask again.")
OUTSIDER = gettext_lazy("Only full members of this workspace may edit a call.")
UNCHANGED = gettext_lazy("Nothing was changed.")
TOOLS_SECONDS = 5.0
"""Time limit, in seconds, of a tool lookup during a decision. Without the tool, the stored requirements apply."""
POLL_SECONDS = 5.0
NOTICE_SECONDS = 30.0
BATCH = 20


def grant_rejection(request: GrantRequest, step: ToolStep, evidence: ApproverEvidence, *, admin: bool) -> str:
    """Return the reason why an approver may not give this grant, in a sentence; empty if they may."""
    if step.tool is None or step.approval is None:
        return _("This call can be approved, but not granted. Ask for it again.")
    if evidence.delegator is not None:
        return _("You decide this for {name}. It can be approved, not granted.", name=evidence.delegator.name)
    if evidence.quorum > 1:
        return _("This needs {quorum} approvals each time. It can be approved, not granted.", quorum=evidence.quorum)
    if not admin and (isinstance(request.scope, PermanentScope) or request.everyone or request.destructive):
        return _("Only an admin can allow that.")
    if step.tool.destructive and not request.destructive:
        return _("It may be destructive, so each call needs its own approval, unless an admin grants it.")
    is_too_long = isinstance(request.scope, HoursScope) and not 0 < request.scope.hours <= LONGEST_HOURS
    return _("That takes between one minute and {hours} hours.", hours=f"{LONGEST_HOURS:.0f}") if is_too_long else ""


def build_grant(
    request: GrantRequest, step: ToolStep, conversation: ConversationKey, by: Author, *, self_approved: bool = False
) -> Grant:
    """Return the grant for a request, given with the approval of this call. `self_approved` is True if the asker gives
    it without being an approver.
    """
    tool, approval = step.tool, step.approval
    assert tool is not None
    assert approval is not None
    of_thread = isinstance(request.scope, ThreadScope | ArgumentsScope)
    seconds = request.scope.hours * _HOUR if isinstance(request.scope, HoursScope) else None
    return Grant(
        id=secrets.token_hex(6),
        scope=scope_name(request.scope),
        server=tool.server_id,
        server_name=tool.server,
        tool=tool.name,
        definition=tool.definition,
        place=str(conversation) if of_thread else conversation.workspace_key,
        person="" if request.everyone else approval.requested_for.principal,
        granted_by=by.principal,
        granted_name=by.name,
        approval_id=approval.id,
        rule=asking_rule(step),
        requirements_digest=requirements_digest(approval.requirements, self_approved=self_approved),
        fingerprint=approval.fingerprint if isinstance(request.scope, ArgumentsScope) else "",
        destructive=request.destructive,
        lasts=IDLE_SECONDS if of_thread else seconds,
        idle=of_thread,
    )


def asking_rule(step: ToolStep) -> str:
    """Return the rule that asked for the approval (`StoredPolicyResult.asked_by`); empty if no rule was evaluated."""
    return step.policy_result.asked_by if step.policy_result is not None else ""


class ApprovalService:
    """Approvals of all turns. `wake_turn` gets the id of a turn with a decided approval, `wake_delivery` is called
    when approval cards may have changed.
    """

    def __init__(
        self,
        turn_log: ApprovalLog,
        toolbox: Toolbox,
        rules: RuleBook,
        surfaces: Surfaces,
        approvers: ApproverResolver,
        *,
        wake_turn: Callable[[str], None],
        wake_delivery: Callable[[], None],
    ) -> None:
        self._log = turn_log
        self._toolbox = toolbox
        self._rules = rules
        self._surfaces = surfaces
        self._approvers = approvers
        self._wake_turn = wake_turn
        self._wake_delivery = wake_delivery

    async def decide(self, decision: Decision, member: Member) -> DecisionResult:
        """Decide an approval, if this member may and it is still open. Rights are checked here, independently of the
        buttons that the platform displayed.
        """
        checked = await self._check(decision, member)
        if not isinstance(checked, tuple):
            return checked
        turn, _step, evidence = checked
        if evidence.delegator is not None:
            # The displayed name says whose right the decision uses.
            name = _("{delegate} for {approver}", delegate=decision.by.name, approver=evidence.delegator.name)
            decision = replace(decision, by=replace(decision.by, name=name))
        result = await self._log.decide(decision, evidence)
        self._wake(turn)
        return result

    async def rejection(self, decision: Decision, member: Member) -> DecisionResult | None:
        """Return the reason why this member may not decide so now, None if they may. A rejected attempt is recorded."""
        checked = await self._check(decision, member)
        return None if isinstance(checked, tuple) else checked

    async def grant(self, decision: Decision, request: GrantRequest, member: Member) -> DecisionResult:
        """Approve a call and grant later calls like it, if this member may do both and the approval is still open. If
        the grant is rejected, the call is not approved either.
        """
        if decision.type is not DecisionType.APPROVE:
            return await self.decide(decision, member)
        checked = await self._check(decision, member)
        if not isinstance(checked, tuple):
            return checked
        turn, step, evidence = checked
        admin = self._rules.rules_of_turn(turn).approvers.administers(member)
        rejected = _in_english_too(partial(grant_rejection, request, step, evidence, admin=admin))
        if rejected.reason:
            return await self._reject(decision, rejected)
        grant = build_grant(request, step, turn.conversation, decision.by, self_approved=evidence.self_approval)
        result = await self._log.grant(
            decision, grant, evidence, await self._similar_calls(turn, step, decision, member)
        )
        self._wake(turn)
        return result

    async def _check(
        self, decision: Decision, member: Member
    ) -> tuple[Turn, ToolStep, ApproverEvidence] | ApprovalNotFound | NotAllowed | StaleRevision:
        """Return the call with the evidence on which this member's decision counts, or the reason why it does not."""
        pending = await self._log.get_approval(decision.approval_id)
        if pending is None:
            return ApprovalNotFound()
        turn, step = pending
        evidence = await self._check_rights(turn, step, decision, member)
        if isinstance(evidence, NotAllowed):
            return await self._reject(decision, evidence)
        # The call may have been edited since: the decision must name the arguments that were checked.
        awaits = step.status is StepStatus.AWAITING and step.approval is not None
        is_stale = awaits and step.approval is not None and step.approval.revision != decision.revision
        return StaleRevision() if is_stale else (turn, step, evidence)

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
        if member.guest or member.external:
            return NotAllowed(OUTSIDER)
        if step.status is not StepStatus.AWAITING or step.approval is None or step.approval.revision != revision:
            awaits = step.status is StepStatus.AWAITING and step.approval is not None
            return StaleRevision() if awaits else AlreadyDecided(SETTLED)
        # Edits need the same rights as a denial: those of the author or of a possible approver.
        evidence = await self._check_rights(
            turn, step, Decision(approval_id, revision, DecisionType.DENY, member.author), member
        )
        if isinstance(evidence, NotAllowed):
            return evidence
        approving = Decision(approval_id, revision, DecisionType.APPROVE, member.author)
        whole = isinstance(await self._check_rights(turn, step, approving, member), ApproverEvidence)
        tool = await self._tool(turn, step)
        if tool is None or step.tool is None or fingerprint(tool, step.call.arguments) != step.approval.fingerprint:
            return NotAllowed(TOOL_CHANGED)
        if whole and lookalikes(step.call.arguments, step.approval.secrets):
            await self._log.record_view(approval_id, revision, IN_A_FORM, member.author)
        return EditableCall(turn, step, tool.input_schema, whole)

    async def revise(self, approval_id: str, revision: int, arguments: Mapping[str, Any], member: Member) -> EditResult:
        """Replace the arguments of a call that awaits approval, if this member may and nothing changed meanwhile. The
        arguments must fit the tool's schema, and no policy may deny them.
        """
        editable = await self.get_editable_call(approval_id, revision, member)
        if isinstance(editable, NotAllowed):
            await self._log.record_rejection(approval_id, member.author, editable.english)
        if not isinstance(editable, EditableCall):
            return editable
        turn, step = editable.turn, editable.step
        tool = await self._tool(turn, step)
        if tool is None or step.tool is None or not step.tool.is_still(tool):
            return NotAllowed(TOOL_CHANGED)  # changed since the form was opened
        argument_errors = tuple(self._toolbox.validate(tool.input_schema, arguments))
        judged = await self._evaluate(turn, tool, arguments, turn.author)
        if canonical_json(arguments) == canonical_json(step.call.arguments):
            argument_errors = (ArgumentError("", UNCHANGED),)
        elif not argument_errors and judged.stored.policy is ApprovalPolicy.ALWAYS_DENY:
            argument_errors = (ArgumentError("", _("A policy forbids this call with these arguments.")),)
        if argument_errors:
            return InvalidValues(argument_errors)
        digest = fingerprint(tool, arguments)
        secrets = stored_secrets(arguments, partial(self._toolbox.secret_spans, tool.server_id))
        change = Revision(approval_id, revision, arguments, digest, member.author, secrets)
        if not await self._log.revise(await self._with_requirements(change, turn, step, judged)):
            return StaleRevision()
        self._wake_delivery()
        return RevisionAccepted(revision + 1)

    async def _with_requirements(self, change: Revision, turn: Turn, step: ToolStep, judged: PolicyResult) -> Revision:
        """Return the revision with the requirements and approvers of the new arguments. Approvers that a rule names
        stay.
        """
        approval = step.approval
        if approval is None or approval.requirements.self_approval in (SelfApproval.RULE, SelfApproval.UNKNOWN):
            return change
        requirements = replace(approval.requirements, self_approval=judged.requirements.self_approval)
        if step.policy_result is not None and step.policy_result.taint is not Words.OWN:
            requirements = requirements.restrict_by_taint(is_allowed=step.policy_result.is_allowed)
        edited = replace(step, approval=replace(approval, requirements=requirements))
        resolved = (await self._approvers.resolve(edited, self._rules.rules_of_turn(turn))).approval
        if resolved is None:
            return change
        possible = resolved.possible_approvers
        if approval.requirements.asker_may_approve:
            # An edited message notifies no user of a mention.
            possible = replace(
                possible, sets=tuple(tuple(map(_notified_in_private, approvers)) for approvers in possible.sets)
            )
        return replace(change, requirements=resolved.requirements, possible_approvers=possible)

    # ------------------------------------------------------------------ rights

    async def _check_rights(
        self, turn: Turn, step: ToolStep, decision: Decision, member: Member
    ) -> ApproverEvidence | NotAllowed:
        """Return the evidence on which this member's decision counts, or the reason why it does not."""
        await self._rules.follow()
        pending = step.approval
        if pending is None:
            return NotAllowed(_("This call does not await approval."))
        terms = (await self._requirements(turn, step, pending)).after(pending.waited)
        approvers, asker = self._rules.rules_of_turn(turn).approvers, pending.requested_for
        if turn.created_at < member.since and not terms.four_eyes:
            asker = replace(asker, id="")  # asked by the earlier owner of the name
        check = partial(check_approver, approvers, terms, verdict=decision.type, asker=asker, editors=pending.editors)
        evidence = check(member)
        if isinstance(evidence, NotAllowed):
            evidence = await self._delegated(turn, pending, member, check) or evidence
        if isinstance(evidence, NotAllowed):
            rejection = _in_english_too(
                lambda: result.reason if isinstance(result := check(member), NotAllowed) else ""
            )
            return replace(rejection, reason=pending.possible_approvers.named(rejection.reason))
        return replace(evidence, must_view=bool(lookalikes(step.call.arguments, pending.secrets)))

    async def _delegated(
        self,
        turn: Turn,
        approval: Approval,
        member: Member,
        check: Callable[[Member], ApproverEvidence | NotAllowed],
    ) -> ApproverEvidence | None:
        """Return the evidence of a delegator of this member whose right as an approver counts now; None without one."""
        person = member.author.principal
        for delegator in await find_delegators(self._log, self._surfaces, member, turn.conversation):
            evidence = check(delegator)
            if isinstance(evidence, NotAllowed) or evidence.self_approval:
                continue
            if person not in {approval.requested_for.principal, *evidence.excluded}:
                return evidence.delegated_by(delegator.author)
        return None

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
            if isinstance(evidence, ApproverEvidence) and evidence.quorum <= 1 and evidence.delegator is None:
                evidence_by_revision[step.approval.id, step.approval.revision] = evidence
        return evidence_by_revision

    async def _requirements(self, turn: Turn, step: ToolStep, approval: Approval) -> ApprovalRequirements:
        """Return the stored approval requirements joined with those of the current rules. A rule that became weaker
        changes nothing; a stricter one applies. Of a missing tool nothing is known, so its asker may not approve.
        """
        no_rule = all(rule.requirements == NO_REQUIREMENTS for rule in self._rules.rules_of_turn(turn).all)
        if no_rule and not approval.requirements.asker_may_approve:
            return approval.requirements
        tool = await self._tool(turn, step)
        if tool is None:
            return approval.requirements.restrict(SelfApproval.UNKNOWN)  # a missing tool is never called
        return approval.requirements.combine(
            (await self._evaluate(turn, tool, step.call.arguments, approval.requested_for)).requirements
        )

    async def _evaluate(self, turn: Turn, tool: Tool, arguments: Mapping[str, Any], author: Author) -> PolicyResult:
        rules = self._rules.rules_of_turn(turn)
        member = await self._surfaces.find_member(author, turn.conversation) if rules.ask_who else None
        return rules.judge(tool, arguments, author, member)

    async def _tool(self, turn: Turn, step: ToolStep) -> Tool | None:
        """Return the tool as its server offers it now; None after TOOLS_SECONDS."""
        try:
            async with asyncio.timeout(TOOLS_SECONDS):
                return (await toolbox_of_turn(turn, self._toolbox).offer(turn.conversation.workspace_key)).find(
                    step.call.name
                )
        except TimeoutError:
            return None

    async def _reject(self, decision: Decision, rejection: NotAllowed) -> NotAllowed:
        await self._log.record_rejection(decision.approval_id, decision.by, rejection.english)
        return rejection

    def _wake(self, turn: Turn) -> None:
        self._wake_turn(turn.id)
        self._wake_delivery()


def _in_english_too(reason: Callable[[], str]) -> NotAllowed:
    with use_language(DEFAULT_LANGUAGE):
        recorded = str(reason())
    return NotAllowed(str(reason()), recorded)


def _notified_in_private(approver: Approver) -> Approver:
    is_mentioned = approver.notice is ApprovalNotice.MENTION and is_person(approver.principal)
    return replace(approver, notice=ApprovalNotice.PRIVATE) if is_mentioned else approver


class ApproverNotices:
    """Background loop that notifies approvers in private, if they are to be told so, and sends due reminders."""

    def __init__(
        self,
        turn_log: ApprovalLog,
        surfaces: Surfaces,
        rules: RuleBook,
        locales: LocaleResolver,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._surfaces = surfaces
        self._rules = rules
        self._locales = locales
        self._pause = pause

    async def run(self) -> None:
        """Poll and send until cancelled."""
        while True:
            try:
                await self._send_due()
            except DatabaseUnavailable:
                pass  # logged by the database
            except Exception:  # an error must not stop later reminders
                log.exception("due notices to approvers were not sent")
            await self._pause(POLL_SECONDS * random.uniform(0.8, 1))  # noqa: S311 - jitter is no secret

    async def _send_due(self) -> None:
        """Notify approvers of posted calls in private, as far as wanted, and send the reminders that are due."""
        for take, send in (
            (self._log.take_private_notices, self._notify_approvers),
            (self._log.take_reminders, self._remind_approvers),
        ):
            prefixes = self._surfaces.key_prefixes
            for turn, step in await take(prefixes, BATCH) if prefixes else ():
                surface, approval = self._surfaces.find(turn.conversation), step.approval
                if surface is not None and approval is not None:
                    await send(surface, turn, step, approval)

    async def _notify_approvers(self, surface: Surface, turn: Turn, step: ToolStep, approval: Approval) -> None:
        url = await self._card_url(surface, turn, approval.id)

        def notice() -> Notice:
            text = _("{asker} asks for approval of {call}.", asker=approval.requested_for.name, call=call_name(step))
            return Notice(text, url, (turn, step))

        for approver in approval.possible_approvers.with_notice(ApprovalNotice.PRIVATE):
            target = NoticeTarget(str(turn.conversation), approver.principal.partition(":")[2], private=True)
            await self._send(surface, target, notice, approval)

    async def _card_url(self, surface: object, turn: Turn, approval_id: str) -> str:
        if not isinstance(surface, ApproverDirectory):
            return ""
        view, refs = await self._log.get_view(turn.id), await self._log.get_message_refs(turn.id)
        try:
            return await surface.card_url(view, approval_id, refs)
        except DeliveryFailed as error:
            log.warning("the card of approval %s has no link: %s", approval_id, error)
            return ""

    async def _remind_approvers(self, surface: Surface, turn: Turn, step: ToolStep, approval: Approval) -> None:
        asker = approval.requested_for
        terms = approval.requirements.after(approval.remind_in or 0.0)
        by_default = (
            frozenset({ASKER}) if terms.asker_may_approve else self._rules.rules_of_turn(turn).approvers.approvers
        )
        sets = terms.approvers or (by_default,)
        members = await self._members_of(surface, sets, turn.conversation)
        users = _approving_users((*sets, members), approval)
        delegations = await self._log.delegations(turn.conversation.workspace_key)
        delegates = {grant.person for grant in delegations if grant.granted_by in users}
        users = list(dict.fromkeys((*users, *_approving_users((delegates,), approval))))
        place, url = str(turn.conversation), await self._card_url(surface, turn, approval.id)
        targets = [NoticeTarget(place, user.partition(":")[2], private=True) for user in users[:MAX_NOTIFIED_APPROVERS]]
        names = format_alternatives([name for each in approval.possible_approvers.all if (name := each.name)])

        def notice() -> Notice:
            waits = _("{call}, which {asker} asked for, still awaits approval.", call=call_name(step), asker=asker.name)
            needs = names and _("It needs {approvers}.", approvers=names)
            return Notice(" ".join(filter(None, (waits, needs))), url, (turn, step))

        if not targets:
            # Approvers without user ids are groups of unknown members: remind all users in the card's channels.
            channels = [target.id for target in approval_targets(approval) if isinstance(target, ChannelTarget)]
            places = [replace(turn.conversation, channel=channel, thread="") for channel in channels]
            targets = [NoticeTarget(str(place)) for place in places or [turn.conversation]]
        for target in targets:
            await self._send(surface, target, notice, approval)

    async def _members_of(
        self, surface: object, sets: Iterable[frozenset[str]], conversation: ConversationKey
    ) -> frozenset[str]:
        """Return the members of the groups in these sets, as far as the platform knows them and can notify them all."""
        groups = [entry for entries in sets for entry in entries if entry.startswith(f"{conversation.platform}-")]
        if not isinstance(surface, ApproverDirectory):
            return frozenset()
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                found = [await surface.find_approver(group, conversation) for group in groups]
        except (DeliveryFailed, TimeoutError):
            return frozenset()
        members = frozenset().union(*((entry.members or ()) for entry in found if entry is not None))
        return members if len(members) <= MAX_NOTIFIED_APPROVERS else frozenset()

    async def _send(
        self, surface: Surface, target: NoticeTarget, compose: Callable[[], Notice], approval: Approval
    ) -> None:
        """Send a notice in the language of its readers."""
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                conversation = ConversationKey.parse(target.conversation)
                locale = self._locales.for_place(conversation)
                if target.person:
                    user = Author(conversation.platform, target.person, "")
                    locale = await self._locales.for_reader(surface, user, conversation)
                with use_locale(locale):
                    await surface.post_notice(target, compose())
        except (DeliveryFailed, TimeoutError) as error:
            log.warning("notice to an approver of approval %s was not sent: %s", approval.id, error)


def _approving_users(approvers: Iterable[Set[str]], approval: Approval) -> list[str]:
    asker = approval.requested_for
    excluded = frozenset({asker.principal, *approval.editors}) if approval.requirements.four_eyes else frozenset()
    return named_people(approvers, asker, excluded)
