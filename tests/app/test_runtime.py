"""The runtime of turns, and the failure of one of its parts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from bot.app.chat import ChatOptions, chat
from bot.app.components import Runtime
from bot.app.database import use_database
from bot.app.operator_files import read_operator_files
from bot.app.runtime import WatchLog, open_runtime
from bot.domain.turns import Claim
from bot.errors import CountersignError, DatabaseError, DatabaseHeld
from bot.llm.models import ModelChoice
from bot.ports import TurnLog
from bot.settings import read_settings
from bot.storage import lock_file

DEMO = ModelChoice("demo", "demo")


def open_bot(*, watch_log: WatchLog = lambda log: log, **changes: object) -> AbstractAsyncContextManager[Runtime]:
    """Open a bot on the demo model without a platform."""
    settings = read_settings(**changes)
    return open_runtime(settings, read_operator_files(settings), DEMO, [], watch_log=watch_log)


class BreakingLog:
    """A turn log whose `claim` fails."""

    def __init__(self, log: TurnLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def claim(self, *_: object) -> Sequence[Claim]:
        raise ZeroDivisionError


def make_breaking_log(log: TurnLog) -> TurnLog:
    return cast("TurnLog", BreakingLog(log))


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_a_house_is_left_when_it_is_time_to() -> None:
    leaving = asyncio.Event()
    async with asyncio.timeout(30), open_bot() as runtime:
        waiting = asyncio.create_task(runtime.run_until(leaving))
        await runtime.turn_log.claim(1)
        assert not waiting.done()
        leaving.set()
        await waiting
    assert runtime.running.done()


async def test_a_program_whose_engine_breaks_down_is_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CountersignError, match=r"The engine broke down\. Fix: see the log"):
        async with asyncio.timeout(30), open_bot(watch_log=make_breaking_log) as runtime:
            await runtime.run_until(asyncio.Event())
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.usefixtures("logging_as_it_was")
async def test_a_chat_whose_engine_breaks_down_ends_with_an_error(folder: Path) -> None:
    with pytest.raises(CountersignError, match="The engine broke down"):
        async with asyncio.timeout(30):
            await chat(read_settings(), ChatOptions(message="hi"), watch_log=make_breaking_log)
    assert "ZeroDivisionError" in (folder / "data/countersign.log").read_text(encoding="utf-8")


async def test_a_policy_under_a_misspelt_name_and_an_unknown_key_are_warned_of(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"notes": {"command": "no-such-command", "comand": "x"}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    rule = '[[rules]]\npolicy = "ALWAYS_DENY"\nserver = "note*"\n[[rules]]\npolicy = "ALWAYS_DENY"\nserver = "nite*"\n'
    (folder / "policy.toml").write_text(f"{rule}[servers.ntoes]\n", encoding="utf-8")
    async with open_bot(mcp_servers_file="servers.json", policy_file="policy.toml"):
        pass
    warnings = [record.getMessage() for record in caplog.records if record.name == "bot.app.operator_files"]
    assert warnings == [
        "policy.toml has policies for 'ntoes', which is no enabled server of servers.json",
        "policy.toml:4 is about 'nite*', which is no enabled server",
        (
            "servers.json, line 1: a key of server 'notes' is ignored, because it is unknown: 'comand'. "
            "Did you mean 'command'?"
        ),
    ]


async def test_a_database_without_the_schema_is_not_migrated_against_the_operators_will(folder: Path) -> None:
    with pytest.raises(DatabaseError) as caught:
        async with open_bot(auto_migrate=False):
            pytest.fail("it was opened")
    assert "has schema none" in caught.value.cause
    assert caught.value.fix == "run `countersign db upgrade`"
    async with open_bot():
        pass
    async with open_bot(auto_migrate=False) as runtime:
        assert await runtime.turn_log.claim(1) == []


def test_a_folder_that_cannot_be_used_is_named_with_the_variable(folder: Path) -> None:
    (folder / "file").touch()
    said = r"The folder file cannot be used: .+ Fix: check the folder and DATABASE_URL"
    with (
        pytest.raises(DatabaseError, match=said),
        use_database(read_settings(database_url="sqlite:///file/chat.db"), "test", alone=True),
    ):
        pytest.fail("it was held")


def test_a_database_is_held_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_file, "STARTING_SECONDS", 0.1)
    with (
        use_database(read_settings(), "first", alone=True),
        pytest.raises(DatabaseHeld, match=r"in use by process \d+ \(first, since"),
        use_database(read_settings(), "second", alone=True),
    ):
        pytest.fail("both held it")
    with use_database(read_settings(), "third", alone=True):
        pass
