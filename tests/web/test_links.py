"""One-time links: requested in a chat, opened by a browser over a real socket, used on real stores."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bot.admin.servers.secrets import Denied, SecretEntry
from bot.app.web import PlatformUserMessenger, build_link_service
from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.commands import Reply
from bot.domain.locales import Locale
from bot.domain.servers import AUTH_SECRET
from bot.domain.turns import NoticeTarget
from bot.engine.locales import LocaleResolver
from bot.errors import Conflict, DatabaseUnavailable, DeliveryFailed, SecretUnavailable
from bot.settings import read_settings
from bot.web.application import application
from bot.web.pages import secret_routes
from bot.web.server import serve
from tests.fakes.mcp.endpoint import FakeEndpoint
from tests.fakes.parts import ANA, HALL
from tests.web.pages_bot import PUBLIC, PagesBot, opened_pages, text_of

SECRET = "s3cret-of-the-ticket-desk"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass
class Desk(PagesBot):
    """A bot with its pages, and a server that needs a secret."""

    endpoint: FakeEndpoint

    async def add(self, *more: str) -> str:
        """Add a server that needs a secret and return the path of the reply's link."""
        signing_in = () if any(each.startswith("--auth") for each in more) else ("--auth api_key",)
        words = " ".join(("mcp add tickets --url", self.endpoint.url, *signing_in, *more))
        return path_of(await self.ask(words))

    async def open(self, path: str, method: str = "GET") -> httpx2.Response:
        return await self.client.request(method, path)

    async def enter(self, path: str, secret: str = SECRET, version: str = "") -> httpx2.Response:
        """Fill in and send the form of the page."""
        version = version or version_of(await self.open(path))
        return await self.client.post(path, data={"version": version, "secret": secret})

    async def secrets(self) -> dict[str, str]:
        """Return all stored secrets."""
        servers = self.stores.servers
        found: dict[str, str] = {}
        for record in await servers.records():
            found.update(await servers.read_secrets(record))
        return found


def path_of(reply: Reply) -> str:
    """Return the path of the link in a reply."""
    assert not reply.failed, reply
    match = re.search(re.escape(PUBLIC) + r"(/secret/[A-Za-z0-9_-]{43})\)", reply.text)
    assert match is not None, reply.text
    return match[1]


def version_of(page: httpx2.Response) -> str:
    match = re.search(r'name="version" value="(\d+)"', page.text)
    assert match is not None, page.text
    return match[1]


@asynccontextmanager
async def a_desk(folder: Path, **settings: Any) -> AsyncIterator[Desk]:
    async with FakeEndpoint() as endpoint:
        endpoint.speak_modern("lookup")
        async with opened_pages(folder, f"127.0.0.1:{endpoint.port}", **settings) as parts:
            yield Desk(*parts, endpoint)


@pytest.fixture
async def desk(folder: Path) -> AsyncIterator[Desk]:
    async with a_desk(folder) as desk:
        yield desk


async def test_the_server_is_signed_in_to_with_a_secret_entered_behind_a_link(desk: Desk) -> None:
    reply = await desk.ask(f"mcp add tickets --url {desk.endpoint.url} --auth api_key")
    assert reply.private
    assert "waits for the secret it signs in with" in reply.text
    assert "works once, for 10 minutes, for you" in reply.text
    waiting = await desk.ask("mcp show tickets")
    assert "is not set" in str(waiting.details)
    assert "/mcp secret set tickets auth" in str(waiting.details)

    page = await desk.open(path_of(reply))
    assert page.status_code == 200
    for told in ("API key for tickets", "made for Ana", desk.endpoint.url, "in 10 minutes"):
        assert told in text_of(page)
    done = await desk.enter(path_of(reply))
    assert done.status_code == 200
    assert "The secret is stored" in text_of(done)
    assert "/mcp verify tickets" in text_of(done)

    assert await desk.secrets() == {AUTH_SECRET: SECRET}
    assert (await desk.ask("mcp verify tickets")).text.startswith("`tickets` is verified.")
    assert {headers["authorization"] for headers, _ in desk.endpoint.seen} == {f"Bearer {SECRET}"}
    [(audience, told)] = desk.staff.told
    assert (audience, told) == (
        NoticeTarget(str(HALL), ANA.id),
        "The secret auth of tickets is set. /mcp verify tickets says whether it works.",
    )
    entry = (await desk.audit())[0]
    assert (entry.kind, entry.actor) == ("changed server", ANA.principal)
    assert entry.facts["secrets_set"] == [AUTH_SECRET]
    assert entry.facts["changes"] == {"secret auth": "stored → stored, by a one-time link"}
    assert SECRET not in repr(await desk.audit())


