"""Which calls a rule is about, and which of two rules is the more specific.

Called by `bot.engine.policy_evaluation`. What is not known about a call (who somebody is, what a server that nobody
trusts says of its tools) is answered by PERHAPS, and never taken for what would let the call run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any

from bot.domain.approval_requirements import MEMBERS
from bot.domain.comparisons import Comparison, fold_text, parse_comparison
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.hosts import ReadHosts, no_hosts_read
from bot.domain.policies import ANY, GUESTS, Rule, is_for_server, is_for_tool, is_pattern, matches_pattern
from bot.domain.policy_syntax import is_person, value_text
from bot.domain.profiles import DEFAULT, Profile
from bot.domain.tools import Annotations, Tool

# -------------------- argument values
# The values that a call has at the path of an argument, those included that its tool's schema fills in.
#
# An argument that is left out counts as its schema's `default`. Servers write their schemas, so each look at one is
# bounded.

_MOST_SCHEMAS = 64
"""Parts of a schema that are looked at for one name."""
_COMBINED = ("allOf", "anyOf", "oneOf")


class Unknown(Enum):
    """A value that may be anything."""

    UNKNOWN = auto()


def values_at(arguments: Mapping[str, Any], path: str, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield all values at a path. Lists stand for each of their entries, and a name may have dots in it. An entry
    without a value there yields the empty text, which fits no pattern but `*`. A default that the server may or may not
    fill in yields the empty text beside it. UNKNOWN stands for what cannot be found out.
    """
    yield from _Values(schema).at(arguments, path.split("."), [schema])


