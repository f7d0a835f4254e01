"""Detection of secrets in text."""

from __future__ import annotations

from time import thread_time

import pytest

from bot.domain.secret_detection import MASK, asks_for_secret, is_secret_name, looks_like_secret, redact, secret_shapes


@pytest.mark.parametrize(
    "name",
    ["password", "db_passwd", "api_key", "apiKey", "X-Api-Key", "accessToken", "Authorization", "client_secret", "otp"],
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
def test_what_stands_behind_the_word_is_masked_with_it(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert looks_like_secret(text)


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
def test_what_may_be_a_secret_is_one_on_a_card_too(text: str) -> None:
    assert [(start, end) for start, end, _ in secret_shapes(text)] == [(0, len(text))]


@pytest.mark.parametrize(
    "text", ["password" * 8_000, "a" * 60_000, "-----BEGIN " * 6_000, "eyJ" * 20_000, "x:y@" * 15_000]
)
def test_no_text_takes_long(text: str) -> None:
    began = thread_time()
    redact(text)
    assert thread_time() - began < 2
