"""The operator's files of prices and usage limits.

An invalid entry is an error with its line, because a skipped price would hide costs. The first match applies, so hidden
entries are errors.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from bot.domain.usage import (
    MICRO,
    NO_PRICES,
    LimitPeriod,
    LimitScope,
    LimitUnit,
    Price,
    PriceList,
    UsageLimit,
    matches_pattern,
)
from bot.engine.toml_lines import EntryLocation, line_numbers
from bot.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Entries:
    """Parsed table of a file, with its line numbers."""

    table: Mapping[str, Any]
    source: str
    lines: Mapping[EntryLocation, int]

    def list(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the entries of `[[name]]`. Raises SettingsError."""
        entries = self.table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise self.error((name,), "must be a list of tables", f"write [[{name}]] and what it says below it")
        return entries

    def number(self, value: Any, place: EntryLocation, most: int, wanted: str) -> Decimal:
        """Return a number from 0 to `most`. Raises SettingsError."""
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if not is_number or not (number := Decimal(value)).is_finite() or not 0 <= number <= most:
            raise self.error(place, "is not a valid number", f"write {wanted}")
        return number

    def reject_hidden(self, patterns: Sequence[str], place: EntryLocation, known_as: str) -> None:
        """Raise SettingsError if an earlier pattern matches everything that the last one matches."""
        *previous, last = patterns
        if earlier := next((pattern for pattern in previous if matches_pattern(last, pattern)), None):
            raise self.error((*place, known_as), f'never applies, because "{earlier}" precedes it', "write it first")

    def reject_unknown(self, table: Mapping[str, Any], known: set[str], place: EntryLocation) -> None:
        """Raise SettingsError for an unknown key."""
        for key in table:
            if key not in known:
                raise self.error((*place, key), "is not a known key", f"use one of {', '.join(sorted(known))}")

    def error(self, place: EntryLocation, problem: str, fix: str) -> SettingsError:
        """Return an error with the entry's line."""
        lines = (self.lines.get(place[:length]) for length in range(len(place), 0, -1))
        line = next((f", line {number}" for number in lines if number is not None), "")
        path = ".".join(str(part) for part in place if not isinstance(part, int))
        return SettingsError(f"{self.source}{line}: {path} {problem}.", fix)


def read_entries(text: str, source: str, setting: str) -> Entries:
    """Parse a file; numbers with a point become Decimal. Raises SettingsError."""
    try:
        return Entries(tomllib.loads(text, parse_float=Decimal), source, line_numbers(text))
    except (tomllib.TOMLDecodeError, ArithmeticError) as error:
        raise SettingsError(f"{source} cannot be read: {error}.", f"correct the file or {setting}") from error


_PARTS = ("input", "cached_input", "cache_write", "output")
_PRICE_KEYS = {"model", *_PARTS}
_MAX_PRICE = 1_000_000
"""Highest price of a million tokens. More is a typing error, and its sums would overflow the database."""


def read_prices(text: str, source: str) -> PriceList:
    """Parse a `prices.toml`. Raises SettingsError with `source` and the line."""
    file = read_entries(text, source, "PRICES_FILE")
    file.reject_unknown(file.table, {"currency", "models"}, ())
    prices = tuple(_prices(file))
    currency = file.table.get("currency", "")
    if not isinstance(currency, str) or (currency != "" and not (currency.isalpha() and len(currency) == 3)):
        raise file.error(("currency",), "is not a currency", 'write its three letters, such as currency = "EUR"')
    if not prices:
        return NO_PRICES
    if not currency:
        raise SettingsError(f"{source} has prices and no currency.", 'write currency = "EUR" at its beginning')
    return PriceList(currency.upper(), prices)


def _prices(file: Entries) -> Iterator[Price]:
    models: list[str] = []
    for number, entry in enumerate(file.list("models")):
        price = _price(file, entry, number)
        models.append(price.model)
        file.reject_hidden(models, ("models", number), "model")
        yield price


def _price(file: Entries, entry: Mapping[str, Any], number: int) -> Price:
    place = ("models", number)
    file.reject_unknown(entry, _PRICE_KEYS, place)
    model = entry.get("model")
    if not isinstance(model, str) or not model.strip():
        raise file.error(place, "names no model", 'write model = "PROVIDER:NAME", with * for any letters')
    for needed in ("input", "output"):
        if needed not in entry:
            raise file.error(place, f"has no price for {needed}", f"write {needed} = and what a million tokens cost")
    plain = _part(file, entry, "input", number)
    return Price(
        model=model.strip(),
        input=plain,
        cached_input=_part(file, entry, "cached_input", number) if "cached_input" in entry else plain,
        cache_write=_part(file, entry, "cache_write", number) if "cache_write" in entry else plain,
        output=_part(file, entry, "output", number),
    )


def _part(file: Entries, entry: Mapping[str, Any], name: str, number: int) -> Decimal:
    return file.number(
        entry[name], ("models", number, name), _MAX_PRICE, "what a million tokens cost, such as 3.00, or 0"
    )


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
        options = " or ".join(f'"{choice}"' for choice in choices)
        place = ("limits", number, key) if key in entry else ("limits", number)
        problem = "is not a known value" if key in entry else f"has no {key}"
        raise file.error(place, problem, f"write {key} = {options}") from None