async def test_the_page_and_the_message_are_in_the_time_zone_and_language_of_the_links_user(desk: Desk) -> None:
    path = await desk.add()
    desk.staff.locale = Locale("ja-JP", "Asia/Tokyo")
    assert re.search(r"\b\d\d:\d\d Asia/Tokyo, in 10 minutes", text_of(await desk.open(path)))
    await desk.enter(path)
    [(_, told)] = desk.staff.told
    assert "シークレット" in told


async def test_looking_uses_nothing_up_however_often_previews_look(desk: Desk) -> None:
    path = await desk.add()
    for _ in range(5):
        head = await desk.open(path, "HEAD")
        assert (head.status_code, head.content) == (200, b"")
        assert (await desk.open(path)).status_code == 200
    assert (await desk.open(path, "DELETE")).status_code == 405
    assert desk.staff.asked == []
    assert (await desk.enter(path)).status_code == 200


async def test_a_page_may_load_nothing_be_kept_nowhere_and_stand_in_no_other(desk: Desk) -> None:
    path = await desk.add()
    for page in (await desk.open(path), await desk.enter(path, ""), await desk.enter(path), await desk.open(path)):
        policy = dict(each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";"))
        style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
        assert style is not None
        hashed = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        assert policy == {
            "default-src": "'none'",
            "style-src": f"'sha256-{hashed}'",
            "form-action": "'self'",
            "base-uri": "'none'",
            "frame-ancestors": "'none'",
        }
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "noindex" in page.headers["x-robots-tag"]
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert not re.search(r"<script|<img|<link|<iframe|url\(|@import| on[a-z]+=| style=|https?://(?!127)", page.text)


async def test_the_form_has_labels_for_screen_readers(desk: Desk) -> None:
    path = await desk.add()
    page = (await desk.open(path)).text
    assert '<html lang="en">' in page
    assert '<label for="secret">API key</label>' in page
    assert re.search(r'<input type="password" id="secret"[^>]* aria-describedby="hint"', page)
    assert 'autocomplete="off"' in page
    wrong = (await desk.enter(path, "")).text
    assert "<title>Error: enter a secret" in wrong
    assert re.search(r'<input type="password"[^>]* aria-describedby="error hint" aria-invalid="true"', wrong)
    assert '<p class="error" id="error">' in wrong
    assert page.count("<h1>") == wrong.count("<h1>") == 1


async def test_an_invalid_secret_is_asked_for_again_and_not_repeated(desk: Desk) -> None:
    path = await desk.add()
    longest = f"Zk29vT4x-q7Lm{'x' * 4083}"
    for secret, said in (
        ("", "It is empty."),
        ("   ", "It is empty."),
        ("schlüssel-0815", "plain ASCII on one line"),
        ("two\nlines-0815", "plain ASCII on one line"),
        ("x" * 4097, "At most 4096 characters."),
    ):
        wrong = await desk.enter(path, secret)
        assert wrong.status_code == 422, secret
        assert said in text_of(wrong)
        assert not secret.strip() or secret not in wrong.text
    assert (await desk.enter(path, longest)).status_code == 200
    assert await desk.secrets() == {AUTH_SECRET: longest}


async def test_a_weak_secret_of_another_service_is_taken_with_a_warning(desk: Desk) -> None:
    answer = await desk.enter(await desk.add(), "token_123")
    assert answer.status_code == 200
    assert "It is a word, or a few words in a row" in text_of(answer) or "It is easy to guess" in text_of(answer)
    assert "it could be guessed, and is hidden in results of this server alone" in text_of(answer)
    assert await desk.secrets() == {AUTH_SECRET: "token_123"}


