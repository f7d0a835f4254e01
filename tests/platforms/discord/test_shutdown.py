"""Shutdown within seconds while Discord does not answer, without leftover tasks."""

from __future__ import annotations

import asyncio

import pytest

from bot.chat import background_tasks
from bot.domain.commands import Reply
from bot.domain.turns import StepStatus, TurnStatus
from bot.platforms.discord import interactions
from tests.fakes.discord import TooMany
from tests.platforms.discord.command_bot import command_bot
from tests.platforms.discord.connected_bot import ConnectedBot
from tests.platforms.discord.test_action_codec import button_id, draw_view
from tests.rendering.turns import a_step, a_view, an_approval

QUICKLY = 10.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the limits of a shutdown."""
    monkeypatch.setattr(background_tasks, "GOODBYE_SECONDS", 0.1)
    monkeypatch.setattr(interactions, "PATIENCE_SECONDS", 0.05)


def left_over(before: set[asyncio.Task[object]]) -> set[str]:
    """Return the bot's new tasks."""
    return {task.get_name() for task in asyncio.all_tasks() - before if task.get_name().startswith("discord: ")}


async def test_a_press_in_hand_while_discord_asks_for_a_long_pause_does_not_hold_up_the_end(
    place: ConnectedBot,
) -> None:
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    step = a_step(StepStatus.AWAITING, approval=an_approval())
    card = await draw_view(place, a_view(step, status=TurnStatus.WAITING))
    place.discord.fail("GET /guilds/{guild}/members/{user}", TooMany(20, everywhere=True), 5)
    place.discord.fail("POST /users/@me/channels", TooMany(20, everywhere=True), 5)
    place.discord.say(place.priya, place.discord.dm(place.priya), "hello")
    await place.discord.until(lambda: [call for call in place.discord.calls if call.status == 429])
    await place.discord.press(place.priya, card, button_id(card, "approve"))
    left = loop.time()
    await place.stop()
    assert loop.time() - left < QUICKLY
    assert left_over(before) == set()


async def test_a_command_under_way_ends_with_the_listener() -> None:
    async with command_bot([Reply("Never.")]) as place:
        place.commands.begun.clear()
        await place.discord.command(place.priya, "mcp list", place.channel)
        assert [task for task in asyncio.all_tasks() if task.get_name() == "discord: command"]
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "discord: command"]
    assert len(place.commands.requests) == 1
