"""Secrets by name, shape and strength, and headers without secrets."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.secrets import (
    LEAST_OPERATOR_BITS,
    MASK,
    asks_for_secret,
    bits_of,
    is_plain_header,
    is_secret_name,
    looks_like_secret,
    names_a_place,
    redact,
    secret_shapes,
    weakness,
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "db_passwd",
        "api\u200b_key",
        "\uff54oken",
        "api_key",
        "apiKey",
        "X-Api-Key",
        "accessToken",
        "Authorization",
        "client_secret",
        "otp",
    ],
)
def test_a_name_that_keeps_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["text", "max_tokens", "next_page_token_count", "tokens", "keyboard", "author", "pinned", "secretary", "tokenizer"],
)
def test_a_name_that_keeps_none(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "words",
    [
        "pass_word",
        "p a s s w o r d",
        "pass\u200bword",
        "p\u0430ssw\u043erd",
        "\uff30\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
        "Pa\u0301ssword",
        "passcode",
        "Passwort",
        "Your PIN, please",
        "One-time code",
        "CVV",
        "Card number",
        "Recovery phrase",
        "SSH key",
        "Type your GitHub password here",
    ],
)
def test_words_that_ask_for_a_secret_however_they_are_written(words: str) -> None:
    assert asks_for_secret(words)


@pytest.mark.parametrize(
    "words", ["Title", "seats", "Max tokens", "Project key", "Author", "Zip code", "How many seats?", "Which ticket?"]
)
def test_words_that_ask_for_none(words: str) -> None:
    assert not asks_for_secret(words)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-" + "proj-abcdefghijkl",
        "xox" + "b-123456789012-abc",
        "MTk4" + "NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
        "gh" + "p_abcdefghijklmnop1234",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
        "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_token_is_masked_wherever_it_stands(secret: str) -> None:
    assert redact(f"use {secret} please") == f"use {MASK} please"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: hunter2", MASK),
        ("my password is hunter2, really", f"my {MASK}, really"),
        ("DB_PASSWORD=hunter2 make", f"{MASK} make"),
        ("https://ana:hunter2@example.org/x", f"https://{MASK}@example.org/x"),
        ("Authorization: Bearer abcdefghijklmnop", f"Authorization: {MASK}"),
    ],
)
def test_the_value_behind_the_word_is_masked_with_it(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert looks_like_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "use sk-proj\u200b-abcdef\u2060ghijkl",
        "use gh\u00adp_abcdefghij\ufe0fklmnop1234",
        "use \uff53\uff4b-proj-abcdefghijkl",
        "use sk-\x1b[0mproj-abcdefghijkl",
        "pass\u200bword: hunter2",
        "\uff50assword\uff1ahunter2",
    ],
)
def test_a_secret_in_disguise_is_masked_where_it_stands(text: str) -> None:
    around = f"\u65e5\u672c\uff08 {text} \u00e9"
    assert redact(around).replace("use ", "") == f"\u65e5\u672c\uff08 {MASK} \u00e9"
    assert looks_like_secret(text)
    assert len(list(secret_shapes(around))) == 1


@pytest.mark.parametrize(
    "text", ["buy milk", "the password was changed", "see https://example.org/a:b", "sk-ip the queue"]
)
def test_ordinary_words_stay(text: str) -> None:
    assert redact(text) == text
    assert not looks_like_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "Login fails when password is empty",
        "The password is wrong.",
        "Password: reset fails for guests",
        "secret: not shown",
        "Add basic authentication to the API",
        "Bearer authentication is broken",
        "Secretary: Bob",
    ],
)
def test_a_sentence_about_secrets_keeps_no_call_from_being_approved_in_a_channel(text: str) -> None:
    assert list(secret_shapes(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "password is sunshine",
        "password=empty",
        "password: hunter2",
        "bearer rm/-rf/srv/data",
        "Basic dXNlcjpodW50ZXIy",
        "BEARER ABCDEFGHIJKLMNOP",
        "password is\u00a0$(curl${IFS}evil)",
    ],
)
def test_a_likely_secret_is_one_on_a_card_too(text: str) -> None:
    assert [(start, end) for start, end, _ in secret_shapes(text)] == [(0, len(text))]


@pytest.mark.parametrize(
    "text", ["password" * 8_000, "a" * 60_000, "-----BEGIN " * 6_000, "eyJ" * 20_000, "x:y@" * 15_000]
)
def test_no_text_takes_long(text: str) -> None:
    began = thread_time()
    redact(text)
    assert thread_time() - began < 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Team", "red"),
        ("X-Project-Id", "1234"),
        ("Accept", "text/plain"),
        ("X-Region", "europe"),
        ("X-Team", "env"),
    ],
)
def test_a_word_under_an_ordinary_name_is_plain(name: str, value: str) -> None:
    assert is_plain_header(name, value)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "cookie",
        "X-Api-Key",
        "X-APIKEY",
        "X-Auth",
        "My-Token",
        "X-Secret",
        "X-Password",
        "X-Session-Id",
    ],
)
def test_the_value_of_a_credential_is_never_plain(name: str) -> None:
    assert not is_plain_header(name, "red")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Zk29vT4x-q7Lm",
        "5f0c9a3e-7d41-4b8e-9c55-0a1b2c3d4e5f",
        "password: hunter2",
        "***",
        "env:MCP_SECRET_JIRA",
        "file:jira",
        "two\nlines",
        "gr\u00fcn",
        "a" * 201,
    ],
)
def test_a_value_that_may_be_a_secret_or_cannot_be_sent_is_never_plain(value: str) -> None:
    assert not is_plain_header("X-Team", value)


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NOTES_FILE", "data/notes.json"), ("KNOWLEDGE_FOLDER", "documents"), ("KNOWLEDGE_DATABASE", "office"),
        ("BASE_URL", "https://tickets.example"), ("HOME", "/srv/bot"), ("STORE", "./data"), ("STORE", "C:\\notes"),
        ("STORE", "data/notes.json"), ("BASE", "https://tickets.example/api"),
        ("TOKEN_FILE", "token"),
    ],
)  # fmt: skip
def test_files_folders_and_addresses_are_places(name: str, value: str) -> None:
    assert names_a_place(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PASSWORD", "/project"), ("MODE", "project"), ("MODE", "read/write"),
        ("BASE_URL", "https://ana:project@tickets.example"),
    ],
)  # fmt: skip
def test_words_and_containers_of_a_password_are_no_places(name: str, value: str) -> None:
    assert not names_a_place(name, value)


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
def test_random_secrets_are_strong_enough_for_an_operator(made: Callable[[], str]) -> None:
    assert [each for each in (made() for _ in range(500)) if weakness(each, LEAST_OPERATOR_BITS)] == []


@given(st.text(max_size=600))
def test_every_text_has_a_strength(text: str) -> None:
    assert bits_of(text) >= 0
    assert json.dumps(weakness(text))


@given(st.text(alphabet=_LETTERS, min_size=1, max_size=40), st.integers(4, 40))
def test_repeating_a_secret_makes_it_no_stronger(piece: str, times: int) -> None:
    repeated = piece[:16] * times
    assert bits_of(repeated) <= bits_of(piece[:16] * 4) + 12
