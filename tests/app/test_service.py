"""`countersign run`: all configured parts run until a stop signal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from bot.app.database import current, open_migrated_database, upgrade, use_database
from bot.app.service import run
from bot.errors import DatabaseHeld, SettingsError
from bot.settings import read_settings
from bot.storage import lock_file
from tests.app.program import service
from tests.fakes.parts import until

SECRET = "sk-test-4711-do-not-show"


@pytest.mark.parametrize(("ending", "words"), [(signal.SIGTERM, ("--only", " worker ,")), (signal.SIGINT, ())])
def test_it_runs_until_it_is_told_to_stop_and_leaves_cleanly(folder: Path, ending: int, words: tuple[str, ...]) -> None:
    with service(folder, *words, LOG_LEVEL="debug", OPENAI_API_KEY=SECRET, BOT_MODEL="openai:small") as running:
        running.says("worker running on model openai:small")
        assert running.end(ending) == 0
    entries = [json.loads(line) for line in running.lines]
    messages = [entry["message"] for entry in entries if entry["level"] == "info"]
    unreached = [message for message in messages if "nobody reaches this bot: `countersign setup` connects" in message]
    assert len(unreached) == (0 if words else 1)
    assert [message for message in messages if not message.startswith("audit checkpoint")][-1] == "stopping"
    assert not [entry for entry in entries if entry["level"] in ("warning", "error")]
    assert SECRET not in "".join(running.lines)


async def test_its_servers_are_gone_when_it_has_left(folder: Path) -> None:
    pid_file = folder / "pid"
    code = f"import os, pathlib, sys; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); sys.stdin.read()"
    servers = {"silent": {"command": sys.executable, "args": ["-c", code]}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with service(folder, MCP_SERVERS_FILE="servers.json") as running:
        running.says("worker running")
        await until(lambda: pid_file.exists() and pid_file.read_text() != "")
        assert running.end(signal.SIGTERM) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_while_it_runs_no_other_process_runs_turns_or_changes_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_file, "STARTING_SECONDS", 0.1)
    settings = read_settings()
    with use_database(settings, "countersign run", alone=True):
        for second in (run, upgrade):
            with pytest.raises(DatabaseHeld, match=rf"in use by process {os.getpid()} \(countersign run, since"):
                await second(settings)
    assert await upgrade(settings) == (await current(settings))[1]


async def test_a_schema_that_a_process_makes_at_its_start_is_waited_for() -> None:
    settings = read_settings()
    with use_database(settings, "countersign chat") as use:
        assert use is not None
        upgrading = asyncio.create_task(asyncio.to_thread(asyncio.run, upgrade(settings)))
        async with open_migrated_database(settings, migrate=True):
            use.share()
            assert await upgrading == (await current(settings))[1]


async def test_every_part_that_cannot_be_run_is_named_with_those_that_can() -> None:
    with pytest.raises(SettingsError) as caught:
        await run(read_settings(), frozenset({"worker", "slack", "web", "wroker", "irc"}))
    assert caught.value.cause == "There is no component called 'irc'. There is no component called 'wroker'."
    assert caught.value.fix == "use --only discord,slack,web,worker"


async def test_a_model_that_cannot_be_used_is_told_before_anything_is_opened(folder: Path) -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        await run(read_settings(bot_model="openai:small"))
    assert not (folder / "data").exists()
