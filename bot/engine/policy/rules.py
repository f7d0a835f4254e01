"""Rules of a conversation: its profile, its policies and its approvers.

Three layers of rules are evaluated together (`bot.engine.policy.evaluation`): those of the operator's file, of the
admins and of the profile. If none matches, the file's default applies. Rules without effect are found too: a misspelled
pattern gives a false sense of safety, and all members cannot get a remote card.

`can_approve` and `is_expected_approver` are previews for displays and grant nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.domain.agents import AgentRef, Agents
from bot.domain.approvals import (
    APPROVERS,
    MEMBERS,
    ApprovalPolicy,
    ApprovalRequirements,
    ApproverEvidence,
    DecisionType,
    SelfApproval,
)
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import (
    ANY,
    PolicyResult,
    ReadHosts,
    Rule,
    is_for_server,
    is_for_tool,
    matches_pattern,
    no_hosts_read,
)
from bot.domain.profiles import DEFAULT, Binding, Profile, binding_scopes
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool, ToolKind, ToolSet
from bot.domain.turns import Turn
from bot.engine.policy.approvers import (
    Approvers,
    Disguises,
    check_approver,
    membership_reason,
    self_approval,
)
from bot.engine.policy.evaluation import PolicyRequest, Reviewed, evaluate, needs_member, nothing_reviewed
from bot.ports import PendingApproval

_NOWHERE = ConversationKey("", "", "", "")
FillAddress = Callable[[Tool, Mapping[str, Any]], Mapping[str, Any]]
"""Return arguments in the form in which a server gets them: an address with its values filled in."""


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Short form of a server's policies: by tool, with a default for the others."""

    tools: Mapping[str, ApprovalPolicy] = field(default_factory=dict)
    default: ApprovalPolicy | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    """Content of the operator's file. `default` applies to calls that no rule matches. `self_approval` is False if only
    approvers approve, never the asker. `name` is the file's name; `lines` are those of the short form, by
    server and tool.
    """

    default: ApprovalPolicy = ApprovalPolicy.ASK_USER
    servers: Mapping[str, ServerPolicy] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    self_approval: bool = True
    name: str = "policy.toml"
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict, compare=False)

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Rules of the long form, and those of the short form: one for each named tool, one for the server's
        others.
        """
        rules = [replace(rule, of_file=True) for rule in self.rules]
        for server, short in self.servers.items():
            rules += (
                Rule(policy, server=server, tool=tool, id=self._id(server, tool), of_file=True)
                for tool, policy in short.tools.items()
            )
            if short.default is not None:
                others, rule_id = frozenset(short.tools), self._id(server, "")
                rules.append(Rule(short.default, server=server, excluded_tools=others, id=rule_id, of_file=True))
        return tuple(rules)

    def _id(self, server: str, tool: str) -> str:
        return f"{self.name}:{self.lines.get((server, tool), f'{server}.{tool}' if tool else server)}"


def unmatched_rules(rules: Iterable[Rule], tools: Sequence[Tool]) -> list[Rule]:
    """Return the rules that name no tool of their servers. `tools` are all known tools; servers without any are
    skipped.
    """
    return [
        rule
        for rule in rules
        if rule.tool != ANY
        and (server_tools := [tool for tool in tools if is_for_server(rule, tool)])
        and not any(is_for_tool(rule, tool) for tool in server_tools)
    ]


def unknown_servers(rules: Iterable[Rule], servers: Iterable[str]) -> list[Rule]:
    """Return the rules with a server pattern that matches no name."""
    names = list(servers)
    return [
        rule for rule in rules if not rule.server_id and not any(matches_pattern(name, rule.server) for name in names)
    ]


def undeliverable_targets(rule: Rule) -> list[str]:
    """Return the approvers that cannot get the remote card that the rule asks for: all members. The members of a group
    are known only when the call is requested (`bot.engine.possible_approvers`).
    """
    if APPROVERS not in rule.requirements.deliver:
        return []
    entries = {approver for approvers in rule.requirements.approvers for approver in approvers}
    return sorted(entries & {MEMBERS})


@dataclass(frozen=True, slots=True)
class Rules:
    """Snapshot of the rules in a conversation. `is_absent` is True if the agent that was asked cannot be asked there
    any more.
    """

    file: Policies = Policies()
    approvers: Approvers = Approvers()
    profile: Profile = DEFAULT
    set_by_admins: tuple[Rule, ...] = ()
    conversation: ConversationKey = _NOWHERE
    reviewed: Reviewed = nothing_reviewed
    read_hosts: ReadHosts = no_hosts_read
    fill_address: FillAddress = lambda _tool, arguments: arguments
    is_absent: bool = False
    disguises: Disguises = lambda _value: ()

    @property
    def all(self) -> tuple[Rule, ...]:
        """Rules of all three layers."""
        return (*self.file.all_rules, *self.set_by_admins, *self.profile.policies)

    @property
    def ask_who(self) -> bool:
        """True if a rule needs the author as a member: roles, or guest status."""
        return needs_member(self.all)

    def judge(
        self,
        tool: Tool,
        arguments: Mapping[str, Any] | None = None,
        author: Author | None = None,
        member: Member | None = None,
    ) -> PolicyResult:
        """Return the policy for a call, with the reason. `member` is the author, freshly looked up; None if unknown."""
        if arguments is not None:
            arguments = self.fill_address(tool, arguments)
        asks = self.file.default is ApprovalPolicy.ASK_USER
        result = evaluate(
            self.all,
            PolicyRequest(tool, self.conversation, arguments, author, member, self.profile, self.read_hosts),
            ApprovalPolicy.AUTO if asks and tool.kind is not ToolKind.CALL else self.file.default,
            self.reviewed,
        )
        if arguments is None or author is None:
            return result
        requirements = result.requirements
        reason = self._reason_of_rules(requirements)
        if reason is SelfApproval.ALLOWED and member is not None:
            reason = membership_reason(member)
        if reason is SelfApproval.ALLOWED:
            reason = self_approval(tool, arguments, author, self.conversation, self.reviewed, disguises=self.disguises)
        return replace(result, requirements=replace(requirements, self_approval=reason))

    def restrict(self, requirements: ApprovalRequirements) -> ApprovalRequirements:
        """Return stored requirements by the present rules of the place: stricter, if only approvers may approve now."""
        return requirements.restrict(self._reason_of_rules(requirements))

    def _reason_of_rules(self, requirements: ApprovalRequirements) -> SelfApproval:
        """Return the reason of a rule or setting why the asker may not approve; ALLOWED without one."""
        if requirements.say_who or requirements.deliver:
            return SelfApproval.RULE
        if not self.file.self_approval:
            return SelfApproval.SETTING
        return SelfApproval.PROFILE if self.profile.approvers else SelfApproval.ALLOWED

    def policy_of(self, tool: Tool) -> ApprovalPolicy:
        """Return the policy for a tool, independent of author and arguments."""
        return self.judge(tool).stored.policy

    def enabled_tools(self, offered: ToolSet) -> ToolSet:
        """Return the tools that the profile enables."""
        if self.profile.enables_everything:
            return offered
        tools = tuple(tool for tool in offered.tools if self.profile.enables(tool))
        requests = tuple(tool for tool in offered.requests if self.profile.enables(tool))
        names = {tool.name for tool in tools}
        servers = {tool.server for tool in tools}
        # An `auto_context_tool` that is not enabled is left out.
        guidance = tuple(
            guide if guide.auto_context_tool in names else dataclasses.replace(guide, auto_context_tool="")
            for guide in offered.guidance
            if guide.server in servers
        )
        return dataclasses.replace(offered, tools=tools, guidance=guidance, requests=requests)


_MOST_FOUND = 1_024
"""Conversations whose rules are remembered, until rules, profiles or bindings change."""


async def follow_nothing() -> None:
    """Keep the rules."""


class RuleBook:
    """Current rules: the operator's, and those of the admins, which change. `reviewed` returns True for a pinned
    definition; `read_hosts` finds the hosts in an argument; rules are about arguments after `fill_address`.
    `is_named_in` returns False for a name that is certainly of another workspace than a conversation. `default_profile`
    holds in places without a profile. `disguises` finds warnings on values. `follow` applies changes of the operator's
    files: it runs before a turn begins or goes on, and before the rights to approve are checked, and never raises.
    """

    def __init__(
        self,
        file: Policies | None = None,
        approvers: Approvers | None = None,
        reviewed: Reviewed = nothing_reviewed,
        read_hosts: ReadHosts = no_hosts_read,
        fill_address: FillAddress = lambda _tool, arguments: arguments,
        *,
        is_named_in: Callable[[str, ConversationKey], bool] = lambda _name, _conversation: True,
        default_profile: Profile = DEFAULT,
        disguises: Disguises = lambda _value: (),
    ) -> None:
        self.follow: Callable[[], Awaitable[None]] = follow_nothing
        self._file = file or Policies()
        self._approvers = approvers or Approvers()
        self._is_named_in = is_named_in
        self._reviewed = reviewed
        self._read_hosts = read_hosts
        self._fill_address = fill_address
        self._default_profile = default_profile
        self._disguises = disguises
        self._admin_rules: tuple[Rule, ...] = ()
        self._profiles: Mapping[str, Profile] = {}
        self._profile_by_place: Mapping[str, str] = {}
        self._agents_by_place: Mapping[str, Sequence[str]] = {}
        self._found: dict[tuple[ConversationKey, AgentRef | None], Rules] = {}

    def replace_file(self, file: Policies) -> None:
        """Replace the rules of the operator's file."""
        self._file = file
        self._found.clear()

    def amend(self, rules: Iterable[Rule], profiles: Iterable[Profile], bindings: Sequence[Binding]) -> None:
        """Replace the admins' rules, profiles and bindings."""
        self._admin_rules = tuple(rules)
        self._profiles = {profile.id: profile for profile in profiles}
        self._profile_by_place = {binding.place: binding.profile for binding in bindings if not binding.by_name}
        by_name: dict[str, list[str]] = {}
        for binding in bindings:
            if binding.by_name:
                by_name.setdefault(binding.place, []).append(binding.profile)
        self._agents_by_place = by_name
        self._found.clear()

    @property
    def named(self) -> frozenset[str]:
        """Users, groups and roles that any rule or profile names."""
        profiles = self._profiles.values()
        rules = (
            *self._file.all_rules,
            *self._admin_rules,
            *(rule for profile in profiles for rule in profile.policies),
        )
        terms = [rule.requirements for rule in rules]
        approvers = (
            entries for each in terms for entries in (*each.approvers, each.escalate.to if each.escalate else ())
        )
        return frozenset().union(
            *approvers, *(rule.askers for rule in rules), *(profile.approvers for profile in profiles)
        )

    def agent_profiles(self, conversation: ConversationKey) -> Sequence[Profile]:
        """Return the profiles that users of a conversation may ask by name, the one that holds there first. A place
        with a profile of its own takes none from wider places.
        """
        profiles: list[Profile] = []
        holding: tuple[Profile, ...] = ()
        for place in (*binding_scopes(conversation), EVERYWHERE):
            ids = self._agents_by_place.get(place, ())
            profiles += (self._profiles[profile_id] for profile_id in ids if profile_id in self._profiles)
            bound = self._profiles.get(self._profile_by_place.get(place, ""))
            if bound is not None:
                holding = (bound,)
                break
        return tuple({profile.id: profile for profile in (*holding, *profiles)}.values())

    def agents(self, conversation: ConversationKey) -> Agents:
        """Return the agents that users of a conversation may ask by name."""
        here = tuple(AgentRef(profile.id, profile.name) for profile in self.agent_profiles(conversation))
        ids = {agent.id for agent in here}
        others = (
            profile.name
            for profile in self._profiles.values()
            if profile.id not in ids and profile.workspace in (EVERYWHERE, conversation.workspace_key)
        )
        return Agents(here, tuple(others))

    def place_profile(self, conversation: ConversationKey) -> Profile:
        """Return the profile that holds in a conversation: a channel's wins over its workspace's, and that over the
        global one.
        """
        profile_ids = (self._profile_by_place.get(place, "") for place in (*binding_scopes(conversation), EVERYWHERE))
        profiles = (self._profiles[profile_id] for profile_id in profile_ids if profile_id in self._profiles)
        return next(profiles, self._default_profile)

    def profiles_in_use(self, conversation: ConversationKey) -> Sequence[Profile]:
        """Return the profiles that hold or answer to their names anywhere in the conversation's workspace, and that of
        places without one.
        """
        agents = ((place, profile) for place, profiles in self._agents_by_place.items() for profile in profiles)
        bound = {*self._profile_by_place.items(), *agents}
        workspace = conversation.workspace_key
        ids = {profile for place, profile in bound if place == EVERYWHERE or f"{place}:".startswith(f"{workspace}:")}
        return [self._default_profile, *(profile for profile in self._profiles.values() if profile.id in ids)]

    def rules_of_turn(self, turn: Turn) -> Rules:
        """Return the rules of a turn, by the profile of the agent that was asked."""
        return self.rules(turn.conversation, turn.question.agent)

    def _approvers_in(self, conversation: ConversationKey) -> Approvers:
        """Return the approvers of all profiles. Sentences do not speak of names of other workspaces."""

        def named(names: frozenset[str]) -> frozenset[str]:
            # Names of other workspaces only give no user here the right. No names at all would give it to the
            # platform's own admins.
            return frozenset(name for name in names if self._is_named_in(name, conversation)) or names

        approvers = self._approvers
        return dataclasses.replace(approvers, admins=named(approvers.admins), approvers=named(approvers.approvers))

    def rules(self, conversation: ConversationKey, agent: AgentRef | None = None) -> Rules:
        """Return the rules of a conversation, by the profile of an agent or by the one that holds there. Admins' rules
        apply in the admin's workspace. An agent that cannot be asked there any more enables nothing.
        """
        known = self._found.get((conversation, agent))
        if known is None:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            known = self._found[conversation, agent] = self._find_rules(conversation, agent)
        return known

    def _find_rules(self, conversation: ConversationKey, agent: AgentRef | None) -> Rules:
        profile, is_absent = self.place_profile(conversation), False
        if agent is not None and agent.id:
            asked = next((asked for asked in self.agent_profiles(conversation) if asked.id == agent.id), None)
            is_absent = asked is None
            gone = dataclasses.replace(self._profiles.get(agent.id, Profile(agent.id, agent.name)), servers=frozenset())
            profile = gone if asked is None else asked
        approvers = self._approvers_in(conversation)
        if profile.approvers:
            approvers = dataclasses.replace(approvers, approvers=profile.approvers, programs=frozenset())
        admin_rules = tuple(
            rule for rule in self._admin_rules if rule.workspace in (EVERYWHERE, conversation.workspace_key)
        )
        return Rules(
            self._file,
            approvers,
            profile,
            admin_rules,
            conversation,
            self._reviewed,
            self._read_hosts,
            self._fill_address,
            is_absent=is_absent,
            disguises=self._disguises,
        )


def can_approve(rules: RuleBook, member: Member, call: PendingApproval) -> bool:
    """Return True if this member may approve this call under its stored requirements."""
    here = rules.rules(call.conversation, call.agent)
    terms = here.restrict(call.requirements).after(call.waited)
    result = check_approver(
        here.approvers, terms, member, DecisionType.APPROVE, asker=call.asked_by, editors=call.editors
    )
    return isinstance(result, ApproverEvidence)


def is_expected_approver(rules: RuleBook, member: Member, call: PendingApproval) -> bool:
    """Return True if the call waits for this member: they may approve it, it does not wait for its asker, and they are
    not only one of all members. Lists across conversations show these calls; others may come from conversations that
    the member cannot read.
    """
    if not can_approve(rules, member, call):
        return False
    if member.author.principal == call.asked_by.principal:
        return True
    own = {member.author.principal, *member.roles}
    waits_for_asker = rules.rules(call.conversation, call.agent).restrict(call.requirements).asker_may_approve
    return not waits_for_asker and not any(
        MEMBERS in entries and not entries & own for entries in call.requirements.approvers
    )
