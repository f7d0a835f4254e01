"""Checkpoints of the audit: the times at which they are written, failures to write one, and the command's input."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.app.database import CheckpointWriter, checkpoint_file
from bot.domain.audit import Checkpoint
from bot.settings import read_settings
from bot.storage import audit
from bot.storage.audit_chain import AuditKeys
from bot.storage.checkpoints import read_checkpoints
from bot.storage.database import Database
from bot.storage.sqlite import open_sqlite
from tests.app.program import bare
from tests.migrated import create_database

TOLD = """
import json, os, sys
line = sys.stdin.read()
with open("told", "a") as file:
    file.write(json.dumps([line, sorted(os.environ)]) + "\\n")
"""


@pytest.fixture
async def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    bare(tmp_path, monkeypatch)
    opened = open_sqlite(await create_database(tmp_path / "data" / "countersign.db"))
    opened.audit_keys = AuditKeys(lambda: (b"k" * 32,))
    yield opened
    await opened.close()


async def more(database: Database) -> None:
    await database.run(lambda connection: audit.record(connection, "x", "test:ana"))


def numbers(path: Path) -> list[int]:
    return [checkpoint.seq for checkpoint in read_checkpoints(path).checkpoints]


async def test_a_checkpoint_is_written_whenever_there_are_new_rows(database: Database, tmp_path: Path) -> None:
    writer = CheckpointWriter(read_settings(), database)
    await writer.write_first()
    await more(database)
    for _ in range(3):
        await writer.write()
    await more(database)
    await writer.write()
    assert numbers(tmp_path / "data" / "countersign.db.checkpoints") == [0, 1, 2]


async def test_a_file_for_an_audit_with_rows_is_not_begun_by_opening_it(database: Database, tmp_path: Path) -> None:
    await more(database)
    await CheckpointWriter(read_settings(), database).write_first()
    assert not (tmp_path / "data" / "countersign.db.checkpoints").exists()


async def test_a_file_that_cannot_be_written_is_one_line_of_the_log_until_it_can(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bot.app.database")
    folder = tmp_path / "full"
    folder.write_text("a file, where a folder should be")
    writer = CheckpointWriter(read_settings(audit_checkpoint_file=str(folder / "a.checkpoints")), database)
    for _ in range(3):
        await more(database)
        await writer.write()
    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1
    assert said[0].startswith(f"audit checkpoints cannot be written to {folder}/a.checkpoints (")
    failing = [writer.is_failing]
    folder.unlink()
    await writer.write()
    assert [*failing, writer.is_failing] == [True, False]
    assert caplog.messages[-1] == f"audit checkpoints can be written to {folder}/a.checkpoints again"
    assert numbers(folder / "a.checkpoints") == [3]


async def test_a_command_gets_the_line_on_its_standard_input_and_no_setting_of_the_bot(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_KEY", "secret")
    monkeypatch.setenv("GROQ_API_KEY", "secret")
    monkeypatch.setenv("HARMLESS", "x")
    (tmp_path / "told.py").write_text(TOLD)
    settings = read_settings(audit_key=None, audit_checkpoint_command=(sys.executable, "told.py"))
    await more(database)
    await CheckpointWriter(settings, database).write()
    [(line, names)] = [json.loads(each) for each in (tmp_path / "told").read_text().splitlines()]
    checkpoint = Checkpoint.find(line)
    assert checkpoint is not None
    assert (checkpoint.seq, line) == (1, f"{checkpoint}\n")
    assert "HARMLESS" in names
    assert {"AUDIT_KEY", "GROQ_API_KEY"}.isdisjoint(names)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("no-such-program",), "No such file or directory"),
        ((sys.executable, "-c", "import sys; sys.exit('the bucket is gone')"), "exit code 1: the bucket is gone"),
        ((sys.executable, "-c", "import time; time.sleep(600)"), "it took more than 0.5 s"),
        ((sys.executable, "-c", "import os; os.close(0); print('$(x)')"), ""),
    ],
)
async def test_a_command_that_fails_or_hangs_is_one_line_of_the_log(
    database: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    why: str,
) -> None:
    monkeypatch.setattr("bot.app.database.COMMAND_SECONDS", 0.5 if why.startswith("it took") else 60.0)
    writer = CheckpointWriter(read_settings(audit_checkpoint_command=command), database)
    for _ in range(2):
        await more(database)
        await writer.write()
    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == (1 if why else 0)
    assert all(why in each for each in said)


def test_the_file_is_beside_the_database_unless_the_operator_says_otherwise() -> None:
    assert checkpoint_file(read_settings(database_url="sqlite:///data/a.db")) == Path("data/a.db.checkpoints")
    assert checkpoint_file(read_settings(database_url="postgresql://u:p@h/my%20base")) == Path(
        "data/my-20base.checkpoints"
    )
    assert checkpoint_file(read_settings(audit_checkpoint_file="/var/log/c")) == Path("/var/log/c")
    assert checkpoint_file(read_settings(audit_checkpoint_file="off")) is None


def test_a_command_is_split_as_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_CHECKPOINT_COMMAND", "logger --tag 'my audit' $(id)")
    assert read_settings().audit_checkpoint_command == ("logger", "--tag", "my audit", "$(id)")
