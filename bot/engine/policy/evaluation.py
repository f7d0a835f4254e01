"""Policy evaluation: the rules that match a call, the one that applies, and the reason.

    A rule that denies wins over all others.
    A rule wins over another if it has all its conditions and more, or more exact ones (`outranks`).
    Of the remaining rules the strictest applies: asking before AUTO, AUTO before running.
    If no rule matches, the default applies.

Only another rule of the operator's file outranks one that names approvers there: otherwise an admin could bypass them
with a rule for one channel.

Unknown facts (the member, the hints of an untrusted server) match as `RuleMatch.PERHAPS`. Such a match can only make
the result stricter: rules that deny or ask apply but outrank none; rules that let run do not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any

from bot.domain.approvals import MEMBERS, NO_REQUIREMENTS, ApprovalPolicy, strictest
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import (
    ANY,
    GUESTS,
    Comparison,
    PolicyResult,
    ReadHosts,
    Rule,
    StoredPolicyResult,
    describe_rule,
    fold_text,
    is_for_server,
    is_for_tool,
    is_pattern,
    is_person,
    matches_pattern,
    no_hosts_read,
    parse_comparison,
    value_text,
)
from bot.domain.profiles import DEFAULT, Profile
from bot.domain.tools import Annotations, Tool, ToolKind, digest
from bot.i18n import DEFAULT_LANGUAGE, _, gettext_lazy, use_language

_MAX_SCHEMAS = 64
"""Most schema parts that are searched for one name. Servers write the schemas, so every search is bounded."""
_COMBINED = ("allOf", "anyOf", "oneOf")

STRICTEST_FIRST = (
    ApprovalPolicy.ALWAYS_DENY,
    ApprovalPolicy.ASK_USER,
    ApprovalPolicy.AUTO,
    ApprovalPolicy.ALWAYS_ALLOW,
)
_RESTRICTIVE = (ApprovalPolicy.ALWAYS_DENY, ApprovalPolicy.ASK_USER)
_DENIED = gettext_lazy("A rule that denies wins over all others.")
_DEFAULT = gettext_lazy("No rule matches this call; the default applies.")
_ONLY_RULE = gettext_lazy("It is the only rule that matches this call.")
_SPECIFIC = gettext_lazy("It is more specific than the other rules that match this call.")
_STRICTEST = gettext_lazy("It is the strictest of the most specific rules.")
_HINTS: Mapping[str, Callable[[Annotations], bool]] = {
    "read_only": lambda hints: hints.read_only is True,
    "destructive": lambda hints: hints.may_destroy,
    "idempotent": lambda hints: hints.idempotent is True,
    "open_world": lambda hints: hints.open_world is not False,
}
Reviewed = Callable[[Tool], bool]
"""Return True if the tool's definition is pinned (`bot.domain.pins`)."""
_Resolve = Callable[[ApprovalPolicy], ApprovalPolicy]
"""Resolve AUTO to another policy."""


class Unknown(Enum):
    """A value that cannot be determined."""

    UNKNOWN = auto()


