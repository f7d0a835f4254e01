"""The operator's price list, read. Called by the composition root.

Whatever in it cannot be used is refused with its line: a price that is skipped in silence would be money that nobody
counts.
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
_MOST = 1_000_000
"""What a million tokens may cost: more is a slip, and sums of it would not fit into the database."""


def read_prices(text: str, source: str) -> PriceList:
    """Make prices of the text of a `prices.toml`. Raises SettingsError, which names `source` and the line."""
    file = read_entries(text, source, "PRICES_FILE")
    file.refuse_unknown(file.table, {"currency", "models"}, ())
    prices = tuple(_prices(file))
    currency = file.table.get("currency", "")
    if not isinstance(currency, str) or (currency != "" and not (currency.isalpha() and len(currency) == 3)):
        raise file.wrong(("currency",), "is no currency", 'write its three letters, such as currency = "EUR"')
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
        file.refuse_hidden(models, ("models", number), "model")
        yield price


def _price(file: Entries, entry: Mapping[str, Any], number: int) -> Price:
    place = ("models", number)
    file.refuse_unknown(entry, _KEYS, place)
    model = entry.get("model")
    if not isinstance(model, str) or not model.strip():
        raise file.wrong(place, "names no model", 'write model = "PROVIDER:NAME", with * for any letters')
    for needed in ("input", "output"):
        if needed not in entry:
            raise file.wrong(place, f"has no price for {needed}", f"write {needed} = and what a million tokens cost")
    plain = _part(file, entry, "input", number)
    return Price(
        model=model.strip(),
        input=plain,
        cached_input=_part(file, entry, "cached_input", number) if "cached_input" in entry else plain,
        cache_write=_part(file, entry, "cache_write", number) if "cache_write" in entry else plain,
        output=_part(file, entry, "output", number),
    )


def _part(file: Entries, entry: Mapping[str, Any], name: str, number: int) -> Decimal:
    return file.number(entry[name], ("models", number, name), _MOST, "what a million tokens cost, such as 3.00, or 0")
