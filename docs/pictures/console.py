"""Pictures of the pages of the console: the real program beside the fake Slack, its pages in Chromium.

    make pictures

Sam administers and approves, and Priya asks. Ids and times are new each time.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Page, Route

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).parent)]

from photographs import FONTS, stylesheets  # noqa: E402 - found through the line above

from tests.fakes.llm import FakeLanguageModel  # noqa: E402
from tests.stories.test_console import KEEP_IT, Desk, a_desk, clerk  # noqa: E402

WIDTH, NARROW = 1120, 320
PAGES = {
    "servers": "servers",
    "server": "servers/notes",
    "audit": "audit",
    "usage": "usage",
    "policies": "policies",
    "health": "health",
}
"""Pages that are shown as they are, by the names of their pictures."""
_LOOK = 'body { font-family: "Noto Sans", "Noto Sans JP", Twemoji, sans-serif } .bar { position: static }'


async def main() -> None:
    """Draw all pictures and print their paths."""
    with (
        tempfile.TemporaryDirectory(prefix="countersign-picture-") as folder,
        FakeLanguageModel("openai", rule=clerk) as model,
    ):
        profile = {"bypass_csp": True, "viewport": {"width": WIDTH, "height": 200}}
        async with a_desk(Path(folder), model, **profile) as desk:
            await desk.browser.route("**/picture-fonts/**", _font)
            await draw(desk)


async def draw(desk: Desk) -> None:
    """Let Priya and Sam work, and take the pictures meanwhile."""
    company = desk.company
    visitor = await desk.browser.new_page()
    await visitor.goto(f"{desk.address}/console/sign-in")
    await take(visitor, "sign-in")
    page = await desk.enter(company.sam)
    await desk.ask(page, KEEP_IT)
    await page.get_by_role("button", name="Approve", exact=True).click()
    await page.reload()
    await page.get_by_text("It said: Saved as note #1").first.wait_for()
    await page.locator("summary", has_text="notes.add").click()
    await take(page, "ask")
    asked = company.ask(KEEP_IT)
    await company.draws(asked.ts, "cs.approve")
    for name, path in PAGES.items():
        await desk.open(page, path)
        await take(page, name)
    await desk.open(page, "servers")
    await page.get_by_role("button", name="Add server").click()
    await page.get_by_label("Address or command line").wait_for()
    await take(page, "add")
    await desk.open(page, "approvals")
    await take(page, "approvals")
    await page.emulate_media(color_scheme="dark")
    await take(page, "approvals-dark")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": NARROW, "height": 200})
    await desk.open(page, "approvals")
    await take(page, "approvals-narrow")


async def take(page: Page, name: str) -> None:
    """Take the picture of a whole page, in the fonts of the other pictures."""
    path = Path(__file__).with_name(f"console-{name}.png")
    sheets = "".join(stylesheets("/picture-fonts"))
    await page.evaluate(
        "html => document.head.insertAdjacentHTML('beforeend', html)", f"{sheets}<style>{_LOOK}</style>"
    )
    await page.wait_for_function("[...document.querySelectorAll('link[rel=stylesheet]')].every(link => link.sheet)")
    await page.evaluate("document.fonts.ready.then(() => true)")
    await page.screenshot(path=path, full_page=True, animations="disabled")
    print(path.relative_to(PROJECT))


async def _font(route: Route) -> None:
    name = route.request.url.partition("/picture-fonts/")[2]
    await route.fulfill(path=FONTS / name)


if __name__ == "__main__":
    asyncio.run(main())
