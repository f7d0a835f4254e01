"""A member sends more messages than the limits allow. Others are answered, and every message is answered or refused
with a notice.

Real programs with small limits from the settings, and a model that holds back the answers of the flood.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bot.chat.actions import TOO_MANY_REQUESTS
from tests.fakes.llm import FakeLanguageModel, Gate, Hold, Reply, Request, Say
from tests.stories import discord_program, slack_program
from tests.stories.counted_calls import CountingPlace
from tests.stories.program import PATIENCE
from tests.stories.test_http_api import TOKEN, a_web
from tests.web.streams import open_reply_stream

FLOOD, RUNNING, QUEUED = 60, 2, 5
ACCEPTED = range(QUEUED, QUEUED + RUNNING + 1)
"""Number of accepted messages of the flood: a queued turn makes room only when a runner claims it."""
REFUSED = FLOOD - ACCEPTED[-1]
LIMITS: dict[str, Any] = {"MAX_RUNNING_TURNS_PER_USER": str(RUNNING), "MAX_QUEUED_TURNS_PER_USER": str(QUEUED)}
ASK = "/api/responses/stream"


@pytest.fixture
def gate() -> Gate:
    """Opened, it lets the answers to the flood end."""
    return Gate()


@pytest.fixture
def model(gate: Gate) -> Iterator[FakeLanguageModel]:
    def answer(request: Request) -> Reply:
        said = Say(f"You said: {request.question}.")
        return Hold(said, gate) if request.question.startswith("flood") else said

    with FakeLanguageModel("openai", rule=answer) as model:
        yield model
        gate.open()
    assert model.refusals == []


def told_of(notices: list[str]) -> int:
    """Return the number of messages that these notices speak of."""
    assert all("was not accepted" in notice or notice.startswith(TOO_MANY_REQUESTS) for notice in notices), notices
    others = (re.search(r"(\d+) other messages? of yours", notice) for notice in notices)
    return len(notices) + sum(int(found[1]) for found in others if found)


async def test_a_flood_in_slack_delays_no_other_member_and_no_message_of_it_is_lost_without_a_word(
    tmp_path: Path, model: FakeLanguageModel, gate: Gate
) -> None:
    async with slack_program.a_company(tmp_path, model, **LIMITS) as company, company.bot() as bot:
        mallory = company.slack.user("Mallory")
        company.incidents.members.append(mallory.id)
        flood = [company.ask(f"flood {n}", user=mallory) for n in range(FLOOD)]
        await company.slack.until(lambda: company.whispers(mallory), PATIENCE)
        asked = company.ask("hello")
        await company.draws(asked.ts, "You said: hello.")
        assert not gate.opened.done()
        await company.slack.until(lambda: told_of(company.whispers(mallory)) >= REFUSED, PATIENCE)
        gate.open()

        def answers() -> int:
            return sum(any("You said: flood" in each for each in company.public_texts(one.ts)) for one in flood)

        await company.slack.until(lambda: answers() + told_of(company.whispers(mallory)) == FLOOD, PATIENCE)
        accepted = answers()
        assert accepted in ACCEPTED
        assert len(company.whispers(mallory)) < REFUSED / 2
        assert await bot.leaves() == 0
    assert Counter(request.question.split()[0] for request in model.requests) == {"flood": accepted, "hello": 1}


async def test_a_flood_in_discord_delays_no_other_member_and_no_message_of_it_is_lost_without_a_word(
    tmp_path: Path, model: FakeLanguageModel, gate: Gate
) -> None:
    async with discord_program.a_company(tmp_path, model, **LIMITS) as company, company.bot() as bot:
        discord, mallory = company.discord, company.discord.user("Mallory")

        def notices() -> list[str]:
            return [message.content for message in discord.bot_messages(discord.dm(mallory))]

        for n in range(FLOOD):
            company.ask(f"flood {n}", mallory)
        await discord.until(notices, PATIENCE)
        asked = company.ask("hello")
        await company.reads(await company.thread(asked), "You said: hello.")
        assert not gate.opened.done()
        await discord.until(lambda: told_of(notices()) >= REFUSED, PATIENCE)
        gate.open()

        def questions() -> Counter[str]:
            return Counter(request.question.split()[0] for request in model.requests)

        # A message that was refused may be counted again when the bot reads the messages it missed.
        await discord.until(
            lambda: questions()["flood"] in ACCEPTED and questions()["flood"] + told_of(notices()) >= FLOOD, PATIENCE
        )
        assert len(notices()) < REFUSED / 2
        assert await bot.leaves() == 0
    assert questions().keys() == {"flood", "hello"}


async def test_a_flood_over_http_delays_no_other_token_and_every_question_beyond_the_limit_gets_429(
    tmp_path: Path, model: FakeLanguageModel, gate: Gate
) -> None:
    place = CountingPlace(tmp_path, model, ADMIN_API_TOKEN=TOKEN, PORT="0", **LIMITS)

    async with a_web(place) as (bot, client):
        made = await asyncio.to_thread(place.countersign, "tokens", "create", "mallory", "--role", "member")
        headers = {"Authorization": f"Bearer {made.out.strip()}"}

        async def asks(n: int) -> httpx2.Response:
            payload = {"messages": [{"role": "user", "content": f"flood {n}"}], "stream": False}
            return await client.post(ASK, json={"conversationId": f"flood{n}", "payload": payload}, headers=headers)

        flood = [asyncio.create_task(asks(n)) for n in range(FLOOD)]
        async with asyncio.timeout(PATIENCE):
            answers = [await answer for answer in itertools.islice(asyncio.as_completed(flood), REFUSED)]
        assert {each.status_code for each in answers} == {429}
        # A token also has only so many requests open at once: whichever limit is met first refuses.
        assert (
            {"queue_full"} <= {each.json()["error"]["code"] for each in answers} <= {"queue_full", "too_many_requests"}
        )
        assert all(each.headers["Retry-After"] for each in answers)
        async with open_reply_stream(client, "hello", "hello", token=TOKEN) as stream:
            assert (await stream.read_to_end())[-1].data["text"] == "You said: hello."
        assert not gate.opened.done()
        gate.open()
        async with asyncio.timeout(PATIENCE):
            statuses = Counter([(await answer).status_code for answer in flood])
        assert statuses[200] in ACCEPTED
        assert statuses[200] + statuses[429] == FLOOD
        answers = [answer.result() for answer in flood if answer.result().status_code == 200]
        assert all("You said: flood" in answer.text for answer in answers)
        assert await bot.leaves() == 0