async def test_a_link_that_is_used_over_unknown_or_for_nothing_is_answered_in_the_same_words(
    desk: Desk, folder: Path
) -> None:
    used = await desk.add()
    assert (await desk.enter(used)).status_code == 200
    over = path_of(await desk.ask("mcp secret rotate tickets"))
    with closing(sqlite3.connect(folder / "countersign.db")) as database, database:
        database.execute("update one_time_links set expires_at = created_at")
    replaced = path_of(await desk.ask("mcp secret rotate tickets"))
    path_of(await desk.ask("mcp secret rotate tickets"))
    removed = path_of(await desk.ask("mcp secret set tickets header:X-Key"))
    assert (await desk.open(removed)).status_code == 200
    await desk.ask("mcp remove tickets --confirm tickets")
    answers = [await desk.open(path) for path in (used, over, replaced, removed, f"/secret/{'a' * 43}", "/secret/x")]
    answers += [await desk.enter(path, version="1") for path in (used, over)]
    assert {(answer.status_code, answer.text) for answer in answers} == {(404, answers[0].text)}
    assert "This link is not good" in text_of(answers[0])


async def test_of_several_uses_of_a_link_at_once_one_succeeds(desk: Desk) -> None:
    path = await desk.add()
    secrets = [f"key-Zk29vT4x-q7Lm-{number}" for number in range(6)]
    answers = await asyncio.gather(*(desk.enter(path, secret, "1") for secret in secrets))
    won = [secret for secret, answer in zip(secrets, answers, strict=True) if answer.status_code == 200]
    assert len(won) == 1
    assert {answer.status_code for answer in answers} <= {200, 404, 409}
    assert await desk.secrets() == {AUTH_SECRET: won[0]}


async def test_a_former_administrator_enters_nothing(desk: Desk) -> None:
    path = await desk.add()
    desk.staff.admins.clear()
    denied = await desk.enter(path)
    assert denied.status_code == 403
    assert "you cannot any more" in text_of(denied)
    assert SECRET not in denied.text
    assert desk.staff.asked == [ANA.id]
    kept = await desk.stores.servers.records()
    assert [record.version for record in kept] == [1]
    desk.staff.admins.add(ANA.id)
    assert (await desk.enter(path)).status_code == 200


async def test_without_a_lookup_of_the_user_nothing_is_saved(desk: Desk) -> None:
    path = await desk.add()
    for trouble in (DeliveryFailed("The platform does not say."), TimeoutError()):
        desk.staff.away = trouble
        answer = await desk.enter(path)
        assert answer.status_code == 503
        assert "could not be found out" in text_of(answer)
    desk.staff.away = None
    assert (await desk.enter(path)).status_code == 200


async def test_a_process_that_cannot_ask_the_platform_refuses(desk: Desk, folder: Path) -> None:
    path = await desk.add()
    desk.staff.key_prefixes = ("elsewhere:",)
    answer = await desk.enter(path)
    assert answer.status_code == 503
    assert "cannot ask test" in text_of(answer)


async def test_a_server_that_was_changed_meanwhile_is_shown_anew_before_it_gets_a_secret(desk: Desk) -> None:
    path = await desk.add()
    version = version_of(await desk.open(path))
    await desk.ask(f"mcp edit tickets --url {desk.endpoint.url}/moved --no-verify")
    changed = await desk.enter(path, version=version)
    assert changed.status_code == 409
    assert "was changed since you opened this page" in text_of(changed)
    assert f"{desk.endpoint.url}/moved" in text_of(changed)
    assert SECRET not in changed.text
    again = await desk.enter(path, version=version_of(changed))
    assert again.status_code == 200


async def test_a_server_that_does_not_sign_in_any_more_gets_no_secret(desk: Desk) -> None:
    path = await desk.add()
    await desk.ask("mcp secret clear tickets auth")
    answer = await desk.enter(path)
    assert answer.status_code == 403
    assert "does not sign in" in text_of(answer)


