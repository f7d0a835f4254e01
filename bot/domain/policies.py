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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
from bot.domain.commands import CompletionSource, Parameter, ParameterKind
from bot.domain.conversations import HTTP, OIDC, ConversationKey
from bot.domain.flows import Words
from bot.domain.mentions import parse_principals
from bot.domain.servers import EVERYWHERE
from bot.domain.tools import Tool, canonical_json, digest
from bot.i18n import LazyFields, _, format_alternatives, format_enumeration, format_list, gettext_lazy

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
        return (self.server, self.server_id, self.tool, *self.further_conditions)

    @property
    def further_conditions(self) -> tuple[object, ...]:
        """Conditions besides server and tool; empty values match each call."""
        return tuple(row.of(self) for row in CONDITIONS)

    @property
    def plain(self) -> bool:
        """True for a rule about one server, tool or pattern, without other conditions."""
        return bool(self.server_id) and not any(self.further_conditions)


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
class PolicyResult:
    """Policy result of a call. `rule` is the decisive one, None for the default; `requirements` are its approval
    requirements; `passed` are the other matching rules, each with the reason why it is not.
    """

    stored: StoredPolicyResult
    rule: Rule | None = None
    requirements: ApprovalRequirements = NO_REQUIREMENTS
    passed: tuple[tuple[Rule, str], ...] = ()


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
    values = {row.name: row.parse(table[row.key], row.key) for row in FIELDS if row.key in table}
    requirements = ApprovalRequirements(**{name: values.pop(name) for name in values.keys() & _OF_REQUIREMENTS})
    _check_requirements(requirements)
    rule = Rule(**values, requirements=requirements)
    if requirements != NO_REQUIREMENTS and rule.policy not in (ApprovalPolicy.ASK_USER, ApprovalPolicy.AUTO):
        raise RuleError(
            "policy",
            gettext_lazy(
                "{policy} asks no approver, so it takes no approvers, quorum or expiry", policy=rule.policy.value
            ),
        )
    return rule


def _check_requirements(requirements: ApprovalRequirements) -> None:
    """Raise RuleError if nobody could approve."""
    approvers = requirements.approvers[0] if requirements.approvers else frozenset()
    if requirements.escalate is not None and not approvers:
        raise RuleError("escalate", gettext_lazy("needs `approvers` that are asked first"))
    if requirements.four_eyes and approvers == {ASKER}:
        raise RuleError("four_eyes", gettext_lazy("no one could approve: the only approver is the asker"))
    people = all(approver == ASKER or is_person(approver) for approver in approvers)
    if approvers and people and requirements.quorum > len(approvers - ({ASKER} if requirements.four_eyes else set())):
        raise RuleError("quorum", gettext_lazy("no one could approve: there are fewer approvers than that"))


def rule_to_table(rule: Rule) -> dict[str, Any]:
    """Return the rule as plain JSON values, which `parse_rule` reads back."""
    values = {row.key: row.of(rule) for row in FIELDS}
    return {key: _table_value(value) for key, value in values.items() if value != _USUAL.get(key)}


def _table_value(value: Any) -> Any:
    match value:
        case StrEnum():
            return value.value
        case frozenset():
            return sorted(value)
        case tuple():
            return sorted(*value)
        case Mapping():
            return dict(sorted(value.items()))
        case Escalation():
            return format_escalation(value)
        case _:
            return value


def option_words(rule: Rule) -> Iterator[str]:
    """Yield the options of `/mcp policy set` that give the rule's conditions and requirements."""
    table = rule_to_table(rule)
    for option in OPTIONS:
        keys = (row.key for row in FIELDS if row.option == option.name and row.key in table)
        for text in (text for key in keys for text in _option_texts(table[key])):
            yield f"--{option.name}"
            if option.shape is not ParameterKind.FLAG:
                yield text


def _option_texts(value: Any) -> list[str]:
    match value:
        case list():
            return value
        case dict():
            words = {True: "yes", False: "no"}
            return [f"{name}={words.get(item, item)}" for name, item in value.items()]
        case float():
            return [format_duration(value)]
        case _:
            return [str(value)]


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
    text = f"{rule.policy.value}: {format_enumeration((*parts, *_described(rule, CONDITIONS)))}"
    terms = _described(rule, sorted(TERMS, key=lambda row: row.said))
    return "; ".join((text, format_enumeration(terms))) if terms else text


def _described(rule: Rule, rows: Iterable[RuleField]) -> list[str]:
    values = ((row, row.of(rule)) for row in rows)
    texts = (row.text(value) for row, value in values if row.text and value != _USUAL[row.key])
    return [*filter(None, texts)]


def _annotation_text(key: str, value: bool) -> str:
    name = key.replace("_", "-")
    return " ".join((name, _("yes") if value else _("no")))


