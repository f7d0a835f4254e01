"""What holds in a conversation: its profile, what may run there, and whose signature counts.

Three layers speak about a tool: the operator's file, the rules that admins have set, and the profile's. They are rules
of one kind and are judged together (`bot.engine.policy_evaluation`); where none is about a call, the file's default
counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.hosts import ReadHosts, no_hosts_read
from bot.domain.policies import PolicyResult, Rule
from bot.domain.profiles import DEFAULT, Binding, Profile, binding_scopes
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import ServerGuidance, Tool, ToolSet
from bot.engine.policy import Approvers, Policies
from bot.engine.policy_evaluation import Reviewed, evaluate, nothing_reviewed
from bot.engine.rule_matching import PolicyRequest, needs_member

_NOWHERE = ConversationKey("", "", "", "")


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds in one conversation, `place`, at one moment."""

    file: Policies = Policies()
    signatories: Approvers = Approvers()
    profile: Profile = DEFAULT
    set_by_admins: tuple[Rule, ...] = ()
    place: ConversationKey = _NOWHERE
    reviewed: Reviewed = nothing_reviewed
    read_hosts: ReadHosts = no_hosts_read

    @property
    def all(self) -> tuple[Rule, ...]:
        """The rules of all three layers."""
        return (*self.file.all_rules, *self.set_by_admins, *self.profile.policies)

    @property
    def ask_who(self) -> bool:
        """Whether it takes more than the asker's id to judge a call: roles, or whether it is a guest."""
        return needs_member(self.all)

    def judge(
        self,
        tool: Tool,
        arguments: Mapping[str, Any] | None = None,
        author: Author | None = None,
        member: Member | None = None,
    ) -> PolicyResult:
        """What holds for a call here, and why. `member` is who the author is here, fresh, None if that is not known."""
        return evaluate(
            self.all,
            PolicyRequest(tool, self.place, arguments, author, member, self.profile, self.read_hosts),
            self.file.default,
            self.reviewed,
        )

    def policy_of(self, tool: Tool) -> ApprovalPolicy:
        """Whether a tool runs, asks or never runs here, as far as that depends on nobody and on no argument."""
        return self.judge(tool).ruling.policy

    def enabled(self, offered: ToolSet) -> ToolSet:
        """What of the offered the profile enables."""
        if self.profile.enables_everything:
            return offered
        tools = tuple(tool for tool in offered.tools if self.profile.enables(tool))
        names = {tool.name for tool in tools}
        servers = {tool.server for tool in tools}
        guidance = tuple(_without_strangers(each, names) for each in offered.guidance if each.server in servers)
        return dataclasses.replace(offered, tools=tools, guidance=guidance)


class RuleBook:
    """All rules as they are now: the operator's, which stand still, and the admins', which change. `reviewed` says
    whether a tool's definition is the one that is pinned, `read_hosts` finds the hosts that an argument addresses.
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
        self._set: tuple[Rule, ...] = ()
        self._profiles: Mapping[str, Profile] = {}
        self._bound: Mapping[str, str] = {}

    def replace_file(self, file: Policies) -> None:
        """The operator's file says something else now."""
        self._file = file

    def amend(self, rules: Iterable[Rule], profiles: Iterable[Profile], bindings: Sequence[Binding]) -> None:
        """What admins have set is this now."""
        self._set = tuple(rules)
        self._profiles = {profile.id: profile for profile in profiles}
        self._bound = {binding.place: binding.profile for binding in bindings}

    @property
    def named(self) -> frozenset[str]:
        """Everybody whom a rule or a profile names, wherever it holds: people, groups and roles."""
        profiles = self._profiles.values()
        rules = (*self._file.all_rules, *self._set, *(rule for profile in profiles for rule in profile.policies))
        approvers = (entries for rule in rules for entries in rule.terms.approvers)
        return frozenset().union(
            *approvers, *(rule.askers for rule in rules), *(profile.approvers for profile in profiles)
        )

    def rules(self, conversation: ConversationKey) -> Rules:
        """What holds there. A channel's profile comes before its workspace's, and that before everybody's; what an
        admin has set holds in that admin's workspace.
        """
        bound = (self._bound.get(place, "") for place in (*binding_scopes(conversation), EVERYWHERE))
        profile = next((self._profiles[each] for each in bound if each in self._profiles), DEFAULT)
        signatories = self._signatories
        if profile.approvers:
            signatories = dataclasses.replace(signatories, approvers=profile.approvers, programs=frozenset())
        here = tuple(rule for rule in self._set if rule.workspace in (EVERYWHERE, conversation.workspace_key))
        return Rules(self._file, signatories, profile, here, conversation, self._reviewed, self._read_hosts)


def _without_strangers(guidance: ServerGuidance, names: set[str]) -> ServerGuidance:
    """Guidance that sends nobody to a tool which is not enabled."""
    if guidance.auto_context_tool in names:
        return guidance
    return dataclasses.replace(guidance, auto_context_tool="")
