"""Sign-in to the console, its sessions and the protection of its forms, over a real socket."""

from __future__ import annotations

import re
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from bot.domain.api_clients import ApiRole
from bot.domain.browser_sessions import IDLE_SECONDS, SESSION_SECONDS
from bot.domain.conversations import Member
from bot.errors import DeliveryFailed
from tests.fakes.parts import ANA, BEN, HALL
from tests.web.api_server import ADMIN_TOKEN, Api, opened_api
from tests.web.browser import Browser
from tests.web.pages_bot import PUBLIC, PagesBot, opened_pages

PREFIXED = "http://127.0.0.1/desk/bot"


@pytest.fixture
async def bot(folder: Path) -> AsyncIterator[PagesBot]:
    async with opened_pages(folder, api=True) as parts:
        yield PagesBot(*parts)


async def link_of(bot: PagesBot, member: Member) -> str:
    reply = await bot.ask("console", member)
    assert reply.private
    assert reply.link.startswith(f"{PUBLIC}/console/enter/")
    return reply.link.removeprefix(PUBLIC)


async def sign_in(api: Api, token: str = ADMIN_TOKEN) -> Browser:
    browser = Browser(api.client)
    await browser.open()
    await browser.send("Token", token=token)
    return browser


def is_signed_out(page: httpx2.Response) -> bool:
    return page.url.path == "/console/sign-in"


async def test_a_link_of_the_chat_opens_the_console_as_its_user_once(bot: PagesBot) -> None:
    path = await link_of(bot, Member(BEN))
    browser = Browser(bot.client)
    for _look in range(2):  # a preview uses nothing up
        page = await browser.open(path)
        assert page.status_code == 200
        assert f"Sign in as {BEN.name}?" in browser.text
    page = await browser.send("Continue")
    assert page.status_code == 200
    assert "Nothing waits for you." in browser.text
    assert BEN.principal in page.text
    cookie = next(line for line in browser.history[0].headers.get_list("set-cookie") if "session" in line)
    for attribute in ("__Host-countersign-session=", "HttpOnly", "Secure", "SameSite=lax", "Path=/"):
        assert attribute in cookie
    again = await browser.open(path)
    assert again.status_code == 404
    assert "already used, has expired, or never existed" in browser.text


async def test_the_answer_of_a_bot_without_an_address_says_what_the_operator_sets(folder: Path) -> None:
    async with opened_pages(folder, public_url=None) as parts:
        reply = await PagesBot(*parts).ask("console")
        assert reply.failed
        assert "PUBLIC_URL" in reply.text


