"""Rules for calls (run, ask or deny), and the policy result of one call.

Rules have the same form in the operator's file, from admins and in a profile. `bot.domain.policy_syntax` reads and
writes them. `bot.engine.policy.evaluation` selects the rule that counts. A rule may compare hosts (`Hosts`) in a text.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from bot.domain.approval_requirements import NO_REQUIREMENTS, ApprovalRequirements
from bot.domain.approvals import ApprovalPolicy
from bot.domain.flows import Words
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool, digest

ANY = "*"
"""Pattern that matches every name."""
GUESTS = "guests"
"""Asker value for guests and external users."""
ANNOTATIONS = ("read_only", "destructive", "idempotent", "open_world")
"""Hints of `bot.domain.tools.Annotations` that a rule may name."""


class TaintMode(StrEnum):
    """Policy for calls that could send away text from another server."""

    ASK = "ask"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Rule:
    """Policy rule. All conditions have to match; empty ones and ANY always match.

    `server` is a pattern for the server's name. `server_id` is its id instead, which survives a rename. `tool` is a
    pattern for the server's own name of the tool; `excluded_tools` are names that do not match. `annotations` are hints
    by name, used for trusted servers only. `arguments` are patterns for the text of values, by their path. `places` are
    prefixes of conversation keys: platform, workspace or channel. `profile` is a name or an id. `askers` are
    principals, roles, MEMBERS or GUESTS.

    `id` is the rule's name for users. `workspace` is its scope regardless of the conditions. `by` is the principal that
    set it, `at` the time in epoch seconds. `of_file` is True for a rule of the operator's file.
    """

    policy: ApprovalPolicy
    server: str = ANY
    server_id: str = ""
    tool: str = ANY
    excluded_tools: frozenset[str] = frozenset()
    annotations: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    places: frozenset[str] = frozenset()
    profile: str = ""
    askers: frozenset[str] = frozenset()
    requirements: ApprovalRequirements = NO_REQUIREMENTS
    id: str = ""
    workspace: str = EVERYWHERE
    by: str = ""
    at: float = 0.0
    of_file: bool = False

    @property
    def conditions(self) -> tuple[object, ...]:
        """Conditions of the rule. Two rules of a workspace with equal conditions are duplicates."""
        return (
            self.server,
            self.server_id,
            self.tool,
            tuple(sorted(self.annotations.items())),
            tuple(sorted(self.arguments.items())),
            tuple(sorted(self.places)),
            self.profile,
            tuple(sorted(self.askers)),
        )

    @property
    def plain(self) -> bool:
        """True for a rule about one server, tool or pattern, without other conditions."""
        return bool(self.server_id) and not any((self.annotations, self.arguments, *self.conditions[5:]))


def is_pattern(text: str) -> bool:
    """Return True if a name or value is a pattern: `*` for any characters, `?` for one, `[ab]` for one of these."""
    return any(character in text for character in "*?[")


def as_pattern(name: str) -> str:
    """Return the pattern that matches only this name."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def matches_pattern(text: str, pattern: str) -> bool:
    """Return True if a text matches a pattern, case-sensitively."""
    return text == pattern or (is_pattern(pattern) and _compile_pattern(pattern).match(text) is not None)


def is_for_server(rule: Rule, tool: Tool) -> bool:
    """Return True if the rule matches the tool's server, other conditions aside."""
    return tool.server_id == rule.server_id if rule.server_id else matches_pattern(tool.server, rule.server)


def is_for_tool(rule: Rule, tool: Tool) -> bool:
    """Return True if the rule matches a tool of that name, other conditions aside."""
    return matches_pattern(tool.original_name, rule.tool) and tool.original_name not in rule.excluded_tools


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


@dataclass(frozen=True, slots=True)
class StoredPolicyResult:
    """Policy result of one call with its reasons, stored with the call to explain it later.

    `policy` is never AUTO, which is resolved to one of the others. `rule` is the id of the decisive rule, empty for the
    default. `words` is that rule as English text, `why` the reason in sentences. `taint` is the least trusted author of
    the text that the model had read, if the call asks because of it regardless of the rule; otherwise OWN. `sources`
    names the sources of that text, and `is_allowed` is True if the rule would have let the call run. `approvers` is a
    digest of the approvers whom the profile names, if they decide.
    """

    policy: ApprovalPolicy
    rule: str = ""
    words: str = ""
    why: str = ""
    taint: Words = Words.OWN
    approvers: str = ""
    sources: str = ""
    is_allowed: bool = False

    @property
    def asked_by(self) -> str:
        """Identity of the asking rule, compared with that of a grant. It includes a digest of the rule's text, because
        an id that is a line of a file or a number in a profile may name another rule later. It includes the taint, so
        that a grant from before the model read foreign text, or text of the team only, does not cover later calls; and
        the profile's approvers, so that a grant does not cover calls of an agent whose approvers are others.
        """
        rule = f"{self.rule} {digest(self.words)[:16]}".strip() if self.words else self.rule
        taint = "" if self.taint is Words.OWN else f"after {self.taint}"
        approvers = f"by {self.approvers}" if self.approvers else ""
        return " ".join(filter(None, (rule, taint, approvers)))


@dataclass(frozen=True, slots=True)
class OverruledRule:
    """Matching rule that was not decisive, and the reason."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """Policy result of a call. `rule` is the decisive one, None for the default; `requirements` are its approval
    requirements; `passed` are the other matching rules.
    """

    stored: StoredPolicyResult
    rule: Rule | None = None
    requirements: ApprovalRequirements = NO_REQUIREMENTS
    passed: tuple[OverruledRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of one text. `names` are canonical: lower case, Punycode, no port, no trailing dot, IPv6 without brackets.
    If parsers disagree on the host, `names` has each result. `certain` is False if a part of the text cannot be parsed
    as an address, so that any host may be meant.
    """

    names: frozenset[str] = frozenset()
    certain: bool = True

    def __or__(self, other: Hosts) -> Hosts:
        return Hosts(self.names | other.names, self.certain and other.certain)


UNREADABLE = Hosts(certain=False)

ReadHosts = Callable[[str], Hosts]
"""Return the hosts in a text."""


def no_hosts_read(text: str) -> Hosts:  # noqa: ARG001 - a ReadHosts
    """Return UNREADABLE, so that each rule on a host may match each call."""
    return UNREADABLE
