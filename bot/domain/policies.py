"""Rules for calls (run, ask or deny), their syntax, and the policy result of one call.

Rules have the same form in the operator's file, from admins and in a profile: TOML or JSON tables. The caller adds the
fields that are not in the table: id, workspace, author and time. A rule names the comparison around the argument's
path: `project` is exact, `folded(project)` ignores case, `host(url)` compares the host of an address.
`bot.engine.policy.evaluation` selects the rule that counts.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from bot.domain.approvals import (
    APPROVERS,
    ASKER,
    MEMBERS,
    NO_REQUIREMENTS,
    THREAD,
    ApprovalPolicy,
    ApprovalRequirements,
    Escalation,
    OnTimeout,
)
from bot.domain.conversations import HTTP
from bot.domain.flows import Words
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool, canonical_json, digest
from bot.i18n import _, format_alternatives, format_enumeration, format_list, gettext_lazy

ANY = "*"
"""Pattern that matches every name."""
GUESTS = "guests"
"""Asker value for guests and external users."""
ANNOTATIONS = ("read_only", "destructive", "idempotent", "open_world")
"""Hints of `bot.domain.tools.Annotations` that a rule may name."""
_CALLED = re.compile(r"([A-Za-z_]+)\((.*)\)", re.DOTALL)
_NO_HOST = re.compile(r"[\s/\\@#%]")
VERSION = 1
"""Value of `v` in a rule stored as JSON."""
KEYS = (
    "policy",
    "server",
    "server_id",
    "tool",
    "except",
    "annotations",
    "arguments",
    "in",
    "profile",
    "asker",
    "approvers",
    "four_eyes",
    "quorum",
    "expires",
    "on_timeout",
    "remind",
    "deliver",
    "escalate",
)
LONGEST_TEXT = 300
MOST_ENTRIES = 50
LARGEST_QUORUM = 20
SHORTEST_EXPIRY, LONGEST_EXPIRY = 60.0, 30 * 86_400.0
PRINCIPAL = re.compile(r"[a-z][a-z-]{0,40}:[^\s,*?\[]{1,200}")
"""Principal: a user, a group or a role (`slack:U1`, `slack-group:S1`, `discord-role:7`)."""
_PLACE = re.compile(r"[a-z][a-z-]{0,40}(?::[^\s:*?\[]{1,200}){0,2}")
_CHANNEL = re.compile(r"[a-z][a-z-]{0,40}(?::[^\s:*?\[]{1,200}){2}")
_DURATION = re.compile(r"(\d{1,6})\s*([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


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
    digest of the profile's approvers, if they decide.
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
        the profile's approvers, so that a grant does not cover calls of an agent with other approvers.
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


class Comparison(StrEnum):
    """Comparison of two texts."""

    EXACT = ""
    FOLDED = "folded"
    HOST = "host"


def parse_comparison(key: str) -> tuple[Comparison, str]:
    """Return the comparison and the path in the key of a rule's argument. Raises ValueError."""
    match = _CALLED.fullmatch(key)
    if match is None:
        return Comparison.EXACT, key
    known = [comparison.value for comparison in Comparison if comparison]
    if match[1] not in known:
        raise ValueError(
            gettext_lazy("compares by {name}, and can by {known}", name=f"{match[1]!r:.40}", known=" or ".join(known))
        )
    if not match[2]:
        raise ValueError(gettext_lazy("names no argument within the brackets"))
    return Comparison(match[1]), match[2]


def host_problem(pattern: str) -> str:
    """Return the error of a text as the host of a rule, as the end of a sentence; empty if it is valid."""
    ipv6 = pattern.count(":") > 1 and not pattern.startswith("[")
    if _NO_HOST.search(pattern) or (":" in pattern and not ipv6) or not pattern.strip(".*"):
        return gettext_lazy(
            "must be a host alone, such as example.com, .example.com for it and all below it, or *.example.com"
        )
    return ""


def fold_text(text: str) -> str:
    """Return the text in compatibility form (NFKC), case-folded and without invisible format characters."""
    once = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(character for character in once if unicodedata.category(character) != "Cf")


class RuleError(ValueError):
    """Invalid rule. `key` is the position, `problem` the error. The exception's text includes the `given` value."""

    def __init__(self, key: str, problem: str, given: Any = None) -> None:
        super().__init__(
            problem if given is None else gettext_lazy("{value} {problem}", value=f"{given!r:.60}", problem=problem)
        )
        self.key = key
        self.problem = problem


