"""Prices, periods, and the limits that apply."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.completions import Usage
from bot.domain.conversations import ConversationKey
from bot.domain.usage import (
    LimitPeriod,
    LimitScope,
    LimitStatus,
    LimitUnit,
    Price,
    PriceList,
    UsageLimit,
    UsageOwner,
    format_money,
    limits_for,
)
from tests.fakes.parts import ANA

SPENDER = UsageOwner("slack:U1", "slack:T1:C5", "slack:T1")


def price(model: str, rate: str = "1", output: str = "1") -> Price:
    return Price(model, Decimal(rate), Decimal("0.1"), Decimal(2), Decimal(output))


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_tokens_of_each_kind_cost_their_price_of_a_million() -> None:
    million = 1_000_000
    usage = Usage(4 * million, 5 * million, 2 * million, million, 3 * million)
    assert price("*", "3", "15").cost_of(usage) == (3 + 2 * 0.1 + 2 + 5 * 15) * million


def test_a_part_of_a_micro_unit_is_rounded() -> None:
    assert [price("*", rate).cost_of(Usage(1, 0)) for rate in ("0.49", "0.5", "1.5")] == [0, 1, 2]


def test_a_service_that_counts_more_cached_tokens_than_went_in_gives_no_money_back() -> None:
    assert price("*").cost_of(Usage(10, 0, 100)) == 10


def test_the_first_pattern_that_fits_is_a_models_price_and_a_model_may_have_none() -> None:
    prices = PriceList("EUR", (price("openai:gpt-9"), price("openai:gpt-*", "2"), price("ollama:*", "0")))
    cost = [prices.cost(model, Usage(10, 0)) for model in ("openai:gpt-9", "openai:gpt-8", "ollama:x", "demo")]
    assert cost == [10, 20, 0, None]


def test_in_a_pattern_only_a_star_stands_for_others() -> None:
    prices = PriceList("EUR", (price("ollama:llama[q4]?"), price("*", "2")))
    assert [prices.cost(model, Usage(10, 0)) for model in ("ollama:llama[q4]?", "ollama:llamaq", "ollama:llamaq4")] == [
        10,
        20,
        20,
    ]


@pytest.mark.parametrize(
    ("every", "now", "begin", "end"),
    [
        (LimitPeriod.DAY, "2026-08-31T23:59:59", "2026-08-31", "2026-09-01"),
        (LimitPeriod.DAY, "2026-08-31", "2026-08-31", "2026-09-01"),
        (LimitPeriod.MONTH, "2026-12-31T12:00", "2026-12-01", "2027-01-01"),
        (LimitPeriod.MONTH, "2028-02-29T12:00", "2028-02-01", "2028-03-01"),
        (LimitPeriod.MONTH, "2026-01-01", "2026-01-01", "2026-02-01"),
    ],
)
def test_days_and_months_are_those_of_utc(every: LimitPeriod, now: str, begin: str, end: str) -> None:
    assert (every.start_of_period(at(now)), every.end_of_period(at(now))) == (at(begin), at(end))


def test_of_limits_of_one_kind_the_first_with_a_matching_name_holds() -> None:
    exception = UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 900, "slack:U1")
    usual = UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 100)
    others = [
        UsageLimit(LimitScope.PERSON, LimitPeriod.MONTH, LimitUnit.TOKENS, 1000),
        UsageLimit(LimitScope.CHANNEL, LimitPeriod.DAY, LimitUnit.TOKENS, 500, "slack:T1:C5"),
        UsageLimit(LimitScope.WORKSPACE, LimitPeriod.MONTH, LimitUnit.MONEY, 5),
    ]
    stranger = UsageLimit(LimitScope.CHANNEL, LimitPeriod.MONTH, LimitUnit.TOKENS, 1, "slack:T1:C6")
    assert limits_for([exception, usual, *others, stranger], SPENDER) == (exception, *others)
    assert limits_for([exception, usual], UsageOwner("slack:U2", "slack:T1:C5", "slack:T1")) == (usual,)


def test_a_question_counts_for_the_asker_the_channel_and_the_workspace() -> None:
    where = ConversationKey("api", "slack:T1", "ci", "order-17")
    assert UsageOwner.of(ANA, where) == UsageOwner("test:ana", "api:slack%3AT1:ci", "slack:T1")


def test_money_and_tokens_are_said_as_people_write_them() -> None:
    assert [format_money(each) for each in (0, 4_200, 420_000, 1_234_567_890)] == ["0.00", "0.0042", "0.42", "1,234.56"]
    tokens = LimitStatus(UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.TOKENS, 2_000), 1_203, 0.0)
    money = LimitStatus(
        UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.MONEY, 5_000_000), 5_000_000, 0.0, "EUR"
    )
    assert (tokens.text, tokens.reached) == ("1,203 of 2,000 tokens", False)
    assert (money.text, money.reached) == ("5.00 of 5.00 EUR", True)


def test_a_little_money_is_never_told_as_nothing_nor_as_more_than_it_is() -> None:
    assert [format_money(each) for each in (1, 40, 99, 100, 999_999, 1_999_999)] == [
        "<0.0001",
        "<0.0001",
        "<0.0001",
        "0.0001",
        "0.9999",
        "1.99",
    ]


def reads_as_reached(said: str) -> bool:
    shown, limit = said.replace(",", "").removesuffix(" EUR").split(" of ")
    return not shown.startswith("<") and Decimal(shown) >= Decimal(limit)


@pytest.mark.parametrize(
    ("used", "most", "said"),
    [
        (4_999_999, 5_000_000, "4.99 of 5.00 EUR"),
        (5_009_999, 5_000_000, "5.00 of 5.00 EUR"),
        (999_999, 1_000_000, "0.9999 of 1.00 EUR"),
        (5_001_000, 5_004_000, "5.001 of 5.004 EUR"),
        (5_004_500, 5_004_000, "5.004 of 5.004 EUR"),
        (40, 5_000_000_000_000, "<0.0001 of 5,000,000.00 EUR"),
        (29, 30, "0.00002 of 0.00003 EUR"),
        (40, 100, "<0.0001 of 0.0001 EUR"),
        (0, 50, "0.00000 of 0.00005 EUR"),
    ],
)
def test_a_limit_on_money_reads_as_reached_when_it_is_and_never_before(used: int, most: int, said: str) -> None:
    balance = LimitStatus(UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.MONEY, most), used, 0.0, "EUR")
    assert balance.text == said
    assert balance.reached == reads_as_reached(said)


@given(st.integers(0, 10**13), st.integers(1, 10**13))
def test_every_limit_on_money_reads_as_reached_when_it_is_and_only_then(used: int, most: int) -> None:
    balance = LimitStatus(UsageLimit(LimitScope.PERSON, LimitPeriod.DAY, LimitUnit.MONEY, most), used, 0.0, "EUR")
    assert balance.reached == reads_as_reached(balance.text)
