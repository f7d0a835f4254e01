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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
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
    PossibleApprovers,
    Revision,
    Scope,
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
from bot.domain.locales import Locale, use_locale
from bot.domain.policies import PolicyResult, is_person
from bot.domain.secrets import lookalikes, stored_secrets
from bot.domain.tools import ArgumentError, Tool, canonical_json
from bot.domain.turns import Notice, NoticeTarget, StepStatus, ToolStep, Turn
from bot.engine.delegations import find_delegators
from bot.engine.locales import LocaleResolver
from bot.engine.policy.approvers import check_approver
from bot.engine.policy.rules import RuleBook, Rules
from bot.engine.possible_approvers import MAX_NOTIFIED_APPROVERS, named_people
from bot.engine.view_delivery import MemberLookup, key_prefixes, surface_for
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.i18n import DEFAULT_LANGUAGE, _, format_alternatives, gettext_lazy, use_language
from bot.ports import ApprovalLog, Surface, Toolbox
from bot.ports.platform import (
    ApproverDirectory,
    EditableCall,
    EditResult,
    InvalidArguments,
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
    seconds = _seconds(request.scope)
    return Grant(
        id=secrets.token_hex(6),
        scope=scope_name(request.scope),
        server=tool.server_id,
        server_name=tool.server,
        tool=tool.name,
        definition=tool.definition,
        place=str(conversation) if _of_thread(request.scope) else conversation.workspace_key,
        person="" if request.everyone else approval.requested_for.principal,
        granted_by=by.principal,
        granted_name=by.name,
        approval_id=approval.id,
        rule=asking_rule(step),
        requirements_digest=requirements_digest(approval.requirements, self_approved=self_approved),
        fingerprint=approval.fingerprint if isinstance(request.scope, ArgumentsScope) else "",
        destructive=request.destructive,
        lasts=seconds,
        idle=_of_thread(request.scope),
    )


def asking_rule(step: ToolStep) -> str:
    """Return the rule that asked for the approval (`StoredPolicyResult.asked_by`); empty if no rule was evaluated."""
    return step.policy_result.asked_by if step.policy_result is not None else ""


def _of_thread(scope: Scope) -> bool:
    return isinstance(scope, ThreadScope | ArgumentsScope)


def _seconds(scope: Scope) -> float | None:
    match scope:
        case ThreadScope() | ArgumentsScope():
            return IDLE_SECONDS
        case HoursScope(hours):
            return hours * _HOUR
        case PermanentScope():
            return None


class ApprovalService:
    """Approvals of all turns. `wake_turn` gets the id of a turn with a decided approval, `wake_delivery` is called
    when approval cards may have changed. `prepare` runs before rights are checked.
    """

    def __init__(
        self,
        turn_log: ApprovalLog,
        toolbox: Toolbox,
        rules: RuleBook,
        members: MemberLookup,
        *,
        resolve_approvers: Callable[[ToolStep, Rules], Awaitable[ToolStep]],
        wake_turn: Callable[[str], None],
        wake_delivery: Callable[[], None],
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        self._log = turn_log
        self._prepare = prepare
        self._toolbox = toolbox
        self._rules = rules
        self._members = members
        self._resolve_approvers = resolve_approvers
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
        result = await self._log.decide(_in_name_of(evidence.delegator, decision), evidence)
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
        return StaleRevision() if _is_stale(step, decision) else (turn, step, evidence)

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
            await self._log.record_rejection(approval_id, member.author, editable.english)
        if not isinstance(editable, EditableCall):
            return editable
        turn, step = editable.turn, editable.step
        tool = await self._tool(turn, step)
        if tool is None or step.tool is None or not step.tool.is_still(tool):
            return NotAllowed(TOOL_CHANGED)  # changed since the form was opened
        argument_errors = tuple(self._toolbox.validate(tool.input_schema, arguments))
        judged = await self._evaluate(turn, tool, arguments, turn.author)
        invalid = _invalid_arguments(step, arguments, argument_errors, judged)
        if invalid is not None:
            return invalid
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
        resolved = (await self._resolve_approvers(edited, self._rules.rules_of_turn(turn))).approval
        if resolved is None:
            return change
        possible = resolved.possible_approvers
        if approval.requirements.asker_may_approve:
            possible = _with_private_notices(possible)
        return replace(change, requirements=resolved.requirements, possible_approvers=possible)

    # ------------------------------------------------------------------ rights

    async def _check_rights(
        self, turn: Turn, step: ToolStep, decision: Decision, member: Member
    ) -> ApproverEvidence | NotAllowed:
        """Return the evidence on which this member's decision counts, or the reason why it does not."""
        await self._prepare()
        pending = step.approval
        if pending is None:
            return NotAllowed(_("This call does not await approval."))
        terms = (await self._requirements(turn, step, pending)).after(pending.waited)
        approvers, asker = self._rules.rules_of_turn(turn).approvers, pending.requested_for
        if turn.created_at < member.since and not terms.four_eyes:
            asker = replace(asker, id="")  # asked by the earlier owner of the name
        check = partial(
            check_approver,
            approvers,
            terms,
            verdict=decision.type,
            asker=asker,
            editors=pending.editors,
        )
        evidence = check(member)
        if isinstance(evidence, NotAllowed):
            evidence = await self._delegated(turn, pending, member, check) or evidence
        if isinstance(evidence, NotAllowed):
            rejection = _in_english_too(lambda: _reason(check(member)))
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
        for delegator in await find_delegators(self._log, self._members, member, turn.conversation):
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
        member = await self._members.find(author, turn.conversation) if rules.ask_who else None
        return rules.judge(tool, arguments, author, member)

    async def _tool(self, turn: Turn, step: ToolStep) -> Tool | None:
        """Return the tool as its server offers it now; None after TOOLS_SECONDS."""
        try:
            async with asyncio.timeout(TOOLS_SECONDS):
                return (await self._toolbox.offer(turn.conversation.workspace_key)).find(step.call.name)
        except TimeoutError:
            return None

    async def _reject(self, decision: Decision, rejection: NotAllowed) -> NotAllowed:
        await self._log.record_rejection(decision.approval_id, decision.by, rejection.english)
        return rejection

    def _wake(self, turn: Turn) -> None:
        self._wake_turn(turn.id)
        self._wake_delivery()


def _in_name_of(delegator: Author | None, decision: Decision) -> Decision:
    """Return a decision whose displayed name says whose right it uses."""
    if delegator is None:
        return decision
    name = _("{delegate} for {approver}", delegate=decision.by.name, approver=delegator.name)
    return replace(decision, by=replace(decision.by, name=name))


def _in_english_too(reason: Callable[[], str]) -> NotAllowed:
    with use_language(DEFAULT_LANGUAGE):
        recorded = str(reason())
    return NotAllowed(str(reason()), recorded)


def _reason(result: ApproverEvidence | NotAllowed) -> str:
    return result.reason if isinstance(result, NotAllowed) else ""


def _with_private_notices(possible: PossibleApprovers) -> PossibleApprovers:
    """Return the approvers of an edited call, with private notices instead of mentions: an edited message notifies no
    user.
    """

    def notify_in_private(approver: Approver) -> Approver:
        is_mentioned = approver.notice is ApprovalNotice.MENTION and is_person(approver.principal)
        return replace(approver, notice=ApprovalNotice.PRIVATE) if is_mentioned else approver

    return replace(possible, sets=tuple(tuple(map(notify_in_private, approvers)) for approvers in possible.sets))


def _is_stale(step: ToolStep, decision: Decision) -> bool:
    """Return True if a decision names other arguments than the ones that were checked, because the call was edited
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
    if result.stored.policy is ApprovalPolicy.ALWAYS_DENY:
        return InvalidArguments((ArgumentError("", _("A policy forbids this call with these arguments.")),))
    return None


class ApproverNotices:
    """Background loop that notifies approvers in private, if they are to be told so, and sends due reminders."""

    def __init__(
        self,
        turn_log: ApprovalLog,
        surfaces: Sequence[Surface],
        rules: Callable[[Turn], Rules],
        locales: LocaleResolver,
        *,
        pause: Callable[[float], Awaitable[None]],
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
                await self.notify()
                await self.remind()
            except DatabaseUnavailable:
                pass  # logged by the database
            except Exception:  # an error must not stop later reminders
                log.exception("due notices to approvers were not sent")
            await self._pause(POLL_SECONDS * random.uniform(0.8, 1))  # noqa: S311 - jitter is no secret

    async def notify(self) -> None:
        """Notify approvers of posted calls in private, as far as wanted."""
        prefixes = key_prefixes(self._surfaces)
        for turn, step in await self._log.take_private_notices(prefixes, BATCH) if prefixes else ():
            await self._notify_approvers(turn, step)

    async def remind(self) -> None:
        """Send the reminders that are due."""
        prefixes = key_prefixes(self._surfaces)
        for turn, step in await self._log.take_reminders(prefixes, BATCH) if prefixes else ():
            await self._remind_approvers(turn, step)

    async def _notify_approvers(self, turn: Turn, step: ToolStep) -> None:
        surface = surface_for(self._surfaces, turn.conversation)
        if surface is None or step.approval is None:
            return
        url = await self._card_url(surface, turn, step.approval.id)
        approval = step.approval
        for approver in approval.possible_approvers.with_notice(ApprovalNotice.PRIVATE):
            target = NoticeTarget(str(turn.conversation), approver.principal.partition(":")[2], private=True)
            await self._send(
                surface, target, lambda: Notice(_request_text(step, approval), url, (turn, step)), approval
            )

    async def _card_url(self, surface: object, turn: Turn, approval_id: str) -> str:
        if not isinstance(surface, ApproverDirectory):
            return ""
        view, refs = await self._log.get_view(turn.id), await self._log.get_message_refs(turn.id)
        try:
            return await surface.card_url(view, approval_id, refs)
        except DeliveryFailed as error:
            log.warning("the card of approval %s has no link: %s", approval_id, error)
            return ""

    async def _remind_approvers(self, turn: Turn, step: ToolStep) -> None:
        surface = surface_for(self._surfaces, turn.conversation)
        if surface is None or step.approval is None:
            return
        approval, asker = step.approval, step.approval.requested_for
        terms = approval.requirements.after(approval.remind_in or 0.0)
        by_default = frozenset({ASKER}) if terms.asker_may_approve else self._rules(turn).approvers.approvers
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
            return Notice(_reminder_text(step, asker, names), url, (turn, step))

        # Approvers without user ids are groups of unknown members: remind all users in the card's channels.
        for target in targets or _card_channels(step.approval, turn.conversation):
            await self._send(surface, target, notice, step.approval)

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
                with use_locale(await self._locale_of(surface, target)):
                    await surface.post_notice(target, compose())
        except (DeliveryFailed, TimeoutError) as error:
            log.warning("notice to an approver of approval %s was not sent: %s", approval.id, error)

    async def _locale_of(self, surface: Surface, target: NoticeTarget) -> Locale:
        conversation = ConversationKey.parse(target.conversation)
        if not target.person:
            return self._locales.for_place(conversation)
        return await self._locales.for_reader(surface, Author(conversation.platform, target.person, ""), conversation)


def _approving_users(approvers: Iterable[Set[str]], approval: Approval) -> list[str]:
    asker = approval.requested_for
    excluded = frozenset({asker.principal, *approval.editors}) if approval.requirements.four_eyes else frozenset()
    return named_people(approvers, asker, excluded)


def _card_channels(approval: Approval, conversation: ConversationKey) -> list[NoticeTarget]:
    channels = [target.id for target in approval_targets(approval) if isinstance(target, ChannelTarget)]
    conversations = [replace(conversation, channel=channel, thread="") for channel in channels]
    return [NoticeTarget(str(target)) for target in conversations or [conversation]]


def _request_text(step: ToolStep, approval: Approval) -> str:
    call_name = f"{step.tool.server}.{step.tool.name}" if step.tool else step.call.name
    return _("{asker} asks for approval of {call}.", asker=approval.requested_for.name, call=call_name)


def _reminder_text(step: ToolStep, asker: Author, needed: str) -> str:
    call_name = f"{step.tool.server}.{step.tool.name}" if step.tool else step.call.name
    waits = _("{call}, which {asker} asked for, still awaits approval.", call=call_name, asker=asker.name)
    return " ".join(filter(None, (waits, needed and _("It needs {approvers}.", approvers=needed))))
