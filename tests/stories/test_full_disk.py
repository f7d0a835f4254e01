"""The disk of the database is full, and later it is not: the real process on a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg
import pytest

from bot.chat.actions import NOT_STORED
from tests.fakes.llm import FakeLanguageModel, Gate, Hold, Say
from tests.postgres import Server
from tests.stories.counted_calls import COUNT_IT, CountingPlace, counting
from tests.stories.installation import Installation, becomes
from tests.stories.program import PATIENCE, limit_files
from tests.stories.slack_program import a_company
from tests.stories.test_http_api import TOKEN, a_web

SMALL = 64 * 1024
"""Bytes: more than the log has, less than the database."""
ASK = "/api/responses/stream"
BEGINS, ENDS = "cannot be written", "can be written again"


@pytest.fixture
def model() -> Iterator[FakeLanguageModel]:
    with FakeLanguageModel("openai", rule=counting) as model:
        yield model


async def _post_question(client: httpx2.AsyncClient, conversation: str) -> httpx2.Response:
    payload = {"messages": [{"role": "user", "content": COUNT_IT}], "stream": False}
    return await client.post(
        ASK, json={"conversationId": conversation, "payload": payload}, headers={"Idempotency-Key": conversation}
    )


async def test_a_full_disk_is_told_everywhere_loses_no_question_and_passes_by_itself(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    place = CountingPlace(tmp_path, model, ADMIN_API_TOKEN=TOKEN, PORT="0")
    async with a_web(place) as (bot, client):
        assert (await _post_question(client, "before")).status_code == 202
        bot.limits_files(SMALL)
        refused = await _post_question(client, "lost")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable")
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, "unwritable")
        assert ready.json()["cause"].startswith("The database cannot be written: its disk")
        assert ready.json()["fix"]
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/api/conversations")).status_code == 200

        waiting = asyncio.create_task(_post_question(client, "waiting"))
        await asyncio.wait({waiting}, timeout=1.0)
        bot.limits_files()
        assert (await waiting).status_code == 202
        assert (await _post_question(client, "lost")).status_code == 202
        await bot.logs(ENDS)
        assert (await client.get("/readyz")).json()["database"] == "up"
        found = (await client.get("/api/conversations")).json()["conversations"]
        assert {each["id"] for each in found} == {"before", "lost", "waiting"}
        assert (bot.log.count(BEGINS), bot.log.count(ENDS), bot.log.count("is back after")) == (1, 1, 0)
        assert await bot.leaves() == 0


async def test_a_full_disk_costs_no_question_in_slack_and_service_goes_on_when_there_is_room(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with a_company(tmp_path, model, PORT="0", WEB_HOST="127.0.0.1") as company, company.bot() as bot:
        port = (await bot.logs(r"listening for requests at \S+, port (\d+)"))[1]
        before = company.ask("before")
        await company.draws(before.ts, "You said: before.")
        bot.limits_files(SMALL)
        lost = company.ask("lost")
        await bot.logs(BEGINS)
        await company.slack.until(lambda: NOT_STORED in company.whispers(company.priya), PATIENCE)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/readyz")).json()["database"] == "unwritable"
        events = [each for each in company.slack.sent_deliveries if each.event.get("ts") == lost.ts]
        assert not any(event.is_acknowledged for event in events)
        assert company.public_texts(lost.ts) == []
        bot.limits_files()
        company.slack.clock.advance(400)  # what was not acknowledged comes again
        await company.draws(lost.ts, "You said: lost.")
        assert company.whispers(company.priya) == [NOT_STORED]
        await bot.logs(ENDS)
        assert await bot.leaves() == 0


@dataclass(frozen=True, slots=True)
class FullDisk:
    """A database on PostgreSQL that refuses each new turn as a server with a full disk does, from `fill` to
    `clear`."""

    address: str

    def fill(self) -> None:
        self._run(
            "create sequence refusals",
            "create function refuse() returns trigger language plpgsql as $$ begin perform nextval('refusals');"
            " raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$",
            "create trigger full_disk before insert on turns execute function refuse()",
        )

    def clear(self) -> None:
        self._run("drop function refuse cascade")

    def refusals(self) -> int:
        """Return the number of refused writes. A sequence counts them although their transactions are rolled back."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            row = connection.execute("select last_value from refusals").fetchone()
        assert row is not None
        return int(row[0])

    def _run(self, *statements: str) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


async def test_a_full_disk_of_postgresql_is_named_and_costs_no_question_over_http(
    tmp_path: Path, model: FakeLanguageModel, postgres: Server
) -> None:
    disk = FullDisk(postgres.fresh())
    place = CountingPlace(tmp_path, model, DATABASE_URL=disk.address, ADMIN_API_TOKEN=TOKEN, PORT="0")
    async with a_web(place) as (bot, client):
        await asyncio.to_thread(disk.fill)
        waiting = asyncio.create_task(_post_question(client, "waiting"))
        await bot.logs(BEGINS)
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, "unwritable")
        assert ready.json()["cause"] == "The database cannot be written: its disk is full."
        assert "countersign_database_writable 0.0" in (await client.get("/metrics")).text
        refused = await waiting
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable")

        before = disk.refusals()
        waiting = asyncio.create_task(_post_question(client, "waiting"))
        await becomes(lambda: disk.refusals() > before, "the question is refused")
        await asyncio.to_thread(disk.clear)
        assert (await waiting).status_code == 202
        await bot.logs(ENDS)
        assert (await client.get("/readyz")).json()["database"] == "up"
        assert "countersign_database_writable 1.0" in (await client.get("/metrics")).text
        assert await bot.leaves() == 0


async def test_checkpoints_of_the_audit_that_cannot_be_written_degrade_the_process_and_leave_it_in_service(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    folder = tmp_path / "full"
    folder.write_text("a file, where a folder should be")
    place = CountingPlace(
        tmp_path, model, ADMIN_API_TOKEN=TOKEN, PORT="0", AUDIT_CHECKPOINT_FILE=str(folder / "a.checkpoints")
    )
    async with a_web(place) as (bot, client):
        await bot.logs("audit checkpoints cannot be written to")
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert ready.json()["auditCheckpoints"] == "failing"
        assert "full" not in ready.text
        assert await bot.leaves() == 0


def _pids(place: Installation) -> list[int]:
    """Return the ids of the processes that use the database."""
    files = (place.data / "countersign.db.processes").iterdir()
    return [int(file.name.partition("-")[0]) for file in files]


async def test_a_full_disk_is_told_on_a_screen_and_ends_a_script(tmp_path: Path) -> None:
    gates = [Gate(), Gate()]
    replies = iter([Hold(Say("Well."), gate) for gate in gates])
    with FakeLanguageModel("openai", rule=lambda _request: next(replies)) as model:
        place = Installation(tmp_path, {}, model=model)
        async with place.terminal() as terminal:
            await terminal.asks("hello")
            await asyncio.wrap_future(gates[0].reached)
            limit_files(terminal.pid, SMALL)
            gates[0].open()
            await terminal.shows("The database cannot be written: its disk")
            limit_files(terminal.pid)
        place.environment["TESTS_SHORTER_WAITS"] = json.dumps({"bot.app.chat.WRITES_SECONDS": 0.1})
        async with place.begun("-m", "hello") as script:
            await asyncio.wrap_future(gates[1].reached)
            (pid,) = _pids(place)
            limit_files(pid, SMALL)
            gates[1].open()
            async with asyncio.timeout(PATIENCE):
                _out, err = await script.communicate()
        assert script.returncode == 1
        assert err.decode().splitlines()[-1].startswith("countersign: The database cannot be written: its disk")
