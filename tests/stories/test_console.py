"""The console in a real browser, beside Slack: the real program, a real MCP server, Chromium."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.slack import User
from tests.stories.browser import a_browser, find_barriers, overflows
from tests.stories.slack_program import Company, a_company

pytestmark = pytest.mark.long

KEEP_IT = "note that the deploy is at noon"
PAGES = (
    *("servers", "servers/notes", "approvals", "ask", "conversations", "audit", "usage"),
    *("policies", "profiles", "agents", "sessions", "health", "commands"),
)


def clerk(request: Request) -> Reply:
    """Keeps a note when asked."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    if request.question == KEEP_IT:
        return Say("Noting it.", calls=(Call("notes__add", {"text": "The deploy is at noon."}),))
    return Say(f"You said: {request.question}.")


@dataclass(frozen=True)
class Desk:
    """The company, its console's address, and a browser."""

    company: Company
    address: str
    browser: BrowserContext

    async def enter(self, user: User) -> Page:
        """Sign in by the one-time link of `/console` in Slack."""
        slack = self.company.slack
        await slack.command(user, "/console", "", self.company.incidents)
        told = await self.company.hears(user, "/console/enter/")
        link = re.search(r"http://[^\s|>\")]+/console/enter/[A-Za-z0-9_-]{43}", f"{told.text} {told.blocks}")
        assert link is not None, told
        page = await self.browser.new_page()
        await page.goto(link[0])
        await expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile(user.name, re.IGNORECASE))
        await page.get_by_role("button", name="Continue").click()
        await page.wait_for_url(re.compile(r"/console(?!/enter)"))
        return page

    async def open(self, page: Page, path: str) -> None:
        """Open a page of the console."""
        answer = await page.goto(f"{self.address}/console/{path}")
        assert answer is not None
        assert answer.status == 200, path


@asynccontextmanager
async def a_desk(
    folder: Path, model: FakeLanguageModel, servers: dict[str, Any] | None = None, **profile: Any
) -> AsyncIterator[Desk]:
    """Open the company with its bot running, and a browser beside it. Sam administers, and alone approves."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    async with a_company(folder, model, servers, PORT=port) as company:
        policy = folder / "config" / "policy.toml"
        before, line, after = policy.read_text().partition('\ndefault = "ASK_USER"\n')
        company.place.rule(f"{before}{line}self_approval = false\n{after}")
        async with company.bot() as bot, a_browser(**profile) as browser:
            address = (await bot.logs(r"the console is at (\S+)/console/"))[1]
            yield Desk(company, address, browser)
            assert "Traceback" not in bot.log


async def test_a_call_that_was_asked_in_slack_is_edited_and_approved_in_the_console(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_desk(tmp_path, model) as desk:
        company = desk.company
        page = await desk.enter(company.sam)
        asked = company.ask(KEEP_IT)
        await company.draws(asked.ts, "cs.approve")
        await desk.open(page, "approvals")
        await expect(page.get_by_text("The deploy is at noon.").first).to_be_visible()
        await page.get_by_role("link", name="Edit").click()
        await page.get_by_label("text", exact=True).fill("The deploy is at one.")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("The deploy is at one.").first).to_be_visible()
        await page.get_by_role("button", name="Approve", exact=True).click()
        await company.draws(asked.ts, "Saved as note #1")
        assert company.place.notes == ["The deploy is at one."]
        await company.draws(asked.ts, "The deploy is at one.")


async def test_the_keyboard_alone_approves_one_call_and_denies_another(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_desk(tmp_path, model) as desk:
        company = desk.company
        page = await desk.enter(company.sam)
        first, second = company.ask(KEEP_IT), company.ask(KEEP_IT)
        for asked in (first, second):
            await company.draws(asked.ts, "cs.approve")
        await desk.open(page, "approvals")
        await page.keyboard.press("j")
        await page.keyboard.press("d")
        await page.keyboard.type("not today")
        await page.keyboard.press("Enter")
        await company.draws(first.ts, "not today")
        await expect(page.get_by_role("article")).to_have_count(1)
        await page.keyboard.press("j")
        await page.keyboard.press("a")
        await page.keyboard.press("Enter")
        await company.draws(second.ts, "It said: Saved as note #1")
        assert company.place.notes == ["The deploy is at noon."]


async def test_pages_have_no_barriers_and_fit_a_phone(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_desk(tmp_path, model, viewport={"width": 320, "height": 640}) as desk:
        company = desk.company
        page = await desk.enter(company.sam)
        asked = company.ask(KEEP_IT)
        await company.draws(asked.ts, "cs.approve")
        found = {}
        for path in PAGES:
            await desk.open(page, path)
            barriers = await find_barriers(page)
            found[path] = [*barriers, *(["it scrolls sideways"] if await overflows(page) else [])]
        assert {path: barriers for path, barriers in found.items() if barriers} == {}


async def test_the_console_is_japanese_for_a_japanese_browser(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_desk(tmp_path, model, locale="ja-JP") as desk:
        page = await desk.browser.new_page()
        await page.goto(f"{desk.address}/console/sign-in")
        await expect(page.get_by_role("heading", level=1)).to_have_text("サインイン")
        assert await page.locator("html").get_attribute("lang") == "ja"


async def test_a_call_is_approved_without_a_script(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with a_desk(tmp_path, model, java_script_enabled=False) as desk:
        company = desk.company
        page = await desk.enter(company.sam)
        asked = company.ask(KEEP_IT)
        await company.draws(asked.ts, "cs.approve")
        await desk.open(page, "approvals")
        await page.get_by_role("button", name="Approve", exact=True).click()
        await company.draws(asked.ts, "It said: Saved as note #1")
        assert company.place.notes == ["The deploy is at noon."]


async def test_a_question_is_asked_and_its_call_approved_on_the_pages_alone(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_desk(tmp_path, model) as desk:
        page = await desk.enter(desk.company.sam)
        await desk.open(page, "ask")
        await page.get_by_label("Message").fill(KEEP_IT)
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("button", name="Approve", exact=True).click()
        await expect(page.get_by_text("It said: Saved as note #1").first).to_be_visible()
        assert desk.company.place.notes == ["The deploy is at noon."]
