"""Cost of models at the real terminal: counted, shown, limited, and printed as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.llm import Cut, FakeLanguageModel, Say
from tests.fakes.llm_script import Tokens
from tests.stories.installation import Installation

PRICES = """
currency = "EUR"
[[models]]
model = "*:test-model"
input = 100
cached_input = 10
output = 1_000
"""
LIMITS = '[[limits]]\nper = "person"\nevery = "day"\ntokens = 2_000\n'
ASK = "how are you?"


def write_config(place: Installation, *, prices: str = PRICES, limits: str = LIMITS) -> Installation:
    (place.folder / "config" / "prices.toml").write_text(prices, encoding="utf-8")
    (place.folder / "config" / "limits.toml").write_text(limits, encoding="utf-8")
    return place


async def test_questions_are_counted_shown_in_tokens_and_money_and_refused_past_the_limit(tmp_path: Path) -> None:
    answer = Say("Fine, thank you.", tokens=Tokens(1_000, 200, 400))
    with FakeLanguageModel("openai", rule=lambda _request: answer) as model:
        place = write_config(Installation(tmp_path, {}, model=model))
        async with place.terminal(columns=140) as terminal:
            await terminal.asks("/usage", "no model was asked since", "0 of 2,000 tokens")
            await terminal.asks("hello", "Fine, thank you.")
            await terminal.asks("/usage me")
            await terminal.shows(
                "Your usage · 1 question · 1,200 tokens · 0.2640 EUR", "test-model", "1,200 of 2,000 tokens"
            )
            await terminal.asks("and once more")
            await terminal.until(lambda: terminal.text.count("Fine, thank you.") == 2, "the second answer")
            await terminal.asks("and again")
            await terminal.shows("your limit for today is used up, 2,400 of 2,000 tokens", "at 00:00 UTC, in")
            assert len(model.requests) == 2
            await terminal.asks("/usage all --by person --since 1d")
            await terminal.shows("All workspaces · 2 questions · 2,400 tokens · 0.5280 EUR", "console:owner")
        # What was counted is on disk, and a program reads it.
        said = place.countersign("usage", "all", "--by", "model", "--json")
        assert said.code == 0, said.err
        (row,), data = json.loads(said.out)["rows"], json.loads(said.out)["data"]
        assert list(row.values()) == ["openai:test-model", "2", "2,000", "800", "400", "0.5280 EUR"]
        total = {
            "questions": 2,
            "requests": 2,
            "inputTokens": 2_000,
            "cachedTokens": 800,
            "cacheWrites": 0,
            "outputTokens": 400,
            "reasoningTokens": 0,
            "costs": {"EUR": 0.528},
            "unpriced": 0,
            "estimated": 0,
        }
        assert (data["by"], data["total"], data["limits"]) == ("model", total, [])
        assert data["sums"] == [{"name": "openai:test-model", **total}]
        past = place.chat("-m", "hello")
        assert past.code == 1
        assert "your limit for today is used up" in past.err
        assert len(model.requests) == 2


def test_a_reply_that_broke_off_is_counted_as_far_as_it_came(tmp_path: Path) -> None:
    half, whole = (Say(text, tokens=Tokens(1_000, 200)) for text in ("Half an answer", "Fine, thank you."))
    with FakeLanguageModel("anthropic", Cut(half), whole) as model:
        place = Installation(tmp_path, {}, model=model)
        assert place.chat("-m", "hello").code == 0
        said = json.loads(place.countersign("usage", "all", "--json").out)
    total = said["data"]["total"]
    assert (total["requests"], total["estimated"], total["inputTokens"]) == (2, 1, 2_000)
    assert 200 < total["outputTokens"] < 210
    assert "~2,2" in said["text"]


def test_a_mistake_in_the_prices_is_told_before_anything_starts(tmp_path: Path) -> None:
    place = write_config(
        Installation(tmp_path, {}).afresh(),
        prices='currency = "EUR"\n[[models]]\nmodel = "x"\ninput = "3"\noutput = 1\n',
    )
    for said in (place.chat("-m", "hello"), place.countersign("doctor")):
        assert said.code != 0
        assert "prices.toml, line 4: models.input is not a valid number." in said.err + said.out
    assert not (place.data / "countersign.db").exists()


def test_a_model_without_a_price_is_warned_of_where_money_is_limited(tmp_path: Path) -> None:
    limits = '[[limits]]\nper = "person"\nevery = "day"\nmoney = 5\n'
    place = write_config(Installation(tmp_path, {}), limits=limits)
    assert place.chat("-m", "hello").code == 0
    assert "demo has no price in config/prices.toml: limits on money do not count it" in place.log
    found = [json.loads(line) for line in place.countersign("doctor", "--json").out.splitlines()]
    (doubtful,) = [each for each in found if each["name"] == "prices"]
    assert (doubtful["subject"], doubtful["finding"]) == ("model", "warning")
    assert "demo has no price" in doubtful["detail"]
