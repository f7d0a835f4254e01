"""The operator's limits on tokens and money, read. Called by the composition root."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from bot.domain.usage import MICRO, LimitPeriod, LimitScope, LimitUnit, UsageLimit
from bot.engine.toml_entries import Entries, read_entries

_KEYS = {"per", "every", "tokens", "money", "only"}
_NAMES = {LimitScope.PERSON: "slack:U123", LimitScope.CHANNEL: "slack:T1:C5", LimitScope.WORKSPACE: "slack:T1"}
"""How those are named whom a limit can be for."""
_MOST = 10**15
Words = TypeVar("Words", bound=StrEnum)


def read_limits(text: str, source: str, currency: str) -> tuple[UsageLimit, ...]:
    """Make limits of the text of a `limits.toml`; money is in the currency of the prices. Raises SettingsError, which
    names `source` and the line.
    """
    file = read_entries(text, source, "LIMITS_FILE")
    file.refuse_unknown(file.table, {"limits"}, ())
    found: list[UsageLimit] = []
    for number, entry in enumerate(file.list("limits")):
        for limit in _limits(file, entry, number, currency):
            found.append(limit)
            kind = [each.only for each in found if each.kind == limit.kind]
            file.refuse_hidden(kind, ("limits", number), "only")
    return tuple(found)


def _limits(file: Entries, entry: Mapping[str, Any], number: int, currency: str) -> Iterator[UsageLimit]:
    place = ("limits", number)
    file.refuse_unknown(entry, _KEYS, place)
    per, every = _word(file, entry, number, "per", LimitScope), _word(file, entry, number, "every", LimitPeriod)
    only = entry.get("only", "*")
    if not isinstance(only, str) or not _names_any(only.strip(), per):
        name = _NAMES[per]
        raise file.wrong((*place, "only"), "names nobody", f'write a name such as only = "{name}", or leave it out')
    if "tokens" not in entry and "money" not in entry:
        raise file.wrong(place, "limits nothing", "write tokens = and how many, or money = and how much")
    if "tokens" in entry:
        tokens = file.number(entry["tokens"], (*place, "tokens"), _MOST, "how many tokens, such as 200_000")
        if tokens != int(tokens):
            raise file.wrong((*place, "tokens"), "is no whole number", "write how many tokens, such as 200_000")
        yield UsageLimit(per, every, LimitUnit.TOKENS, int(tokens), only.strip())
    if "money" in entry:
        if not currency:
            raise file.wrong(
                (*place, "money"), "limits money, and there are no prices", "write prices into PRICES_FILE, or tokens ="
            )
        money = file.number(entry["money"], (*place, "money"), _MOST, f"how much, in {currency}, such as 5.00")
        yield UsageLimit(per, every, LimitUnit.MONEY, int(money * MICRO), only.strip())


def _names_any(pattern: str, per: LimitScope) -> bool:
    """Whether anybody's name could fit: the platform stands first in all of them."""
    return "*" in pattern or pattern.count(":") >= _NAMES[per].count(":")


def _word(file: Entries, entry: Mapping[str, Any], number: int, key: str, words: type[Words]) -> Words:
    try:
        return words(entry.get(key, ""))
    except ValueError:
        known = " or ".join(f'"{each}"' for each in words)
        place = ("limits", number, key) if key in entry else ("limits", number)
        problem = "is nothing that can be limited" if key in entry else f"has no {key}"
        raise file.wrong(place, problem, f"write {key} = {known}") from None
