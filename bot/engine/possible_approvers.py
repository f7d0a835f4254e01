"""Possible approvers of a call: names on its card, notifications, and cards of their own.

Resolved when the call is requested, and stored with it, so that delivery needs no rules and every delivery shows the
same card. A call that its asker may approve names the asker and notifies no one. A group of up to MOST_MEMBERS_NAMED
users stands for them, a larger one is notified as the group. Rights are checked at the decision
(`bot.engine.policy.approvers`), not here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from bot.domain.approvals import (
    ADMINISTRATOR,
    APPROVERS,
    ASKER,
    MEMBERS,
    Approval,
    ApprovalNotice,
    ApprovalRequirements,
    Approver,
    DecisionType,
    NotAllowed,
    PossibleApprovers,
    SelfApproval,
)
from bot.domain.conversations import Author, ConversationKey
from bot.domain.policies import Rule, is_person
from bot.domain.turns import ToolStep
from bot.engine.policy.approvers import Approvers, check_approver, membership_reason
from bot.engine.policy.rules import Rules
from bot.engine.surfaces import Surfaces
from bot.errors import CountersignError, DeliveryFailed
from bot.examination import Check, CheckStatus
from bot.i18n import _, gettext_lazy
from bot.ports.platform import ApproverDirectory, DirectoryEntry

log = logging.getLogger(__name__)

MAX_NOTIFIED_APPROVERS = 20
"""Most users that are notified of a call or get a card of their own. Above that, the card stays in the conversation."""
MOST_MEMBERS_NAMED = 5
REMEDY = gettext_lazy("name fewer people, or let the card go to a channel; on Discord, switch on Server Members Intent")
LOOKUP_SECONDS = 10.0

ALL_MEMBERS = gettext_lazy("all members may approve")

GroupMembers = Mapping[str, frozenset[str] | None]
"""Principals of the members of groups; None for a group whose members are unknown."""
NO_GROUPS: GroupMembers = {}


def route_approval(
    terms: ApprovalRequirements,
    approvers: Approvers,
    conversation: ConversationKey,
    asker: Author,
    groups: GroupMembers = NO_GROUPS,
) -> tuple[ApprovalRequirements, str]:
    """Return the requirements with the targets of remote cards: of the same workspace, without the present channel.
    Without targets the card stays in the conversation. The text is the reason why the approvers get no card of their
    own although they were to; empty otherwise.
    """
    if not terms.deliver:
        return terms, ""
    channel = f"{conversation.workspace_key}:{conversation.channel}"
    workspace = f"{conversation.workspace_key}:"
    channels = {target for target in terms.deliver if target.startswith(workspace) and target != channel}
    people, note = frozenset[str](), ""
    if APPROVERS in terms.deliver:
        people, note = _card_recipients(terms, approvers, asker, groups, platform=_chat_of(conversation))
    return replace(terms, deliver=frozenset(channels | people)), note


def named_people(approvers: Iterable[Set[str]], asker: Author, excluded: frozenset[str]) -> list[str]:
    """Return the users of the author's platform among the approvers, as principals, sorted."""
    return sorted(entry for entry in _of_platform(approvers, asker, asker.platform) - excluded if is_person(entry))


def _card_recipients(
    terms: ApprovalRequirements, approvers: Approvers, asker: Author, groups: GroupMembers, *, platform: str
) -> tuple[frozenset[str], str]:
    """Return all possible approvers; none, with the reason, if some would never see the card."""
    entries = _of_platform(_recipient_sets(terms, approvers), asker, platform)
    if MEMBERS in entries:
        return frozenset(), ALL_MEMBERS
    group_entries = sorted(entry for entry in entries if not is_person(entry))
    if unknown := [group for group in group_entries if groups.get(group) is None]:
        return frozenset(), _("the members of {groups} are unknown here", groups=", ".join(unknown))
    people = {entry for entry in entries if is_person(entry)}.union(*(groups[group] or () for group in group_entries))
    people -= {asker.principal} if terms.four_eyes else set()
    if len(people) > MAX_NOTIFIED_APPROVERS:
        return frozenset(), _(
            "{n} people may approve, and a card goes directly to at most {most}",
            n=len(people),
            most=MAX_NOTIFIED_APPROVERS,
        )
    return (frozenset(), "") if people <= {asker.principal} else (frozenset(people), "")


def _recipient_sets(terms: ApprovalRequirements, approvers: Approvers) -> tuple[frozenset[str], ...]:
    return terms.approvers or (approvers.approvers | approvers.admins,)


def _chat_of(conversation: ConversationKey) -> str:
    """Return the platform of a conversation's workspace: one over HTTP may belong to a chat's."""
    return conversation.workspace_key.partition(":")[0]


