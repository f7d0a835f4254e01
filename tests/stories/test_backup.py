"""A backup beside a running bot: the copy is whole, and a bot goes on from it."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.stories.installation import PROJECT, Installation
from tests.stories.test_approvals import card

NOTE = "Please note: the office closes early on Friday"
GUIDE = (PROJECT / "docs" / "backup.md").read_text(encoding="utf-8")


def stop_what_was_open(database: Path) -> None:
    """Run the guide's script for a restored database before it is used."""
    [script] = re.findall(r"<<'END'\n(.*?)^ *END$", GUIDE, re.MULTILINE | re.DOTALL)
    unindented = "\n".join(line.removeprefix("   ") for line in script.splitlines())
    subprocess.run([sys.executable, "-", str(database)], input=unindented, text=True, check=True, timeout=30)


@pytest.mark.timeout(300)  # eight programs, one after the other
async def test_a_copy_made_beside_a_bot_that_answers_is_whole_and_another_bot_goes_on_with_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    place, other = Installation(tmp_path / "one"), Installation(tmp_path / "two")
    async with place.begun("--approve", "all", "--new", "--conversation", "kept") as bot, asyncio.timeout(120):
        assert bot.stdin is not None
        assert bot.stdout is not None
        bot.stdin.write(f"{NOTE}\n".encode())
        assert await bot.stdout.readline()
        bot.stdin.write(b"Show my notes\n" * 5)
        made = await asyncio.to_thread(place.countersign, "db", "backup", "copy.db")
        bot.stdin.close()
        await bot.stdout.read()
        assert await bot.wait() == 0
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith("copy.db has everything up to now, ")
    head = made.out.split()[-1]
    assert int(head.partition(":")[0]) > 0

    shutil.copyfile(place.folder / "copy.db", other.data / "countersign.db")
    shutil.copyfile(place.data / "countersign.db.key", other.data / "countersign.db.key")
    verified = await asyncio.to_thread(other.countersign, "audit", "verify", "--head", head)
    assert verified.code == 1
    assert "There is no checkpoint in data/countersign.db.checkpoints" in verified.out
    sealed = await asyncio.to_thread(other.countersign, "audit", "seal", "--reason", "restored")
    assert (sealed.code, sealed.err) == (0, "")
    verified = await asyncio.to_thread(other.countersign, "audit", "verify", "--head", head)
    assert (verified.code, verified.err) == (0, "")
    kept = await asyncio.to_thread(other.chat, "-m", "/conversations show kept")
    assert NOTE in kept.out
    said = await asyncio.to_thread(other.chat, "--conversation", "kept", "-m", "hello")
    assert (said.code, bool(said.out)) == (0, True)

    again = await asyncio.to_thread(place.countersign, "db", "backup", "copy.db")
    assert (again.code, again.out) == (1, "")
    assert again.err == (
        "countersign: copy.db already exists, and a backup overwrites no file. Fix: give another name\n"
    )


async def test_a_call_that_waited_when_the_backup_was_made_is_never_run_from_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    place, other = Installation(tmp_path / "one"), Installation(tmp_path / "two")
    async with place.terminal("--new", "--conversation", "kept") as terminal:
        await terminal.asks(NOTE)
        await card(terminal)
        made = await asyncio.to_thread(place.countersign, "db", "backup", str(tmp_path / "copy.db"))
        assert made.code == 0
        await terminal.presses("y", "✓ notes.add")
    assert len(place.notes) == 1

    shutil.copyfile(tmp_path / "copy.db", other.data / "countersign.db")
    await asyncio.to_thread(stop_what_was_open, other.data / "countersign.db")
    async with other.terminal("--conversation", "kept") as terminal:
        await terminal.shows("Cancelled. Not run.", "Stopped.")
        await terminal.asks("hello")
        await terminal.prompts()
    assert other.notes == []


def test_on_a_server_the_command_that_copies_it_is_named(tmp_path: Path, postgres: Server) -> None:
    place = Installation(tmp_path, {}, DATABASE_URL=postgres.fresh())
    said = place.countersign("db", "backup", "bot.dump")
    assert (said.code, said.out) == (1, "")
    assert '`pg_dump --format=custom --file=bot.dump "$DATABASE_URL"`' in said.err
    assert not (tmp_path / "bot.dump").exists()
