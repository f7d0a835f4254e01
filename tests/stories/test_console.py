"""The console in a real browser, beside Slack: the real program, a real MCP server, Chromium."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import BrowserContext, Page, expect

from mcp_servers.notes.server import create_server
from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.mcp.cases.endpoint import serve_app
from tests.fakes.slack import User
from tests.stories.browser import a_browser, find_barriers, overflows
from tests.stories.slack_program import Company, a_company

pytestmark = pytest.mark.long

KEEP_IT = "note that the deploy is at noon"
READ_DIARY, WRITE_DIARY = "what is in the diary?", "write that into the diary"
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
    if request.question == READ_DIARY:
        return Say("Looking.", calls=(Call("diary__list", {}),))
    if request.question == WRITE_DIARY:
        return Say("Writing.", calls=(Call("diary__add", {"text": "The deploy was at noon."}),))
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

    async def ask(self, page: Page, question: str) -> None:
        """Ask in a new conversation."""
        await self.open(page, "ask")
        await page.get_by_label("Message").fill(question)
        await page.get_by_role("button", name="Send").click()

    async def open(self, page: Page, path: str) -> None:
        """Open a page of the console."""
        answer = await page.goto(f"{self.address}/console/{path}")
        assert answer is not None
        assert answer.status == 200, path


@asynccontextmanager
async def a_desk(
    folder: Path, model: FakeLanguageModel, *, allowed_host: str = "", **profile: Any
) -> AsyncIterator[Desk]:
    """Open the company with its bot running, and a browser beside it. Sam administers, and alone approves."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    async with a_company(folder, model, PORT=port, MCP_ALLOWED_HOSTS=allowed_host) as company:
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


@pytest.mark.parametrize("colors", ["light", "dark"])
async def test_pages_have_no_barriers_and_fit_a_phone(tmp_path: Path, model: FakeLanguageModel, colors: str) -> None:
    async with a_desk(tmp_path, model, viewport={"width": 320, "height": 640}, color_scheme=colors) as desk:
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
        await desk.ask(page, KEEP_IT)
        await page.get_by_role("button", name="Approve", exact=True).click()
        await expect(page.get_by_text("It said: Saved as note #1").first).to_be_visible()
        assert desk.company.place.notes == ["The deploy is at noon."]


async def test_a_call_that_was_asked_in_the_console_is_approved_in_slack(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_desk(tmp_path, model) as desk:
        company = desk.company
        page = await desk.enter(company.priya)
        await desk.ask(page, KEEP_IT)
        await expect(page.get_by_role("definition").get_by_text("The deploy is at noon.")).to_be_visible()
        await expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        await company.slack.command(company.sam, "/approvals", "", company.incidents)
        card = await company.hears(company.sam, "The deploy is at noon.")
        await company.slack.press(company.sam, card, "Approve: Add a note")
        await expect(page.get_by_text("It said: Saved as note #1").first).to_be_visible()
        await expect(page.get_by_text("Approved by sam").first).to_be_visible()
        assert company.place.notes == ["The deploy is at noon."]


async def test_a_server_is_added_and_verified_and_its_policy_holds_for_the_next_question(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    diary = create_server(tmp_path / "diary.json")
    with serve_app(diary.streamable_http_app()) as address:
        async with a_desk(tmp_path, model, allowed_host=urlsplit(address).netloc) as desk:
            page = await desk.enter(desk.company.sam)
            await desk.open(page, "servers")
            await page.get_by_role("button", name="Add server").click()
            await page.get_by_label("Name", exact=True).fill("Diary")
            await page.get_by_label("Address or command line").fill(f"{address}/mcp")
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_role("main")).to_contain_text("diary is added.")
            await page.get_by_role("button", name="Show tools").click()
            await page.get_by_role("button", name="Verify").click()
            await expect(page.get_by_role("main")).to_contain_text(re.compile("diary is verified.+✓ MCP ✓ tools"))
            await page.get_by_role("link", name="Show", exact=True).click()
            async with page.expect_response("**/choose"):
                await page.get_by_label("Policy of list").select_option("always allow")
            await desk.ask(page, READ_DIARY)
            await expect(page.get_by_text("It said: There are no notes.").first).to_be_visible()
            await desk.ask(page, WRITE_DIARY)
            await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()


async def test_the_second_tab_and_the_back_button_learn_who_has_decided(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_desk(tmp_path, model) as desk:
        company = desk.company
        page = await desk.enter(company.sam)
        asked = company.ask(KEEP_IT)
        await company.draws(asked.ts, "cs.approve")
        await desk.open(page, "approvals")
        await page.get_by_role("link", name="Open").click()
        await page.wait_for_url("**/approvals/*")
        late = await desk.browser.new_page()
        await late.goto(page.url)
        await page.get_by_role("button", name="Approve", exact=True).click()
        await expect(page.get_by_text("Approved by sam").first).to_be_visible()
        await late.get_by_role("button", name="Approve", exact=True).click()
        await expect(late.get_by_role("alert")).to_have_text("sam has already approved it.")
        await page.go_back()
        await expect(page.get_by_text("Approved by sam").first).to_be_visible()
        await expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        await company.draws(asked.ts, "It said: Saved as note #1")
        assert company.place.notes == ["The deploy is at noon."]
