"""Questions of a server during a call, on every platform: a real server of each version of the protocol, called by the
model, with answers of the user in whose name the call runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.chat.forms import FINISHED, REFUSED, SENT
from bot.domain.messages import ToolResult
from tests.fakes.parts import ask_for, call, say
from tests.fakes.programs import listening
from tests.mcp.toolboxes import remote, running_toolbox
from tests.stories.japanese import both_languages  # noqa: F401 - a fixture
from tests.stories.team import Talk, Team

BOOKING = Path(__file__).parents[1] / "fakes" / "mcp" / "booking.py"
PAGE = "https://pay.example.com/c/7f3a?for=K7P2"
BOOK, PAY = "travel__book", "travel__pay"
ERAS = ("modern", "older")
NOT_YOURS = "can answer this: the call runs in their name."

every_era = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def travel(team: Team, era: str) -> AsyncIterator[str]:
    """Start the server and return its address. Its calls need no approval."""
    team.allowed = {BOOK, PAY}
    with listening(str(BOOKING), era) as (port, _):
        yield f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def at_work(team: Team, url: str) -> AsyncIterator[None]:
    """One process of the bot, connected to the server."""
    async with running_toolbox(remote("travel", url)) as servers:
        team.servers = servers
        async with team.at_work():
            yield


async def ask_and_wait(team: Team, tool: str, label: str, **arguments: Any) -> tuple[Talk, Any]:
    """Priya asks for something about which the server has a question; the card."""
    team.model.script = [ask_for(call(tool, **arguments)), say("That is that.")]
    talk = team.ask("travel, please")
    return talk, await team.offers(talk, label)


def results(team: Team) -> list[str]:
    """Results of the turn's calls, as the model received them."""
    parts = [part for message in team.model.requests[-1].messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ToolResult)]


@every_era
async def test_a_form_is_answered_by_the_asker_alone(team: Team, era: str) -> None:
    async with travel(team, era) as url, at_work(team, url):
        talk, card = await ask_and_wait(team, BOOK, "Answer", train="14:05")
        for expected in ("travel asks for", "The 14:05 has seats left. How many?", "Seats, A note for the guard"):
            assert expected in team.words(card)
        assert team.notified_ids(card) == {team.priya.id}
        for label in ("Answer", "Decline"):
            await team.press(team.sam, card, label)
        await team.until(lambda: str(team.private_replies(team.sam)).count(NOT_YOURS) == 2)
        await team.press(team.priya, card, "Answer")
        await team.fill_in(team.priya, {"Seats": "0"})
        await team.fill_in_again(team.priya, {"Seats": "2", "A note for the guard": "with a bicycle"})
        await team.hears(team.priya, SENT)
        await team.settles(card)
        await team.reads(talk, "That is that.")
        assert "Answered by" in team.words(card)
        assert "bicycle" not in team.words(card)
        # What is sent to a program that is just ending is sent again to the next.
        await team.until(lambda: not team.unacknowledged_actions())
    assert results(team) == ["Booked 2 on the 14:05. Note: with a bicycle."]
    assert team.failed_calls() == []


@every_era
async def test_a_question_is_declined_and_the_server_goes_on_without_an_answer(team: Team, era: str) -> None:
    async with travel(team, era) as url, at_work(team, url):
        talk, card = await ask_and_wait(team, BOOK, "Answer", train="14:05")
        await team.press(team.priya, card, "Decline")
        await team.hears(team.priya, REFUSED)
        await team.reads(talk, "That is that.")
        await team.settles(card)
        assert "Declined by" in team.words(card)
    assert results(team) == ["Nothing was booked: decline."]


@every_era
async def test_a_page_is_visited_by_the_asker_who_alone_sees_its_address(team: Team, era: str) -> None:
    async with travel(team, era) as url, at_work(team, url):
        talk, card = await ask_and_wait(team, PAY, "Show the link")
        assert "pay.example.com" in team.words(card)
        await team.press(team.sam, card, "Show the link")
        await team.hears(team.sam, NOT_YOURS)
        await team.press(team.priya, card, "Show the link")
        way = await team.sees(team.priya, "I have finished")
        assert team.buttons(way) == ["Open pay.example.com", "I have finished", "Decline"]
        assert PAGE in str(team.private_replies(team.priya))
        await team.press(team.priya, way, "I have finished")
        await team.hears(team.priya, FINISHED)
        await team.reads(talk, "That is that.")
        await team.settles(card)
        assert "Visited by" in team.words(card)
        assert "7f3a" not in team.visible_text(talk) + str(team.private_replies(team.sam))
        assert team.fetched_addresses() == set()
    assert results(team) == ["The payment: accept."]
    assert team.failed_calls() == []


async def test_an_answer_counts_though_the_bot_was_restarted_since_the_question(team: Team) -> None:
    async with travel(team, "modern") as url:
        async with at_work(team, url):
            talk, card = await ask_and_wait(team, BOOK, "Answer", train="14:05")
            count = len(team.messages(talk))
        async with at_work(team, url):
            await team.press(team.priya, card, "Answer")
            await team.fill_in(team.priya, {"Seats": "2"})
            await team.hears(team.priya, SENT)
            await team.reads(talk, "That is that.")
            await team.settles(card)
            assert "Answered by" in team.words(card)
            assert len([message for message in team.messages(talk) if "travel asks" in team.words(message)]) == 1
            assert len(team.messages(talk)) == count + 1
    assert results(team) == ["Booked 2 on the 14:05. Note: none."]


async def test_a_question_of_an_older_server_ends_with_the_process_that_asked_it(team: Team) -> None:
    async with travel(team, "older") as url:
        async with at_work(team, url):
            talk, card = await ask_and_wait(team, BOOK, "Answer", train="14:05")
        async with at_work(team, url):
            await team.settles(card)
            assert "Withdrawn" in team.words(card)
            await team.reads(talk, "That is that.")
            await team.offers(talk, "Run again")
