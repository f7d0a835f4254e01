"""The real program in Slack, beside questions and answers: files, opinions, the shortcut, the queue, and Home."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fakes.llm import Call, FakeLanguageModel, Gate, Hold, Reply, Request, Say
from tests.stories.slack_program import Company, a_company

KEEP_IT = "note that the deploy is at noon"
WAIT = "think about it"
NOTES = {"notes": {"command": "python", "args": ["-m", "mcp_servers.notes"]}}


class Clerk:
    """Calls the tool for notes as asked, and holds back one answer until the gate is opened."""

    def __init__(self) -> None:
        self.gate = Gate()

    def __call__(self, request: Request) -> Reply:
        if request.results:
            return Say(f"It said: {request.results[0].strip()}")
        if request.question == KEEP_IT:
            return Say(calls=(Call("notes__add", {"text": "The deploy is at noon."}),))
        answer = Say(f"You said: {request.question}.")
        return Hold(answer, self.gate) if request.question == WAIT else answer


@pytest.fixture
def clerk() -> Clerk:
    return Clerk()


@pytest.fixture
def model(clerk: Clerk) -> Iterator[FakeLanguageModel]:
    with FakeLanguageModel("openai", rule=clerk) as model:
        yield model
    assert model.refusals == []


def opinions(company: Company) -> list[tuple[str, int]]:
    """Stored feedback: the user, and True if the answer was good."""
    with closing(sqlite3.connect(company.place.data / "countersign.db")) as database:
        return database.execute("select principal, good from feedback").fetchall()


async def test_files_opinions_the_shortcut_and_the_queue(
    tmp_path: Path, model: FakeLanguageModel, clerk: Clerk
) -> None:
    async with a_company(tmp_path, model, {}) as company, company.bot() as bot:
        slack, priya, sam = company.slack, company.priya, company.sam
        log = ("checkout.log", b"14:05 pool exhausted")
        asked = slack.say(priya, company.incidents, f"{slack.bot.mention} what is in it?", files=[log])
        answer = await company.draws(asked.ts, "AI answer")
        assert "14:05 pool exhausted" in json.dumps(model.requests[0].body)

        await slack.press(priya, answer, "Bad answer")
        await company.hears(priya, "Thank you, noted.")
        await slack.press(priya, answer, "Good answer")
        await slack.until(lambda: opinions(company) == [(f"slack:{priya.id}", 1)], 30)

        said = slack.say(sam, company.incidents, "checkout is slow since 14:05")
        await slack.shortcut(priya, "cs.ask", said)
        await slack.until(lambda: slack.modals(priya), 30)
        await slack.submit(priya, {"question": "why?"})
        await company.draws(said.ts, "You said: why?.")
        assert "sam: checkout is slow since 14:05" in json.dumps(model.requests[-1].body)

        company.ask(WAIT, asked.ts)
        await asyncio.wrap_future(clerk.gate.reached)
        company.ask("and then?", asked.ts)
        clerk.gate.open()
        await company.draws(asked.ts, "You said: and then?.")
        assert not slack.calls.failed_calls()
        assert "Traceback" not in bot.log


async def test_a_waiting_call_is_approved_from_home_where_it_is_gone_afterwards_without_being_opened_again(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model, NOTES) as company, company.bot() as bot:
        slack, sam = company.slack, company.sam
        asked = company.ask(KEEP_IT)
        await company.draws(asked.ts, "cs.approve")
        slack.open_home(sam)
        await slack.until(lambda: slack.home(sam), 30)
        home = slack.home(sam)
        assert home is not None
        assert "Waiting for you (1)" in str(home.drawn)
        assert "Servers (1)" in str(home.drawn)
        await slack.press(sam, home, "View all")
        await slack.until(lambda: slack.modals(sam), 30)
        assert "The deploy is at noon." in str(slack.modal(sam).drawn)
        await slack.press(sam, slack.modal(sam), "Approve: Add a note")
        await company.draws(asked.ts, "It said: Saved as note #1")
        assert company.place.notes == ["The deploy is at noon."]
        await slack.until(lambda: "Nothing waits for you." in str(getattr(slack.home(sam), "drawn", "")), 30)
        assert not slack.calls.failed_calls()
        assert "Traceback" not in bot.log