def parse_policy(value: Any, key: str = "policy") -> ApprovalPolicy:
    """Parse a policy. Raises RuleError."""
    try:
        return ApprovalPolicy(value)
    except ValueError:
        words = ", ".join(word.value for word in ApprovalPolicy)
        raise RuleError(key, gettext_lazy("is no policy; use one of {words}", words=words), value) from None


def parse_rule(table: Mapping[str, Any]) -> Rule:
    """Parse a rule from a table. Raises RuleError for the first invalid key."""
    for key in table:
        if key not in KEYS:
            raise RuleError(str(key), _unknown_key(str(key)))
    if "policy" not in table:
        raise RuleError("policy", gettext_lazy("is missing: what happens to the calls that fit"))
    if "server" in table and "server_id" in table:
        raise RuleError("server_id", gettext_lazy("stands beside server; use one of them"))
    policy = parse_policy(table["policy"])
    rule = Rule(
        policy,
        server=_text(table, "server", ANY),
        server_id=_text(table, "server_id", ""),
        tool=_text(table, "tool", ANY),
        excluded_tools=_texts(
            table, "except", lambda name: not is_pattern(name), gettext_lazy("a tool's name, no pattern")
        ),
        annotations=_annotations(table),
        arguments=_arguments(table),
        places=_texts(
            table, "in", _PLACE.fullmatch, gettext_lazy("PLATFORM, PLATFORM:WORKSPACE or PLATFORM:WORKSPACE:CHANNEL")
        ),
        profile=_text(table, "profile", ""),
        askers=_texts(
            table,
            "asker",
            _is_asker,
            gettext_lazy("PLATFORM:ID, {members} or {guests}", members=MEMBERS, guests=GUESTS),
        ),
        requirements=_terms(table),
    )
    if rule.requirements != NO_REQUIREMENTS and policy not in (ApprovalPolicy.ASK_USER, ApprovalPolicy.AUTO):
        raise RuleError(
            "policy",
            gettext_lazy("{policy} asks no approver, so it takes no approvers, quorum or expiry", policy=policy.value),
        )
    return rule


def rule_to_table(rule: Rule) -> dict[str, Any]:
    """Return the rule as plain JSON values, which `parse_rule` reads back."""
    requirements = rule.requirements
    table: dict[str, Any] = {
        "policy": rule.policy.value,
        "server": "" if rule.server == ANY or rule.server_id else rule.server,
        "server_id": rule.server_id,
        "tool": "" if rule.tool == ANY else rule.tool,
        "except": sorted(rule.excluded_tools),
        "annotations": dict(sorted(rule.annotations.items())),
        "arguments": dict(sorted(rule.arguments.items())),
        "in": sorted(rule.places),
        "profile": rule.profile,
        "asker": sorted(rule.askers),
        "approvers": sorted(requirements.approvers[0]) if requirements.approvers else [],
        "four_eyes": requirements.four_eyes,
        "quorum": requirements.quorum if requirements.quorum != 1 else None,
        "expires": requirements.expires,
        "on_timeout": requirements.on_timeout.value if requirements.on_timeout else "",
        "remind": requirements.remind,
        "deliver": sorted(requirements.deliver),
        "escalate": format_escalation(requirements.escalate),
    }
    return {key: value for key, value in table.items() if value}


def describe_rule(rule: Rule, server: str = "") -> str:
    """Return the rule in one line: `ASK_USER: jira.create_* where project is OPS, in slack:T1`. `server` is the name of
    the server that the rule gives by id.
    """
    name = (server or rule.server_id) if rule.server_id else rule.server
    scope = _("every tool") if (name, rule.tool) == (ANY, ANY) else f"{name}.{rule.tool}"
    if rule.excluded_tools:
        scope = _("{tools} except {names}", tools=scope, names=", ".join(sorted(rule.excluded_tools)))
    parts = [scope, *(_annotation_text(key, value) for key, value in sorted(rule.annotations.items()))]
    if rule.arguments:
        conditions = [
            _("{argument} is {pattern}", argument=path, pattern=pattern)
            for path, pattern in sorted(rule.arguments.items())
        ]
        parts[-1] = _("{calls} where {conditions}", calls=parts[-1], conditions=format_list(conditions))
    parts += [_("in {places}", places=format_alternatives(sorted(rule.places)))] if rule.places else []
    parts += [_("in profile {profile}", profile=rule.profile)] if rule.profile else []
    parts += [_("asked by {askers}", askers=format_alternatives(sorted(rule.askers)))] if rule.askers else []
    terms = _requirement_texts(rule.requirements)
    text = f"{rule.policy.value}: {format_enumeration(parts)}"
    return "; ".join((text, format_enumeration(terms))) if terms else text


