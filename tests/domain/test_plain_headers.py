"""Which headers of a server are shown, and which are kept as secrets."""

from __future__ import annotations

import pytest

from bot.domain.secret_detection import is_plain_header


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
