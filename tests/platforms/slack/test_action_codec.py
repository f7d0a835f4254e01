"""Buttons: the user is looked up at the click, the engine decides, and a rejection is an ephemeral message."""

from __future__ import annotations

import dataclasses

from bot.chat.actions import UNEXPECTED_ERROR
from bot.chat.users import NOT_FOR_STRANGERS
from bot.domain.approvals import NotAllowed
from bot.domain.conversations import ConversationKey
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from tests.fakes.slack import Fails, Message, Team, User
from tests.platforms.slack.connected_bot import ConnectedBot
from tests.platforms.slack.test_surface import placed_view
from tests.rendering.turns import a_step, a_view, an_approval


async def draw_view(place: ConnectedBot, view: TurnView) -> Message:
    """Return the last message of a view in a thread of #incidents."""
    root = place.slack.say(place.priya, place.channel, "please")
    key = ConversationKey("slack", place.slack.workspace.team.id, place.channel.id, root.ts)
    await place.draw(placed_view(place, place.engine.knows(view, key), root.ts))
    return place.bot_posts()[-1]


def waiting(**arguments: str) -> TurnView:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), arguments=arguments or {"text": "Buy milk"})
    return a_view(step, status=TurnStatus.WAITING)


def somebody(place: ConnectedBot, name: str, **rights: bool | str) -> User:
    user = place.slack.user(name, **rights)  # type: ignore[arg-type]
    place.channel.members.append(user.id)
    return user


async def test_a_refusal_names_people_and_groups_and_calls_none_of_them(place: ConnectedBot) -> None:
    sam, group = somebody(place, "Sam"), place.slack.group("ops-approvers")
    card = await draw_view(place, waiting())
    refusal = NotAllowed(f"You may not approve this. It needs slack-group:{group.id}, slack:{sam.id}.")
    place.engine.settlements = [refusal, refusal]
    await place.slack.press(place.priya, card, "cs.approve")
    await place.slack.until(lambda: place.whispers(place.priya))
    (told,) = place.whispers(place.priya)
    assert told.replace("\u2060", "") == "You may not approve this. It needs @ops-approvers, @sam."
    (message,) = [each for each in place.slack.bot_messages(place.channel) if each.ephemeral_to]
    assert place.slack.notified_ids(message) == set()
    await place.slack.press(place.priya, card, "cs.deny")
    await place.slack.until(lambda: place.slack.modals(place.priya))
    await place.slack.submit(place.priya, {"reason": "no"})
    assert "It needs @ops-approvers, @sam." in str(place.slack.modal(place.priya).drawn)


async def test_a_user_of_another_workspace_with_an_id_of_this_one_is_an_outsider(place: ConnectedBot) -> None:
    twin = dataclasses.replace(place.priya, team=Team("T0OTHER001", "other"))
    card = await draw_view(place, waiting())
    await place.slack.press(place.priya, card, "cs.deny")
    await place.slack.until(lambda: place.slack.modals(place.priya))
    await place.slack.submit(twin, {"reason": "no"})
    await place.slack.press(twin, card, "cs.approve")
    await place.slack.press(place.priya, card, "cs.approve")
    await place.slack.until(lambda: len(place.engine.decisions) == 3)
    assert [member.external for _, member in place.engine.decisions] == [True, True, False]
    before = len(place.whispers(twin))
    await place.slack.command(twin, "/mcp", "list", place.channel)
    message = place.slack.say(place.priya, place.channel, "The pool is full.")
    place.engine.received.clear()
    await place.slack.shortcut(twin, "cs.ask", message)
    await place.slack.until(lambda: len(place.slack.modals(twin)) == 1)
    await place.slack.submit(twin, {"question": "why?"})
    await place.slack.until(lambda: len(place.whispers(twin)) == before + 2)
    assert place.whispers(twin)[before:] == [NOT_FOR_STRANGERS] * 2
    assert (place.commands.requests, place.engine.received) == ([], [])


async def test_view_all_shows_everything_and_can_be_approved_there(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting(text="long " * 400))
    await place.slack.press(place.priya, card, "cs.view")
    await place.slack.until(lambda: place.slack.modals(place.priya))
    window = place.slack.modal(place.priya)
    assert str(window.drawn).count("long ") >= 400
    await place.slack.press(place.priya, window, "cs.approve")
    await place.slack.until(lambda: place.engine.decisions)
    assert place.engine.decisions[0][0].approval_id == "apr-12345678"
    await place.slack.press(place.priya, window, "cs.deny")
    await place.slack.until(lambda: len(place.slack.modals(place.priya)) == 2)


async def test_a_press_without_a_user_decides_nothing_and_is_answered(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting())
    place.slack.fail("users.info", Fails("fatal_error"), times=2)
    await place.slack.press(place.priya, card, "cs.approve")
    await place.slack.until(lambda: place.whispers(place.priya))
    assert place.whispers(place.priya) == [UNEXPECTED_ERROR]
    assert place.engine.decisions == []
