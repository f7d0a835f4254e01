"""A program talks to the bot over HTTP: the real process, on a file and on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.fakes.llm import FakeLanguageModel
from tests.postgres import Server, end_leases
from tests.stories.counted_calls import COUNT_IT, CountingPlace, counting
from tests.stories.program import Bot, a_bot
from tests.web.streams import open_reply_stream, open_stream, replies

TOKEN = "a-token-of-the-operator-for-this-story"
clerk = counting


def on_postgresql(folder: Path, model: FakeLanguageModel, server: Server) -> CountingPlace:
    place = CountingPlace(folder, model, DATABASE_URL=server.fresh(), ADMIN_API_TOKEN=TOKEN, PORT="0")
    assert place.countersign("db", "upgrade").code == 0
    return place


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, model: FakeLanguageModel) -> CountingPlace:
    if request.param == "postgresql":
        return on_postgresql(tmp_path, model, request.getfixturevalue("postgres"))
    return CountingPlace(tmp_path, model, ADMIN_API_TOKEN=TOKEN, PORT="0")


@asynccontextmanager
async def a_web(place: CountingPlace, *arguments: str) -> AsyncIterator[tuple[Bot, httpx2.AsyncClient]]:
    """The program, and a client of its API."""
    async with a_bot(place, *arguments) as bot:
        port = (await bot.logs(r"listening for requests at \S+, port (\d+)"))[1]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            yield bot, client


async def approve_call(client: httpx2.AsyncClient, approval: dict[str, Any]) -> str:
    answer = await client.post(f"/api/responses/approval/{approval['approvalRequestId']}", json={"approved": True})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["outcome"])


async def test_a_question_is_asked_approved_and_answered_and_outlives_the_process(place: CountingPlace) -> None:
    async with a_web(place) as (bot, client):
        async with open_reply_stream(client, COUNT_IT, "orders", token=TOKEN) as stream:
            first = await stream.until("approval_required")
            assert (first["tool"], first["arguments"], place.run_count) == ("count", {"label": "once"}, 0)
            assert await approve_call(client, first) == "approved"
            seen = await stream.read_to_end()
        assert (seen[-1].name, seen[-1].data["text"], place.run_count) == ("done", "It said: recorded once.", 1)

        async with open_reply_stream(client, COUNT_IT, "orders", token=TOKEN) as lost:
            second = await lost.until("approval_required")
            await bot.dies()
    if (address := place.environment.get("DATABASE_URL")) is not None:
        await asyncio.to_thread(end_leases, address, bot.owner)
    async with a_web(place, "--only", "web") as (again, client):
        assert await approve_call(client, second) == "approved"
        path = f"/api/responses/{second['responseId']}/stream"
        async with open_stream(client, "GET", path, token=TOKEN, headers={"Last-Event-ID": lost.last_id}) as stream:
            rest = await stream.read_to_end()
        assert list(replies([*lost.seen, *rest]).values()) == ["It said: recorded once."]
        assert ([each.name for each in rest].count("approval_required"), place.run_count) == (0, 2)
        found = (await client.get("/api/conversations/orders")).json()
        assert [each["role"] for each in found["messages"]] == ["USER", "ASSISTANT", "TOOL", "ASSISTANT"] * 2
        assert await again.leaves() == 0


async def test_another_web_process_follows_approves_and_gets_the_same_answer(
    tmp_path: Path, model: FakeLanguageModel, postgres: Server
) -> None:
    place = on_postgresql(tmp_path, model, postgres)
    async with (
        a_web(place, "--only", "web") as (_, one),
        a_web(place, "--only", "web") as (_, two),
        open_reply_stream(one, COUNT_IT, token=TOKEN) as stream,
    ):
        approval = await stream.until("approval_required")
        (listed,) = (await two.get("/api/responses/approvals")).json()["approvals"]
        assert listed["approvalRequestId"] == approval["approvalRequestId"]
        path = f"/api/responses/{approval['responseId']}/stream"
        async with open_stream(two, "GET", path, token=TOKEN) as beside:
            await beside.until("approval_required")
            assert await approve_call(two, approval) == "approved"
            assert (await beside.read_to_end())[-1].data["text"] == "It said: recorded once."
        assert (await stream.read_to_end())[-1].data["text"] == "It said: recorded once."
    assert place.run_count == 1
