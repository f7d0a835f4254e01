"""Draws every kind of message, window and tab of the Slack bot, from the Block Kit JSON that the program makes of it.

    make pictures

The scenes are those of the tests. Slack is not asked: what stands in the pictures is what is sent to it, drawn by
`block_kit_html.py` and photographed by Chromium, which has to be installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).parent)]

from block_kit_html import home, message, modal, page  # noqa: E402 - found through the line above

from bot.domain.turns import StepStatus  # noqa: E402
from bot.domain.views import TurnView  # noqa: E402
from bot.platforms.slack.forms import form_window  # noqa: E402
from bot.platforms.slack.home import Home, Waiting, home_view  # noqa: E402
from bot.platforms.slack.replies import reply_sheet  # noqa: E402
from bot.platforms.slack.turns import turn_slots  # noqa: E402
from bot.platforms.slack.windows import call_window, confirm_window, deny_window  # noqa: E402
from bot.reception.presses import AskToConfirm, CardRef  # noqa: E402
from tests.platforms.slack import scenes  # noqa: E402

WIDTH = 700
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Draw them all and print where they are."""
    for name, document in pictures().items():
        path = Path(__file__).with_name(f"slack-{name}.png")
        photograph(document, path)
        print(path.relative_to(PROJECT))


def pictures() -> Mapping[str, str]:
    """Every picture as a document, by its name."""
    call = scenes.a_filing(StepStatus.AWAITING)
    removal = AskToConfirm(("mcp", "remove", "jira"), "jira", "Remove jira")
    waiting = [Waiting(scenes.ASKED.turn, call)]
    asked = [scenes.ASKED.turn, scenes.ANSWERED.turn]
    tab = Home(scenes.NOW, waiting, asked, scenes.SERVERS, first_visit=True)
    return {
        "working": page(thread(scenes.WRITING)),
        "answer": page(thread(scenes.ANSWERED)),
        "approval": page(thread(scenes.ASKED)),
        "approvals": page(cards(scenes.ASKED_THREE)),
        "outcomes": page(*map(cards, scenes.SETTLED.values())),
        "notices": page(thread(scenes.QUEUED), thread(scenes.FAILED), thread(scenes.SETTLED["unknown"])),
        "everything": page(modal(call_window(call))),
        "reasons": page(modal(deny_window(CardRef("3a7f3c2e9b", 1), "")), modal(confirm_window(removal, ""))),
        "command": page(*(message(reply_sheet(each).blocks, only_you=True) for each in (scenes.LISTING, scenes.SHOWN))),
        "form": page(modal(form_window(scenes.ADDING, ""))),
        "home": page(home(home_view(tab))),
    }


def thread(view: TurnView) -> str:
    """Every message of a turn."""
    return "".join(message(slot.blocks) for slot in turn_slots(view, scenes.NOW))


def cards(view: TurnView) -> str:
    """The cards of a turn."""
    slots = turn_slots(view, scenes.NOW)
    return "".join(message(slot.blocks) for slot in slots if slot.name.startswith("card"))


def photograph(document: str, path: Path) -> None:
    """Draw a document on as much paper as it needs."""
    with tempfile.TemporaryDirectory(prefix="countersign-picture-") as folder:
        source = Path(folder) / "page.html"
        measure = "<script>document.title = document.documentElement.scrollHeight</script>"
        source.write_text(document + measure, encoding="utf-8")
        address = source.as_uri()
        seen = browse(folder, "--dump-dom", f"--window-size={WIDTH},10", address)
        height = re.search(r"<title>(\d+)</title>", seen)
        if height is None:
            raise SystemExit("Chromium did not say how tall the page is.")
        browse(folder, f"--screenshot={path}", f"--window-size={WIDTH},{height[1]}", address)


def browse(folder: str, *arguments: str) -> str:
    """Run Chromium on nothing but this folder; what it prints."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        raise SystemExit("The pictures of Slack need Chromium: install it, or leave them as they are.")
    fixed = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
    )
    run = subprocess.run((program, *fixed, *arguments), check=True, capture_output=True, text=True, timeout=60)
    return run.stdout


if __name__ == "__main__":
    main()
