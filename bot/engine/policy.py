"""Which tools run, which ask first, which never run; and whose signature counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.approvals import ApprovalPolicy, Verdict
from bot.domain.conversations import Author, Member
from bot.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ServerPolicy:
    """One server's word: for its named tools, and for its others if it says so."""

    tools: Mapping[str, ApprovalPolicy] = field(default_factory=dict)
    default: ApprovalPolicy | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """What somebody says of a tool: of this very one (`particular`), or of its whole server."""

    policy: ApprovalPolicy
    particular: bool


@dataclass(frozen=True, slots=True)
class Policies:
    """The operator's policy table. What is not named falls back to its server's default, then to the table's."""

    default: ApprovalPolicy = ApprovalPolicy.ASK_USER
    servers: Mapping[str, ServerPolicy] = field(default_factory=dict)

    def of(self, server: str, tool: str) -> ApprovalPolicy:
        """The policy of a tool, by its server's name and the server's own name for it."""
        word = self.word_on(server, tool)
        return self.default if word is None else word.policy

    def word_on(self, server: str, tool: str) -> Word | None:
        """What the table says of a tool or its server, None if nothing."""
        named = self.servers.get(server, ServerPolicy())
        if tool in named.tools:
            return Word(named.tools[tool], particular=True)
        return None if named.default is None else Word(named.default, particular=False)


def read_policies(table: Mapping[str, Any], default: ApprovalPolicy | None, source: str) -> Policies:
    """Make policies of a parsed `policy.toml`; `default`, if given, wins over the table's own.

    Raises SettingsError that names `source` and the entry which cannot be used.
    """
    _refuse_unknown(table, {"default", "servers"}, source, "")
    own_default = _word(table.get("default", ApprovalPolicy.ASK_USER), source, "default")
    servers = _table(table.get("servers", {}), source, "servers")
    _refuse_patterns(servers, source, "servers")
    return Policies(
        default=default or own_default,
        servers={name: _read_server(entry, source, f"servers.{name}") for name, entry in servers.items()},
    )


def _read_server(entry: Any, source: str, place: str) -> ServerPolicy:
    entry = _table(entry, source, place)
    _refuse_unknown(entry, {"default", "tools"}, source, f"{place}.")
    tools = _table(entry.get("tools", {}), source, f"{place}.tools")
    _refuse_patterns(tools, source, f"{place}.tools")
    return ServerPolicy(
        tools={name: _word(word, source, f"{place}.tools.{name}") for name, word in tools.items()},
        default=_word(entry["default"], source, f"{place}.default") if "default" in entry else None,
    )


def _table(value: Any, source: str, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{source}: {place} must be a table.", f"write [{place}] and the entries below it")
    return value


def _refuse_unknown(table: Mapping[str, Any], known: set[str], source: str, place: str) -> None:
    # A misspelt line that is skipped in silence would be a policy nobody wrote.
    for key in table:
        if key not in known:
            raise SettingsError(f"{source}: {place}{key} means nothing here.", f"use one of {', '.join(sorted(known))}")


def _refuse_patterns(names: Mapping[str, Any], source: str, place: str) -> None:
    # `"delete_*" = "ALWAYS_DENY"` would match no tool at all, and whoever wrote it would feel safe.
    for name in names:
        if "*" in name or "?" in name:
            raise SettingsError(
                f"{source}: {place} has the pattern {name!r}, and patterns mean nothing here.",
                "name each one, and set a default for all others",
            )


def _word(value: Any, source: str, place: str) -> ApprovalPolicy:
    try:
        return ApprovalPolicy(value)
    except ValueError:
        raise SettingsError(
            f"{source}: {place} is {value!r:.60}.", f"use one of {', '.join(word.value for word in ApprovalPolicy)}"
        ) from None


@dataclass(frozen=True, slots=True)
class Signatories:
    """Who may administer and who may sign, as principals and roles: `slack:U1`, `slack-group:S1`, `console:ana`.

    `operator` is whoever runs the program at its own terminal; that person may do both.
    """

    admins: frozenset[str] = frozenset()
    approvers: frozenset[str] = frozenset()
    operator: str = ""

    def administers(self, member: Member) -> bool:
        """The operator, named admins, and where none is named the platform's own."""
        if self.operator and member.author.principal == self.operator:
            return True
        if member.guest or member.external:
            return False
        return _is_one_of(member, self.admins) or (not self.admins and member.platform_admin)

    def signs(self, member: Member) -> bool:
        """Approvers and admins; never guests or people from outside."""
        named = _is_one_of(member, self.approvers) and not (member.guest or member.external)
        return named or self.administers(member)

    def objection(self, member: Member, asker: Author, verdict: Verdict) -> str:
        """Why this person's verdict does not count, in a sentence, or nothing if it does.

        Whoever asked may always turn their own request down: that is no more than stopping.
        """
        own = member.author.principal == asker.principal
        if self.signs(member) or (own and verdict is Verdict.DENY):
            return ""
        who = ", ".join(sorted(self.approvers or self.admins)) or "an administrator"
        return f"You may not sign this. It needs {who}."


def _is_one_of(member: Member, principals: frozenset[str]) -> bool:
    return member.author.principal in principals or bool(member.roles & principals)
