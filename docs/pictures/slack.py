"""Draws every kind of message, window and tab of the Slack bot, from the Block Kit JSON that the program makes of it.

    make pictures

The scenes are those of the tests. Slack is not asked: what stands in the pictures is what is sent to it, drawn by
`block_kit_html.py` and photographed by Chromium.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).parent)]

from block_kit_html import home, message, modal, page  # noqa: E402 - found through the line above
from photographs import photograph  # noqa: E402

from bot.chat.actions import ApprovalRef, OpenConfirmation  # noqa: E402
from bot.chat.elicitation_forms import ElicitationForms  # noqa: E402
from bot.domain.commands import Form, Invocation, Reply  # noqa: E402
from bot.domain.conversations import Member  # noqa: E402
from bot.domain.elicitation_answers import OpenElicitation  # noqa: E402
from bot.domain.turns import StepStatus, ToolStep  # noqa: E402
from bot.domain.views import TurnView  # noqa: E402
from bot.platforms.slack.command_runner import command_reply  # noqa: E402
from bot.platforms.slack.home import Home, PendingApprovalSummary, home_view  # noqa: E402
from bot.platforms.slack.modals import (  # noqa: E402
    call_modal,
    confirm_modal,
    deny_modal,
    form_to_modal,
)
from bot.platforms.slack.turns import turn_messages  # noqa: E402
from bot.rendering.elicitation_card import ANSWER, VISIT  # noqa: E402
from tests.platforms import scenes  # noqa: E402
from tests.platforms.front_door import ScriptedCommands, ScriptedDoor  # noqa: E402

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
    removal = OpenConfirmation(("mcp", "remove", "jira"), "jira", "Remove jira")
    waiting = [PendingApprovalSummary(scenes.ASKED.turn, call)]
    asked = [scenes.INQUIRED.turn, replace(scenes.ANSWERED.turn, id="earlier")]
    booking = scenes.a_booking(StepStatus.ASKING, scenes.asked_back())
    question = OpenElicitation(scenes.INQUIRED.turn, booking, booking.elicitations[0])
    tab = Home(scenes.NOW, waiting, [question], asked, scenes.SERVERS, first_visit=True)
    return {
        "working": page(thread(scenes.WRITING)),
        "answer": page(thread(scenes.ANSWERED)),
        "approval": page(thread(scenes.ASKED)),
        "hidden": page(cards(scenes.HIDDEN)),
        "approvals": page(cards(scenes.ASKED_THREE)),
        "outcomes": page(*map(cards, scenes.SETTLED.values())),
        "questions": page(thread(scenes.INQUIRED), questions(scenes.SENT_AWAY), *map(questions, scenes.HEARD.values())),
        "questions-alone": page(*asyncio.run(alone())),
        "notices": page(thread(scenes.QUEUED), thread(scenes.FAILED), thread(scenes.SETTLED["unknown"])),
        "everything": page(modal(call_modal(call))),
        "reasons": page(modal(deny_modal(ApprovalRef("3a7f3c2e9b", 1), "")), modal(confirm_modal(removal, ""))),
        "command": page(
            *(message(command_reply(each).blocks, only_you=True) for each in (scenes.LISTING, scenes.SHOWN))
        ),
        "form": page(modal(form_to_modal(scenes.ADDING, ""))),
        "home": page(home(home_view(tab))),
    }


def thread(view: TurnView) -> str:
    """Every message of a turn."""
    return "".join(message(slot.blocks) for slot in turn_messages(view, scenes.NOW))


def cards(view: TurnView) -> str:
    """The cards of a turn."""
    return of_kind(view, "card")


def questions(view: TurnView) -> str:
    """What servers have asked back in a turn."""
    return of_kind(view, "question")


def of_kind(view: TurnView, kind: str) -> str:
    """The messages of a turn whose name begins so."""
    slots = turn_messages(view, scenes.NOW)
    return "".join(message(slot.blocks) for slot in slots if slot.name.startswith(kind))


async def alone() -> list[str]:
    """What whoever is asked sees alone: the form, and the way to a page."""
    seen = []
    for view, word in ((scenes.INQUIRED, ANSWER), (scenes.SENT_AWAY, VISIT)):
        match await pressed(view, word):
            case Form() as form:
                seen.append(modal(form_to_modal(form, "")))
            case Reply() as reply:
                seen.append(message(command_reply(reply).blocks, only_you=True))
    return seen


async def pressed(view: TurnView, word: str) -> Reply | Form:
    """What is answered to a press on the card of a question."""
    step = next(each for each in view.steps if isinstance(each, ToolStep))
    door, (asked,) = ScriptedDoor(), step.elicitations
    door.inquiries[asked.id] = OpenElicitation(view.turn, step, asked)
    invocation = Invocation(word, (asked.id,), Member(scenes.PRIYA), view.turn.conversation)
    (answer,) = [each async for each in ElicitationForms(door, ScriptedCommands()).handle(invocation)]
    return answer


if __name__ == "__main__":
    main()
