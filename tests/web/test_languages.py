"""Language of pages and API errors: the language that the request accepts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import HTMLResponse

from bot.admin.servers.secrets import (
    AccessCheckFailed,
    Denied,
    SecretPrompt,
    SecretRejected,
    SecretSaved,
    ServerChanged,
)
from bot.admin.servers.secrets import Outcome as SecretOutcome
from bot.admin.servers.sign_in import Outcome as SignInOutcome
from bot.admin.servers.sign_in import SignInCompleted, SignInRejected
from bot.domain.api_clients import ApiRole
from bot.domain.conversations import Author
from bot.domain.secrets import SecretLink
from bot.i18n import use_language
from bot.web import pages
from tests.fakes.parts import HALL
from tests.i18n.pseudo_language import untranslated_words
from tests.web.api_server import Api, opened_api
from tests.web.test_validation_errors import BODIES

NOW = 1_793_000_000.0
UNKNOWN_LINK = "/secret/" + "a" * 43
PUBLIC = "https://bot.example.com"
PLATFORMS = ("slack", "discord", "api", "console")


def prompt(platform: str = "slack") -> SecretPrompt:
    link = SecretLink("1", "auth", Author(platform, "7", "123"), HALL, NOW + 90)
    return SecretPrompt(link, "123", "456", "789", "127.0.0.1", 1)


def signed_in(platform: str, problem: str = "") -> SignInCompleted:
    return SignInCompleted("123", "456", Author(platform, "7", "123"), 3, problem)


SECRET_OUTCOMES: dict[str, SecretPrompt | SecretOutcome] = {
    **{f"form for {platform}": prompt(platform) for platform in PLATFORMS},
    "invalid secret": SecretRejected(prompt(), "12"),
    "another server": ServerChanged(prompt()),
    "saved secret": SecretSaved(prompt()),
    "no right": Denied("12"),
    "no check": AccessCheckFailed("12"),
    "no link": None,
}
SIGN_INS: dict[str, SignInOutcome] = {
    **{f"signed in, for {platform}": signed_in(platform) for platform in PLATFORMS},
    "signed in and not connected": signed_in("slack", "12"),
    "rejected sign-in": SignInRejected("12", "34"),
    "rejected sign-in without a fix": SignInRejected("12"),
    "no sign-in": None,
}
PAGES: dict[str, Callable[[], HTMLResponse]] = {
    **{name: partial(pages.secret_page, outcome, NOW) for name, outcome in SECRET_OUTCOMES.items()},
    "too many links": partial(pages.secret_page, None, NOW, 60),
    **{name: partial(pages.sign_in_page, outcome) for name, outcome in SIGN_INS.items()},
    "too many sign-ins": partial(pages.sign_in_page, None, 60),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_in_one_language(pseudo_language: str, name: str) -> None:
    with use_language(pseudo_language):
        html = bytes(PAGES[name]().body).decode()
    assert f'<html lang="{pseudo_language}">' in html
    text = unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL))
    assert untranslated_words(text.replace("Countersign", "")) == []


async def test_a_page_is_in_the_language_that_the_browser_prefers(folder: Path) -> None:
    async with opened_api(folder, public_url=PUBLIC) as api:
        for accepted, language, words in (
            ("ja,en;q=0.9", "ja", "このリンクは無効です"),
            ("tlh, ja-JP;q=0.5", "ja", "このリンクは無効です"),
            ("en-GB,ja;q=0.9", "en", "This link is not good"),
            ("tlh", "en", "This link is not good"),
        ):
            page = await api.client.get(UNKNOWN_LINK, headers={"Accept-Language": accepted})
            assert page.status_code == 404
            assert f'<html lang="{language}">' in page.text
            assert words in page.text
            assert page.headers["content-language"] == language
            assert "Accept-Language" in page.headers["vary"]


async def test_a_browser_that_prefers_no_installed_language_gets_that_of_the_settings(folder: Path) -> None:
    async with opened_api(folder, public_url=PUBLIC, language="ja") as api:
        for headers in ({}, {"Accept-Language": "tlh"}):
            assert '<html lang="ja">' in (await api.client.get(UNKNOWN_LINK, headers=headers)).text
        assert '<html lang="en">' in (await api.client.get(UNKNOWN_LINK, headers={"Accept-Language": "en"})).text


async def test_every_error_of_the_api_is_in_the_language_of_the_request(
    api: Api, pseudo_language: str, subtests: pytest.Subtests
) -> None:
    member = await api.token("night", ApiRole.MEMBER)
    elsewhere = await api.token("other", ApiRole.ADMIN, "slack:T2")
    requests: list[tuple[int, str, str, dict[str, Any]]] = [
        (401, "GET", "/api/conversations", {"token": None}),
        (403, "GET", "/api/mcp/servers", {"token": member}),
        (403, "GET", "/api/workspaces/slack:T1/mcp-servers", {"token": elsewhere}),
        (403, "GET", "/api/usage?of=all", {"token": member}),
        (404, "GET", "/api/conversation", {}),
        (404, "GET", "/api/conversations/123", {}),
        (404, "GET", "/api/responses/123", {}),
        (404, "GET", "/api/agents/123", {}),
        (405, "DELETE", "/api/conversations", {}),
        (415, "POST", "/api/conversations", {"content": b"12", "headers": {"Content-Type": "text/plain"}}),
        (400, "POST", "/api/conversations", {"content": b"{", "headers": {"Content-Type": "application/json"}}),
        (
            400,
            "POST",
            "/api/conversations",
            {"content": b'{"1":2,"1":3}', "headers": {"Content-Type": "application/json"}},
        ),
        (422, "GET", "/api/conversations?page=1000&size=100", {}),
        (422, "GET", "/api/conversations?page=x&size=101", {}),
        (422, "GET", "/api/mcp/tool-calls?since=12345678", {}),
        (422, "DELETE", "/api/mcp/approval-policies", {}),
        (
            422,
            "PUT",
            "/api/mcp/approval-policies",
            {"json": {"serverId": "*", "toolName": "*", "policy": "ASK_USER", "terms": {"quorum": 0}}},
        ),
        (422, "POST", "/api/responses/stream", {"json": {"payload": {}}}),
        (422, "POST", "/api/responses/stream", {"json": {"payload": {"input": ""}}}),
        (409, "POST", "/api/mcp/servers", {"json": {"name": "fake", "url": "https://127.0.0.1"}}),
        *((422, "POST", path, {"json": body}) for path, body, _wrong in BODIES),
    ]
    for status, method, path, given in requests:
        with subtests.test(path, **given):
            headers = {"Accept-Language": pseudo_language, **given.pop("headers", {})}
            answer = await api.request(method, path, headers=headers, **given)
            assert answer.status_code == status, answer.text
            assert answer.headers["content-language"] == pseudo_language
            error = answer.json()["error"]
            for text in (error["message"], error["fix"], *error["fields"].values()):
                assert untranslated_words(text) == []


async def test_a_command_answers_in_the_language_of_the_request_with_keys_in_english(api: Api) -> None:
    headers = {"Accept-Language": "ja"}
    listed = (await api.post("/api/commands", headers=headers, json={"command": "mcp", "words": ["list"]})).json()
    assert listed["text"].startswith("MCPサーバー")
    assert {"server", "tools", "policy"} <= listed["rows"][0].keys()
    shown = (
        await api.post("/api/commands", headers=headers, json={"command": "mcp", "words": ["show", "fake"]})
    ).json()
    assert shown["details"]["state"] == "接続済み"
    assert ["state", "接続済み"] in shown["facts"]
    assert {name for name, _text in shown["facts"]} == shown["details"].keys()
