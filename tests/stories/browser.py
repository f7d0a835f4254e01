"""Chromium with a fresh profile, and the console as somebody in it sees and hears it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright, expect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60_000.0
"""Milliseconds that a page may take on a busy machine."""
_SANDBOX = ("--no-sandbox",)
"""Chromium's own sandbox does not work for root, which containers of CI are."""
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

expect.set_options(timeout=PATIENCE)


def chromium() -> str:
    """Return the path of Chromium, which `.ci/run` installs. Without it, the test is skipped."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        pytest.skip("needs Chromium")
    return path


@asynccontextmanager
async def a_browser(**profile: Any) -> AsyncIterator[BrowserContext]:
    """Open a browser. `profile` are Playwright's options of a context: locale, viewport, javaScriptEnabled."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=_SANDBOX)
        try:
            context = await browser.new_context(**profile)
            context.set_default_timeout(PATIENCE)
            yield context
        finally:
            await browser.close()


async def find_barriers(page: Page) -> list[str]:
    """Return what axe-core finds on the page that keeps people from reading or using it."""
    await page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = await page.evaluate("tags => axe.run({runOnly: tags})", _RULES)
    return [
        f"{problem['id']}: {problem['help']} ({node['html'][:200]})"
        for problem in found["violations"]
        for node in problem["nodes"]
    ]


async def overflows(page: Page) -> bool:
    """Return True if the page is wider than its window, so that it scrolls sideways."""
    return bool(await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
