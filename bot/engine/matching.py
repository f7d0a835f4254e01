"""Which calls a rule is about, and which of two rules is the more specific.

Called by `bot.engine.judging`. What is not known about a call (who somebody is, what a server that nobody trusts says
of its tools) is answered by PERHAPS, and never taken for what would let the call run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.policies import ANY, GUESTS, Rule, fits, is_for_server, is_for_tool, is_pattern
from bot.domain.profiles import DEFAULT, Profile
from bot.domain.rule_language import is_person, value_text
from bot.domain.terms import MEMBERS
from bot.domain.tools import Annotations, Tool


@dataclass(frozen=True, slots=True)
class Case:
    """A call as rules look at it. `author` is None where it is nobody's in particular, `member` where it is not known
    who they are there; `arguments` are None where the call is not known in detail.
    """

    tool: Tool
    place: ConversationKey
    arguments: Mapping[str, Any] | None = None
    author: Author | None = None
    member: Member | None = None
    profile: Profile = DEFAULT


class Fit(IntEnum):
    """How far a rule, or one of its conditions, is about a call."""

    NO = 0
    PERHAPS = 1
    YES = 2


def fit(rule: Rule, case: Case) -> Fit:
    """Whether the rule is about the call: what its least fitting condition says."""
    return min((found for _, found in _conditions(rule, case)), default=Fit.YES)


def what_is_off(rule: Rule, case: Case, than: Fit = Fit.YES) -> str:
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


def beats(one: Rule, other: Rule) -> bool:
    """Whether one says everything that the other says, as exactly, and something more, or more exactly."""
    mine, theirs = narrowness(one), narrowness(other)
    return mine != theirs and all(mine.get(name, 0) >= exactness for name, exactness in theirs.items())


def asks_who(rules: Iterable[Rule]) -> bool:
    """Whether any of them looks at more of the asker than the id."""
    return any(not is_person(each) for rule in rules for each in rule.askers)


def _exactness(pattern: str) -> int:
    if pattern == ANY:
        return 0
    return 1 if is_pattern(pattern) else 2


def _conditions(rule: Rule, case: Case) -> Iterator[tuple[str, Fit]]:
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
        yield f"the argument {path}", _argued(case.arguments, path, pattern)


def _sure(holds: bool) -> Fit:
    return Fit.YES if holds else Fit.NO


def _in(place: str, where: ConversationKey) -> bool:
    """A conversation over HTTP that is held in another platform's workspace is there, too."""
    return any(f"{each}:".startswith(f"{place}:") for each in (where, where.home))


def _asks(asker: str, case: Case) -> Fit:
    if case.author is None:
        return Fit.NO
    if is_person(asker):
        return _sure(case.author.principal == asker)
    if case.member is None:
        return Fit.PERHAPS
    outsider = case.member.guest or case.member.external
    match asker:
        case _ if asker == MEMBERS:
            return _sure(not outsider)
        case _ if asker == GUESTS:
            return _sure(outsider)
        case _:
            return _sure(asker in case.member.roles)


def _hinted(tool: Tool, name: str, *, wanted: bool) -> Fit:
    """What a trusted server did not say is what the specification says it then means."""
    if not tool.trusted:
        return Fit.PERHAPS
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


def _argued(arguments: Mapping[str, Any] | None, path: str, pattern: str) -> Fit:
    """YES if every value at the path fits, PERHAPS if only some do: one bad address among good ones is a bad call."""
    if arguments is None:
        return Fit.NO
    found = [fits(text, pattern) for text in _texts_at(arguments, path.split("."))]
    if not any(found):
        return Fit.NO
    return Fit.YES if all(found) else Fit.PERHAPS


def _texts_at(value: Any, path: Sequence[str]) -> Iterator[str]:
    """The texts of all values at a path. Lists stand for each of their entries, and a name may have dots in it. An
    entry that has nothing there is one whose text fits no pattern but `*`.
    """
    if isinstance(value, list | tuple):
        for each in value:
            yield from _texts_at(each, path)
            if path and not _has(each, path):
                yield ""
    elif not path:
        yield value_text(value)
    elif isinstance(value, Mapping):
        for length in range(1, len(path) + 1):
            name = ".".join(path[:length])
            if name in value:
                yield from _texts_at(value[name], path[length:])


def _has(value: Any, path: Sequence[str]) -> bool:
    return next(_texts_at(value, path), None) is not None
