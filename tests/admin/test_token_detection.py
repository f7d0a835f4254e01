"""Detection of API tokens in text."""

from __future__ import annotations

import base64
import random
import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.admin.servers.token_detection import known_token, looks_like_token

LETTERS = string.ascii_letters + string.digits


def chance(seed: int, length: int, letters: str = LETTERS) -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


KNOWN = [
    "ghp_" + chance(1, 36),
    "github_pat_" + chance(2, 60),
    "glpat-" + chance(3, 20),
    "xoxb-123456789012-" + chance(4, 24),
    "xapp-1-" + chance(5, 30),
    "sk-" + chance(6, 48),
    "sk-ant-api03-" + chance(7, 60),
    "AKIA" + chance(8, 16, string.ascii_uppercase + string.digits),
    "AIza" + chance(9, 35),
    "npm_" + chance(10, 36),
    "hf_" + chance(11, 34),
    "sk_live_" + chance(12, 24),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + chance(13, 43),
    "Bearer abcdefgh12345678",
    "basic dXNlcjpwYXNzd29yZA==",
    "https://user:hunter2@example.com/mcp",
    "https://hooks.slack.com/services/T000/B000/XXXXXXXX",
    "-----BEGIN RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("token", KNOWN)
def test_a_token_with_a_known_prefix_is_found_anywhere(token: str) -> None:
    for text in (token, f"Authorization={token}", f"--header=X={token}", f"  {token}\n", f'{{"key": "{token}"}}'):
        assert known_token(text)
        assert looks_like_token(text)


@given(st.integers(0, 2**64), st.integers(32, 90))
def test_a_long_string_of_chance_is_one(seed: int, length: int) -> None:
    generator = random.Random(seed)
    token = base64.urlsafe_b64encode(generator.randbytes(length)).decode().rstrip("=")
    assert looks_like_token(token)
    assert looks_like_token(f"https://example.com/mcp?x={token}")
    assert looks_like_token(generator.randbytes(length // 2).hex())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "github",
        "https://api.githubcopilot.com/mcp/",
        "https://mcp.example.com:8443/v1/servers/production/mcp?region=eu-west-1&page=2",
        "http://localhost:8080/a-rather-long-path-with-many-words-in-it-and-the-number-12/mcp",
        "env:GITHUB_PERSONAL_ACCESS_TOKEN",
        "Authorization=env:JIRA_TOKEN_FOR_PRODUCTION_2",
        "file:/run/secrets/jira_api_token",
        "/usr/local/lib/python3.11/site-packages/mcp_servers/notes/__main__.py",
        "@modelcontextprotocol/server-filesystem@2025.11.25",
        "ana.maria.gonzalez-lopez@a-very-long-company-name.example.com",
        "MyVeryLongClassNameForTheServerOfTheNotes2",
        "the_quick_brown_fox_jumps_over_the_lazy_dog_1234",
        "2026-11-22T10:00:00.000Z",
        "+49 170 1234567890123456789012345678901234",
        "slack:U024BE7LH",
        "discord-role:123456789012345678",
        "anthropic:claude-sonnet-4-5-20250929",
        "Search for basic authentication in the handbook",
        "a bearer token is needed",
        "test:w:hall:1731234567.123456",
        "sk-learn",
    ],
)
def test_ordinary_texts_are_no_tokens(text: str) -> None:
    assert not looks_like_token(text)


@given(st.uuids())
def test_a_uuid_is_none(value: uuid.UUID) -> None:
    assert not looks_like_token(str(value))
    assert not looks_like_token(f"https://example.com/servers/{value}/mcp")


@given(
    st.lists(st.sampled_from(["notes", "github", "search", "v2", "eu", "west", "prod", "mcp"]), min_size=1, max_size=9)
)
def test_a_slug_and_a_path_of_words_are_none(words: list[str]) -> None:
    for between in ("-", "_", "/", ".", " "):
        assert not looks_like_token(between.join(words))


@given(st.text(max_size=400))
def test_any_text_is_looked_at_without_an_error(text: str) -> None:
    assert looks_like_token(text) in (True, False)