def values_at(arguments: Mapping[str, Any], path: str, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all values at an argument path. A list stands for its entries; a name may contain dots. A missing value
    yields its schema's default, and the empty text if the server may leave it out; the empty text matches only `*`.
    UNKNOWN stands for values that cannot be determined.
    """
    yield from _Values(schema).values_at(arguments, path.split("."), [schema])


class _Values:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def values_at(self, value: Any, path: Sequence[str], schemas: Sequence[Any]) -> Iterator[Any]:
        if isinstance(value, list | tuple):
            items = []
            for part in self._parts(schemas):
                prefix = part.get("prefixItems")
                items += [part.get("items"), *(prefix if isinstance(prefix, list) else [])]
            for entry in value:
                values = list(self.values_at(entry, path, items))
                yield from values
                if path and not values:
                    yield ""
        elif not path:
            yield value
        elif isinstance(value, Mapping):
            yield from self._in_object(value, path, self._parts(schemas))

    def _in_object(
        self, value: Mapping[str, Any], path: Sequence[str], parts: Sequence[Mapping[str, Any]]
    ) -> Iterator[Any]:
        if len(parts) >= _MAX_SCHEMAS and path[0] not in value:
            yield Unknown.UNKNOWN
        for length in range(1, len(path) + 1):
            name, rest = ".".join(path[:length]), path[length:]
            inner = [_properties(part)[name] for part in parts if name in _properties(part)]
            if name in value:
                yield from self.values_at(value[name], rest, inner)
                continue
            defaults = [part["default"] for part in self._parts(inner) if "default" in part]
            for default in defaults:
                yield from self.values_at(default, rest, inner)
            if not defaults and rest:
                # The server may create the missing object and fill it in.
                filled = list(self.values_at({}, rest, inner))
                yield from filled
                yield from [""] if filled else []

    def _parts(self, schemas: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """Return the schemas with all that they refer to or combine, at most `_MAX_SCHEMAS`."""
        found: list[Mapping[str, Any]] = []
        left = list(schemas)
        while left and len(found) < _MAX_SCHEMAS:
            schema = left.pop()
            if not isinstance(schema, Mapping) or any(part is schema for part in found):
                continue
            found.append(schema)
            for key in _COMBINED:
                combined = schema.get(key)
                left += combined if isinstance(combined, list) else []
            left += [schema[key] for key in ("if", "then", "else") if key in schema]
            if isinstance(reference := schema.get("$ref"), str):
                left.append(self._resolve(reference))
        return found

    def _resolve(self, reference: str) -> Any:
        """Return the schema part that a JSON Pointer names; None if there is none."""
        place: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, Mapping) else None
        return place if reference.startswith("#") else None


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A call as rules see it. `author` is None for calls of no user, `member` if the platform cannot tell, `arguments`
    if they are unknown. `read_hosts` finds the hosts in an argument.
    """

    tool: Tool
    conversation: ConversationKey
    arguments: Mapping[str, Any] | None
    author: Author | None = None
    member: Member | None = None
    profile: Profile = DEFAULT
    read_hosts: ReadHosts = no_hosts_read


class RuleMatch(IntEnum):
    """Certainty with which a rule or condition matches a call."""

    NO = 0
    PERHAPS = 1
    YES = 2


def match_rule(rule: Rule, request: PolicyRequest) -> RuleMatch:
    """Return the lowest match of the rule's conditions."""
    return min((matches for _, matches in _conditions(rule, request)), default=RuleMatch.YES)


def first_mismatch(rule: Rule, request: PolicyRequest) -> str:
    """Return the first condition that does not certainly match, in a few words; empty if there is none."""
    return next((name for name, matches in _conditions(rule, request) if matches is not RuleMatch.YES), "")


def specificity(rule: Rule) -> Mapping[str, int]:
    """Return the exactness of each condition: 1 for a pattern, a group or a platform, higher for more exact ones."""
    exactness_of = {
        "server": 2 if rule.server_id else _exactness(rule.server),
        "tool": _exactness(rule.tool),
        "place": min((1 + place.count(":") for place in rule.places), default=0),
        "profile": 1 if rule.profile else 0,
        "asker": (2 if all(is_person(asker) for asker in rule.askers) else 1) if rule.askers else 0,
        **{f"annotation {name}": 1 for name in rule.annotations},
        **{f"argument {path}": 1 + (not is_pattern(pattern)) for path, pattern in rule.arguments.items()},
    }
    return {name: exactness for name, exactness in exactness_of.items() if exactness}


def outranks(rule: Rule, other: Rule) -> bool:
    """Return True if `rule` has all conditions of `other`, at least as exact, and one more or a more exact one."""
    mine, theirs = specificity(rule), specificity(other)
    return mine != theirs and all(mine.get(name, 0) >= exactness for name, exactness in theirs.items())


def needs_member(rules: Iterable[Rule]) -> bool:
    """Return True if any rule needs more than the author's id."""
    return any(not is_person(asker) for rule in rules for asker in rule.askers)


def _exactness(pattern: str) -> int:
    if pattern == ANY:
        return 0
    return 1 if is_pattern(pattern) else 2


def _conditions(rule: Rule, request: PolicyRequest) -> Iterator[tuple[str, RuleMatch]]:
    yield _("another server"), _match(is_for_server(rule, request.tool))
    yield _("another tool"), _match(is_for_tool(rule, request.tool))
    if rule.places:
        # A conversation over HTTP is in its workspace, too.
        scopes = (f"{request.conversation}:", f"{request.conversation.workspace_key}:")
        yield (
            _("another place"),
            _match(any(scope.startswith(f"{place}:") for place in rule.places for scope in scopes)),
        )
    if rule.profile:
        yield _("another profile"), _match(rule.profile in (request.profile.id, request.profile.name))
    if rule.askers:
        yield _("another author"), max(_match_author(asker, request) for asker in rule.askers)
    for name, wanted in rule.annotations.items():
        hint = _("the tool's {hint} hint", hint=name.replace("_", "-"))
        is_met = _HINTS[name](request.tool.annotations) is wanted
        yield hint, _match(is_met) if request.tool.trusted else RuleMatch.PERHAPS
    for path, pattern in rule.arguments.items():
        yield _("the argument {path}", path=path), _match_argument(request, path, pattern)


def _match(holds: bool) -> RuleMatch:
    return RuleMatch.YES if holds else RuleMatch.NO


def _match_author(asker: str, request: PolicyRequest) -> RuleMatch:
    if request.author is None:
        return RuleMatch.NO
    if is_person(asker):
        return _match(request.author.principal == asker)
    if request.member is None:
        return RuleMatch.PERHAPS
    if asker in (MEMBERS, GUESTS):
        return _match((request.member.guest or request.member.external) is (asker == GUESTS))
    return _match(asker in request.member.roles)


def _match_argument(request: PolicyRequest, key: str, pattern: str) -> RuleMatch:
    """Return YES if all values at the path match, PERHAPS if only some do: one bad address among good ones makes a bad
    call.
    """
    if request.arguments is None:
        return RuleMatch.NO
    comparison, path = parse_comparison(key)
    matches = [
        _match_value(value, comparison, pattern, request)
        for value in values_at(request.arguments, path, request.tool.input_schema)
    ]
    if not matches or max(matches) is RuleMatch.NO:
        return RuleMatch.NO
    return RuleMatch.YES if min(matches) is RuleMatch.YES else RuleMatch.PERHAPS


def _match_value(value: Any, comparison: Comparison, pattern: str, request: PolicyRequest) -> RuleMatch:
    if value is Unknown.UNKNOWN:
        return RuleMatch.PERHAPS
    match comparison:
        case Comparison.EXACT:
            return _match(matches_pattern(value_text(value), pattern))
        case Comparison.FOLDED:
            return _match(matches_pattern(fold_text(value_text(value)), fold_text(pattern)))
        case Comparison.HOST:
            return _match_host(value, pattern, request.read_hosts)


def _match_host(value: Any, pattern: str, read: ReadHosts) -> RuleMatch:
    """Return the match of the hosts in a value; NO if the value is empty. A value that cannot be parsed may address any
    host.
    """
    match value:
        case None | "":
            return RuleMatch.NO
        case bool() | float() | Mapping():
            return RuleMatch.PERHAPS
        case _:
            hosts = read(value_text(value))
    wanted = _host_patterns(pattern, read)
    fitting = [any(matches_pattern(name, host_pattern) for host_pattern in wanted) for name in hosts.names]
    if hosts.certain and wanted and fitting and all(fitting):
        return RuleMatch.YES
    return RuleMatch.PERHAPS if any(fitting) or not hosts.certain or not wanted else RuleMatch.NO


def _host_patterns(pattern: str, read: ReadHosts) -> Sequence[str]:
    """Return the pattern in the spelling of `Hosts.names`; with a leading dot, for the host and all below it. Empty if
    it is not a host.
    """
    if pattern.startswith("."):
        names = _host_patterns(pattern[1:], read)
        return [*names, *(f"*.{name}" for name in names)]
    if is_pattern(pattern):
        labels = (
            label if label.isascii() else next(iter(read(label).names), label)
            for label in fold_text(pattern).split(".")
        )
        return [".".join(labels)]
    return sorted(read(pattern).names)


def nothing_reviewed(tool: Tool) -> bool:  # noqa: ARG001 - a Reviewed
    """Return False: AUTO asks."""
    return False


def evaluate(
    rules: Sequence[Rule], request: PolicyRequest, default: ApprovalPolicy, reviewed: Reviewed = nothing_reviewed
) -> PolicyResult:
    """Return the policy for a call, with its reason and the overruled rules."""

    def resolve(policy: ApprovalPolicy) -> ApprovalPolicy:
        return _resolve(policy, request.tool, reviewed)[0]

    fits = [(rule, match_rule(rule, request)) for rule in rules]
    sure = [rule for rule, match_ in fits if match_ is RuleMatch.YES]
    matching = [
        rule
        for rule, match_ in fits
        if match_ is RuleMatch.YES or (match_ is RuleMatch.PERHAPS and resolve(rule.policy) in _RESTRICTIVE)
    ]
    denials = [rule for rule in matching if rule.policy is ApprovalPolicy.ALWAYS_DENY]
    candidates = [rule for rule in matching if not any(_wins_over(other, rule) for other in sure)]
    applying = denials[:1] or _strictest(candidates, resolve)
    if not sure and not denials and (not applying or _rank(resolve(default)) < _rank(resolve(applying[0].policy))):
        applying = []
    rule = applying[0] if applying else None
    policy, auto = _resolve(rule.policy if rule else default, request.tool, reviewed)
    requirements = (
        strictest(applied.requirements for applied in applying)
        if policy is ApprovalPolicy.ASK_USER
        else NO_REQUIREMENTS
    )
    approvers = request.profile.approvers
    return PolicyResult(
        StoredPolicyResult(
            policy,
            rule.id if rule else "",
            _words(rule, request.tool.server, default),
            " ".join(part for part in (_reason(rule, matching), _uncertainty(rule, request), auto) if part),
            approvers=digest(sorted(approvers))[:16] if approvers and not requirements.approvers else "",
        ),
        rule,
        requirements,
        tuple((other, _overruled_reason(other, rule, sure)) for other in matching if other is not rule),
    )


def _wins_over(rule: Rule, other: Rule) -> bool:
    return outranks(rule, other) and (rule.of_file or not (other.of_file and other.requirements.say_who))


def _strictest(rules: Sequence[Rule], resolve: _Resolve) -> list[Rule]:
    ranked = sorted(rules, key=lambda rule: (_rank(resolve(rule.policy)), _rank(rule.policy)))
    return [rule for rule in ranked if resolve(rule.policy) is resolve(ranked[0].policy)]


def _rank(policy: ApprovalPolicy) -> int:
    return STRICTEST_FIRST.index(policy)


def _words(rule: Rule | None, server: str, default: ApprovalPolicy) -> str:
    """Return the rule in English for all users: grants are compared by its digest."""
    if rule is None:
        return gettext_lazy("default: {policy}", policy=default.value)
    with use_language(DEFAULT_LANGUAGE):
        return describe_rule(rule, server)


def _resolve(policy: ApprovalPolicy, tool: Tool, reviewed: Reviewed) -> tuple[ApprovalPolicy, str]:
    """Resolve AUTO, with the reason."""
    if policy is not ApprovalPolicy.AUTO:
        return policy, ""
    if tool.kind is not ToolKind.CALL:
        return ApprovalPolicy.ALWAYS_ALLOW, _("AUTO runs it: a resource or a prompt is only read.")
    if not tool.trusted:
        return ApprovalPolicy.ASK_USER, _("AUTO asks: the server is not marked trusted.")
    if not tool.read_only:
        return ApprovalPolicy.ASK_USER, _("AUTO asks: the server does not say that the tool only reads.")
    if not reviewed(tool):
        return ApprovalPolicy.ASK_USER, _("AUTO asks: the tool's definition is not the pinned one.")
    return ApprovalPolicy.ALWAYS_ALLOW, _("AUTO runs it: it only reads, and its definition is pinned.")


def _reason(rule: Rule | None, matching: Sequence[Rule]) -> str:
    if rule is None:
        return str(_DEFAULT) if not matching else _("No rule certainly matches this call, and the default is stricter.")
    if rule.policy is ApprovalPolicy.ALWAYS_DENY:
        return str(_DENIED)
    if len(matching) == 1:
        return str(_ONLY_RULE)
    others = [other for other in matching if other is not rule]
    return str(_SPECIFIC if all(_wins_over(rule, other) for other in others) else _STRICTEST)


def _uncertainty(rule: Rule | None, request: PolicyRequest) -> str:
    if rule is None or match_rule(rule, request) is RuleMatch.YES:
        return ""
    return _(
        "It may match this call or a part of it ({difference}), so it applies.",
        difference=first_mismatch(rule, request),
    )


def _overruled_reason(rule: Rule, winner: Rule | None, sure: Sequence[Rule]) -> str:
    if winner is None:
        return _("the default is stricter")
    if winner.policy is ApprovalPolicy.ALWAYS_DENY:
        return (
            _("it denies, too")
            if rule.policy is ApprovalPolicy.ALWAYS_DENY
            else _("{rule} denies", rule=winner.id or _("a rule"))
        )
    stronger = next((other for other in sure if _wins_over(other, rule)), None)
    if stronger is not None:
        return _("{rule} is more specific", rule=stronger.id or _("a rule"))
    return (
        _("it says the same")
        if rule.policy is winner.policy
        else _("{rule} is stricter", rule=winner.id or _("a rule"))
    )
