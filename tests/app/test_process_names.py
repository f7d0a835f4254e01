"""Detection of the end of the process that a lease names."""

from __future__ import annotations

import asyncio
import sys

import pytest

from bot.app import process
from bot.app.process import end_check, has_ended, name_of_this_process

SAY_NAME = "from bot.app.process import *; print(name_of_this_process(), flush=True); input()"


async def test_a_process_has_ended_once_it_is_killed() -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SAY_NAME, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    name = (await other.stdout.readline()).decode().strip()
    assert not has_ended(name)
    other.kill()
    await other.wait()
    assert has_ended(name)


def test_this_process_has_not_ended_and_an_earlier_one_with_its_id_has() -> None:
    name = name_of_this_process()
    assert not has_ended(name)
    assert has_ended(f"{name.rsplit(':', 2)[0]}:1:x")


def test_nothing_is_known_of_another_machine_or_container() -> None:
    host, pid, boot_id, namespace, *_ = name_of_this_process().rsplit(":", 5)
    assert not has_ended(f"{host}:{pid}:another-boot:{namespace}:1:x")
    assert not has_ended(f"{host}:{pid}:{boot_id}:1:1:x")
    assert not has_ended("an:older:release")


def test_nothing_is_known_where_the_system_does_not_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(process, "_PROC", tmp_path_factory.mktemp("proc"))
    monkeypatch.setattr(process, "_BOOT_ID", tmp_path_factory.mktemp("proc") / "boot_id")
    assert not has_ended(name_of_this_process())


def test_on_sqlite_every_other_process_has_ended_because_this_one_has_the_lock() -> None:
    assert end_check("sqlite:///a.db")("another")
    assert not end_check("postgresql://host/name")("another")
