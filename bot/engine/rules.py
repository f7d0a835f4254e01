"""What holds in a conversation: its profile, what may run there, and whose signature counts.

Three layers speak about a tool: the operator's file, the policies that admins have set, and the profile's. Whatever
one of them denies is denied. Otherwise the most particular word counts, a tool's before its server's, and of two
alike the stricter; where all are silent, the file's default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import ConversationKey
from bot.domain.profiles import DEFAULT, EVERY_TOOL, Binding, PolicyRule, Profile, places
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import ServerGuidance, Tool, ToolSet
from bot.engine.policy import Policies, Signatories, Word

_STRICTEST_FIRST = (ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER, ApprovalPolicy.ALWAYS_ALLOW)

Ruling = Mapping[tuple[str, str], ApprovalPolicy]
"""Policies by server id and tool name."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds in one conversation, at one moment."""

    file: Policies = Policies()
    signatories: Signatories = Signatories()
    profile: Profile = DEFAULT
    set_by_admins: Ruling = field(default_factory=dict)

    def policy_of(self, tool: Tool) -> ApprovalPolicy:
        """Whether a tool runs, asks or never runs here."""
        words = [
            self.file.word_on(tool.server, tool.original_name),
            _word(self.set_by_admins, tool),
            _word(_ruling(self.profile.policies), tool),
        ]
        said = [word for word in words if word is not None]
        if any(word.policy is ApprovalPolicy.ALWAYS_DENY for word in said):
            return ApprovalPolicy.ALWAYS_DENY
        nearest = [word.policy for word in said if word.particular] or [word.policy for word in said]
        return min(nearest, key=_STRICTEST_FIRST.index, default=self.file.default)

    def enabled(self, offered: ToolSet) -> ToolSet:
        """What of the offered the profile enables."""
        if self.profile.servers is None and not self.profile.tools:
            return offered
        tools = tuple(tool for tool in offered.tools if self.profile.enables(tool))
        names = {tool.name for tool in tools}
        servers = {tool.server for tool in tools}
        guidance = tuple(_without_strangers(each, names) for each in offered.guidance if each.server in servers)
        return dataclasses.replace(offered, tools=tools, guidance=guidance)


class RuleBook:
    """All rules as they are now: the operator's, which stand still, and the admins', which change."""

    def __init__(self, file: Policies | None = None, signatories: Signatories | None = None) -> None:
        self._file = file or Policies()
        self._signatories = signatories or Signatories()
        self._set: Ruling = {}
        self._profiles: Mapping[str, Profile] = {}
        self._bound: Mapping[str, str] = {}

    def replace_file(self, file: Policies) -> None:
        """The operator's file says something else now."""
        self._file = file

    def amend(self, rules: Iterable[PolicyRule], profiles: Iterable[Profile], bindings: Sequence[Binding]) -> None:
        """What admins have set is this now."""
        self._set = _ruling(rules)
        self._profiles = {profile.id: profile for profile in profiles}
        self._bound = {binding.place: binding.profile for binding in bindings}

    def rules(self, conversation: ConversationKey) -> Rules:
        """What holds there. A channel's profile comes before its workspace's, and that before everybody's."""
        bound = (self._bound.get(place, "") for place in (*places(conversation), EVERYWHERE))
        profile = next((self._profiles[each] for each in bound if each in self._profiles), DEFAULT)
        signatories = self._signatories
        if profile.approvers:
            signatories = dataclasses.replace(signatories, approvers=profile.approvers)
        return Rules(self._file, signatories, profile, self._set)


def _ruling(rules: Iterable[PolicyRule]) -> Ruling:
    return {(rule.server, rule.tool): rule.policy for rule in rules}


def _word(ruling: Ruling, tool: Tool) -> Word | None:
    for name, particular in ((tool.original_name, True), (EVERY_TOOL, False)):
        policy = ruling.get((tool.server_id, name))
        if policy is not None:
            return Word(policy, particular=particular)
    return None


def _without_strangers(guidance: ServerGuidance, names: set[str]) -> ServerGuidance:
    """Guidance that sends nobody to a tool which is not enabled."""
    if guidance.auto_context_tool in names:
        return guidance
    return dataclasses.replace(guidance, auto_context_tool="")