async def test_fields_that_the_form_does_not_have_are_refused(desk: Desk) -> None:
    path = await desk.add()
    for body, headers, status in (
        (b"version=1&secret=" + b"x" * 16_384, FORM, 413),
        (b'{"secret": "x"}', {"Content-Type": "application/json"}, 415),
        (b"secret=x", {}, 415),
        (b"version=1&secret=%ff%fe", FORM, 400),
        ("version=1&secret=ü".encode("latin-1"), FORM, 400),
        (b"&".join(b"a=1" for _ in range(50)), FORM, 400),
        (b"", FORM, 422),
    ):
        answer = await desk.client.post(path, content=body, headers=headers)
        assert answer.status_code == status, body[:50]
        assert "text/html" in answer.headers["content-type"]
    assert (await desk.enter(path)).status_code == 200


async def test_an_address_that_tries_links_is_held_off_and_a_good_link_still_works_there(desk: Desk) -> None:
    path = await desk.add()
    answers = [await desk.open(f"/secret/{number:043d}") for number in range(30)]
    assert answers[0].status_code == 404
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (await desk.enter(path)).status_code == 200


async def test_names_and_addresses_are_text(desk: Desk) -> None:
    reply = await desk.ask(
        f"mcp add tickets --url {desk.endpoint.url}?a=<b> --title <script>x</script>& --auth api_key"
    )
    page = await desk.open(path_of(reply))
    assert "<script>" not in page.text
    assert "&lt;script&gt;x&lt;/script&gt;&amp;" in page.text
    assert "?a=&lt;b&gt;" in page.text


async def test_neither_a_link_nor_a_secret_is_logged(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    path = await desk.add()
    await desk.enter(path, "")
    await desk.enter(path)
    await desk.open(path)
    assert caplog.records
    # Log lines of the test's client do not count. pytest also captures loggers that do not propagate to the log.
    theirs = ("httpx", "httpcore", "uvicorn.access")
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(theirs)]
    assert not logging.getLogger("uvicorn.access").propagate
    assert path.rpartition("/")[2] not in "\n".join(ours)
    assert SECRET not in "\n".join(ours)


async def test_each_kind_of_secret_is_asked_for_by_its_name(desk: Desk) -> None:
    url = desk.endpoint.url
    basic = path_of(await desk.ask(f"mcp add basic --url {url} --auth basic"))
    assert "User name and password, as USER:PASSWORD, for basic" in text_of(await desk.open(basic))
    alone = await desk.enter(basic, "no-user-name-is-in-this")
    assert (alone.status_code, "Enter both, as USER:PASSWORD." in text_of(alone)) == (422, True)
    assert (await desk.enter(basic, f"robot:{SECRET}:with-a-colon")).status_code == 200
    assert await desk.secrets() == {"username": "robot", "auth": f"{SECRET}:with-a-colon"}
    named = path_of(await desk.ask(f"mcp add named --url {url} --auth basic --username env:MCP_SECRET_USER"))
    assert "Password for named" in text_of(await desk.open(named))
    header = path_of(await desk.ask(f"mcp add header --url {url} --auth header --auth-header X-Token"))
    assert "Value of the header X-Token" in text_of(await desk.open(header))
    other = path_of(await desk.ask("mcp secret set header header:X-Team"))
    assert "Value of the header X-Team" in text_of(await desk.open(other))
    assert (await desk.enter(other, "team-red-Zk29vT4x")).status_code == 200
    assert (await desk.enter(header)).status_code == 200
    client = path_of(await desk.ask(f"mcp add client --url {url} --auth client_credentials --client-id bot"))
    page = text_of(await desk.open(client))
    assert "Secret of the OAuth client bot for client" in page
    assert f"the authorization server of {url}" in page
    assert (await desk.enter(client)).status_code == 200
    [record] = [each for each in await desk.stores.servers.records() if each.config.name == "header"]
    assert await desk.stores.servers.read_secrets(record) == {
        "auth": SECRET,
        "header:X-Team": "team-red-Zk29vT4x",
    }


