"""Parser of the operator's usage limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from bot.domain.usage import MICRO, LimitPeriod, LimitScope, LimitUnit, UsageLimit
from bot.engine.toml_entries import Entries, read_entries

_KEYS = {"per", "every", "tokens", "money", "only"}
_NAMES = {LimitScope.PERSON: "slack:U123", LimitScope.CHANNEL: "slack:T1:C5", LimitScope.WORKSPACE: "slack:T1"}
"""Example name for each scope."""
_MAX_AMOUNT = 10**15
Words = TypeVar("Words", bound=StrEnum)


def read_limits(text: str, source: str, currency: str) -> tuple[UsageLimit, ...]:
    """Parse a `limits.toml`; amounts are in the prices' currency. Raises SettingsError with `source` and the line."""
    file = read_entries(text, source, "LIMITS_FILE")
    file.reject_unknown(file.table, {"limits"}, ())
    limits: list[UsageLimit] = []
    for number, entry in enumerate(file.list("limits")):
        for limit in _limits(file, entry, number, currency):
            limits.append(limit)
            kind = [other.only for other in limits if other.kind == limit.kind]
            file.reject_hidden(kind, ("limits", number), "only")
    return tuple(limits)


def _limits(file: Entries, entry: Mapping[str, Any], number: int, currency: str) -> Iterator[UsageLimit]:
    place = ("limits", number)
    file.reject_unknown(entry, _KEYS, place)
    per, every = _choice(file, entry, number, "per", LimitScope), _choice(file, entry, number, "every", LimitPeriod)
    only = entry.get("only", "*")
    if not isinstance(only, str) or not _can_match(only.strip(), per):
        name = _NAMES[per]
        raise file.error((*place, "only"), "matches no name", f'write a name such as only = "{name}", or leave it out')
    if "tokens" not in entry and "money" not in entry:
        raise file.error(place, "limits nothing", "write tokens = and how many, or money = and how much")
    if "tokens" in entry:
        tokens = file.number(entry["tokens"], (*place, "tokens"), _MAX_AMOUNT, "how many tokens, such as 200_000")
        if tokens != int(tokens):
            raise file.error((*place, "tokens"), "is not a whole number", "write how many tokens, such as 200_000")
        yield UsageLimit(per, every, LimitUnit.TOKENS, int(tokens), only.strip())
    if "money" in entry:
        if not currency:
            raise file.error(
                (*place, "money"), "limits money, and there are no prices", "write prices into PRICES_FILE, or tokens ="
            )
        money = file.number(entry["money"], (*place, "money"), _MAX_AMOUNT, f"how much, in {currency}, such as 5.00")
        yield UsageLimit(per, every, LimitUnit.MONEY, int(money * MICRO), only.strip())


def _can_match(pattern: str, per: LimitScope) -> bool:
    """Return True if the pattern can match a name of the scope: all names begin with the platform."""
    return "*" in pattern or pattern.count(":") >= _NAMES[per].count(":")


def _choice(file: Entries, entry: Mapping[str, Any], number: int, key: str, choices: type[Words]) -> Words:
    try:
        return choices(entry.get(key, ""))
    except ValueError:
        options = " or ".join(f'"{each}"' for each in choices)
        place = ("limits", number, key) if key in entry else ("limits", number)
        problem = "is not a known value" if key in entry else f"has no {key}"
        raise file.error(place, problem, f"write {key} = {options}") from None
