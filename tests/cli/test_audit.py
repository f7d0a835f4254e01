"""`countersign audit` and the doctor's line on both databases, after changes by a user with the database's password."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from bot.storage import audit
from bot.storage.audit_chain import row_hash
from bot.storage.migrate import open_database
from tests.cli.invocation import Countersign, Ended
from tests.migrated import create_database
from tests.postgres import Server

ROWS = 1100
"""More than two batches of rows, so that the borders of batches are in the middle of the audit."""


@dataclass(frozen=True)
class AuditedDatabase:
    """A database with an audit. `run` and `attack` access it from outside."""

    url: str
    countersign: Countersign

    def run(self, *words: str) -> Ended:
        return self.countersign("audit", *words, DATABASE_URL=self.url, AUDIT_CHECKPOINT_FILE="off")

    @property
    def head(self) -> str:
        ended = self.run("head")
        assert (ended.code, ended.err) == (0, "")
        return ended.out.strip()

    def attack(self, *statements: str) -> None:
        """Execute statements as a user with the database's password, who can drop the triggers."""
        with self._by_hand() as connection:
            sqlite = isinstance(connection, sqlite3.Connection)
            names = ("audit_is_never_changed", "audit_is_never_deleted") if sqlite else ("audit_is_append_only",)
            for name in names:
                connection.execute(f"drop trigger {name}" if sqlite else f"drop trigger {name} on audit")
            for statement in statements:
                connection.execute(statement)

    def rewrite(self, seq: int, actor: str, upto: int) -> None:
        """Change a row and recompute the hashes of the rows `seq` to `upto`."""
        with self._by_hand() as connection:
            names = "seq, at, kind, conversation, turn_id, actor, body, previous"
            rows = connection.execute(f"select {names} from audit where seq between {seq} and {upto} order by seq")
            made, previous = [], ""
            for found in rows.fetchall():
                row = dict(zip(names.split(", "), found, strict=True))
                row["actor"] = actor if row["seq"] == seq else row["actor"]
                row["previous"] = previous or row["previous"]
                previous = row_hash(row)
                made.append((row["actor"], row["previous"], previous, row["seq"]))
        self.attack(*(f"update audit set actor='{a}', previous='{b}', hash='{c}' where seq={n}" for a, b, c, n in made))

    @contextmanager
    def _by_hand(self) -> Iterator[Any]:
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
                yield connection
        else:
            with psycopg.connect(self.url, autocommit=True) as connection:
                yield connection


