"""The disk of the database is full, and later it is not: the real process on a file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.fakes.llm import FakeLanguageModel
from tests.stories.counting import COUNT_IT, CountingPlace, counting
from tests.stories.test_http_api import TOKEN, a_web

SMALL = 64 * 1024
"""Bytes: more than the log has, less than the database."""
ASK = "/api/responses/stream"
BEGINS, ENDS = "cannot be written", "can be written again"


@pytest.fixture
def model() -> Iterator[FakeLanguageModel]:
    with FakeLanguageModel("openai", rule=counting) as model:
        yield model


async def _asked(client: httpx2.AsyncClient, conversation: str) -> httpx2.Response:
    payload = {"messages": [{"role": "user", "content": COUNT_IT}], "stream": False}
    return await client.post(
        ASK, json={"conversationId": conversation, "payload": payload}, headers={"Idempotency-Key": conversation}
    )


async def test_a_full_disk_is_told_everywhere_loses_no_question_and_passes_by_itself(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    place = CountingPlace(tmp_path, model, ADMIN_API_TOKEN=TOKEN, PORT="0")
    async with a_web(place) as (bot, client):
        assert (await _asked(client, "before")).status_code == 202
        bot.limits_files(SMALL)
        refused = await _asked(client, "lost")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable")
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, "unwritable")
        assert ready.json()["cause"].startswith("The database cannot be written: its disk")
        assert ready.json()["fix"]
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/api/conversations")).status_code == 200

        waiting = asyncio.create_task(_asked(client, "waiting"))
        await asyncio.wait({waiting}, timeout=1.0)
        bot.limits_files()
        assert (await waiting).status_code == 202
        assert (await _asked(client, "lost")).status_code == 202
        await bot.logs(ENDS)
        assert (await client.get("/readyz")).json()["database"] == "up"
        found = (await client.get("/api/conversations")).json()["conversations"]
        assert {each["id"] for each in found} == {"before", "lost", "waiting"}
        assert (bot.log.count(BEGINS), bot.log.count(ENDS), bot.log.count("is back after")) == (1, 1, 0)
        assert await bot.leaves() == 0
