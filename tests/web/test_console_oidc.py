"""Sign-in to the console by OpenID Connect, at an issuer with real keys, over real sockets."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.domain.audit import AuditQuery
from bot.domain.conversations import Member
from bot.domain.locales import Locale
from bot.domain.secrets import LINK_SECONDS
from bot.errors import DeliveryFailed, SettingsError
from bot.settings import read_settings
from tests.fakes.openid import CLIENT_SECRET, FakeIssuer
from tests.fakes.parts import BEN, HALL
from tests.web.browser import Browser
from tests.web.pages_bot import PUBLIC, PagesBot, opened_pages
from tests.web.test_approvals import an_api, received_arguments
from tests.web.test_console_conversations import becomes

HOME = "Nothing waits for you."
ANYBODY = {"oidc_strangers": True}


@pytest.fixture
async def issuer() -> AsyncIterator[FakeIssuer]:
    async with FakeIssuer() as issuer:
        yield issuer


@asynccontextmanager
async def opened(folder: Path, issuer: FakeIssuer, **settings: Any) -> AsyncIterator[PagesBot]:
    given = {**issuer.settings, **settings}
    async with opened_pages(folder, api=True, **given) as parts:
        yield PagesBot(*parts)


@pytest.fixture
async def bot(folder: Path, issuer: FakeIssuer) -> AsyncIterator[PagesBot]:
    async with opened(folder, issuer, **ANYBODY) as bot:
        yield bot


async def begin(browser: Browser, path: str = "/console/sign-in") -> httpx2.Response:
    """Press the button; return the redirect to the issuer."""
    await browser.open(path)
    form = browser.form("Sign in with")
    return await browser.post(form.action, form.fields)


async def go_back(browser: Browser, issuer: FakeIssuer, path: str = "/console/sign-in") -> str:
    """Sign in at the issuer; return the path and query with which it sends the browser back."""
    return await issuer.browser((await begin(browser, path)).headers["location"])


async def sign_in(bot: PagesBot, issuer: FakeIssuer) -> Browser:
    browser = Browser(bot.client)
    await browser.open(await go_back(browser, issuer))
    return browser


async def test_a_user_of_the_issuer_signs_in_by_the_button_with_its_host(bot: PagesBot, issuer: FakeIssuer) -> None:
    browser = Browser(bot.client)
    page = await browser.open("/console/sign-in")
    assert f"Sign in with {urlsplit(issuer.url).netloc}" in browser.text
    assert "form-action 'self' https: http://127.0.0.1" in page.headers["content-security-policy"]
    answer = await begin(browser)
    assert answer.status_code == 303
    query = {name: value for name, (value,) in parse_qs(urlsplit(answer.headers["location"]).query).items()}
    assert query["redirect_uri"] == f"{PUBLIC}/console/oidc/callback"
    assert query["code_challenge_method"] == "S256"
    assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
    await browser.open(await issuer.browser(answer.headers["location"]))
    assert HOME in browser.text
    assert "oidc:u-1" in browser.page.text
    [session] = await bot.stores.sessions.sessions()
    assert session.author.principal == "oidc:u-1"
    assert session.conversation.platform == "api"


async def test_without_an_issuer_there_is_no_button_and_no_way(folder: Path) -> None:
    async with opened_pages(folder, api=True) as parts:
        browser = Browser(parts[1])
        page = await browser.open("/console/sign-in")
        assert "Sign in with" not in browser.text
        assert "form-action 'self';" in page.headers["content-security-policy"]
        assert (await browser.open("/console/oidc/callback?state=x")).status_code == 404
        await browser.open("/console/sign-in")
        assert (await browser.post("/console/oidc", browser.form("Token").fields)).status_code == 404


async def test_a_verified_address_is_the_user_of_the_platform(folder: Path, issuer: FakeIssuer) -> None:
    async with opened(folder, issuer) as bot:
        bot.staff.people["ben@corp.example"] = [(Member(BEN), HALL)]
        issuer.claims |= {"email": "ben@corp.example", "email_verified": True}
        browser = await sign_in(bot, issuer)
        assert BEN.principal in browser.page.text
        bot.staff.admins.add(BEN.id)  # other rights are another session
        assert (await browser.open("/console/commands")).url.path == "/console/sign-in"
        assert await bot.stores.sessions.sessions() == []


async def test_an_address_that_is_not_in_the_token_is_asked_for(folder: Path, issuer: FakeIssuer) -> None:
    async with opened(folder, issuer) as bot:
        bot.staff.people["ben@corp.example"] = [(Member(BEN), HALL)]
        issuer.userinfo = {"email": "ben@corp.example", "email_verified": True}
        assert BEN.principal in (await sign_in(bot, issuer)).page.text
        issuer.userinfo["sub"] = "somebody-else"
        assert BEN.principal not in (await sign_in(bot, issuer)).page.text


async def test_an_address_counts_only_if_the_issuer_says_that_it_is_verified(bot: PagesBot, issuer: FakeIssuer) -> None:
    bot.staff.people["ben@corp.example"] = [(Member(BEN), HALL)]
    for verified in (False, "true", 1):
        issuer.claims |= {"email": "ben@corp.example", "email_verified": verified}
        browser = await sign_in(bot, issuer)
        assert browser.page.status_code == 403
        assert "has not verified your e-mail address" in browser.text
    issuer.claims["email_verified"] = None  # such issuers verify nothing
    assert "oidc:u-1" in (await sign_in(bot, issuer)).page.text


async def test_a_user_of_several_workspaces_is_asked_to_choose_one(bot: PagesBot, issuer: FakeIssuer) -> None:
    bot.staff.people["ben@corp.example"] = [(Member(BEN), HALL), (Member(BEN), HALL)]
    issuer.claims |= {"email": "ben@corp.example", "email_verified": True}
    assert "several workspaces" in (await sign_in(bot, issuer)).text


async def test_guests_come_in_only_if_the_bot_answers_them(folder: Path, issuer: FakeIssuer) -> None:
    issuer.claims |= {"email": "ben@corp.example", "email_verified": True}
    for allowed in (False, True):
        async with opened(folder, issuer, slack_guests=allowed, **ANYBODY) as bot:
            bot.staff.people["ben@corp.example"] = [(Member(BEN, guest=True), HALL)]
            browser = await sign_in(bot, issuer)
            assert (browser.page.status_code == 403) is not allowed


async def test_sign_in_with_slack_names_the_user_and_only_slack_may(folder: Path, issuer: FakeIssuer) -> None:
    issuer.claims |= {"https://slack.com/user_id": "U7", "https://slack.com/team_id": "T1"}
    async with opened(folder, issuer, slack_api_url=f"{issuer.url}/api/", **ANYBODY) as bot:
        assert "not in the Slack workspace" in (await sign_in(bot, issuer)).text
        bot.staff.people["U7"] = [(Member(BEN), HALL)]
        assert BEN.principal in (await sign_in(bot, issuer)).page.text
    async with opened(folder, issuer, **ANYBODY) as bot:
        bot.staff.people["U7"] = [(Member(BEN), HALL)]
        assert "oidc:u-1" in (await sign_in(bot, issuer)).page.text


async def test_users_whom_nobody_has_named_do_not_come_in_and_learn_their_name(
    folder: Path, issuer: FakeIssuer
) -> None:
    async with opened(folder, issuer) as bot:
        browser = await sign_in(bot, issuer)
        assert browser.page.status_code == 403
        assert "You are oidc:u-1 here" in browser.text
        assert await bot.stores.sessions.sessions() == []


async def test_a_named_user_administers_and_the_session_ends_with_the_name(folder: Path, issuer: FakeIssuer) -> None:
    async with opened(folder, issuer, admins="oidc:u-1") as bot:
        browser = await sign_in(bot, issuer)
        assert (await browser.open("/console/run/mcp?w=audit")).status_code == 200
        assert "began session" in browser.text
    async with opened(folder, issuer, admins="oidc:u-2") as bot:
        browser.client = bot.client
        assert (await browser.open("/console/commands")).url.path == "/console/sign-in"


async def test_a_named_approver_asks_and_decides_and_has_preferences(folder: Path, issuer: FakeIssuer) -> None:
    given: dict[str, Any] = {**issuer.settings, "public_url": PUBLIC}
    async with an_api(folder, {"text": "hello"}, who="oidc:u-1", **given) as api:
        browser = Browser(api.client)
        await browser.open(await go_back(browser, issuer))
        await browser.open("/console/ask")
        await browser.send("Message", message="write it")
        assert browser.page.url.path.startswith("/console/conversations/")
        await becomes(browser, "Approve")
        await browser.send("'revision'", decision="approve", confirmed="yes")
        await becomes(browser, "Written.")
        assert received_arguments(api) == [{"text": "hello"}]
        await browser.open("/console/conversations")
        assert "write it" in browser.text
        stores = api.runtime.services.stores
        assert "oidc:u-1" in {entry.actor for entry in (await stores.reporting.audit(AuditQuery(), 100, 0))[0]}
        await stores.locales.choose("oidc:u-1", Locale("ja"))
        assert "会話" in (await browser.open("/console/conversations")).text


async def test_a_subject_of_another_issuer_is_another_user(folder: Path, issuer: FakeIssuer) -> None:
    async with opened(folder, issuer, **ANYBODY) as bot:
        browser = await sign_in(bot, issuer)
    async with FakeIssuer() as other, opened(folder, other, **ANYBODY) as bot:
        browser.client = bot.client
        assert (await browser.open("/console/commands")).url.path == "/console/sign-in"
    async with opened_pages(folder, api=True) as parts:
        assert (await Browser(parts[1], browser.cookies).open("/console/commands")).url.path == "/console/sign-in"


async def test_a_user_who_declines_reads_that_and_can_begin_again(bot: PagesBot, issuer: FakeIssuer) -> None:
    issuer.error = "access_denied"
    browser = await sign_in(bot, issuer)
    assert browser.page.status_code == 403
    assert "did not let you in: it was denied" in browser.text
    issuer.error = "<b>server&error"
    assert "did not let you in: no code came back" in (await sign_in(bot, issuer)).text
    issuer.error = ""
    form = browser.form("Sign in with")
    back = await browser.post(form.action, form.fields)
    await browser.open(await issuer.browser(back.headers["location"]))
    assert HOME in browser.text


async def test_a_sign_in_goes_on_only_in_its_own_browser_and_once(bot: PagesBot, issuer: FakeIssuer) -> None:
    browser, other = Browser(bot.client), Browser(bot.client)
    path = await go_back(browser, issuer)
    await other.open("/console/sign-in")
    for foreign in (other, Browser(bot.client)):
        page = await foreign.open(path)
        assert page.status_code == 403
        assert "not begun in this browser" in foreign.text
    assert issuer.count("/token") == 0
    await browser.open(path)  # the others have used nothing up
    assert HOME in browser.text
    assert "not begun in this browser" in (await browser.open(path)).text
    assert issuer.count("/token") == 1
    for state in ("", "x", "A" * 43):
        assert (await browser.open("/console/oidc/callback", params={"state": state, "code": "x"})).status_code == 403


async def test_a_look_at_the_way_back_uses_nothing_up(bot: PagesBot, issuer: FakeIssuer) -> None:
    browser = Browser(bot.client)
    path = await go_back(browser, issuer)
    assert (await browser.request("HEAD", path)).status_code == 204
    await browser.open(path)
    assert HOME in browser.text


async def test_a_sign_in_takes_ten_minutes_at_most(folder: Path, bot: PagesBot, issuer: FakeIssuer) -> None:
    browser = Browser(bot.client)
    path = await go_back(browser, issuer)
    with closing(sqlite3.connect(folder / "countersign.db", isolation_level=None)) as database:
        database.execute("update one_time_links set expires_at = expires_at - ?", (LINK_SECONDS + 1,))
    assert (await browser.open(path)).status_code == 403
    assert "took more than ten minutes" in browser.text


async def test_another_site_begins_no_sign_in(bot: PagesBot) -> None:
    browser = Browser(bot.client)
    await browser.open("/console/sign-in")
    form = browser.form("Sign in with")
    bare = [(name, "x" if name == "form-token" else value) for name, value in form.fields]
    assert (await browser.post(form.action, bare)).status_code == 403
    foreign = await browser.post(form.action, form.fields, headers={"Sec-Fetch-Site": "cross-site"})
    assert foreign.status_code == 403
    assert (await browser.open(form.action)).url.path == "/console/sign-in"  # a link begins none


async def test_a_link_of_the_chat_is_no_state_and_the_reverse(bot: PagesBot, issuer: FakeIssuer) -> None:
    browser = Browser(bot.client)
    state = parse_qs(urlsplit(await go_back(browser, issuer)).query)["state"][0]
    assert (await browser.open(f"/console/enter/{state}")).status_code == 404
    assert (await browser.request("GET", f"/secret/{state}")).status_code == 404
    reply = await bot.ask("console", Member(BEN))
    token = reply.link.rpartition("/")[2]
    assert (await browser.open(f"/console/oidc/callback?state={token}&code=x")).status_code == 403


async def test_an_answer_of_another_issuer_is_not_used(bot: PagesBot, issuer: FakeIssuer) -> None:
    browser = Browser(bot.client)
    issuer.sends_issuer = "https://evil.example"
    await browser.open(await go_back(browser, issuer))
    assert browser.page.status_code == 403
    assert "does not come from the authorization server that you were sent to" in browser.text
    assert "evil.example" not in browser.page.text
    path = await go_back(browser, issuer)  # the issuer has said that it names itself
    await browser.open(path.partition("&iss=")[0] + "&code=stolen")
    assert "does not come from the authorization server" in browser.text
    assert issuer.count("/token") == 0


NOW = int(time.time())
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "wrong audience": ({"aud": "another-application"}, "it is for another application"),
    "no audience": ({"aud": None}, "it is not valid"),
    "several audiences": ({"aud": ["console-of-the-tests", "x"]}, "it is for another application"),
    "another party": ({"azp": "another-application"}, "it is for another application"),
    "wrong issuer": ({"iss": "https://evil.example"}, "it is of another issuer"),
    "expired": ({"exp": NOW - 120, "iat": NOW - 400}, "it has expired"),
    "clock skew": ({"iat": NOW + 3600, "exp": NOW + 7200}, "it is not valid yet"),
    "not before": ({"nbf": NOW + 3600}, "it is not valid yet"),
    "no expiry": ({"exp": None}, "it is not valid"),
    "no nonce": ({"nonce": None}, "it is not valid"),
    "foreign nonce": ({"nonce": "x" * 43}, "it answers another sign-in"),
    "no subject": ({"sub": None}, "it is not valid"),
    "blank subject": ({"sub": "a b"}, "it does not name a user"),
    "long subject": ({"sub": "a" * 256}, "it does not name a user"),
}


async def test_a_token_that_is_not_for_this_sign_in_is_refused(
    folder: Path, issuer: FakeIssuer, subtests: pytest.Subtests
) -> None:
    async with opened(folder, issuer, **ANYBODY) as bot:
        for name, (claims, reason) in FAULTS.items():
            with subtests.test(name):
                issuer.claims = {"sub": "u-1", **claims}
                browser = await sign_in(bot, issuer)
                assert browser.page.status_code in (403, 429)
                assert f"The issuer's answer was not used: {reason}" in browser.text
                assert "What to do:" in browser.text
                assert "console-of-the-tests" not in browser.page.text
        assert await bot.stores.sessions.sessions() == []


async def test_clocks_may_differ_a_little_and_several_audiences_name_the_party(
    bot: PagesBot, issuer: FakeIssuer
) -> None:
    client = issuer.settings["oidc_client_id"]
    now = int(time.time())
    for claims in ({"exp": now - 5}, {"iat": now + 30}, {"aud": [client, "x"], "azp": client}):
        issuer.claims = {"sub": "u-1", **claims}
        assert HOME in (await sign_in(bot, issuer)).text


async def test_only_a_key_of_the_issuer_signs(bot: PagesBot, issuer: FakeIssuer) -> None:
    issuer.stolen_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert "no key of the issuer has signed it" in (await sign_in(bot, issuer)).text
    issuer.stolen_key, issuer.algorithm = CLIENT_SECRET, "HS256"
    assert "it is not valid" in (await sign_in(bot, issuer)).text
    issuer.stolen_key, issuer.algorithm = "", "none"
    issuer.key, key = None, issuer.key
    assert "it is not valid" in (await sign_in(bot, issuer)).text
    issuer.stolen_key, issuer.key, issuer.algorithm = None, key, "RS256"
    issuer.published, issuer.key_id = {"use": "enc"}, "second"
    assert "no key of the issuer has signed it" in (await sign_in(bot, issuer)).text


async def test_a_key_that_is_too_short_does_not_count(bot: PagesBot, issuer: FakeIssuer) -> None:
    issuer.key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.warns(UserWarning, match="RSA key"):
        assert "it is not valid" in (await sign_in(bot, issuer)).text


async def test_keys_are_requested_once_and_again_for_an_unknown_one(bot: PagesBot, issuer: FakeIssuer) -> None:
    for _again in range(2):
        assert HOME in (await sign_in(bot, issuer)).text
    assert (issuer.count("/keys"), issuer.count("/.well-known/openid-configuration")) == (1, 1)
    issuer.rotate("second")
    assert HOME in (await sign_in(bot, issuer)).text
    assert issuer.count("/keys") == 2
    issuer.key_id = None  # the only one
    assert HOME in (await sign_in(bot, issuer)).text
    assert issuer.count("/keys") == 2


async def test_an_issuer_that_is_down_is_named_and_can_be_asked_again(folder: Path) -> None:
    async with FakeIssuer() as issuer:
        pass
    async with opened(folder, issuer, **ANYBODY) as bot:
        browser = Browser(bot.client)
        page = await begin(browser)
        assert page.status_code == 403
        browser.page = page
        assert "127.0.0.1 cannot be asked" in browser.text
        assert browser.form("Sign in with")


async def test_an_issuer_that_answers_oddly_is_refused(
    folder: Path, issuer: FakeIssuer, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"says_issuer": "https://evil.example"}, "says that it is another one"),
        ({"document": {"token_endpoint": None}}, "does not describe an issuer"),
        ({"document": {"jwks_uri": "http://keys.example"}}, "begins with http://"),
        ({"document": {"authorization_endpoint": "javascript:alert(1)"}}, "does not describe an issuer"),
        ({"padding": 300 * 1024}, "larger than 256 KiB"),
    ]
    for faults, reason in cases:
        with subtests.test(reason):
            for name, value in faults.items():
                setattr(issuer, name, value)
            async with opened(folder, issuer, **ANYBODY) as bot:
                browser = Browser(bot.client)
                browser.page = await begin(browser)
                assert browser.page.status_code == 403
                assert reason in browser.text
            issuer.says_issuer, issuer.document, issuer.padding = "", {}, 0


async def test_refused_codes_show_no_secret(
    bot: PagesBot, issuer: FakeIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = f"secret {CLIENT_SECRET} is wrong"
    issuer.refuses = (401, {"error": "invalid_client", "error_description": said})
    browser = Browser(bot.client)
    path = await go_back(browser, issuer)
    await browser.open(path)
    assert "gave no token: invalid_client" in browser.text
    assert CLIENT_SECRET not in browser.page.text
    code = parse_qs(urlsplit(path).query)["code"][0]
    assert "sign-in to the console by OpenID Connect failed" in caplog.text
    logged = " ".join(record.getMessage() for record in caplog.records if record.name.startswith("bot."))
    verifier = next(form["code_verifier"] for asked, form in issuer.asked if asked == "/token")
    for secret in (CLIENT_SECRET, code, verifier):
        assert secret not in logged


async def test_many_failures_are_slowed_down(bot: PagesBot, issuer: FakeIssuer) -> None:
    browser = Browser(bot.client)
    statuses = [(await browser.open("/console/oidc/callback?state=x")).status_code for _attempt in range(12)]
    assert statuses[:10] == [403] * 10
    assert statuses[-1] == 429
    assert "retry-after" in browser.page.headers
    await browser.open(await go_back(browser, issuer))  # a good one goes on
    assert HOME in browser.text


async def test_the_page_that_was_wanted_comes_after_the_sign_in_and_is_not_told_to_the_issuer(
    bot: PagesBot, issuer: FakeIssuer
) -> None:
    browser = Browser(bot.client)
    path = await go_back(browser, issuer, "/console/sign-in?next=/run/usage%3Fw%3Dme")
    assert "usage" not in path
    page = await browser.open(path)
    assert page.url.path == "/console/run/usage"
    await browser.open(await go_back(browser, issuer, "/console/sign-in?next=//evil.example"))
    assert browser.history[0].headers["location"] == "/console"


async def test_while_the_platform_does_not_answer_nobody_becomes_somebody_else(
    bot: PagesBot, issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_identity: object) -> None:
        raise DeliveryFailed("Slack is away.", "wait")

    monkeypatch.setattr(bot.staff, "find_people", fail)
    browser = await sign_in(bot, issuer)
    assert browser.page.status_code == 403
    assert "Slack is away." in browser.text
    assert await bot.stores.sessions.sessions() == []


def test_settings_of_an_issuer_are_complete_and_secure() -> None:
    whole: dict[str, Any] = {
        "oidc_issuer": "https://id.example", "oidc_client_id": "x", "oidc_client_secret": "y", "public_url": PUBLIC
    }  # fmt: skip
    assert "y" not in str(read_settings(**whole).oidc_client_secret)
    for missing in ("oidc_issuer", "oidc_client_id", "oidc_client_secret"):
        with pytest.raises(SettingsError, match=f"is set without {missing.upper()}"):
            read_settings(**{**whole, missing: None if missing != "oidc_client_id" else ""})
    with pytest.raises(SettingsError, match="without PUBLIC_URL"):
        read_settings(**{**whole, "public_url": None})
    for wrong in ("http://id.example", "https://u:p@id.example", "https://id.example?x=1", "id.example"):
        with pytest.raises(SettingsError, match="OIDC_ISSUER"):
            read_settings(**{**whole, "oidc_issuer": wrong})