async def test_a_program_that_administers_gets_a_link_for_as_long_as_its_token_is_good(desk: Desk) -> None:
    made, _ = await desk.stores.tokens.create("ops", ApiRole.ADMIN, HALL.workspace_key, None, ANA)
    caller = ApiClient(made.name, made.role, made.workspace)
    line = f"mcp add tickets --url {desk.endpoint.url} --auth api_key"
    path = path_of(await desk.ask(line, caller.member, caller.place()))
    assert "made for ops over HTTP" in text_of(await desk.open(path))
    await desk.stores.tokens.revoke(made.name, ANA)
    assert (await desk.enter(path)).status_code == 403


async def test_a_secret_that_cannot_be_kept_is_told_of_and_the_link_is_used_up(desk: Desk) -> None:
    @dataclass
    class Failing:
        """A store that rejects changes."""

        error: Exception

        async def records(self) -> Any:
            return await desk.stores.servers.records()

        async def change(self, *_: Any, **__: Any) -> Any:
            raise self.error

    office = desk.runtime.services
    for error, said in (
        (
            SecretUnavailable("There is no key.", "set MCP_ENCRYPTION_KEY"),
            "There is no key. Fix: set MCP_ENCRYPTION_KEY",
        ),
        (DatabaseUnavailable("The database db.internal/bot is away.", "start it"), "`/mcp show tickets` says whether"),
        (Conflict("It was changed."), "Ask for another link."),
    ):
        path = path_of(await desk.ask("mcp secret set tickets auth")) if office.toolbox.servers() else await desk.add()
        token = path.rpartition("/")[2]
        dependencies = office.command_dependencies
        stores = replace(dependencies.stores, servers=Failing(error))  # type: ignore[arg-type]
        parts = replace(dependencies, stores=stores)
        entry = SecretEntry(parts, desk.stores.links, PlatformUserMessenger([desk.staff], LocaleResolver()))
        version = version_of(await desk.open(path))
        outcome = await entry.save_secret(token, version, SECRET)
        assert isinstance(outcome, Denied)
        assert said in outcome.why
        assert "db.internal" not in outcome.why
        assert (await desk.open(path)).status_code == 404


async def test_without_an_address_there_are_no_links_and_the_refusal_says_how_to_have_them(folder: Path) -> None:
    async with a_desk(folder, public_url=None) as desk:
        asked = await desk.ask(f"mcp add tickets --url {desk.endpoint.url} --auth api_key")
        assert "Its secret is missing" in str(asked.details)
        await desk.ask(f"mcp add tickets --url {desk.endpoint.url} --no-verify")
        refused = await desk.ask("mcp secret set tickets auth")
        assert refused.failed
        assert "`PUBLIC_URL`" in refused.text
        answer = await desk.open(f"/secret/{'a' * 43}")
        assert answer.status_code in (401, 404)
        assert "text/html" not in answer.headers["content-type"]


@pytest.mark.parametrize(
    ("address", "on"),
    [
        ("https://bot.example.com/", True),
        ("https://example.com:8443/countersign", True),
        ("http://localhost:8080", True),
        ("http://127.0.0.1:8080", True),
        ("http://bot.example.com", False),
        ("http://10.0.0.7:8080", False),
        ("https://bot.example.com/a)b", False),
        ("https://bot.example.com/?x=1", False),
    ],
)
def test_links_cross_a_network_encrypted_or_not_at_all(
    address: str, on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    linking = build_link_service(read_settings(public_url=address), object())  # type: ignore[arg-type]
    assert (linking is not None) is on
    assert ("PUBLIC_URL" in caplog.text) is not on
    if linking is not None:
        assert linking.address == address.rstrip("/")


async def test_a_database_that_is_away_is_said_without_saying_where_it_is() -> None:
    class Away:
        async def show(self, token: str) -> None:
            raise DatabaseUnavailable("The database db.internal/bot is away.", "start it")

    routes = secret_routes(Away())  # type: ignore[arg-type]
    async with serve(application(pages=routes), "127.0.0.1", 0) as port, httpx2.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}/secret/{'a' * 43}")
    assert answer.status_code == 503
    assert "db.internal" not in answer.text