def _of_platform(approvers: Iterable[Set[str]], asker: Author, platform: str) -> set[str]:
    entries = {asker.principal if entry == ASKER else entry for entries in approvers for entry in entries}
    return {entry for entry in entries if ":" not in entry or entry.startswith((f"{platform}:", f"{platform}-"))}


class ApproverResolver:
    """Resolves the possible approvers of requested calls. `notice` is how users are notified."""

    def __init__(self, surfaces: Surfaces, notice: ApprovalNotice) -> None:
        self._surfaces = surfaces
        self._notice = notice

    async def resolve(self, step: ToolStep, rules: Rules) -> ToolStep:
        """Return a call that awaits approval with its possible approvers, and with the targets of its cards."""
        return step if step.approval is None else replace(step, approval=await self._resolve(step.approval, rules))

    async def _resolve(self, approval: Approval, rules: Rules) -> Approval:
        asker, conversation = approval.requested_for, rules.conversation
        platform = _chat_of(conversation)
        if approval.requirements.asker_may_approve:
            # An asker whose membership is unknown may not approve.
            member = await self._surfaces.find_member(asker, conversation)
            reason = SelfApproval.UNKNOWN if member is None else membership_reason(member)
            approval = replace(approval, requirements=approval.requirements.restrict(reason))
        terms = approval.requirements
        if terms.asker_may_approve:
            return replace(approval, possible_approvers=PossibleApprovers(((Approver(asker.principal, asker.name),),)))
        sets = [
            _of_platform((entries,), asker, platform)
            for entries in terms.approvers or (rules.approvers.approvers or rules.approvers.admins,)
        ]
        wanted = set().union(*sets)
        if APPROVERS in terms.deliver:
            wanted |= _of_platform(_recipient_sets(terms, rules.approvers), asker, platform)
        entries = await self._look_up(wanted, conversation)
        small = {
            group
            for group, entry in entries.items()
            if entry is not None and entry.members is not None and len(entry.members) <= MOST_MEMBERS_NAMED
        }
        members = {user for group in small for user in _members_of(entries[group])}
        entries |= await self._look_up(members - entries.keys(), conversation)
        groups = {principal: entry.members for principal, entry in entries.items() if entry is not None}
        routed, note = route_approval(terms, rules.approvers, conversation, asker, groups)
        excluded = {asker.principal} if terms.four_eyes else set[str]()
        named = _intersect([_named_approvers(entries, chosen, small, excluded) for chosen in sets])
        if not any(named):
            named = (await self._default_approver(approval, rules),)
        silent = {asker.principal, *routed.deliver}
        alone = not terms.four_eyes and terms.quorum == 1 and await self._is_in_each(asker, named, groups, conversation)
        for principal, entry in entries.items():
            if entry is not None and entry.name and not is_person(principal):
                note = note.replace(principal, f"@{entry.name}")
        possible = PossibleApprovers(_with_notices(named, ApprovalNotice.NONE if alone else self._notice, silent), note)
        return replace(approval, requirements=routed, possible_approvers=possible)

    async def _default_approver(self, approval: Approval, rules: Rules) -> tuple[Approver, ...]:
        """Return the approver of a call for which none is named: the asker, if they may, else an administrator."""
        asker = approval.requested_for
        member = await self._surfaces.find_member(asker, rules.conversation)
        if member is not None:
            result = check_approver(rules.approvers, approval.requirements, member, DecisionType.APPROVE, asker=asker)
            if not isinstance(result, NotAllowed):
                return (Approver(asker.principal, asker.name),)
        return (Approver(ADMINISTRATOR),)

    async def _is_in_each(
        self,
        asker: Author,
        named: Sequence[Sequence[Approver]],
        groups: GroupMembers,
        conversation: ConversationKey,
    ) -> bool:
        """Return True if the asker is in each set of approvers."""
        matches = {asker.principal, MEMBERS}
        matches |= {group for group, members in groups.items() if members and asker.principal in members}
        missing = [approvers for approvers in named if not matches & {approver.principal for approver in approvers}]
        has_unknown = any(members is None and not is_person(group) for group, members in groups.items())
        if not missing or not has_unknown:
            return not missing
        member = await self._surfaces.find_member(asker, conversation)
        roles = frozenset() if member is None else member.roles
        return all(roles & {approver.principal for approver in approvers} for approvers in missing)

    async def _look_up(
        self, principals: Collection[str], conversation: ConversationKey
    ) -> dict[str, DirectoryEntry | None]:
        """Return the platform's entries of these users and groups; of one that it does not answer for, the name is
        unknown.
        """
        wanted = sorted(principal for principal in principals if ":" in principal)[: 2 * MAX_NOTIFIED_APPROVERS]
        directory: object = self._surfaces.find(conversation)
        if (elsewhere := self._surfaces.find_for_cards(conversation)) is not None:
            directory, conversation = elsewhere
        if not isinstance(directory, ApproverDirectory):
            return {principal: DirectoryEntry(principal.partition(":")[2]) for principal in wanted}

        async def look_up(principal: str) -> DirectoryEntry | None:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    return await directory.find_approver(principal, conversation)
            except (CountersignError, TimeoutError) as error:
                log.warning("approver %s was not looked up: %s", principal, error or "the platform does not answer")
                return DirectoryEntry("")

        return dict(zip(wanted, await asyncio.gather(*map(look_up, wanted)), strict=True))


