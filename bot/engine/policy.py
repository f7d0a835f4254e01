"""Policies of the operator's file, and the approvers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bot.domain.api_clients import ApiRole
from bot.domain.approval_requirements import ApprovalRequirements
from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import HTTP, Member
from bot.domain.policies import Rule


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """Short form of a server's policies: by tool, with a default for the others."""

    tools: Mapping[str, ApprovalPolicy] = field(default_factory=dict)
    default: ApprovalPolicy | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    """Content of the operator's file. `default` applies to calls that no rule matches. `name` is the file's name;
    `lines` are those of the short form, by server and tool.
    """

    default: ApprovalPolicy = ApprovalPolicy.ASK_USER
    servers: Mapping[str, ServerPolicy] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    name: str = "policy.toml"
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict, compare=False)

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Rules of the long form, and those of the short form: one for each named tool, one for the server's
        others.
        """
        long = (replace(rule, of_file=True) for rule in self.rules)
        return (*long, *(rule for server, policy in self.servers.items() for rule in self._short(server, policy)))

    def _short(self, server: str, policy: ServerPolicy) -> list[Rule]:
        rules = [
            Rule(policy, server=server, tool=tool, id=self._id(server, tool), of_file=True)
            for tool, policy in policy.tools.items()
        ]
        if policy.default is not None:
            others = frozenset(policy.tools)
            rules.append(
                Rule(policy.default, server=server, excluded_tools=others, id=self._id(server, ""), of_file=True)
            )
        return rules

    def _id(self, server: str, tool: str) -> str:
        return f"{self.name}:{self.lines.get((server, tool), f'{server}.{tool}' if tool else server)}"


@dataclass(frozen=True, slots=True)
class Approvers:
    """Admins and approvers, as principals and roles: `slack:U1`, `slack-group:S1`, `console:ana`.

    `operator` is the user at the program's own terminal, who has both rights. `programs` are token roles that may
    approve without being named: empty if a profile sets the approvers.
    """

    admins: frozenset[str] = frozenset()
    approvers: frozenset[str] = frozenset()
    operator: str = ""
    programs: frozenset[str] = frozenset({ApiRole.APPROVER.principal})

    def administers(self, member: Member) -> bool:
        """Return True for the operator, named admins, and API clients with an admin's token; without named admins also
        for the platform's own.
        """
        if self.operator and member.author.principal == self.operator:
            return True
        if member.guest or member.external:
            return False
        if is_program(member) and ApiRole.ADMIN.principal in member.roles:
            return True
        return _is_one_of(member, self.admins) or (not self.admins and member.platform_admin)

    def signs(self, member: Member) -> bool:
        """Return True for approvers, API clients with an approver's token, and admins; never for guests and external
        users.
        """
        return bool(self.evidence(member))

    def evidence(self, member: Member) -> str:
        """Return the principal or role that lets this member approve; empty if there is none."""
        if self.operator and member.author.principal == self.operator:
            return "operator"
        if member.guest or member.external:
            return ""
        own = {member.author.principal, *member.roles}
        named = sorted(own & self.approvers) or sorted(own & self.admins)
        if named:
            return member.author.principal if member.author.principal in named else named[0]
        if is_program(member):
            return next(iter(sorted(own & {*self.programs, ApiRole.ADMIN.principal})), "")
        return "platform admin" if self.administers(member) else ""

    def needed(self, terms: ApprovalRequirements) -> str:
        """Format the required approvers: `slack:U1`, `2 of slack-group:S1, not the asker`."""
        named = [" or ".join(sorted(approver)) for approver in terms.approvers]
        who = " and at once ".join(named) or ", ".join(sorted(self.approvers or self.admins)) or "an administrator"
        count = f"{terms.quorum} of " if terms.quorum > 1 else ""
        return f"{count}{who}{', neither the asker nor an editor' if terms.four_eyes else ''}"


def is_program(member: Member) -> bool:
    """Return True for an API client. The web has checked that its token is valid for the workspace."""
    return member.author.platform == HTTP


def _is_one_of(member: Member, principals: frozenset[str]) -> bool:
    return member.author.principal in principals or bool(member.roles & principals)