def is_person(principal: str) -> bool:
    """Return True if the text names a user: platforms are one word, kinds of groups two (`slack-group`,
    `discord-role`). A user of one workspace, `slack:T1:U1`, is like a group: others of this id are not meant.
    """
    platform, _, name = principal.partition(":")
    return bool(name) and "-" not in platform and (":" not in name or platform in (HTTP, OIDC))


def format_duration(seconds: float) -> str:
    """Return a duration in the syntax of rules: `90s`, `30m`, `2h`, `3d`."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{int(seconds // _UNITS[unit])}{unit}"
    return f"{int(seconds)}s"


def format_escalation(escalation: Escalation | None) -> str:
    """Return an escalation in the syntax of rules: `30m:slack-group:S1`; empty for None."""
    return f"{format_duration(escalation.after)}:{','.join(sorted(escalation.to))}" if escalation else ""


def _escalation_text(escalation: Escalation) -> str:
    late = format_alternatives(sorted(escalation.to))
    return _("after {duration} also by {approvers}", duration=format_duration(escalation.after), approvers=late)


def _destinations_text(destinations: frozenset[str]) -> str:
    names = {APPROVERS: _("a direct message to the approvers")}
    places = [names.get(place, place) for place in sorted(destinations)]
    return _("asked in {places}", places=format_list(places))


def _unknown_key(key: str) -> str:
    close = difflib.get_close_matches(key, KEYS, n=1)
    known = ", ".join(KEYS)
    if close:
        return gettext_lazy("means nothing here (did you mean {name}?); use {keys}", name=close[0], keys=known)
    return gettext_lazy("means nothing here; use {keys}", keys=known)


def _check_text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
        raise RuleError(key, gettext_lazy("must be a text of 1 to {most} characters", most=LONGEST_TEXT))
    return value


def _texts_of(fits: Callable[[str], object], shape: str) -> Callable[[Any, str], frozenset[str]]:
    """Return the parser of a text or a list of them. `shape` says what each must be."""

    def parse(given: Any, key: str) -> frozenset[str]:
        entries = [given] if isinstance(given, str) else given
        if not isinstance(entries, list) or not 0 < len(entries) <= MOST_ENTRIES:
            raise RuleError(key, gettext_lazy("must be a text or a list of 1 to {most} of them", most=MOST_ENTRIES))
        for entry in entries:
            if not fits(_check_text(entry, key)):
                raise RuleError(key, gettext_lazy("must be {shape}", shape=shape), entry)
        return frozenset(entries)

    return parse


def _one_of(pattern: re.Pattern[str], *words: str) -> Callable[[str], object]:
    return lambda text: text in words or pattern.fullmatch(text)


def _annotations(given: Any, key: str) -> Mapping[str, bool]:
    if not isinstance(given, Mapping):
        raise RuleError(key, gettext_lazy("must be a table such as { read_only = true }"))
    for name, value in given.items():
        if name not in ANNOTATIONS or not isinstance(value, bool):
            raise RuleError(
                f"{key}.{name}",
                gettext_lazy("must be true or false of one of {names}", names=", ".join(ANNOTATIONS)),
            )
    return dict(given)


def _arguments(given: Any, key: str) -> Mapping[str, str]:
    if not isinstance(given, Mapping) or len(given) > MOST_ENTRIES:
        raise RuleError(key, gettext_lazy('must be a table such as { project = "OPS", "labels" = "urgent*" }'))
    arguments: dict[str, str] = {}
    for path, value in given.items():
        place = f"{key}.{path}"
        if not isinstance(value, str | int | float | bool):
            raise RuleError(place, gettext_lazy("must be a text, a number, true or false"))
        _check_text(path, key)
        arguments[path] = _check_text(value_text(value), place)
        try:
            comparison, _ = parse_comparison(path)
        except ValueError as error:
            raise RuleError(place, str(error)) from None
        if comparison is Comparison.HOST and (problem := host_problem(arguments[path])):
            raise RuleError(place, problem)
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


_parse_approvers = _texts_of(
    _one_of(PRINCIPAL, MEMBERS, ASKER),
    gettext_lazy("PLATFORM:ID, {members} or {asker}", members=MEMBERS, asker=ASKER),
)
_parse_destinations = _texts_of(
    _one_of(_CHANNEL, THREAD, APPROVERS),
    gettext_lazy("{thread}, {approvers} or PLATFORM:WORKSPACE:CHANNEL", thread=THREAD, approvers=APPROVERS),
)


def _deliver(value: Any, key: str) -> frozenset[str]:
    places = _parse_destinations(value, key)
    if THREAD in places and len(places) > 1:
        raise RuleError(key, gettext_lazy("{thread} stands alone: the card is there or elsewhere", thread=THREAD))
    return places - {THREAD}


def _switch(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise RuleError(key, gettext_lazy("must be true or false"))
    return value


def _quorum(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_QUORUM:
        raise RuleError(key, gettext_lazy("must be a number of people, 1 to {most}", most=LARGEST_QUORUM))
    return value


def _expires(value: Any, key: str) -> float:
    seconds = _seconds(value)
    if not SHORTEST_EXPIRY <= seconds <= LONGEST_EXPIRY:
        raise RuleError(key, gettext_lazy("must be a time from 1m to 30d, such as 30m, 2h or a number of seconds"))
    return seconds


def _seconds(value: object) -> float:
    """Return a duration such as `30m`, or a number of seconds; 0 for anything else."""
    read = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return float(read[1]) * _UNITS[read[2]] if read else seconds


def _escalate(value: Any, key: str) -> Escalation | None:
    if value is None:
        return None
    after, _colon, names = str(value).partition(":")
    seconds, to = _seconds(after), frozenset(name.strip() for name in names.split(","))
    if not SHORTEST_EXPIRY <= seconds <= LONGEST_EXPIRY or not all(map(PRINCIPAL.fullmatch, to)):
        raise RuleError(key, gettext_lazy("must be a time from 1m to 30d and approvers, such as 30m:slack-group:S1"))
    return Escalation(seconds, to)


def _on_timeout(value: Any, key: str) -> OnTimeout | None:
    if value is None:
        return None
    try:
        return OnTimeout(value)
    except ValueError:
        choices = ", ".join(choice.value for choice in OnTimeout)
        raise RuleError(key, gettext_lazy("must be one of {choices}", choices=choices)) from None


# -------------------- texts of options

Texts = Sequence[str]
_YES_OR_NO = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def _last(texts: Texts, _here: ConversationKey) -> str:
    return texts[-1]


def _flag(_texts: Texts, _here: ConversationKey) -> bool:
    return True


def _names(texts: Texts, _here: ConversationKey) -> list[str]:
    return [parse_principals(text) for text in texts]


def _pairs(texts: Texts, option: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(name.strip() and assigned for name, assigned, _ in pairs):
        raise ValueError(_("`--{option}` is written NAME=VALUE.", option=option))
    return {name.strip(): value for name, _, value in pairs}


def _hints(texts: Texts, _here: ConversationKey) -> dict[str, bool | str]:
    pairs = _pairs(texts, "annotation").items()
    return {name.replace("-", "_"): _YES_OR_NO.get(value.lower(), value) for name, value in pairs}


def _number(texts: Texts, _here: ConversationKey) -> int:
    text = texts[-1]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


def _channel(text: str, here: ConversationKey) -> str:
    """Parse a channel id of this workspace, or a full key."""
    return text if ":" in text else str(replace(here, channel=text.strip("<#>"), thread="")).rpartition(":")[0]


def _channels(texts: Texts, here: ConversationKey) -> list[str]:
    return [_channel(text, here) for text in texts]


def _destinations(texts: Texts, here: ConversationKey) -> list[str]:
    return [text if text in (THREAD, APPROVERS) else _channel(text, here) for text in texts]


def _later(texts: Texts, here: ConversationKey) -> str | None:
    """Return the approvers that are asked after a time, such as `30m:slack:U1`."""
    return ",".join(name for name in _names(texts, here) if name[:1].isdigit()) or None


def _first(texts: Texts, here: ConversationKey) -> list[str] | None:
    return [name for name in _names(texts, here) if not name[:1].isdigit()] or None


# -------------------- the keys of a rule


@dataclass(frozen=True, slots=True)
class RuleField(LazyFields):
    """One key of a rule: `name` is its field in `Rule` or in the requirements.

    `parse` reads its value in a table and raises RuleError. `given` returns that value from the texts of its option,
    None for no value; the option of a key without `purpose` is that of another key. `text` describes a value in the
    rule's line, the requirements in the order of `said`.
    """

    TEXTS = ("purpose",)
    key: str
    name: str
    parse: Callable[[Any, str], Any]
    text: Callable[[Any], str] | None = None
    option: str = ""
    purpose: str = ""
    metavar: str = ""
    given: Callable[[Texts, ConversationKey], Any] | None = None
    repeated: bool = False
    choices: tuple[str, ...] = ()
    completes: CompletionSource = CompletionSource.NOTHING
    said: int = 0

    @property
    def parameter(self) -> Parameter:
        """The option of `/mcp policy set`."""
        return Parameter(
            self.option,
            self.purpose,
            ParameterKind.FLAG if self.given is _flag else ParameterKind.OPTION,
            repeated=self.repeated,
            choices=self.choices,
            completes=self.completes,
            metavar=self.metavar,
        )

    def of(self, rule: Rule) -> Any:
        """Return the value of a rule."""
        return getattr(rule.requirements if self.name in _OF_REQUIREMENTS else rule, self.name)


_OF_REQUIREMENTS = frozenset(each.name for each in fields(ApprovalRequirements))

# fmt: off
CALLS = (
    RuleField("policy", "policy", parse_policy),
    RuleField("server", "server", _check_text),
    RuleField("server_id", "server_id", _check_text),
    RuleField("tool", "tool", _check_text),
    RuleField(
        "except", "excluded_tools",
        _texts_of(lambda name: not is_pattern(name), gettext_lazy("a tool's name, no pattern")), None,
        "except", "a tool it is not about after all", "TOOL", _names, repeated=True,
    ),
)
"""Policy, and the tools that the rule is about."""
CONDITIONS = (
    RuleField(
        "arguments", "arguments", _arguments, None,
        "argument", "only with this argument", "PATH=PATTERN",
        lambda texts, _here: _pairs(texts, "argument"), repeated=True,
    ),
    RuleField(
        "annotations", "annotations", _annotations, None,
        "annotation", "only with this hint", f"{'|'.join(ANNOTATIONS)}=yes|no", _hints, repeated=True,
    ),
    RuleField(
        "in", "places",
        _texts_of(_PLACE.fullmatch, gettext_lazy("PLATFORM, PLATFORM:WORKSPACE or PLATFORM:WORKSPACE:CHANNEL")),
        lambda places: _("in {places}", places=format_alternatives(sorted(places))),
        "in", "only in this channel", "CHANNEL", _channels, repeated=True,
    ),
    RuleField(
        "profile", "profile", _check_text,
        lambda profile: _("in profile {profile}", profile=profile),
        "profile", "only where this profile holds", "NAME", completes=CompletionSource.PROFILES,
    ),
    RuleField(
        "asker", "askers",
        _texts_of(
            _one_of(PRINCIPAL, MEMBERS, GUESTS),
            gettext_lazy("PLATFORM:ID, {members} or {guests}", members=MEMBERS, guests=GUESTS),
        ),
        lambda askers: _("asked by {askers}", askers=format_alternatives(sorted(askers))),
        "asker", "only if one of these asks", "PLATFORM:ID|members|guests", _names, repeated=True,
    ),
)
"""Conditions besides server and tool."""
TERMS = (
    RuleField(
        "approvers", "approvers", lambda value, key: (_parse_approvers(value, key),),
        lambda groups: format_enumeration(
            _("approved by {approvers}", approvers=format_alternatives(sorted(approvers))) for approvers in groups
        ),
        "approver", "users and groups who may approve", "PLATFORM:ID|members|asker", _first, repeated=True,
    ),
    RuleField(
        "four_eyes", "four_eyes", _switch,
        lambda _value: _("not by the asker or an editor"),
        "four-eyes", "neither the asker nor an editor may approve", given=_flag, said=2,
    ),
    RuleField(
        "quorum", "quorum", _quorum,
        lambda count: _("by {count} people", count=count),
        "quorum", "number of approvals that a call needs", "N", _number, said=1,
    ),
    RuleField(
        "expires", "expires", _expires,
        lambda seconds: _("within {duration}", duration=format_duration(seconds)),
        "expires", "time until an approval expires", "30m|2h|1d", _last, said=3,
    ),
    RuleField(
        "on_timeout", "on_timeout", _on_timeout,
        lambda outcome: _("waits on after that") if outcome is OnTimeout.KEEP else "",
        "on-timeout", "what then", given=_last, choices=tuple(outcome.value for outcome in OnTimeout), said=4,
    ),
    RuleField(
        "remind", "remind", _switch, lambda _value: _("with a reminder"),
        "remind", "remind the approvers after half of that time", given=_flag, said=5,
    ),
    RuleField(
        "deliver", "deliver", _deliver, _destinations_text,
        "deliver", "where the card goes", "thread|approvers|CHANNEL", _destinations, repeated=True, said=7,
    ),
    RuleField("escalate", "escalate", _escalate, _escalation_text, "approver", given=_later, said=6),
)
"""Approval requirements."""
# fmt: on
FIELDS = (*CALLS, *CONDITIONS, *TERMS)
KEYS = tuple(row.key for row in FIELDS)
OPTIONS = tuple(row.parameter for row in FIELDS if row.purpose)
"""Options of `/mcp policy set` besides server, tool and policy."""
_USUAL = {row.key: row.of(Rule(ApprovalPolicy.AUTO)) for row in FIELDS[1:]}
"""Values that are left out of a table."""
