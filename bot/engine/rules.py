"""Rules of a conversation: its profile, its policies and its approvers.

Three layers of rules are evaluated together (`bot.engine.policy_evaluation`): those of the operator's file, of the
admins and of the profile. If none matches, the file's default applies. Rules without effect are found too: a misspelled
pattern gives a false sense of safety, and a group cannot get a remote card.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.approval_requirements import APPROVERS, ASKER
from bot.domain.approvals import ApprovalPolicy
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
from bot.domain.policy_syntax import is_person
from bot.domain.profiles import DEFAULT, Binding, Profile, binding_scopes
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import ServerGuidance, Tool, ToolSet
from bot.engine.policy import Approvers, Policies
from bot.engine.policy_evaluation import Reviewed, evaluate, nothing_reviewed
from bot.engine.rule_matching import PolicyRequest, needs_member


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
    """Return the rules whose server pattern matches no name."""
    names = list(servers)
    return [
        rule for rule in rules if not rule.server_id and not any(matches_pattern(name, rule.server) for name in names)
    ]


def undeliverable_targets(rule: Rule) -> list[str]:
    """Return the approvers that cannot get the remote card that the rule asks for: groups, roles and all members."""
    if APPROVERS not in rule.terms.deliver:
        return []
    entries = {approver for approvers in rule.terms.approvers for approver in approvers}
    return sorted(entry for entry in entries if entry != ASKER and not is_person(entry))


_NOWHERE = ConversationKey("", "", "", "")


@dataclass(frozen=True, slots=True)
class Rules:
    """Snapshot of the rules in the conversation `place`."""

    file: Policies = Policies()
    signatories: Approvers = Approvers()
    profile: Profile = DEFAULT
    set_by_admins: tuple[Rule, ...] = ()
    place: ConversationKey = _NOWHERE
    reviewed: Reviewed = nothing_reviewed
    read_hosts: ReadHosts = no_hosts_read

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
        return evaluate(
            self.all,
            PolicyRequest(tool, self.place, arguments, author, member, self.profile, self.read_hosts),
            self.file.default,
            self.reviewed,
        )

    def policy_of(self, tool: Tool) -> ApprovalPolicy:
        """Return the policy for a tool, independent of author and arguments."""
        return self.judge(tool).ruling.policy

    def enabled(self, offered: ToolSet) -> ToolSet:
        """Return the tools that the profile enables."""
        if self.profile.enables_everything:
            return offered
        tools = tuple(tool for tool in offered.tools if self.profile.enables(tool))
        names = {tool.name for tool in tools}
        servers = {tool.server for tool in tools}
        guidance = tuple(_without_disabled_tool(guide, names) for guide in offered.guidance if guide.server in servers)
        return dataclasses.replace(offered, tools=tools, guidance=guidance)


class RuleBook:
    """Current rules: the operator's, and those of the admins, which change. `reviewed` returns True for a pinned
    definition; `read_hosts` finds the hosts in an argument.
    """

    def __init__(
        self,
        file: Policies | None = None,
        signatories: Approvers | None = None,
        reviewed: Reviewed = nothing_reviewed,
        read_hosts: ReadHosts = no_hosts_read,
    ) -> None:
        self._file = file or Policies()
        self._signatories = signatories or Approvers()
        self._reviewed = reviewed
        self._read_hosts = read_hosts
        self._admin_rules: tuple[Rule, ...] = ()
        self._profiles: Mapping[str, Profile] = {}
        self._profile_by_place: Mapping[str, str] = {}

    def replace_file(self, file: Policies) -> None:
        """Replace the rules of the operator's file."""
        self._file = file

    def amend(self, rules: Iterable[Rule], profiles: Iterable[Profile], bindings: Sequence[Binding]) -> None:
        """Replace the admins' rules, profiles and bindings."""
        self._admin_rules = tuple(rules)
        self._profiles = {profile.id: profile for profile in profiles}
        self._profile_by_place = {binding.place: binding.profile for binding in bindings}

    @property
    def named(self) -> frozenset[str]:
        """Users, groups and roles that any rule or profile names."""
        profiles = self._profiles.values()
        rules = (
            *self._file.all_rules,
            *self._admin_rules,
            *(rule for profile in profiles for rule in profile.policies),
        )
        approvers = (entries for rule in rules for entries in rule.terms.approvers)
        return frozenset().union(
            *approvers, *(rule.askers for rule in rules), *(profile.approvers for profile in profiles)
        )

    def rules(self, conversation: ConversationKey) -> Rules:
        """Return the rules of a conversation. A channel's profile wins over its workspace's, and that over the global
        one. Admins' rules apply in the admin's workspace.
        """
        profile_ids = (self._profile_by_place.get(place, "") for place in (*binding_scopes(conversation), EVERYWHERE))
        profile = next(
            (self._profiles[profile_id] for profile_id in profile_ids if profile_id in self._profiles), DEFAULT
        )
        signatories = self._signatories
        if profile.approvers:
            signatories = dataclasses.replace(signatories, approvers=profile.approvers, programs=frozenset())
        admin_rules = tuple(
            rule for rule in self._admin_rules if rule.workspace in (EVERYWHERE, conversation.workspace_key)
        )
        return Rules(self._file, signatories, profile, admin_rules, conversation, self._reviewed, self._read_hosts)


def _without_disabled_tool(guidance: ServerGuidance, names: set[str]) -> ServerGuidance:
    """Return the guidance without an `auto_context_tool` that is not enabled."""
    if guidance.auto_context_tool in names:
        return guidance
    return dataclasses.replace(guidance, auto_context_tool="")
