"""Several processes of the bot in one Slack workspace, and one that dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.parts import ask_for, call, say, tool
from tests.postgres import Server
from tests.stories import slack_process
from tests.stories.slack_office import Office, an_office

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def a_process(office: Office, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The bot as a process of its own, connected."""
    office.slack.pace.strict = False
    before = office.slack.sockets.ever
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        slack_process.__file__,
        office.slack.url,
        office.slack.bot_token,
        office.slack.app.app_token,
        str(office.database),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        cwd=ROOT,
    )
    try:
        await office.slack.sockets.opened(before + 1, seconds=30)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_what_was_acknowledged_is_answered_though_the_process_was_killed_right_after(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        async with a_process(office, HANG="1") as process:
            asked = office.ask("are you there?")
            await office.slack.until(lambda: any(each.acknowledged for each in office.slack.sent))
            process.send_signal(signal.SIGKILL)
            await process.wait()
        async with a_process(office):
            office.slack.clock.advance(61)  # what was not acknowledged comes again
            await office.slack.until(lambda: all(each.settled.is_set() for each in office.slack.sent), seconds=30)
            await office.slack.until(lambda: "You said: are you there?" in "".join(office.said(asked.ts)), seconds=30)
        answers = [text for text in office.said(asked.ts) if "You said" in text]
        assert len(answers) == 1


@pytest.mark.parametrize("mention_first", [True, False])
async def test_one_message_that_reaches_two_processes_again_and_again_is_answered_once(
    tmp_path: Path, postgres: Server, mention_first: bool
) -> None:
    async with an_office(tmp_path) as office, AsyncExitStack() as stack:
        office.slack.app.mention_first = mention_first
        office.server = await asyncio.to_thread(postgres.fresh)
        office.model.script = [say("Once."), say("Twice.")]
        for _ in range(2):
            await stack.enter_async_context(office.at_work())
        asked = office.ask("why?")
        await office.reads(asked.ts, "AI answer")
        deliveries = [each for each in office.slack.sent if each.event.get("ts") == asked.ts]
        attempts = [office.slack.post.again(delivery) for delivery in deliveries for _ in range(3)]
        await office.slack.until(lambda: all(each.outcome for each in attempts))
        assert len(deliveries) == 2
        assert len(office.model.requests) == 1
        assert len(office.said(asked.ts)) == 1
        assert not office.slack.calls.refused()


async def test_a_click_works_on_any_process(tmp_path: Path, postgres: Server) -> None:
    async with an_office(tmp_path) as office, AsyncExitStack() as stack:
        office.server = await asyncio.to_thread(postgres.fresh)
        office.toolbox.add(tool("jira__create_issue"))
        office.model.script = [ask_for(call("jira__create_issue", summary="One")), say("Filed.")]
        for _ in range(2):
            await stack.enter_async_context(office.at_work())
        asked = office.ask("file it")
        card = await office.reads(asked.ts, "cs.approve")
        await asyncio.gather(*(office.slack.press(office.sam, card, "cs.approve") for _ in range(2)))
        await office.reads(asked.ts, "Filed.")
        assert office.toolbox.names == ["jira__create_issue"]
        await office.slack.until(lambda: len(office.whispers(office.sam)) == 1)
