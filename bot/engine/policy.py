"""The operator's policies as values; and whose signature counts."""

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
    """The short form: one server's word for its named tools, and for its others if it says so."""

    tools: Mapping[str, ApprovalPolicy] = field(default_factory=dict)
    default: ApprovalPolicy | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    """What the operator's file says. `default` is for calls that no rule at all is about. `name` is the file's, and
    `lines` say where in it the short form speaks of a server and tool.
    """

    default: ApprovalPolicy = ApprovalPolicy.ASK_USER
    servers: Mapping[str, ServerPolicy] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    name: str = "policy.toml"
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict, compare=False)

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Those of the long form, and what the short form comes to: a rule for each tool that is named, and one for
        all others of the server.
        """
        long = (replace(rule, of_file=True) for rule in self.rules)
        return (*long, *(rule for server, said in self.servers.items() for rule in self._short(server, said)))

    def _short(self, server: str, said: ServerPolicy) -> list[Rule]:
        rules = [
            Rule(policy, server=server, tool=tool, id=self._id(server, tool), of_file=True)
            for tool, policy in said.tools.items()
        ]
        if said.default is not None:
            others = frozenset(said.tools)
            rules.append(Rule(said.default, server=server, but=others, id=self._id(server, ""), of_file=True))
        return rules

    def _id(self, server: str, tool: str) -> str:
        return f"{self.name}:{self.lines.get((server, tool), f'{server}.{tool}' if tool else server)}"


@dataclass(frozen=True, slots=True)
class Approvers:
    """Who may administer and who may sign, as principals and roles: `slack:U1`, `slack-group:S1`, `console:ana`.

    `operator` is whoever runs the program at its own terminal; that person may do both. `programs` are the roles of
    tokens that sign without being named among the approvers: none where a profile says who signs.
    """

    admins: frozenset[str] = frozenset()
    approvers: frozenset[str] = frozenset()
    operator: str = ""
    programs: frozenset[str] = frozenset({ApiRole.APPROVER.principal})

    def administers(self, member: Member) -> bool:
        """The operator, named admins, where none is named the platform's own, and programs to which the operator has
        given an admin's token: whoever else is named says nothing of those.
        """
        if self.operator and member.author.principal == self.operator:
            return True
        if member.guest or member.external:
            return False
        if is_program(member) and ApiRole.ADMIN.principal in member.roles:
            return True
        return _is_one_of(member, self.admins) or (not self.admins and member.platform_admin)

    def signs(self, member: Member) -> bool:
        """Approvers, programs with an approver's token, and admins; never guests or people from outside."""
        return bool(self.evidence(member))

    def evidence(self, member: Member) -> str:
        """Which principal or role makes this person one who signs; empty if nothing does."""
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
        """Whose signature it takes on these terms, in a few words: `slack:U1`, `2 of slack-group:S1, not the asker`."""
        named = [" or ".join(sorted(each)) for each in terms.approvers]
        who = " and at once ".join(named) or ", ".join(sorted(self.approvers or self.admins)) or "an administrator"
        count = f"{terms.quorum} of " if terms.quorum > 1 else ""
        return f"{count}{who}{', neither the asker nor an editor' if terms.four_eyes else ''}"


def is_program(member: Member) -> bool:
    """Whether it calls over HTTP: then its token says what it may do, and the web has seen that the token is good for
    the workspace.
    """
    return member.author.platform == HTTP


def _is_one_of(member: Member, principals: frozenset[str]) -> bool:
    return member.author.principal in principals or bool(member.roles & principals)
