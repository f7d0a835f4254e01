"""OAuth sign-in to a server, on real stores.

A sign-in begins in a chat and continues in a browser at an authorization server. That server redirects the browser to a
page of the bot over a real socket.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest

from bot.admin.servers.sign_in import OAuthCallback
from bot.app.web import (
    PlatformUserMessenger,
)
from bot.domain.commands import Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.sign_ins import CALLBACK_PATH, callback_path, client_path
from bot.domain.turns import NoticeTarget
from bot.engine.locales import LocaleResolver
from bot.errors import DatabaseUnavailable, DeliveryFailed
from bot.web.application import application
from bot.web.authentication import LoginThrottle
from bot.web.pages import sign_in_routes
from bot.web.server import serve
from tests.admin.sign_ins import MemorySignIns, SigningOffice
from tests.fakes.oauth import FakeOAuth
from tests.fakes.parts import ANA, HALL
from tests.web.api_server import ADMIN_TOKEN
from tests.web.pages_bot import PUBLIC, PagesBot, Staff, opened_pages, text_of

OPERATOR = Author("console", "op", "Op")

BACK = callback_path("a server that is none")


@dataclass
class Desk(PagesBot):
    """A bot with its pages and its API, and a server that requires a sign-in."""

    oauth: FakeOAuth

    async def begin(self, *options: str) -> str:
        """Add the server, request a sign-in link, and return its address."""
        added = await self.ask(" ".join(("mcp add guarded --url", self.oauth.url, *options)))
        assert ("mcp", "connect", "guarded") in [action.words for action in added.actions], added
        return address_of(await self.ask("mcp connect guarded"))

    async def agree(self, address: str) -> str:
        """Follow a link to the authorization server, consent, and return the path and query of the redirect."""
        brought = await self.oauth.browser(address)
        return f"{brought.pop('to')}?{urlencode(brought)}"


def address_of(reply: Reply) -> str:
    assert not reply.failed, reply
    assert reply.private
    return dict(reply.details)["whole address"]


@asynccontextmanager
async def a_desk(folder: Path, **settings: Any) -> AsyncIterator[Desk]:
    async with FakeOAuth() as oauth:
        hosts = [urlsplit(each).netloc for each in (oauth.url, oauth.issuer)]
        given = {"admin_api_token": ADMIN_TOKEN, "api": True, **settings}
        async with opened_pages(folder, *hosts, **given) as parts:
            yield Desk(*parts, oauth)


@pytest.fixture
async def desk(folder: Path) -> AsyncIterator[Desk]:
    async with a_desk(folder) as desk:
        yield desk


async def test_a_server_is_signed_in_to_in_a_browser_and_everybody_can_use_it(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = await desk.agree(await desk.begin())
    page = await desk.client.get(path)
    assert page.status_code == 200, text_of(page)
    for told in ("The bot is signed in to guarded", "Asked for by Ana", "2 tools", "You can close this window"):
        assert told in text_of(page)
    for name in ("Content-Security-Policy", "Referrer-Policy", "Cache-Control"):
        assert name in page.headers
    assert desk.staff.told == [
        (NoticeTarget(str(HALL), ANA.id), "The bot is signed in to guarded: 2 tools."),
    ]
    shown = dict((await desk.ask("mcp show guarded")).details)
    assert shown["state"] == "connected"
    assert shown["signed in"] == f"just now by {ANA.principal}, at {urlsplit(desk.oauth.issuer).netloc}"
    assert ("signed in", ANA.principal) in [(entry.kind, entry.actor) for entry in await desk.audit()]
    [token] = desk.oauth.tokens
    code = re.search(r"code=([^&]+)", path)
    assert code is not None
    for hidden in (token, code[1]):
        assert hidden not in page.text
        assert hidden not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("bot."))


async def test_a_way_back_is_good_once_and_asking_whether_there_is_a_page_uses_nothing_up(desk: Desk) -> None:
    path = await desk.agree(await desk.begin())
    assert (await desk.client.head(path)).status_code == 204
    assert (await desk.client.get(path)).status_code == 200
    again = await desk.client.get(path)
    assert again.status_code == 404
    assert "This sign-in is not under way" in text_of(again)
    assert len(desk.staff.told) == 1


async def test_a_denied_user_reads_it_and_may_ask_for_another_link(desk: Desk) -> None:
    desk.oauth.denies = True
    page = await desk.client.get(await desk.agree(await desk.begin()))
    assert page.status_code == 403
    assert "it was denied. What to do: ask for another link." in text_of(page)
    desk.oauth.denies = False
    page = await desk.client.get(await desk.agree(address_of(await desk.ask("mcp connect guarded"))))
    assert page.status_code == 200


async def test_an_answer_of_another_issuer_is_not_used(desk: Desk) -> None:
    desk.oauth.sends_issuer = "https://evil.example"
    page = await desk.client.get(await desk.agree(await desk.begin()))
    assert page.status_code == 403
    assert "does not come from the authorization server" in text_of(page)
    assert desk.oauth.tokens == {}


async def test_unknown_states_are_limited_by_address(desk: Desk) -> None:
    for path in ("", "?state=", f"?state={'x' * 43}&code=c", f"?state={'x' * 43}&state={'y' * 43}", "?state=<script>"):
        page = await desk.client.get(f"{BACK}{path}")
        assert page.status_code == 404
        assert "script" not in page.text
    found = [(await desk.client.get(f"{BACK}?state={number:043d}")).status_code for number in range(10)]
    assert found[-1] == 429
    # A valid state is accepted after any number of invalid ones.
    assert (await desk.client.get(await desk.agree(await desk.begin()))).status_code == 200


async def test_a_user_who_lost_the_right_meanwhile_signs_nothing_in(desk: Desk) -> None:
    path = await desk.agree(await desk.begin())
    desk.staff.admins.clear()
    page = await desk.client.get(path)
    assert page.status_code == 403
    assert "you cannot any more" in text_of(page)
    assert desk.oauth.tokens == {}
    desk.staff.admins.add(ANA.id)
    path = await desk.agree(address_of(await desk.ask("mcp connect guarded")))
    desk.staff.away = DeliveryFailed("Slack does not answer.")
    page = await desk.client.get(path)
    assert page.status_code == 403
    assert "It could not be found out whether you may still do this. Slack does not answer." in text_of(page)
    assert desk.oauth.tokens == {}


async def test_a_server_that_is_gone_when_they_come_back_is_not_signed_in_to(desk: Desk) -> None:
    path = await desk.agree(await desk.begin())
    await desk.ask("mcp remove guarded --confirm guarded")
    page = await desk.client.get(path)
    assert page.status_code in (403, 404)
    assert desk.oauth.tokens == {}


async def test_signing_out_takes_the_tokens_away_and_the_server_wants_a_sign_in_again(desk: Desk) -> None:
    await desk.client.get(await desk.agree(await desk.begin()))
    assert not (await desk.ask("mcp secret clear guarded sign-in")).failed
    assert desk.oauth.tokens == {}
    assert ("signed out", ANA.principal) in [(entry.kind, entry.actor) for entry in await desk.audit()]
    assert "signed in" not in dict((await desk.ask("mcp show guarded")).details)
    async with asyncio.timeout(20):
        while dict((await desk.ask("mcp show guarded")).details)["state"] == "connected":
            await asyncio.sleep(0.02)
    assert (await desk.ask("mcp connect guarded")).text.startswith("`guarded` lets the bot in once")


async def test_a_program_gets_the_address_for_its_person_and_they_come_back(desk: Desk) -> None:
    head = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    body: dict[str, Any] = {"serverId": "guarded", "url": desk.oauth.url, "authType": "oauth"}
    body |= {"config": {"scope": "read", "issuer": desk.oauth.issuer}}
    added = await desk.client.post("/api/mcp/servers", json=body, headers=head)
    assert added.status_code == 201, added.text
    assert added.json()["authType"] == "oauth"
    full = (await desk.client.get("/api/mcp/servers/guarded", headers=head)).json()
    pinned = {"scope": "read", "issuer": desk.oauth.issuer}
    assert full["config"] == {"url": desk.oauth.url, **pinned}
    answer = (await desk.client.post("/api/mcp/servers/guarded/connect", headers=head)).json()
    assert (answer["connected"], answer["status"]) == (False, "AUTH_REQUIRED")
    assert answer["signInUrl"].startswith(f"{desk.oauth.issuer}/authorize?")
    page = await desk.client.get(await desk.agree(answer["signInUrl"]))
    assert page.status_code == 200, text_of(page)
    assert "over HTTP" in text_of(page)
    answer = (await desk.client.post("/api/mcp/servers/guarded/connect", headers=head)).json()
    assert (answer["connected"], answer["signInUrl"]) == (True, None)
    changed = {"authType": "client_credentials", "config": {"clientId": "bot", "clientSecret": "hunter2-Zk29vT4x-q7Lm"}}
    full = (await desk.client.put("/api/mcp/servers/guarded", json=changed, headers=head)).json()
    assert full["config"] == {"url": desk.oauth.url, **pinned, "clientId": "bot", "clientSecret": "***"}
    missing = await desk.client.put(
        "/api/mcp/servers/guarded", json={"authType": "api_key", "apiKey": ""}, headers=head
    )
    assert missing.status_code == 422


async def test_the_bot_signs_itself_in_with_client_credentials(desk: Desk) -> None:
    desk.oauth.clients["bot"] = ("hunter2-Zk29vT4x-q7Lm", "client_secret_basic")
    head = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    body = {
        "serverId": "guarded",
        "url": desk.oauth.url,
        "authType": "client_credentials",
        "config": {"clientId": "bot", "clientSecret": "hunter2-Zk29vT4x-q7Lm"},
    }
    added = await desk.client.post("/api/mcp/servers", json=body, headers=head)
    assert added.json()["status"] == "CONNECTED", added.text
    assert "hunter2" not in (await desk.client.get("/api/mcp/servers/guarded", headers=head)).text


async def test_the_bot_publishes_its_client_metadata_at_its_public_address(desk: Desk) -> None:
    desk.oauth.described_clients, desk.oauth.registers = True, False
    await desk.begin()
    [server] = [record.config.id for record in await desk.stores.servers.records()]
    answer = await desk.client.get(client_path(server))
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert said["client_id"] == f"{PUBLIC}{client_path(server)}"
    assert said["redirect_uris"] == [f"{PUBLIC}{callback_path(server)}"]
    assert said["token_endpoint_auth_method"] == "none"
    page = await desk.client.get(await desk.agree(address_of(await desk.ask("mcp connect guarded"))))
    assert page.status_code == 200
    assert {form["client_id"] for form in desk.oauth.forms("/token")} == {said["client_id"]}


async def test_at_an_address_of_this_machine_it_does_not_and_people_can_sign_in(folder: Path) -> None:
    async with a_desk(folder, public_url="http://localhost:8080") as desk:
        assert (await desk.client.get(client_path("x"))).status_code == 401
        address = await desk.begin()
        assert (await desk.client.get(await desk.agree(address))).status_code == 200
        [asked] = desk.oauth.forms("/register")
        assert f"http://localhost:8080{CALLBACK_PATH}" in asked["redirect_uris"]


@pytest.mark.parametrize("address", [None, "http://bot.example.com"])
async def test_without_a_safe_public_address_no_sign_in_is_offered(folder: Path, address: str | None) -> None:
    async with a_desk(folder, public_url=address) as desk:
        await desk.ask(f"mcp add guarded --url {desk.oauth.url} --auth oauth")
        reply = await desk.ask("mcp connect guarded")
        assert reply.failed
        assert "PUBLIC_URL" in repr(reply.details)
        assert (await desk.client.get(f"{BACK}?state={'x' * 43}")).status_code == 401


async def test_the_operator_signs_in_to_shared_servers_from_a_shell(folder: Path) -> None:
    async with a_desk(folder, operator=OPERATOR.principal) as desk:
        operator, shell = Member(OPERATOR, platform_admin=True), ConversationKey("console", "local", "op", "1")
        added = await desk.ask(f"mcp add guarded --url {desk.oauth.url}", operator, shell)
        assert not added.failed
        refused = await desk.ask("mcp connect guarded")
        assert refused.failed
        assert "Only the operator" in refused.text
        address = address_of(await desk.ask("mcp connect guarded", operator, shell))
        page = await desk.client.get(await desk.agree(address))
        assert page.status_code == 200
        assert "at the bot's own machine" in text_of(page)
        assert desk.staff.asked == []


# The page alone


@asynccontextmanager
async def a_page(sign_ins: MemorySignIns, attempts: LoginThrottle | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    office = SigningOffice(sign_ins=sign_ins)
    await office.ask("mcp add jira --url https://jira.example/mcp --title <i>Desk</i>")
    server = next(iter(office.store.entries))
    await sign_ins.begin(server, Author("test", "ana", "<b>Ana"), HALL)
    routes = sign_in_routes(
        OAuthCallback(office.parts, sign_ins, PlatformUserMessenger([Staff()], LocaleResolver())),
        PUBLIC,
        attempts=attempts,
    )
    async with (
        serve(application(pages=routes), "127.0.0.1", 0) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        yield client


async def test_names_are_text_and_no_markup() -> None:
    async with a_page(MemorySignIns()) as client:
        page = await client.get(f"{BACK}?state={1:043d}&code=c")
    assert page.status_code == 200
    assert "&lt;i&gt;Desk&lt;/i&gt;" in page.text
    assert "<b>Ana" in unescape(page.text)
    assert "<i>" not in page.text


async def test_a_database_that_is_away_is_said_without_saying_where_it_is() -> None:
    class Away(MemorySignIns):
        async def complete(self, *_: Any, **__: Any) -> Any:
            raise DatabaseUnavailable("No database at db.internal:5432.", "start it")

    async with a_page(Away()) as client:
        page = await client.get(f"{BACK}?state={1:043d}&code=c")
    assert page.status_code == 503
    assert "db.internal" not in page.text
    assert "cannot reach its own database" in text_of(page)


async def test_a_sign_in_comes_back_to_the_console_only_if_it_began_there(desk: Desk) -> None:
    cookies = {"Cookie": "countersign-session=any"}
    page = await desk.client.get(await desk.agree(await desk.begin()), headers=cookies)
    assert page.status_code == 200
    await desk.ask("mcp secret clear guarded sign-in")
    page = await desk.client.get(
        await desk.agree(address_of(await desk.ask("mcp connect guarded", on_page=True))), headers=cookies
    )
    assert page.status_code == 303
    assert page.headers["location"] == "/console/servers/guarded"
