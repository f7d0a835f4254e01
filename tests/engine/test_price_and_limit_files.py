"""The operator's files of prices and limits: their values, and the errors of unusable entries."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.domain.usage import NO_PRICES, LimitPeriod, LimitScope, LimitUnit, Price, PriceList, UsageLimit
from bot.engine.config_files import read_limits, read_prices
from bot.errors import SettingsError

PRICES = """
currency = "eur"
[[models]]
model = "anthropic:claude-*"
input = 3.10
cached_input = 0.31
cache_write = 3.875
output = 15
[[models]]
model = "ollama:*"
input = 0
output = 0
"""
ENTRY = '[[models]]\nmodel = "x:*"\ninput = 1\noutput = 2\n'
CHANNEL = '[[limits]]\nper = "channel"\nevery = "day"\n'
LIMIT = '[[limits]]\nper = "person"\nevery = "day"\n'


def test_prices_are_read_as_they_are_written() -> None:
    zero = Decimal(0)
    claude = Price("anthropic:claude-*", Decimal("3.10"), Decimal("0.31"), Decimal("3.875"), Decimal(15))
    assert read_prices(PRICES, "p") == PriceList("EUR", (claude, Price("ollama:*", zero, zero, zero, zero)))


def test_cached_tokens_cost_as_input_without_a_price_of_their_own() -> None:
    (price,) = read_prices(f'currency = "EUR"\n{ENTRY}', "p").prices
    assert (price.cached_input, price.cache_write) == (Decimal(1), Decimal(1))


@pytest.mark.parametrize("text", ["", 'currency = "EUR"', "# nothing"])
def test_without_entries_nothing_has_a_price(text: str) -> None:
    assert read_prices(text, "p") == NO_PRICES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ENTRY, "p has prices and no currency. Fix: write currency"),
        (f'currency = "euros"\n{ENTRY}', "p, line 1: currency is not a currency."),
        (f'currency = "EUR"\n{ENTRY}price = 3', "p, line 6: models.price is not a known key. Fix: use one of cache"),
        ('currency = "EUR"\n[[models]]\ninput = 1\noutput = 2', "p, line 2: models names no model."),
        ('currency = "EUR"\n[[models]]\nmodel = "x"\ninput = 1', "p, line 2: models has no price for output."),
        (f'currency = "EUR"\n{ENTRY}cached_input = -1', "p, line 6: models.cached_input is not a valid number"),
        (f'currency = "EUR"\n{ENTRY}cached_input = "1"', "p, line 6: models.cached_input is not a valid number"),
        (f'currency = "EUR"\n{ENTRY}cached_input = true', "p, line 6: models.cached_input is not a valid number"),
        (f'currency = "EUR"\n{ENTRY}cached_input = nan', "p, line 6: models.cached_input is not a valid number"),
        (f'currency = "EUR"\n{ENTRY}cached_input = 1e12', "p, line 6: models.cached_input is not a valid number"),
        (
            f'currency = "EUR"\n{ENTRY}cached_input = 1e999999999999',
            "p, line 6: models.cached_input is not a valid number",
        ),
        (
            f'currency = "EUR"\n{ENTRY}{ENTRY.replace("x:*", "x:y")}',
            'p, line 7: models.model never applies, because "x:\\*" precedes it. Fix: write it first',
        ),
        (f'currency = "EUR"\n{ENTRY}{ENTRY}', "p, line 7: models.model never applies"),
        ('currency = "EUR"\nmodels = 3', "p, line 2: models must be a list of tables."),
        ("currency = ", "p cannot be read: .*Fix: correct the file or PRICES_FILE"),
    ],
)
def test_an_invalid_price_is_refused_with_its_line_and_a_fix(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"^{said}"):
        read_prices(text, "p")


def test_limits_are_read_in_their_order_and_one_entry_may_limit_both() -> None:
    text = f'{LIMIT}only = "slack:U1"\ntokens = 5_000\nmoney = 2.50\n{LIMIT}tokens = 100\n'
    assert read_limits(text, "l", "EUR") == (
        UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 5_000, "slack:U1"),
        UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.MONEY, 2_500_000, "slack:U1"),
        UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 100),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LIMIT, "l, line 1: limits limits nothing. Fix: write tokens"),
        (f"{LIMIT}tokens = -5", "l, line 4: limits.tokens is not a valid number."),
        (f"{LIMIT}tokens = 0.5", "l, line 4: limits.tokens is not a whole number."),
        (f"{LIMIT}tokens = 1e999999999999", "l, line 4: limits.tokens is not a valid number."),
        (f"{LIMIT}tokens = 5\nonly = 'U123'", 'l, line 5: limits.only matches no name. Fix: write .*"slack:U123"'),
        (f"{CHANNEL}tokens = 5\nonly = 'slack:C5'", "l, line 5: limits.only matches no name. Fix: write .*T1:C5"),
        (
            f'{LIMIT}tokens = 5\n{LIMIT}tokens = 9\nonly = "slack:U1"',
            'l, line 9: limits.only never applies, because "\\*" precedes it.',
        ),
        (f"{LIMIT}tokens = 5\n{LIMIT}tokens = 9", "l, line 5: limits.only never applies"),
        (f"{LIMIT}money = 5", "l, line 4: limits.money limits money, and there are no prices. Fix: write prices"),
        (f"{LIMIT}tokens = 5\nonly = ''", "l, line 5: limits.only matches no name."),
        (f"{LIMIT}toke = 5", "l, line 4: limits.toke is not a known key. Fix: use one of every, money, only, per"),
        ('[[limits]]\nevery = "day"\ntokens = 1', 'l, line 1: limits has no per. Fix: write per = "person" or "chan'),
        ('[[limits]]\nper = "person"\nevery = "week"\ntokens = 1', "l, line 3: limits.every is not a known value"),
        ('[[limits]]\nper = ["person"]\nevery = "day"\ntokens = 1', "l, line 2: limits.per is not a known value"),
        ("limit = 1", "l, line 1: limit is not a known key. Fix: use one of limits"),
        ("[[limits]", "l cannot be read: .*Fix: correct the file or LIMITS_FILE"),
    ],
)
def test_an_invalid_limit_is_refused_with_its_line_and_a_fix(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"^{said}"):
        read_limits(text, "l", "")


def test_limits_of_other_kinds_and_other_names_do_not_hide_one_another() -> None:
    names = ("slack:U1", "slack:*", "*")
    text = "".join(f'{LIMIT}tokens = 1\nonly = "{name}"\n' for name in names)
    text += f'{CHANNEL}tokens = 1\n[[limits]]\nper = "person"\nevery = "month"\ntokens = 1\n'
    assert len(read_limits(text, "l", "")) == 5
