"""The real program, twice on one PostgreSQL: both share the rate limits of Slack."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg

from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.postgres import Server
from tests.stories.slack_program import a_company


def clerk(request: Request) -> Reply:
    return Say(f"You said: {request.question}.")


async def test_every_call_to_slack_is_counted_where_all_processes_see_it(
    tmp_path: Path, model: FakeLanguageModel, postgres: Server
) -> None:
    address = await asyncio.to_thread(postgres.fresh)
    async with (
        a_company(tmp_path, model, DATABASE_URL=address) as company,
        company.bot(),
        company.bot("--only", "worker", receiving=False),
    ):
        asked = [company.ask(f"question {number}") for number in range(6)]
        for number, question in enumerate(asked):
            await company.draws(question.ts, "AI answer")
            assert f"question {number}" in company.public_texts(question.ts)[0]
        assert not company.slack.calls.failed_calls()
        with psycopg.connect(address) as connection:
            names = {str(name) for (name,) in connection.execute("select name from quotas")}
    methods = {name.rpartition(":")[2] for name in names}
    assert {"auth.test", "chat.postMessage", company.incidents.id} <= methods
    assert len({name.split(":")[1] for name in names}) == 1, "both count for the same account"
    assert company.slack.bot_token not in "".join(names)