def _annotation_text(key: str, value: bool) -> str:
    name = key.replace("_", "-")
    return " ".join((name, _("yes") if value else _("no")))


def is_person(principal: str) -> bool:
    """Return True if the text names a user: platforms are one word, kinds of groups two (`slack-group`,
    `discord-role`). A user of one workspace, `slack:T1:U1`, is like a group: others of this id are not meant.
    """
    platform, _, name = principal.partition(":")
    return bool(name) and "-" not in platform and (":" not in name or platform == HTTP)


def format_duration(seconds: float) -> str:
    """Return a duration in the syntax of rules: `90s`, `30m`, `2h`, `3d`."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{int(seconds // _UNITS[unit])}{unit}"
    return f"{int(seconds)}s"


def format_escalation(escalation: Escalation | None) -> str:
    """Return an escalation in the syntax of rules: `30m:slack-group:S1`; empty for None."""
    return f"{format_duration(escalation.after)}:{','.join(sorted(escalation.to))}" if escalation else ""


def _requirement_texts(requirements: ApprovalRequirements) -> list[str]:
    parts = [
        _("approved by {approvers}", approvers=format_alternatives(sorted(approvers)))
        for approvers in requirements.approvers
    ]
    expires = requirements.expires
    parts += [_("by {count} people", count=requirements.quorum)] if requirements.quorum > 1 else []
    parts += [_("not by the asker or an editor")] if requirements.four_eyes else []
    parts += [] if expires is None else [_("within {duration}", duration=format_duration(expires))]
    parts += [_("waits on after that")] if requirements.on_timeout is OnTimeout.KEEP else []
    parts += [_("with a reminder")] if requirements.remind else []
    if requirements.escalate is not None:
        late, after = format_alternatives(sorted(requirements.escalate.to)), requirements.escalate.after
        parts.append(_("after {duration} also by {approvers}", duration=format_duration(after), approvers=late))
    if requirements.deliver:
        names = {APPROVERS: _("a direct message to the approvers")}
        places = [names.get(place, place) for place in sorted(requirements.deliver)]
        parts.append(_("asked in {places}", places=format_list(places)))
    return parts


def _unknown_key(key: str) -> str:
    close = difflib.get_close_matches(key, KEYS, n=1)
    known = ", ".join(KEYS)
    if close:
        return gettext_lazy("means nothing here (did you mean {name}?); use {keys}", name=close[0], keys=known)
    return gettext_lazy("means nothing here; use {keys}", keys=known)


def _text(table: Mapping[str, Any], key: str, otherwise: str) -> str:
    if key not in table:
        return otherwise
    return _check_text(table[key], key)


def _check_text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
        raise RuleError(key, gettext_lazy("must be a text of 1 to {most} characters", most=LONGEST_TEXT))
    return value


def _texts(table: Mapping[str, Any], key: str, fits: Callable[[str], object], shape: str) -> frozenset[str]:
    if key not in table:
        return frozenset()
    given = table[key]
    entries = [given] if isinstance(given, str) else given
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_ENTRIES:
        raise RuleError(key, gettext_lazy("must be a text or a list of 1 to {most} of them", most=MOST_ENTRIES))
    for entry in entries:
        if not fits(_check_text(entry, key)):
            raise RuleError(key, gettext_lazy("must be {shape}", shape=shape), entry)
    return frozenset(entries)


def _annotations(table: Mapping[str, Any]) -> Mapping[str, bool]:
    given = table.get("annotations", {})
    if not isinstance(given, Mapping):
        raise RuleError("annotations", gettext_lazy("must be a table such as { read_only = true }"))
    for name, value in given.items():
        if name not in ANNOTATIONS or not isinstance(value, bool):
            raise RuleError(
                f"annotations.{name}",
                gettext_lazy("must be true or false of one of {names}", names=", ".join(ANNOTATIONS)),
            )
    return dict(given)


def _arguments(table: Mapping[str, Any]) -> Mapping[str, str]:
    given = table.get("arguments", {})
    if not isinstance(given, Mapping) or len(given) > MOST_ENTRIES:
        raise RuleError("arguments", gettext_lazy('must be a table such as { project = "OPS", "labels" = "urgent*" }'))
    arguments: dict[str, str] = {}
    for path, value in given.items():
        key = f"arguments.{path}"
        if not isinstance(value, str | int | float | bool):
            raise RuleError(key, gettext_lazy("must be a text, a number, true or false"))
        _check_text(path, "arguments")
        arguments[path] = _check_text(value_text(value), key)
        try:
            comparison, _ = parse_comparison(path)
        except ValueError as error:
            raise RuleError(key, str(error)) from None
        if comparison is Comparison.HOST and (problem := host_problem(arguments[path])):
            raise RuleError(key, problem)
    return arguments


def value_text(value: Any) -> str:
    """Return the text by which an argument's value is compared: a text itself, a whole number without decimals,
    canonical JSON for all else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return canonical_json(value)


