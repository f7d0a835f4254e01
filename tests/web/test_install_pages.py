"""Pages of the app's installation in a browser, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest

from bot.domain.installations import (
    INSTALL_SECONDS,
    Installation,
    InstallCancelled,
    InstallCompleted,
    InstallExpired,
    InstallFailed,
    InstallRejected,
    InstallResult,
    InstallStarted,
)
from bot.web.application import application
from bot.web.authentication import LoginThrottle
from bot.web.install_pages import install_routes
from bot.web.server import serve
from tests.web.pages_bot import text_of

ACME = Installation("slack", "T1", name='<b>Acme</b> & "Co"', token="xoxb-secret-1")


@dataclass
class ScriptedInstaller:
    """Installer with scripted results. `finished` holds the arguments of each `finish` call."""

    platform: str = "Slack"
    install_path: str = "/slack/install"
    redirect_path: str = "/slack/oauth_redirect"
    beginning: InstallStarted | InstallRejected = InstallStarted("https://slack.example/authorize?a=1&b=2", "browser-1")
    result: InstallResult = field(default_factory=InstallExpired)
    started: list[str] = field(default_factory=list)
    finished: list[tuple[Mapping[str, str], str]] = field(default_factory=list)

    def start(self, workspace: str) -> InstallStarted | InstallRejected:
        self.started.append(workspace)
        return self.beginning

    async def finish(self, parameters: Mapping[str, str], browser_secret: str) -> InstallResult:
        self.finished.append((parameters, browser_secret))
        return self.result


@asynccontextmanager
async def pages(
    installer: ScriptedInstaller, address: str = "https://bot.example.com", attempts: LoginThrottle | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the pages and yield an HTTP client that does not follow redirects."""
    app = application(pages=install_routes(installer, address, attempts=attempts))
    async with (
        serve(app, "127.0.0.1", 0) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        yield client


async def test_the_browser_goes_to_the_platform_with_a_secret_that_no_script_reads() -> None:
    installer = ScriptedInstaller()
    async with pages(installer) as browser:
        response = await browser.get("/slack/install?team=T1")
        assert response.status_code == 302
        assert response.headers["location"] == "https://slack.example/authorize?a=1&b=2"
        cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Host-countersign-install=browser-1; ")
        flags = {flag.strip().lower() for flag in cookie.split(";")[1:]}
        assert flags == {"httponly", f"max-age={int(INSTALL_SECONDS)}", "path=/", "samesite=lax", "secure"}
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"
        assert installer.started == ["T1"]


async def test_on_this_machine_the_cookie_does_without_tls() -> None:
    async with pages(ScriptedInstaller(), "http://127.0.0.1:8080") as browser:
        cookie = (await browser.get("/slack/install")).headers["set-cookie"]
        assert cookie.startswith("countersign-install=browser-1; ")
        assert "secure" not in cookie.lower()


async def test_the_answer_is_passed_on_with_the_cookie_of_this_browser_alone() -> None:
    installer = ScriptedInstaller(result=InstallCompleted(ACME, "https://slack.com/app_redirect?app=A1&team=T1"))
    async with pages(installer) as browser:
        cookie = {"Cookie": "__Host-countersign-install=browser-1; other=x"}
        response = await browser.get("/slack/oauth_redirect?code=c1&state=s1&more=x", headers=cookie)
        assert installer.finished == [({"code": "c1", "state": "s1"}, "browser-1")]
        assert response.status_code == 200
        assert "The bot is installed" in text_of(response)
        assert "&lt;b&gt;Acme&lt;/b&gt; &amp; &quot;Co&quot;" in response.text
        assert 'href="https://slack.com/app_redirect?app=A1&amp;team=T1"' in response.text
        assert "xoxb" not in response.text
        assert 'countersign-install=""' in response.headers["set-cookie"], "it is of no use any more"
        assert "script" not in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("result", "status", "text"),
    [
        (InstallRejected("This bot does not serve T9.", "Ask <them>."), 403, "This bot does not serve T9. Ask <them>."),
        (InstallFailed("Slack does not answer.", "Try again."), 503, "Slack does not answer. Try again."),
        (InstallCancelled(), 200, "Nothing was changed."),
        (InstallExpired(), 400, "began in another browser. Open /slack/install again."),
    ],
)
async def test_every_other_result_has_cause_and_fix(result: InstallResult, status: int, text: str) -> None:
    async with pages(ScriptedInstaller(result=result)) as browser:
        response = await browser.get("/slack/oauth_redirect?state=s")
        assert response.status_code == status
        said = " ".join(text_of(response).split())
        assert "The bot was not installed" in said
        assert text in said


async def test_a_beginning_that_is_refused_sets_no_cookie() -> None:
    refused = InstallRejected("This bot serves no further workspaces.", "Ask.")
    async with pages(ScriptedInstaller(beginning=refused)) as browser:
        response = await browser.get("/slack/install")
        assert response.status_code == 403
        assert "set-cookie" not in response.headers
        assert (await browser.post("/slack/install")).status_code == 405


async def test_a_guessing_browser_has_to_wait_and_others_need_not_in_their_language() -> None:
    installer = ScriptedInstaller()
    async with pages(installer, attempts=LoginThrottle(at_once=2, seconds=60.0)) as browser:
        codes = [(await browser.get("/slack/oauth_redirect?state=x")).status_code for _ in range(3)]
        assert codes == [400, 400, 429]
        installer.result = InstallCompleted(ACME)
        response = await browser.get("/slack/oauth_redirect?state=x", headers={"Accept-Language": "ja"})
        assert response.status_code == 200
        assert "ボットをインストールしました" in response.text
