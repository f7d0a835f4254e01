"""Estimated tokens of a request."""

from __future__ import annotations

import pytest

from bot.domain.completions import Capabilities, ModelLimits
from bot.domain.messages import (
    FilePart,
    ImagePart,
    Message,
    MessageRole,
    TextPart,
    ToolCall,
    ToolResult,
    assistant,
    user,
)
from bot.engine.usage import Estimates, estimate_messages, estimate_text, estimate_tools, truncate_to_tokens
from tests.fakes.parts import tool

WINDOW = Capabilities(context_tokens=100_000)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("four" * 100, 100), ("é" * 150, 100), ("語" * 150, 100)])
def test_text_is_counted_by_its_letters(text: str, tokens: float) -> None:
    assert estimate_text(text) == pytest.approx(tokens)


def test_everything_in_a_message_counts() -> None:
    parts = (
        TextPart("a" * 400),
        ImagePart(b"", "image/png"),
        FilePart(b"x" * 5_000, "application/pdf", "a.pdf"),
        ToolCall("c", "s__t", {"text": "a" * 400}),
        ToolResult("c", (TextPart("a" * 400),)),
        ToolResult("c", (), structured={"text": "a" * 400}),
    )
    sizes = [estimate_messages([Message(MessageRole.USER, (part,))]) for part in parts]
    assert all(size > 95 for size in sizes)
    assert estimate_messages([Message(MessageRole.USER, parts)]) < sum(sizes)
    assert estimate_messages([user("a"), assistant("b")]) > estimate_messages([user("a")])
    assert estimate_tools([tool("s__t", description="a" * 400)]) > 100


def test_the_count_of_a_service_corrects_the_estimate() -> None:
    estimates = Estimates()
    for _ in range(20):
        estimates.record_count("m", 1_000, 2_000)
    assert estimates.tokens("m", 1_000) == pytest.approx(2_000, rel=0.01)
    assert estimates.tokens("other", 1_000) == 1_000


@pytest.mark.parametrize(("estimate", "counted"), [(1_000, 0), (10, 900)])
def test_a_service_that_does_not_count_and_a_tiny_request_say_nothing(estimate: float, counted: int) -> None:
    estimates = Estimates()
    estimates.record_count("m", estimate, counted)
    assert estimates.tokens("m", 1_000) == 1_000


@pytest.mark.parametrize("counted", [-5, 1, 400])
def test_a_service_that_cuts_requests_or_counts_a_part_of_them_lets_none_grow(counted: int) -> None:
    estimates = Estimates()
    for _ in range(50):
        estimates.record_count("m", 1_000, counted)
    assert estimates.tokens("m", 1_000) == 1_000


def test_an_estimate_and_its_tokens_are_turned_into_each_other() -> None:
    estimates = Estimates()
    estimates.record_count("m", 1_000, 2_000)
    assert estimates.estimate("m", estimates.tokens("m", 10_000)) == pytest.approx(10_000)


@pytest.mark.parametrize("text", ["word " * 500, "語" * 500, "語" * 100 + "word " * 500, "word " * 100 + "語" * 500])
@pytest.mark.parametrize("tokens", [0, 1, 99.5, 10_000])
def test_the_beginning_of_a_text_takes_no_more_than_it_may(text: str, tokens: float) -> None:
    cut = truncate_to_tokens(text, tokens)
    assert text.startswith(cut)
    assert estimate_text(cut) <= tokens
    assert cut == text or estimate_text(cut) > 0.5 * tokens - 1


def test_a_count_that_makes_no_sense_moves_it_only_so_far() -> None:
    estimates = Estimates()
    for _ in range(50):
        estimates.record_count("m", 1_000, 10**9)
    assert estimates.tokens("m", 1_000) <= 4_000


def test_a_request_may_take_the_window_except_for_the_answer() -> None:
    assert Estimates().room("m", WINDOW, ModelLimits(max_tokens=10_000)) == 85_000
    assert Estimates().room("m", Capabilities(context_tokens=4_000), ModelLimits(max_tokens=10_000)) == 1_800


def test_a_length_that_was_too_long_is_tried_again_later() -> None:
    estimates = Estimates()
    estimates.record_rejection("m", 20_000)
    assert estimates.room("m", WINDOW, ModelLimits()) == 18_000
    for _ in range(200):
        estimates.record_count("m", 1_000, 1_000)
    assert estimates.room("m", WINDOW, ModelLimits()) > 80_000