def _is_asker(text: str) -> bool:
    return text in (MEMBERS, GUESTS) or PRINCIPAL.fullmatch(text) is not None


def _is_approver(text: str) -> bool:
    return text in (MEMBERS, ASKER) or PRINCIPAL.fullmatch(text) is not None


def _terms(table: Mapping[str, Any]) -> ApprovalRequirements:
    approvers = _texts(
        table,
        "approvers",
        _is_approver,
        gettext_lazy("PLATFORM:ID, {members} or {asker}", members=MEMBERS, asker=ASKER),
    )
    requirements = ApprovalRequirements(
        approvers=(approvers,) if approvers else (),
        four_eyes=_switch(table, "four_eyes"),
        quorum=_quorum(table),
        expires=_expires(table),
        on_timeout=_on_timeout(table),
        remind=_switch(table, "remind"),
        deliver=_deliver(table),
        escalate=_escalate(table),
    )
    if requirements.escalate is not None and not approvers:
        raise RuleError("escalate", gettext_lazy("needs `approvers` that are asked first"))
    if requirements.four_eyes and approvers == {ASKER}:
        raise RuleError("four_eyes", gettext_lazy("no one could approve: the only approver is the asker"))
    people = all(approver == ASKER or is_person(approver) for approver in approvers)
    if approvers and people and requirements.quorum > len(approvers - ({ASKER} if requirements.four_eyes else set())):
        raise RuleError("quorum", gettext_lazy("no one could approve: there are fewer approvers than that"))
    return requirements


def _deliver(table: Mapping[str, Any]) -> frozenset[str]:
    places = _texts(
        table,
        "deliver",
        _is_destination,
        gettext_lazy("{thread}, {approvers} or PLATFORM:WORKSPACE:CHANNEL", thread=THREAD, approvers=APPROVERS),
    )
    if THREAD in places and len(places) > 1:
        raise RuleError("deliver", gettext_lazy("{thread} stands alone: the card is there or elsewhere", thread=THREAD))
    return places - {THREAD}


def _is_destination(text: str) -> bool:
    return text in (THREAD, APPROVERS) or _CHANNEL.fullmatch(text) is not None


def _switch(table: Mapping[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise RuleError(key, gettext_lazy("must be true or false"))
    return value


def _quorum(table: Mapping[str, Any]) -> int:
    value = table.get("quorum", 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_QUORUM:
        raise RuleError("quorum", gettext_lazy("must be a number of people, 1 to {most}", most=LARGEST_QUORUM))
    return value


def _expires(table: Mapping[str, Any]) -> float | None:
    if "expires" not in table:
        return None
    seconds = _seconds(table["expires"])
    if not SHORTEST_EXPIRY <= seconds <= LONGEST_EXPIRY:
        raise RuleError(
            "expires", gettext_lazy("must be a time from 1m to 30d, such as 30m, 2h or a number of seconds")
        )
    return seconds


def _seconds(value: object) -> float:
    """Return a duration such as `30m`, or a number of seconds; 0 for anything else."""
    read = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return float(read[1]) * _UNITS[read[2]] if read else seconds


def _escalate(table: Mapping[str, Any]) -> Escalation | None:
    value = table.get("escalate")
    if value is None:
        return None
    after, _colon, names = str(value).partition(":")
    seconds, to = _seconds(after), frozenset(name.strip() for name in names.split(","))
    if not SHORTEST_EXPIRY <= seconds <= LONGEST_EXPIRY or not all(map(PRINCIPAL.fullmatch, to)):
        raise RuleError(
            "escalate", gettext_lazy("must be a time from 1m to 30d and approvers, such as 30m:slack-group:S1")
        )
    return Escalation(seconds, to)


def _on_timeout(table: Mapping[str, Any]) -> OnTimeout | None:
    value = table.get("on_timeout")
    if value is None:
        return None
    try:
        return OnTimeout(value)
    except ValueError:
        raise RuleError(
            "on_timeout",
            gettext_lazy("must be one of {choices}", choices=", ".join(choice.value for choice in OnTimeout)),
        ) from None
