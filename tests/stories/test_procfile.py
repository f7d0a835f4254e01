"""The processes of the Procfile, each started by its own line, on one PostgreSQL: they answer together, and end."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2

from tests.deploy.files import image_environment, procfile
from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.postgres import Server
from tests.stories.installation import Installation, a_tool, becomes, says, scripted_server
from tests.stories.program import Bot, a_bot
from tests.stories.slack_program import Company, a_company

PROCESSES = {name: words[1:] for name, words in procfile()}
GRACE_SECONDS = 20.0
"""Between SIGTERM and SIGKILL, as docs/running-on-postgresql.md promises that it is enough."""
CLOSE_IT = "close ticket 7"


def clerk(request: Request) -> Reply:
    """Calls the closing tool as asked."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    if request.question == CLOSE_IT:
        return Say(calls=(Call("desk__close", {"ticket": 7}),))
    return Say(f"You said: {request.question}.")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def ended_in_time(bots: list[Bot]) -> list[int]:
    """Tell all of them to leave at once; their exit codes."""
    began = time.monotonic()
    codes = await asyncio.gather(*(bot.leaves() for bot in bots))
    assert time.monotonic() - began < GRACE_SECONDS
    return codes


async def start_process(company: Company, stack: AsyncExitStack, process: str, **environment: str) -> Bot:
    """One line of the Procfile, running."""
    words = PROCESSES[process]
    assert words[0] == "run"
    bot = company.bot(*words[1:], receiving=process == "slack", **environment)
    return await stack.enter_async_context(bot)


async def test_slack_two_workers_and_web_answer_together_and_all_end_when_they_are_told_to(
    tmp_path: Path, postgres: Server, model: FakeLanguageModel
) -> None:
    desk = scripted_server(
        tmp_path, "desk", a_tool("close", ticket="integer"), calls={"close": says("ticket 7 is closed")}
    )
    servers = {"desk": desk.entry}
    async with (
        a_company(tmp_path, model, servers, DATABASE_URL=postgres.empty()) as company,
        AsyncExitStack() as stack,
    ):
        # All at once, on a database without a schema: one makes it, the others wait for that one.
        bots = await asyncio.gather(
            start_process(company, stack, "slack"),
            start_process(company, stack, "worker"),
            start_process(company, stack, "worker"),
            start_process(company, stack, "web", PORT="0"),
        )
        web = bots[-1]
        port = (await web.logs(r"listening for requests at 127\.0\.0\.1, port (\d+)"))[1]
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200

        threads = [company.ask(f"question {n}") for n in range(3)]
        for n, asked in enumerate(threads):
            await company.draws(asked.ts, f"You said: question {n}.")
            assert len(company.public_texts(asked.ts)) == 1
        company.ask(CLOSE_IT, threads[0].ts)
        card = await company.draws(threads[0].ts, "cs.approve")
        assert desk.calls == []
        await company.slack.press(company.sam, card, "Approve: Close")
        await company.draws(threads[0].ts, "It said: ticket 7 is closed.")
        assert desk.calls == [("close", {"ticket": 7})]

        assert await ended_in_time(list(bots)) == [0, 0, 0, 0]
        await becomes(lambda: not any(map(alive, desk.pids)), "no server of theirs is left")
        for bot in bots:
            assert "stopping" in bot.log
            assert "ERROR" not in bot.log
            assert "Traceback" not in bot.log


async def test_main_serves_its_health_where_it_is_told_to_and_needs_nothing_else_for_it(tmp_path: Path) -> None:
    # As the image sets them; here any port will do.
    assert image_environment().keys() >= {"WEB_HOST", "PORT"}
    place = Installation(tmp_path, {}, WEB_HOST="127.0.0.1", PORT="0", LOG_FORMAT="text")
    async with a_bot(place, *PROCESSES["main"][1:]) as bot, httpx2.AsyncClient() as client:
        port = (await bot.logs(r"listening for requests at 127\.0\.0\.1, port (\d+)"))[1]
        assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
        assert (await client.get(f"http://127.0.0.1:{port}/api/mcp/servers")).status_code == 401
        assert await ended_in_time([bot]) == [0]