class _Values:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def at(self, value: Any, path: Sequence[str], schemas: Sequence[Any]) -> Iterator[Any]:
        if isinstance(value, list | tuple):
            items = [entry for each in self._parts(schemas) for entry in _items(each)]
            for each in value:
                found = list(self.at(each, path, items))
                yield from found
                if path and not found:
                    yield ""
        elif not path:
            yield value
        elif isinstance(value, Mapping):
            yield from self._within(value, path, self._parts(schemas))

    def _within(
        self, value: Mapping[str, Any], path: Sequence[str], parts: Sequence[Mapping[str, Any]]
    ) -> Iterator[Any]:
        if len(parts) >= _MOST_SCHEMAS and path[0] not in value:
            yield Unknown.UNKNOWN
        for length in range(1, len(path) + 1):
            name, rest = ".".join(path[:length]), path[length:]
            inner = [_properties(each)[name] for each in parts if name in _properties(each)]
            if name in value:
                yield from self.at(value[name], rest, inner)
                continue
            defaults = [each["default"] for each in self._parts(inner) if "default" in each]
            for default in defaults:
                yield from self.at(default, rest, inner)
            if not defaults and rest:
                # The server may make the object that is missing, and fill it in.
                filled = list(self.at({}, rest, inner))
                yield from filled
                yield from [""] if filled else []

    def _parts(self, schemas: Sequence[Any]) -> Sequence[Mapping[str, Any]]:
        """The schemas and all that they refer to or are combined of, at most `_MOST_SCHEMAS`."""
        found: list[Mapping[str, Any]] = []
        left = list(schemas)
        while left and len(found) < _MOST_SCHEMAS:
            schema = left.pop()
            if not isinstance(schema, Mapping) or any(each is schema for each in found):
                continue
            found.append(schema)
            for key in _COMBINED:
                combined = schema.get(key)
                left += combined if isinstance(combined, list) else []
            left += [schema[key] for key in ("if", "then", "else") if key in schema]
            if isinstance(reference := schema.get("$ref"), str):
                left.append(self._referred(reference))
        return found

    def _referred(self, reference: str) -> Any:
        """The part of the schema that a JSON Pointer within it names, None if there is none."""
        place: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, Mapping) else None
        return place if reference.startswith("#") else None


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _items(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield schema.get("items")
    prefix = schema.get("prefixItems")
    yield from prefix if isinstance(prefix, list) else []


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A call as rules look at it. `author` is None where it is nobody's in particular, `member` where it is not known
    who they are there; `arguments` are None where the call is not known in detail. `read_hosts` finds the hosts that
    an argument addresses.
    """

    tool: Tool
    place: ConversationKey
    arguments: Mapping[str, Any] | None = None
    author: Author | None = None
    member: Member | None = None
    profile: Profile = DEFAULT
    read_hosts: ReadHosts = no_hosts_read


class RuleMatch(IntEnum):
    """How far a rule, or one of its conditions, is about a call."""

    NO = 0
    PERHAPS = 1
    YES = 2


def match_rule(rule: Rule, case: PolicyRequest) -> RuleMatch:
    """Whether the rule is about the call: what its least fitting condition says."""
    return min((found for _, found in _conditions(rule, case)), default=RuleMatch.YES)


def first_mismatch(rule: Rule, case: PolicyRequest, than: RuleMatch = RuleMatch.YES) -> str:
    """The first condition that fits less than that, in a few words; empty if all do."""
    return next((name for name, found in _conditions(rule, case) if found < than), "")


def narrowness(rule: Rule) -> Mapping[str, int]:
    """What the rule asks of a call, and how exactly: 1 for a pattern, a group or a platform, more for less."""
    found = {
        "server": 2 if rule.server_id else _exactness(rule.server),
        "tool": _exactness(rule.tool),
        "place": min((1 + place.count(":") for place in rule.places), default=0),
        "profile": 1 if rule.profile else 0,
        "asker": (2 if all(is_person(each) for each in rule.askers) else 1) if rule.askers else 0,
        **{f"annotation {name}": 1 for name in rule.annotations},
        **{f"argument {path}": 1 + (not is_pattern(pattern)) for path, pattern in rule.arguments.items()},
    }
    return {name: exactness for name, exactness in found.items() if exactness}


def outranks(one: Rule, other: Rule) -> bool:
    """Whether one says everything that the other says, as exactly, and something more, or more exactly."""
    mine, theirs = narrowness(one), narrowness(other)
    return mine != theirs and all(mine.get(name, 0) >= exactness for name, exactness in theirs.items())


def needs_member(rules: Iterable[Rule]) -> bool:
    """Whether any of them looks at more of the asker than the id."""
    return any(not is_person(each) for rule in rules for each in rule.askers)


def _exactness(pattern: str) -> int:
    if pattern == ANY:
        return 0
    return 1 if is_pattern(pattern) else 2


def _conditions(rule: Rule, case: PolicyRequest) -> Iterator[tuple[str, RuleMatch]]:
    yield "another server", _sure(is_for_server(rule, case.tool))
    yield "another tool", _sure(is_for_tool(rule, case.tool))
    if rule.places:
        yield "another place", _sure(any(_in(place, case.place) for place in rule.places))
    if rule.profile:
        yield "another profile", _sure(rule.profile in (case.profile.id, case.profile.name))
    if rule.askers:
        yield "somebody else asked", max(_asks(each, case) for each in rule.askers)
    for name, wanted in rule.annotations.items():
        yield f"the tool's {name.replace('_', '-')} hint", _hinted(case.tool, name, wanted=wanted)
    for path, pattern in rule.arguments.items():
        yield f"the argument {path}", _argued(case, path, pattern)


def _sure(holds: bool) -> RuleMatch:
    return RuleMatch.YES if holds else RuleMatch.NO


def _in(place: str, where: ConversationKey) -> bool:
    """A conversation over HTTP that is held in another platform's workspace is there, too."""
    return any(f"{each}:".startswith(f"{place}:") for each in (where, where.workspace_key))


def _asks(asker: str, case: PolicyRequest) -> RuleMatch:
    if case.author is None:
        return RuleMatch.NO
    if is_person(asker):
        return _sure(case.author.principal == asker)
    if case.member is None:
        return RuleMatch.PERHAPS
    outsider = case.member.guest or case.member.external
    match asker:
        case _ if asker == MEMBERS:
            return _sure(not outsider)
        case _ if asker == GUESTS:
            return _sure(outsider)
        case _:
            return _sure(asker in case.member.roles)


def _hinted(tool: Tool, name: str, *, wanted: bool) -> RuleMatch:
    """What a trusted server did not say is what the specification says it then means."""
    if not tool.trusted:
        return RuleMatch.PERHAPS
    return _sure(_believed(tool.annotations, name) is wanted)


def _believed(hints: Annotations, name: str) -> bool:
    match name:
        case "read_only":
            return hints.read_only is True
        case "destructive":
            return hints.read_only is not True and hints.destructive is not False
        case "idempotent":
            return hints.idempotent is True
        case _:
            return hints.open_world is not False


def _argued(case: PolicyRequest, key: str, pattern: str) -> RuleMatch:
    """YES if every value at the path fits, PERHAPS if only some do: one bad address among good ones is a bad call."""
    if case.arguments is None:
        return RuleMatch.NO
    comparison, path = parse_comparison(key)
    found = [
        _compared(value, comparison, pattern, case) for value in values_at(case.arguments, path, case.tool.input_schema)
    ]
    if not found or max(found) is RuleMatch.NO:
        return RuleMatch.NO
    return RuleMatch.YES if min(found) is RuleMatch.YES else RuleMatch.PERHAPS


def _compared(value: Any, comparison: Comparison, pattern: str, case: PolicyRequest) -> RuleMatch:
    if value is Unknown.UNKNOWN:
        return RuleMatch.PERHAPS
    match comparison:
        case Comparison.EXACT:
            return _sure(matches_pattern(value_text(value), pattern))
        case Comparison.FOLDED:
            return _sure(matches_pattern(fold_text(value_text(value)), fold_text(pattern)))
        case Comparison.HOST:
            return _hosted(value, pattern, case.read_hosts)


def _hosted(value: Any, pattern: str, read: ReadHosts) -> RuleMatch:
    """NO if the value has no address. What cannot be read as one may be an address of any host."""
    match value:
        case None | "":
            return RuleMatch.NO
        case bool() | float() | Mapping():
            return RuleMatch.PERHAPS
        case _:
            hosts = read(value_text(value))
    wanted = _host_patterns(pattern, read)
    fitting = [any(matches_pattern(name, each) for each in wanted) for name in hosts.names]
    if hosts.certain and wanted and fitting and all(fitting):
        return RuleMatch.YES
    return RuleMatch.PERHAPS if any(fitting) or not hosts.certain or not wanted else RuleMatch.NO


def _host_patterns(pattern: str, read: ReadHosts) -> Sequence[str]:
    """The pattern in the spelling of `Hosts.names`; with a leading dot, one for the host and one for all below it.
    Empty if it is no host.
    """
    if pattern.startswith("."):
        names = _host_patterns(pattern[1:], read)
        return [*names, *(f"*.{name}" for name in names)]
    if is_pattern(pattern):
        labels = (each if each.isascii() else _label(each, read) for each in fold_text(pattern).split("."))
        return [".".join(labels)]
    return sorted(read(pattern).names)


def _label(label: str, read: ReadHosts) -> str:
    """One part of a host in Punycode."""
    return next(iter(read(label).names), label)
