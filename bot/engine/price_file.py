"""Parser of the operator's price list.

Invalid entries are errors with their line: a skipped price would hide costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from bot.domain.usage import NO_PRICES, Price, PriceList
from bot.engine.toml_entries import Entries, read_entries
from bot.errors import SettingsError

_PARTS = ("input", "cached_input", "cache_write", "output")
_KEYS = {"model", *_PARTS}
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
    file.reject_unknown(entry, _KEYS, place)
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
