"""Draws every kind of message, window and tab of the Slack bot, from the Block Kit JSON that the program makes of it.

    make pictures

The scenes are those of the tests. Slack is not asked: what stands in the pictures is what is sent to it, drawn by
`block_kit_html.py` and photographed by Chromium.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).parent)]

from block_kit_html import home, message, modal, page  # noqa: E402 - found through the line above
from photographs import photograph  # noqa: E402

from bot.domain.turns import StepStatus  # noqa: E402
from bot.domain.views import TurnView  # noqa: E402
from bot.platforms.slack.forms import form_window  # noqa: E402
from bot.platforms.slack.home import Home, Waiting, home_view  # noqa: E402
from bot.platforms.slack.replies import reply_sheet  # noqa: E402
from bot.platforms.slack.turns import turn_slots  # noqa: E402
from bot.platforms.slack.windows import call_window, confirm_window, deny_window  # noqa: E402
from bot.reception.presses import AskToConfirm, CardRef  # noqa: E402
from tests.platforms import scenes  # noqa: E402

WIDTH = 700


def main() -> None:
    """Draw them all and print where they are."""
    for name, document in pictures().items():
        path = Path(__file__).with_name(f"slack-{name}.png")
        photograph(document, path, WIDTH)
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


if __name__ == "__main__":
    main()