def _members_of(entry: DirectoryEntry | None) -> frozenset[str]:
    return entry.members or frozenset() if entry is not None else frozenset()


def _named_approvers(
    entries: Mapping[str, DirectoryEntry | None], chosen: Collection[str], small: Collection[str], excluded: set[str]
) -> tuple[Approver, ...]:
    """Return the approvers of one set, users first. Members stand for a small group. Deleted users are missing."""
    users = {principal for principal in chosen if is_person(principal)}
    users = users.union(*(_members_of(entries[principal]) for principal in chosen if principal in small)) - excluded
    groups = [principal for principal in chosen if not is_person(principal) and principal not in small]
    unknown = DirectoryEntry("")
    return tuple(
        Approver(principal, entry.name)
        for principal in (*sorted(users), *sorted(groups))
        if (entry := entries.get(principal, unknown)) is not None
    )


def _intersect(sets: Sequence[tuple[Approver, ...]]) -> tuple[tuple[Approver, ...], ...]:
    """Return the users common to all sets, if all sets are of users."""
    if len(sets) < 2 or not all(is_person(approver.principal) for approvers in sets for approver in approvers):
        return tuple(sets)
    common = set.intersection(*({approver.principal for approver in approvers} for approvers in sets))
    return (tuple(approver for approver in sets[0] if approver.principal in common),) if common else tuple(sets)


def _with_notices(
    sets: Sequence[Sequence[Approver]], notice: ApprovalNotice, silent: Collection[str]
) -> tuple[tuple[Approver, ...], ...]:
    """Return the approvers with their notices. A large group is mentioned even where users get private
    notices.
    """

    def notice_of(principal: str) -> ApprovalNotice:
        if principal in silent or ":" not in principal:
            return ApprovalNotice.NONE
        return notice if is_person(principal) or notice is ApprovalNotice.NONE else ApprovalNotice.MENTION

    principals = dict.fromkeys(approver.principal for approvers in sets for approver in approvers)
    notified = [principal for principal in principals if notice_of(principal) is not ApprovalNotice.NONE]
    notified = notified[:MAX_NOTIFIED_APPROVERS]
    return tuple(
        tuple(
            replace(approver, notice=notice_of(approver.principal)) if approver.principal in notified else approver
            for approver in approvers
        )
        for approvers in sets
    )


async def check_deliveries(
    rules: Sequence[Rule], approvers: Approvers, directory: ApproverDirectory, workspace: ConversationKey
) -> AsyncGenerator[Check, None]:
    """Check that the cards of rules reach the members of the groups that they name. Rules without groups of this
    platform are left out. `workspace` is a conversation key of the workspace.
    """
    asker = Author(workspace.platform, "", "")
    for rule in rules:
        if APPROVERS not in rule.requirements.deliver:
            continue
        sets = rule.requirements.approvers or (approvers.approvers | approvers.admins,)
        prefix = f"{workspace.platform}-"
        groups = sorted({entry for entries in sets for entry in entries if entry.startswith(prefix)})
        if not groups:
            continue
        try:
            entries = await asyncio.gather(*(directory.find_approver(group, workspace) for group in groups))
        except DeliveryFailed as error:
            yield Check(f"rule {rule.id}", CheckStatus.BROKEN, error.cause, error.fix)
            continue
        members = {
            group: None if entry is None else entry.members for group, entry in zip(groups, entries, strict=True)
        }
        _requirements, note = route_approval(rule.requirements, approvers, workspace, asker, members)
        if note:
            yield Check(
                f"rule {rule.id}",
                CheckStatus.DOUBTFUL,
                _("The card stays in the conversation: {reason}.", reason=note),
                str(REMEDY),
            )
        else:
            yield Check(f"rule {rule.id}", CheckStatus.WELL, "Its approvers get the card directly.")
