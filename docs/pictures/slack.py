"""Pictures of every kind of message, modal and tab of the Slack bot, from the Block Kit JSON that the program sends.

    make pictures

The scenes are those of the tests. No request goes to Slack: `block_kit_html.py` draws the JSON, and Chromium takes the
pictures.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).parent)]

from block_kit_html import event, home, message, modal, page, place, said  # noqa: E402 - found through the line above
from photographs import photograph  # noqa: E402
from scenes import (  # noqa: E402
    Scene,
    answer,
    approval,
    approvals,
    deceptive_call,
    inbox,
    inquiry,
    previewed_call,
    working,
)

from bot.chat.actions import ApprovalRef, OpenConfirmation, OpenDenyForm  # noqa: E402
from bot.chat.approval_inbox import PendingCall  # noqa: E402
from bot.chat.command_runner import reply_message  # noqa: E402
from bot.chat.forms import CardForms  # noqa: E402
from bot.chat.home_message import Home  # noqa: E402
from bot.domain.approvals import ApprovalNotice, Approver  # noqa: E402
from bot.domain.commands import Form, Invocation, Reply  # noqa: E402
from bot.domain.conversations import Member  # noqa: E402
from bot.domain.turns import StepStatus, ToolStep, TurnView  # noqa: E402
from bot.i18n import use_language, use_time_zone  # noqa: E402
from bot.platforms.slack.home import home_view  # noqa: E402
from bot.platforms.slack.message_blocks import command_reply, outgoing_message, turn_messages  # noqa: E402
from bot.platforms.slack.modals import (  # noqa: E402
    call_modal,
    confirm_modal,
    deny_modal,
    form_to_modal,
)
from bot.ports.platform import OpenElicitation  # noqa: E402
from bot.rendering.elicitation_card import ANSWER, VISIT  # noqa: E402
from tests.platforms import sample_views  # noqa: E402
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands  # noqa: E402

WIDTH = 700
JAPANESE = ("approval", "home", "outcomes", "reasons")
"""Pictures that are drawn in Japanese, too."""


def main() -> None:
    """Draw all pictures and print their paths."""
    with use_language("ja"), use_time_zone("Asia/Tokyo"):
        japanese = {f"{name}-ja": document for name, document in pictures().items() if name in JAPANESE}
    for name, document in {**pictures(), **japanese}.items():
        path = Path(__file__).with_name(f"slack-{name}.png")
        photograph(document, path, WIDTH)
        print(path.relative_to(PROJECT))


SAM = Approver("slack:U0SAM", "Sam", ApprovalNotice.MENTION)


def pictures() -> Mapping[str, str]:
    """Return the documents of all pictures, by their names."""
    call = sample_views.a_filing(StepStatus.AWAITING)
    removal = OpenConfirmation(("mcp", "remove", "jira"), "jira", "Remove jira")
    waiting = [PendingCall(sample_views.ASKED.turn, call)]
    asked = [sample_views.INQUIRED.turn, replace(sample_views.ANSWERED.turn, id="earlier")]
    booking = sample_views.a_booking(StepStatus.ASKING, sample_views.asked_back())
    question = OpenElicitation(sample_views.INQUIRED.turn, booking, booking.elicitations[0])
    tab = Home(sample_views.NOW, waiting, [question], asked, sample_views.SERVERS, first_visit=True)
    return {
        "working": page(scene(working())),
        "answer": page(scene(answer())),
        "approval": page(scene(approval(SAM))),
        "hidden": page(scene(deceptive_call())),
        "approvals": page(scene(approvals())),
        "preview": page(scene(previewed_call())),
        "outcomes": page(*map(cards, sample_views.SETTLED.values())),
        "questions": page(
            scene(inquiry()), questions(sample_views.SENT_AWAY), *map(questions, sample_views.HEARD.values())
        ),
        "questions-alone": page(*asyncio.run(alone())),
        "notices": page(
            thread(sample_views.QUEUED), thread(sample_views.FAILED), thread(sample_views.SETTLED["unknown"])
        ),
        "everything": page(modal(call_modal(call))),
        "reasons": page(
            modal(deny_modal(OpenDenyForm(ApprovalRef("3a7f3c2e9b", 1)), "")), modal(confirm_modal(removal, ""))
        ),
        "command": page(
            *(
                message(command_reply(reply_message(each)).blocks, only_you=True)
                for each in (sample_views.LISTING, sample_views.SHOWN)
            )
        ),
        "form": page(modal(form_to_modal(sample_views.ADDING, ""))),
        "home": page(home(home_view(tab))),
        "inbox": page(message(outgoing_message(inbox()).blocks, only_you=True)),
    }


def scene(shown: Scene) -> str:
    """Return a thread with its question, and the final messages after the first reply."""
    begin = place("incidents") + said("Priya", shown.question) + thread(shown.view)
    return begin if shown.end is None else begin + event(shown.event) + thread(shown.end, 1)


def thread(view: TurnView, start: int = 0) -> str:
    """Return the messages of a turn, from index `start` on."""
    return "".join(message(slot.blocks) for slot in turn_messages(view, sample_views.NOW)[start:])


def cards(view: TurnView) -> str:
    """Return the cards of a turn."""
    return of_kind(view, "card")


def questions(view: TurnView) -> str:
    """Return the elicitations of a turn."""
    return of_kind(view, "question")


def of_kind(view: TurnView, kind: str) -> str:
    """Return the messages of a turn whose name begins with `kind`."""
    slots = turn_messages(view, sample_views.NOW)
    return "".join(message(slot.blocks) for slot in slots if slot.name.startswith(kind))


async def alone() -> list[str]:
    """Return the ephemeral answers to the user: the form, and the link to a page."""
    seen = []
    for view, word in ((sample_views.INQUIRED, ANSWER), (sample_views.SENT_AWAY, VISIT)):
        match await pressed(view, word):
            case Form() as form:
                seen.append(modal(form_to_modal(form, "")))
            case Reply() as reply:
                seen.append(message(command_reply(reply_message(reply)).blocks, only_you=True))
    return seen


async def pressed(view: TurnView, word: str) -> Reply | Form:
    """Return the response to a click on an elicitation's card."""
    step = next(each for each in view.steps if isinstance(each, ToolStep))
    engine, (asked,) = FakeEngine(), step.elicitations
    engine.inquiries[asked.id] = OpenElicitation(view.turn, step, asked)
    invocation = Invocation(word, (asked.id,), Member(sample_views.PRIYA), view.turn.conversation)
    (answer,) = [each async for each in CardForms(engine, ScriptedCommands()).handle(invocation)]
    return answer


if __name__ == "__main__":
    main()
