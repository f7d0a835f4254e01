"""Estimated strength of secrets, and rejected ones."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.secret_detection import LEAST_OPERATOR_BITS, bits_of, weakness

_LETTERS = string.ascii_letters + string.digits


@pytest.mark.parametrize(
    "name",
    [
        "project", "create_issue", "properties", "additionalProperties", "search_repositories", "get_file_contents",
        "create_pull_request", "listIssues", "application/json", "Type approve", "a master password",
    ],
)  # fmt: skip
def test_names_and_words_are_weak(name: str) -> None:
    assert weakness(name) == "a word, or a few words in a row"


@pytest.mark.parametrize("number", ["8080", "123456", "83749261", "8374926150", "2026-11-23", "1234567890123456"])
def test_numbers_of_few_digits_are_weak(number: str) -> None:
    assert weakness(number) == "a number of few digits"


@pytest.mark.parametrize("short", ["", "x7Kp", "Zk29vT", "!!"])
def test_short_values_are_weak(short: str) -> None:
    assert weakness(short) == "too short"


@pytest.mark.parametrize(
    "password",
    ["hunter22", "passw0rd", "password123!", "Summer2026!", "Tr0ub4dor&3", "Ab1!Ab1!Ab1!", "a" * 40, "AAAA" * 11],
)
def test_passwords_that_follow_a_pattern_are_weak(password: str) -> None:
    assert weakness(password)


@pytest.mark.parametrize(
    "token",
    [
        "gho_16C7e42F292c6912E7710c838347Ae178B4a",
        "5f0c9a3e-7d41-4b8e-9c55-0a1b2c3d4e5f",
        "mfzxgylsmvxgc43tnfxw4z3jnzsxe2lo",
        "ya29.a0AfH6SMBx-9kT4wQ2xLm",
        "xoxb-1234-5678-abcdefghijkl",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "correct horse battery staple",
        "93740281736514",
    ],
)
def test_tokens_and_passphrases_are_strong(token: str) -> None:
    assert not weakness(token)


@pytest.mark.parametrize(
    "made", [lambda: secrets.token_hex(16), lambda: secrets.token_urlsafe(24), lambda: secrets.token_urlsafe(32)]
)
def test_what_is_made_at_random_is_strong_enough_for_an_operator(made: Callable[[], str]) -> None:
    assert [each for each in (made() for _ in range(500)) if weakness(each, LEAST_OPERATOR_BITS)] == []


@given(st.text(max_size=600))
def test_every_text_has_a_strength(text: str) -> None:
    assert bits_of(text) >= 0
    assert json.dumps(weakness(text))


@given(st.text(alphabet=_LETTERS, min_size=1, max_size=40), st.integers(4, 40))
def test_repeating_a_secret_makes_it_no_stronger(piece: str, times: int) -> None:
    repeated = piece[:16] * times
    assert bits_of(repeated) <= bits_of(piece[:16] * 4) + 12