async def test_without_a_public_address_a_link_is_for_this_machine(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with opened_pages(folder, api=True, public_url=None, web_host="127.0.0.1", port=port) as parts:
        bot = PagesBot(*parts)
        reply = await bot.ask("console", Member(BEN))
        assert reply.link.startswith(f"http://127.0.0.1:{port}/console/enter/")
        browser = Browser(bot.client)
        await browser.open(reply.link)
        await browser.send("Continue")
        assert BEN.principal in browser.page.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
async def test_a_link_leads_to_the_address_that_is_listened_on(folder: Path, host: str) -> None:
    async with opened_pages(
        folder, api=True, public_url=None, web_host=host, port=0, admin_api_token="t" * 40
    ) as parts:
        bot = PagesBot(*parts)
        port = bot.client.base_url.port
        wanted = {"0.0.0.0": "127.0.0.1"}.get(host, host)
        assert (await bot.ask("console")).link.startswith(f"http://{wanted}:{port}/console/enter/")


async def test_the_operator_sets_the_limits_of_sessions_and_may_switch_the_console_off(folder: Path) -> None:
    async with opened_api(folder, console_session_idle="1h", console_session_max="2h") as api:
        await sign_in(api)
        [session] = await api.runtime.services.stores.sessions.sessions()
        assert session.expires_at - session.created_at == pytest.approx(7200)
    async with opened_pages(folder, api=True, console="false") as parts:
        assert (await PagesBot(*parts).ask("console")).failed


async def test_a_link_for_a_secret_does_not_open_the_console_and_the_reverse(bot: PagesBot) -> None:
    _link, token = await bot.stores.links.create_link("some-server", "console", ANA, HALL)
    assert (await bot.client.get(f"/console/enter/{token}")).status_code == 404
    path = await link_of(bot, Member(ANA))
    assert (await bot.client.get(path.replace("/console/enter/", "/secret/"))).status_code == 404


async def test_the_session_of_a_user_who_is_gone_ends_with_the_next_page(bot: PagesBot) -> None:
    browser = Browser(bot.client)
    await browser.open(await link_of(bot, Member(BEN)))
    await browser.send("Continue")
    bot.staff.admins.add(BEN.id)  # other rights are another session
    assert is_signed_out(await browser.open("/console/run/mcp?w=list"))
    assert await bot.stores.sessions.sessions() == []
    assert [entry.kind for entry in await bot.audit()][:2] == ["ended session", "began session"]


async def test_while_a_platform_does_not_answer_its_users_see_nothing_and_stay_signed_in(bot: PagesBot) -> None:
    browser = Browser(bot.client)
    await browser.open(await link_of(bot, Member(ANA, platform_admin=True)))
    await browser.send("Continue")
    bot.staff.away = DeliveryFailed("Slack is away.", "wait")
    page = await browser.open("/console/run/mcp?w=list")
    assert page.status_code == 503
    assert "Slack is away." in browser.text
    bot.staff.away = None
    assert (await browser.open("/console/run/mcp?w=list")).status_code == 200


async def test_an_api_token_opens_a_session_that_ends_when_the_token_is_revoked(api: Api) -> None:
    token = await api.token("ci", ApiRole.MEMBER)
    browser = await sign_in(api, token)
    assert "Nothing waits for you." in browser.text
    assert "api:ci" in browser.page.text
    await api.parts.tokens.revoke("ci", ANA)
    assert is_signed_out(await browser.open("/console/run/usage?w=me"))
    # Another token of the name is another user.
    await api.token("ci", ApiRole.MEMBER)
    assert is_signed_out(await browser.open("/console/run/usage?w=me"))


async def test_a_wrong_token_is_refused_and_many_are_slowed_down(api: Api) -> None:
    browser = Browser(api.client)
    await browser.open()
    statuses = [(await browser.send("Token", token=f"cs_{number}")).status_code for number in range(12)]
    assert statuses[:10] == [401] * 10
    assert statuses[-1] == 429
    assert "cs_1" not in browser.page.text


async def test_a_session_ends_after_a_time_without_use_and_after_a_week(folder: Path) -> None:
    async with opened_api(folder) as api:
        browser = await sign_in(api)
        store = api.runtime.services.stores.sessions
        [session] = await store.sessions()
        assert session.expires_at - session.created_at == pytest.approx(SESSION_SECONDS)
        with closing(sqlite3.connect(folder / "countersign.db", isolation_level=None)) as database:
            database.execute("update browser_sessions set used_at = used_at - ?", (IDLE_SECONDS + 1,))
        assert is_signed_out(await browser.open("/console/run/usage?w=me"))


async def test_a_post_without_the_token_of_its_session_changes_nothing(api: Api) -> None:
    browser, other = await sign_in(api), await sign_in(api)
    await browser.open("/console/run/mcp?w=policy&w=set&w=fake")
    form = browser.form("Run")
    fields = [*form.fields, ("a.policy", "deny")]
    bare = [field for field in fields if field[0] != "form-token"]
    await other.open("/console/commands")
    for stolen in ("", "x", dict(other.form("Sign out").fields)["form-token"]):
        page = await browser.post(form.action, [*bare, ("form-token", stolen)])
        assert page.status_code == 403
    for site in ("cross-site", "same-site"):
        page = await browser.post(form.action, fields, headers={"Sec-Fetch-Site": site})
        assert page.status_code == 403
    json = await browser.request("POST", form.action, json=dict(fields))
    assert json.status_code == 415
    assert await api.runtime.services.stores.policies.rules() == []
    assert (await browser.post(form.action, fields)).status_code == 200
    assert len(await api.runtime.services.stores.policies.rules()) == 1


async def test_a_link_never_runs_a_verb_that_changes_something(api: Api) -> None:
    browser = await sign_in(api)
    page = await browser.open("/console/run/mcp?w=policy&w=set&w=fake&w=deny")
    assert page.status_code == 200
    assert await api.runtime.services.stores.policies.rules() == []


async def test_sign_in_takes_no_session_id_from_outside(api: Api) -> None:
    browser = Browser(api.client)
    planted = "A" * 43
    browser.cookies["countersign-session"] = planted
    await browser.open()
    await browser.send("Token", token=ADMIN_TOKEN)
    assert browser.cookies["countersign-session"] != planted
    thief = Browser(api.client, {"countersign-session": planted})
    assert is_signed_out(await thief.open("/console/commands"))


async def test_a_new_sign_in_ends_the_session_before_it_and_sign_out_ends_the_last(api: Api) -> None:
    browser = await sign_in(api)
    store = api.runtime.services.stores.sessions
    [first] = await store.sessions()
    await browser.open("/console/sign-in")
    await browser.send("Token", token=ADMIN_TOKEN)
    [second] = await store.sessions()
    assert first.id != second.id
    await browser.open("/console/commands")
    await browser.send("Sign out")
    assert await store.sessions() == []
    assert is_signed_out(await browser.open("/console/commands"))


async def test_users_list_and_end_their_sessions_and_admins_those_of_all(api: Api) -> None:
    member, admin = await sign_in(api, await api.token("ci", ApiRole.MEMBER)), await sign_in(api)
    await member.open("/console/run/console?w=sessions")
    assert "Sessions in browsers · 1" in member.text
    await admin.open("/console/run/console?w=sessions")
    assert "Sessions in browsers · 2" in admin.text
    ends = {each.author.name: each.id for each in await api.runtime.services.stores.sessions.sessions()}
    await admin.send(f"End {ends['ci']}")
    assert "The session is ended." in admin.text
    assert is_signed_out(await member.open("/console/commands"))


async def test_only_paths_of_the_console_are_gone_to_after_sign_in(api: Api) -> None:
    for wanted, leads in (
        ("/run/usage?w=me", "/console/run/usage?w=me"),
        ("//evil.example", "/console"),
        ("https://evil.example", "/console"),
        ("/\\evil.example", "/console"),
        ("/..//evil.example", "/console"),
        ("/run\r\nSet-Cookie: x=1", "/console"),
    ):
        browser = Browser(api.client)
        await browser.open("/console/sign-in", params={"next": wanted})
        await browser.send("Token", token=ADMIN_TOKEN)
        assert browser.history[0].headers["location"] == leads, wanted


async def test_the_page_that_was_wanted_comes_after_the_sign_in(api: Api) -> None:
    browser = Browser(api.client)
    assert is_signed_out(await browser.open("/console/run/usage?w=me"))
    page = await browser.send("Token", token=ADMIN_TOKEN)
    assert page.url.path == "/console/run/usage"


async def test_addresses_have_the_path_of_the_public_url_and_nothing_of_a_forged_host(folder: Path) -> None:
    async with opened_api(folder, public_url=PREFIXED) as api:
        browser = Browser(api.client)
        forged = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
        page = await browser.open("/console/sign-in", headers=forged)
        assert "evil.example" not in page.text
        addresses = re.findall(r'(?:href|src|action)="([^"#][^"]*)"', page.text)
        assert addresses
        assert all(address.startswith("/desk/bot/console") for address in addresses)
        fields = [*browser.form("Token").fields, ("token", ADMIN_TOKEN)]
        done = await browser.post("/console/sign-in", fields, headers=forged)
        assert done.headers["location"] == "/desk/bot/console"


async def test_every_page_forbids_frames_and_scripts_of_others(api: Api) -> None:
    browser = await sign_in(api)
    for path in ("/console/sign-in", "/console/commands", "/console/run/mcp?w=list", "/console/nowhere"):
        page = await browser.open(path)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page.text)


async def test_the_files_of_the_pages_are_served_by_the_bot_alone(api: Api) -> None:
    browser = await sign_in(api)
    page = await browser.open("/console/commands")
    paths = re.findall(r'(?:src|href)="([^"]*/static/[^"]*)"', page.text)
    assert {path.rpartition("/")[2].partition("?")[0] for path in paths} >= {"console.css", "console.js", "icon.svg"}
    for path in paths:
        file = await browser.request("GET", path)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
    assert (await browser.request("GET", "/console/static/..%2frendering.py")).status_code == 404
