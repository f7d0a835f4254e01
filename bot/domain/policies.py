"""Rules: which calls run, which ask first and which never run; and what was ruled of one call.

A rule is the same value whether it comes from the operator's file, from admins or from a profile. How it is written
down is for `bot.domain.policy_syntax`, which calls it is about and which of several counts for
`bot.engine.policy_evaluation`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from bot.domain.approval_requirements import NO_TERMS, ApprovalRequirements
from bot.domain.approvals import ApprovalPolicy
from bot.domain.flows import Words
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool, digest

ANY = "*"
"""The pattern that every name fits."""
GUESTS = "guests"
"""Stands, as an asker, for guests and people from outside."""
ANNOTATIONS = ("read_only", "destructive", "idempotent", "open_world")
"""The hints of `bot.domain.tools.Annotations` that a rule may ask for."""


class TaintMode(StrEnum):
    """Policy for calls that could send away text from another server."""

    ASK = "ask"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Rule:
    """Policy rule. All conditions have to match; empty ones and ANY always match.

    `server` is a pattern for the server's name, `server_id` names one by its id instead, so that renaming it changes
    nothing. `tool` is a pattern for the server's own name of it; `but` are tools it is not about after all.
    `annotations` are hints by name, believed only of trusted servers. `arguments` are patterns for the text of values,
    by their path. `places` are beginnings of conversation keys: platform, workspace or channel. `profile` is a name or
    an id. `askers` are principals, roles, MEMBERS or GUESTS.

    `id` is what people call the rule. `workspace` is where it holds, whatever its conditions say: an admin's in their
    own. `by` is who set it and `at` when, in epoch seconds. `of_file` says that it is the operator's.
    """

    policy: ApprovalPolicy
    server: str = ANY
    server_id: str = ""
    tool: str = ANY
    but: frozenset[str] = frozenset()
    annotations: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    places: frozenset[str] = frozenset()
    profile: str = ""
    askers: frozenset[str] = frozenset()
    terms: ApprovalRequirements = NO_TERMS
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
    """The pattern that this name fits and no other."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def matches_pattern(text: str, pattern: str) -> bool:
    """Return True if a text matches a pattern, case-sensitively."""
    return text == pattern or (is_pattern(pattern) and _compiled(pattern).match(text) is not None)


def is_for_server(rule: Rule, tool: Tool) -> bool:
    """Return True if the rule matches the tool's server, other conditions aside."""
    return tool.server_id == rule.server_id if rule.server_id else matches_pattern(tool.server, rule.server)


def is_for_tool(rule: Rule, tool: Tool) -> bool:
    """Return True if the rule matches a tool of that name, other conditions aside."""
    return matches_pattern(tool.original_name, rule.tool) and tool.original_name not in rule.but


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


@dataclass(frozen=True, slots=True)
class StoredPolicyResult:
    """Policy result of one call with its reasons, stored with the call to explain it later.

    `policy` is never AUTO: that has become one of the others. `rule` is the id of the rule that counted, empty for the
    default; `words` are what it said; `why` is why it counted, in sentences. `taint` says whose words the model had
    read if the call asks because of these, whatever the rule says; OWN if it does not.
    """

    policy: ApprovalPolicy
    rule: str = ""
    words: str = ""
    why: str = ""
    taint: Words = Words.OWN

    @property
    def asked_by(self) -> str:
        """The rule by its id and by what it said: an id that is a line of a file, or a number within a profile, may
        be another rule's tomorrow. A tainted call is asked for by that, too: what was granted before the model had
        read others' words does not count after it, nor what was granted after the team's words after strangers'.
        """
        rule = f"{self.rule} {digest(self.words)[:16]}".strip() if self.words else self.rule
        return rule if self.taint is Words.OWN else f"{rule} after {self.taint}".strip()


@dataclass(frozen=True, slots=True)
class OverruledRule:
    """A rule that is about a call and did not count, and why."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """Policy result of a call. `rule` is the decisive one, None for the default; `terms` are its approval
    requirements; `passed` are the other matching rules.
    """

    ruling: StoredPolicyResult
    rule: Rule | None = None
    terms: ApprovalRequirements = NO_TERMS
    passed: tuple[OverruledRule, ...] = ()