@pytest.fixture(params=["sqlite", "postgresql"])
def audit_database(request: pytest.FixtureRequest, tmp_path: Path, countersign: Countersign) -> AuditedDatabase:
    if request.param == "sqlite":
        path = tmp_path / "a.db"
        asyncio.run(create_database(path))
        return AuditedDatabase(f"sqlite:///{path}", countersign)
    return AuditedDatabase(request.getfixturevalue("postgres").fresh(), countersign)


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with an audit of many rows. Tests copy it."""
    path = asyncio.run(create_database(tmp_path_factory.mktemp("long") / "long.db"))
    asyncio.run(_write_entries(f"sqlite:///{path}", ROWS))
    return path


@pytest.fixture(scope="module")
def long_database(postgres_server: Server) -> str:
    """Return the address of a database with an audit of many rows. Tests copy it."""
    address = postgres_server.new()
    asyncio.run(_write_entries(address, ROWS))
    return address


@pytest.fixture(params=["sqlite", "postgresql"])
def long(request: pytest.FixtureRequest, tmp_path: Path, countersign: Countersign) -> AuditedDatabase:
    """Return an audit of many rows on each database."""
    if request.param == "sqlite":
        path = shutil.copyfile(request.getfixturevalue("long_file"), tmp_path / "a.db")
        return AuditedDatabase(f"sqlite:///{path}", countersign)
    postgres: Server = request.getfixturevalue("postgres")
    return AuditedDatabase(postgres.copy(request.getfixturevalue("long_database")), countersign)


async def _write_entries(url: str, count: int) -> None:
    def write(connection: sa.Connection) -> None:
        for n in range(count):
            audit.record(
                connection, "changed server", "slack:U1", subject="s-1", conversation="slack:T1:C1:1", n=n, at=0.1 + n
            )

    database = open_database(url)
    try:
        await database.run(write)
    finally:
        await database.close()


def test_an_untouched_audit_is_whole_and_its_head_is_known(long: AuditedDatabase) -> None:
    head = long.head
    assert head.startswith(f"{ROWS}:")
    for words in ((), ("--head", head)):
        ended = long.run("verify", *words)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith(f"{ROWS} rows, ")
        assert f"\nlast row     {head}\n" in ended.out
        assert f"\nkeys         no key: {ROWS} rows\n" in ended.out
        assert "\ncheckpoints  none: rows that were cut off at the end cannot be found\n" in ended.out


def test_an_audit_without_rows_is_whole(audit_database: AuditedDatabase) -> None:
    assert audit_database.head == f"0:{'0' * 64}"
    ended = audit_database.run("verify", "--head", audit_database.head)
    assert (ended.code, ended.out.splitlines()[0]) == (0, "The audit has no rows.")
    assert audit_database.run("export").out == ""


COPY = "seq, at, kind, conversation, turn_id, actor, body, previous, hash, subject, mac"


@pytest.mark.parametrize(
    ("statement", "row", "why"),
    [
        ("update audit set actor = 'slack:U2' where seq = 501", 501, "Row 501 was changed."),
        ("update audit set body = 'what' where seq = 700", 700, "Row 700 was changed"),
        ("update audit set at = at + 1 where seq = 1", 1, "Row 1 was changed"),
        ("update audit set subject = '' where seq = 500", 500, "Row 500 was changed"),
        ("update audit set hash = previous where seq = 1100", 1100, "Row 1100 was changed"),
        ("delete from audit where seq = 1", 1, "Row 1 is missing."),
        ("delete from audit where seq between 499 and 502", 499, "Rows 499 to 502 are missing."),
        (f"insert into audit ({COPY}) select 0, {COPY[5:]} from audit where seq = 7", 0, "Row 0 was put in"),
        (f"insert into audit ({COPY}) select 1101, {COPY[5:]} from audit where seq = 7", 1101, "Row 1101 was changed."),
    ],
)
def test_changed_removed_and_inserted_rows_are_found_and_named(
    long: AuditedDatabase, statement: str, row: int, why: str
) -> None:
    long.attack(statement)
    ended = long.run("verify")
    assert ended.code == 1
    assert f"✗ {why}" in ended.out
    assert ended.err.startswith("countersign: The audit does not fit (")
    assert ". Fix: " in ended.err
    told = long.run("verify", "--json").json_output
    assert row in {finding["first"] for finding in told["findings"]}


def test_a_row_with_a_recomputed_hash_breaks_the_chain_at_the_next(long: AuditedDatabase) -> None:
    long.rewrite(600, "slack:U2", upto=600)
    assert "✗ Row 601 does not follow row 600" in long.run("verify").out


def test_rows_cut_off_at_the_end_show_by_a_head_that_is_known(long: AuditedDatabase) -> None:
    head = long.head
    long.attack("delete from audit where seq > 1000")
    assert "Row 1001 is missing" not in long.run("verify").out
    ended = long.run("verify", "--head", head)
    assert ended.code == 1
    assert "✗ Row 1001 is missing: row 1100 was known, and 1000 is the last." in ended.out


def test_an_audit_that_was_written_anew_to_its_end_shows_by_a_head_that_is_known(long: AuditedDatabase) -> None:
    head = long.head
    long.rewrite(1090, "slack:U2", upto=ROWS)
    asyncio.run(_write_entries(long.url, 3))
    assert "is another than" not in long.run("verify").out
    ended = long.run("verify", "--head", head)
    assert ended.code == 1
    assert "✗ Row 1100 differs from the known one" in ended.out


def test_json_lines_have_all_rows_and_all_parts_of_their_hashes(long: AuditedDatabase) -> None:
    ended = long.run("export")
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert (ended.code, [row["seq"] for row in rows]) == (0, list(range(1, ROWS + 1)))
    previous = "0" * 64
    for row in rows:
        body = json.dumps(row["facts"], sort_keys=True)
        told = [row["seq"], repr(row["at"]), row["kind"], row["conversation"], row["turn_id"], row["actor"], body]
        assert hashlib.sha256(json.dumps([*told, previous]).encode()).hexdigest() == row["hash"]
        previous = row["hash"]
    assert long.head == f"{ROWS}:{previous}"


def test_an_export_is_narrowed_by_time(audit_database: AuditedDatabase) -> None:
    asyncio.run(_write_entries(audit_database.url, 4))
    assert len(audit_database.run("export", "--since", "1h").out.splitlines()) == 4
    assert audit_database.run("export", "--until", "1h").out == ""
    assert audit_database.run("export", "--since", "2999-01-01").out == ""
    assert len(audit_database.run("export", "--until", "2999-01-01T00:00").out.splitlines()) == 4


def test_a_spreadsheet_runs_nothing_of_an_export(audit_database: AuditedDatabase) -> None:
    evil = ('=HYPERLINK("http://evil.example","x")', "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1")

    async def write() -> None:
        database = open_database(audit_database.url)
        for name in evil:
            await database.run(lambda connection, name=name: audit.record(connection, "x", name, n=name))  # type: ignore[misc]
        await database.close()

    asyncio.run(write())
    ended = audit_database.run("export", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ended.out, newline="")))
    assert [row["actor"] for row in rows] == [f"'{name}" for name in evil]
    assert not any(cell.startswith(tuple("=+-@\t\r＝")) for row in rows for cell in row.values())
    assert [json.loads(row["facts"])["n"] for row in rows] == list(evil)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("export", "--since", "yesterday"), "--since is 'yesterday'"),
        (("export", "--until", "2026-13-01"), "--until is '2026-13-01'"),
        (("verify", "--head", "abc"), "--head is 'abc'"),
        (("verify", "--checkpoints", "none.log"), "The checkpoints in none.log cannot be read: No such file"),
        (("seal", "--reason", " "), "--reason is empty"),
        (("export", "--format", "xml"), "xml"),
    ],
)
def test_invalid_arguments_are_a_usage_error(
    audit_database: AuditedDatabase, words: tuple[str, ...], what: str
) -> None:
    ended = audit_database.run(*words)
    assert ended.code == 2
    assert what in ended.complaint


@pytest.mark.parametrize("verb", ["head", "verify", "export"])
def test_where_there_is_no_database_none_is_made(countersign: Countersign, tmp_path: Path, verb: str) -> None:
    ended = countersign("audit", verb, DATABASE_URL=f"sqlite:///{tmp_path}/none.db")
    assert ended.code == 1
    assert ended.complaint.startswith("There is no database yet")
    assert not (tmp_path / "none.db").exists()


def test_the_doctor_says_whether_the_audit_is_whole(long: AuditedDatabase) -> None:
    def line() -> dict[str, Any]:
        ended = long.countersign(
            "doctor", "--json", DATABASE_URL=long.url, MCP_ENABLED="false", AUDIT_CHECKPOINT_FILE="off"
        )
        (found,) = [told for each in ended.out.splitlines() if (told := json.loads(each))["subject"] == "audit"]
        return {**found, "code": ended.code}

    well = line()
    told = "each follows the one before. They have no MACs, because there is no key."
    assert (well["finding"], well["detail"]) == ("warning", f"{ROWS} rows, {told}")
    long.rewrite(3, "slack:U2", upto=3)
    broken = line()
    assert (broken["finding"], broken["code"]) == ("failed", 1)
