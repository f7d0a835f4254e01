"""Attacks on the audit of a real session, by an attacker with write access to the database or to the files beside it.

Sessions are processes of their own; commands of the audit run in this process.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot.domain.audit import NO_HASH
from bot.storage.audit_chain import AuditKeys, row_hash
from tests.app.program import bare
from tests.cli.invocation import Countersign, Ended, in_this_process
from tests.postgres import Server
from tests.stories.installation import Installation

KEY = "q0m3yQkqVYsZ8m1qJ3n6cQm0Jb0m6t4nq1uYx3vJb9Q="
TRIGGERS = ("audit_is_never_changed", "audit_is_never_deleted")
COLUMNS = ("seq", "at", "kind", "conversation", "turn_id", "actor", "body", "previous", "hash", "subject", "mac")
Row = dict[str, Any]


@dataclass(frozen=True)
class Crime:
    """A session that is over, and access to its database and files."""

    place: Installation
    countersign: Countersign

    def verify(self, *words: str) -> Ended:
        return self.countersign("audit", "verify", *words)

    @property
    def checkpoints(self) -> Path:
        return self.place.data / "audit.checkpoints"

    @property
    def log(self) -> Path:
        return self.place.data / "countersign.log"

    @contextmanager
    def database(self) -> Iterator[Any]:
        url = self.place.environment["DATABASE_URL"]
        if url.startswith("postgresql"):
            with psycopg.connect(url, autocommit=True) as connection:
                yield connection
        else:
            with closing(sqlite3.connect(self.place.data / "countersign.db", isolation_level=None)) as connection:
                yield connection

    def run(self, *statements: str) -> None:
        with self.database() as connection:
            for statement in statements:
                connection.execute(statement)

    @contextmanager
    def open_without_triggers(self) -> Iterator[Any]:
        """The database without the triggers, which are put back: the attacker leaves no trace of that kind."""
        with self.database() as connection:
            if isinstance(connection, sqlite3.Connection):
                names = ",".join(f"'{name}'" for name in TRIGGERS)
                rows = connection.execute(f"select sql from sqlite_master where name in ({names})").fetchall()
                for name in TRIGGERS:
                    connection.execute(f"drop trigger {name}")
                yield connection
                for (statement,) in rows:
                    connection.execute(statement)
            else:
                connection.execute("alter table audit disable trigger user")
                yield connection
                connection.execute("alter table audit enable trigger user")

    def rows(self) -> list[Row]:
        with self.database() as connection:
            found = connection.execute(f"select {', '.join(COLUMNS)} from audit order by seq").fetchall()
        return [dict(zip(COLUMNS, row, strict=True)) for row in found]

    def replace(self, rows: list[Row], sign: Callable[[Row], str] | None = None) -> None:
        """Put these rows there, numbered and with hashes that fit."""
        previous = NO_HASH
        for number, row in enumerate(rows, 1):
            row |= {"seq": number, "previous": previous}
            row["hash"] = previous = row_hash(row)
            if sign is not None:
                row["mac"] = sign(row)
        with self.open_without_triggers() as connection:
            mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
            connection.execute("delete from audit")
            for row in rows:
                values = ", ".join([mark] * len(COLUMNS))
                connection.execute(f"insert into audit ({', '.join(COLUMNS)}) values ({values})", [*row.values()])


def _session(place: Installation) -> None:
    for note in ("Please note: one", "Please note: two", "Please note: three"):
        assert place.chat("-m", note, "--approve", "all").code == 0
        shutil.copyfile(place.data / "audit.checkpoints", place.folder / f"{note[-3:]}.checkpoints")
        if (place.data / "countersign.db").exists():
            shutil.copyfile(place.data / "countersign.db", place.folder / f"{note[-3:]}.db")


@pytest.fixture(scope="module")
def sqlite_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("session") / "place"
    _session(Installation(folder, AUDIT_CHECKPOINT_FILE="data/audit.checkpoints"))
    return folder


@pytest.fixture(scope="module")
def postgres_session(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> tuple[Path, str]:
    folder, url = tmp_path_factory.mktemp("session") / "place", postgres_server.new()
    _session(Installation(folder, DATABASE_URL=url, AUDIT_KEY=KEY, AUDIT_CHECKPOINT_FILE="data/audit.checkpoints"))
    return folder, url


Scene = Callable[..., Crime]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Scene:
    """A copy of a session."""

    def scene(session: Path, url: str, key: str = "") -> Crime:
        folder = tmp_path / "copy"
        place = Installation(folder, DATABASE_URL=url, AUDIT_KEY=key, AUDIT_CHECKPOINT_FILE="data/audit.checkpoints")
        shutil.rmtree(folder)
        shutil.copytree(session, folder)
        bare(folder, monkeypatch)
        run = in_this_process(monkeypatch, capsys)
        return Crime(place, lambda *words: run(*words, **place.environment))

    return scene


@pytest.fixture
def on_sqlite(sqlite_session: Path, scene: Scene) -> Crime:
    return scene(sqlite_session, "sqlite:///data/countersign.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def crime(request: pytest.FixtureRequest, scene: Scene) -> Crime:
    if request.param == "sqlite":
        return scene(request.getfixturevalue("sqlite_session"), "sqlite:///data/countersign.db")
    folder, url = request.getfixturevalue("postgres_session")
    return scene(folder, request.getfixturevalue("postgres").copy(url), KEY)


def _cut_the_tail(crime: Crime) -> None:
    with crime.open_without_triggers() as connection:
        connection.execute("delete from audit where seq > 4")


def _delete_everything(crime: Crime) -> None:
    with crime.open_without_triggers() as connection:
        connection.execute("delete from audit")


def _rewritten_rows(crime: Crime) -> list[Row]:
    rows = crime.rows()
    decided = next(row for row in rows if row["kind"] == "decided")
    decided["actor"] = "console:somebody-else"
    return rows


def _rewrite_and_rehash(crime: Crime) -> None:
    crime.replace(_rewritten_rows(crime))


def _rewrite_and_take_the_macs_away(crime: Crime) -> None:
    crime.replace(_rewritten_rows(crime), lambda _row: "")


def _rewrite_and_sign_with_another_key(crime: Crime) -> None:
    keys = AuditKeys(lambda: (b"k" * 32,))
    crime.replace(_rewritten_rows(crime), lambda row: keys.sign_row(row["hash"]))


def _swap_two_rows(crime: Crime) -> None:
    rows = crime.rows()
    rows[3], rows[5] = rows[5], rows[3]
    crime.replace(rows)


def _delete_one_and_renumber(crime: Crime) -> None:
    rows = crime.rows()
    del rows[4]
    crime.replace(rows)


def _delete_the_checkpoints(crime: Crime) -> None:
    crime.checkpoints.unlink()


def _empty_the_checkpoints(crime: Crime) -> None:
    crime.checkpoints.write_text("")


def _edit_a_checkpoint(crime: Crime) -> None:
    lines = crime.checkpoints.read_text().splitlines(keepends=True)
    crime.checkpoints.write_text("".join([*lines[:-1], lines[-1].replace(" v1 9:", " v1 4:")]))


def _say_who_approved(crime: Crime) -> None:
    crime.run("update decisions set principal = 'console:boss'")


def _approve_by_hand(crime: Crime) -> None:
    rows = crime.rows()
    crime.replace([row for row in rows if row["kind"] != "decided"])


def _change_the_call(crime: Crime) -> None:
    with crime.database() as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("update steps set body = replace(body, 'one', 'ten') where kind = 'tool'")
        else:
            connection.execute("update steps set body = replace(body::text, 'one', 'ten')::json where kind = 'tool'")


def _delete_a_turn(crime: Crime) -> None:
    crime.run("delete from steps", "delete from deliveries", "delete from turns")


def _forge_a_grant(crime: Crime) -> None:
    crime.run(
        "insert into grants (id, scope, server, server_name, tool, definition, conversation, principal, granted_by,"
        " granted_by_name, approval_id, rule, requirements_digest, fingerprint, destructive, created_at)"
        " values ('g-1', 'always', 'notes', 'notes', 'add', '', '', '', 'console:boss', '', '', '', '', '', false, 1.0)"
    )


def _take_a_trigger_off(crime: Crime) -> None:
    sqlite = "sqlite" in crime.place.environment["DATABASE_URL"]
    crime.run(f"drop trigger {TRIGGERS[0]}" if sqlite else "alter table audit disable trigger user")


ATTACKS: dict[Callable[[Crime], None], str] = {
    _cut_the_tail: "Rows 5 to 9 are missing: the checkpoint of ",
    _delete_everything: "Rows 1 to 9 are missing: the checkpoint of ",
    _rewrite_and_rehash: "have a MAC that is not of their key",
    _rewrite_and_take_the_macs_away: "Rows 1 to 9 have no MAC.",
    _rewrite_and_sign_with_another_key: "which is not here",
    _swap_two_rows: "have a MAC that is not of their key",
    _delete_one_and_renumber: "have a MAC that is not of their key",
    _delete_the_checkpoints: "There is no checkpoint in data/audit.checkpoints, and the audit has 9 rows.",
    _empty_the_checkpoints: "There is no checkpoint in data/audit.checkpoints, and the audit has 9 rows.",
    _edit_a_checkpoint: "1 checkpoint in data/audit.checkpoints with a MAC that is not of the key",
    _say_who_approved: "console:boss said approve to step ",
    _approve_by_hand: "and no row says that it was approved.",
    _change_the_call: "is about other arguments than step ",
    _delete_a_turn: "3 turns are gone that the audit has rows of",
    _forge_a_grant: "The grant g-1 (notes.add, as granted by console:boss) exists, and no row says that it was given.",
    _take_a_trigger_off: "which refuses changes of rows, is gone.",
}


def test_the_audit_of_a_session_fits_and_the_report_says_what_was_compared(crime: Crime) -> None:
    verified = crime.verify()
    assert (verified.code, verified.err) == (0, "")
    assert verified.out.startswith("9 rows, ")
    assert "\ncheckpoints  data/audit.checkpoints: " in verified.out
    assert verified.out.endswith("\nturns        3 compared\n✓ Everything fits.\n")
    told = json.loads(crime.verify("--json").out)
    assert (told["fits"], told["rows"], told["turns"], told["findings"]) == (True, 9, 3, [])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.strip("_"))
def test_an_attack_is_found_and_the_report_says_what_is_wrong(crime: Crime, attack: Callable[[Crime], None]) -> None:
    attack(crime)
    verified = crime.verify()
    assert ATTACKS[attack] in verified.out
    assert "  It may mean: " in verified.out
    assert verified.code == 1
    assert verified.err.startswith("countersign: The audit does not fit (")
    told = json.loads(crime.verify("--json").out)
    assert told["fits"] is False
    assert any(ATTACKS[attack] in finding["what"] for finding in told["findings"])


def test_an_older_copy_of_the_whole_database_is_found_and_the_rows_it_lacks_are_named(on_sqlite: Crime) -> None:
    shutil.copyfile(on_sqlite.place.folder / "one.db", on_sqlite.place.data / "countersign.db")
    verified = on_sqlite.verify()
    assert verified.code == 1
    assert "Rows 4 to 9 are missing: the checkpoint of " in verified.out
    assert on_sqlite.place.chat("-m", "hello").code == 0
    assert "audit does not match its last checkpoint in data/audit.checkpoints, row 9" in on_sqlite.place.log
    on_sqlite.place.chat("-m", "Please note: four", "--approve", "all")
    verified = on_sqlite.verify()
    assert verified.code == 1
    assert " is another than in the checkpoint of " in verified.out


def test_a_key_that_was_replaced_is_found(on_sqlite: Crime) -> None:
    (on_sqlite.place.data / "countersign.db.key").write_text(KEY)
    verified = on_sqlite.verify()
    assert verified.code == 1
    assert "Rows 1 to 9 have a MAC by the key " in verified.out
    assert "checkpoints in data/audit.checkpoints by the key " in verified.out


def test_a_key_that_is_gone_is_found_and_none_is_made(on_sqlite: Crime) -> None:
    key = on_sqlite.place.data / "countersign.db.key"
    key.unlink()
    verified = on_sqlite.verify()
    assert verified.code == 1
    assert "which is not here" in verified.out
    assert not key.exists()


def test_checkpoints_that_were_deleted_with_the_tail_show_after_the_bot_has_begun_new_ones(on_sqlite: Crime) -> None:
    _cut_the_tail(on_sqlite)
    on_sqlite.checkpoints.unlink()
    on_sqlite.log.unlink()
    assert on_sqlite.place.chat("-m", "hello").code == 0
    verified = on_sqlite.verify()
    assert verified.code == 1
    assert "The checkpoints in data/audit.checkpoints begin with row 4, of " in verified.out


def test_a_tail_that_was_cut_from_everything_on_this_machine_shows_by_a_copy_from_elsewhere(on_sqlite: Crime) -> None:
    copy = on_sqlite.place.folder / "elsewhere.log"
    shutil.copyfile(on_sqlite.log, copy)
    shutil.copyfile(on_sqlite.place.folder / "one.db", on_sqlite.place.data / "countersign.db")
    shutil.copyfile(on_sqlite.place.folder / "one.checkpoints", on_sqlite.checkpoints)
    on_sqlite.log.unlink()
    assert on_sqlite.verify().code == 0, "as the guide says: only a place that the attacker cannot reach shows it"
    verified = on_sqlite.verify("--checkpoints", "elsewhere.log")
    assert verified.code == 1
    assert "Rows 4 to 9 are missing: the checkpoint of " in verified.out


def test_the_log_of_a_chat_has_checkpoints_and_is_searched(on_sqlite: Crime) -> None:
    _cut_the_tail(on_sqlite)
    on_sqlite.checkpoints.write_text(on_sqlite.checkpoints.read_text().splitlines(keepends=True)[0])
    verified = on_sqlite.verify()
    assert "\ncheckpoints  data/countersign.log: " in verified.out
    assert "Rows 5 to 9 are missing: the checkpoint of " in verified.out


def test_a_restored_backup_fits_again_once_the_operator_has_vouched_for_it(on_sqlite: Crime) -> None:
    shutil.copyfile(on_sqlite.place.folder / "two.db", on_sqlite.place.data / "countersign.db")
    assert on_sqlite.verify().code == 1
    sealed = on_sqlite.countersign("audit", "seal", "--reason", "restored the backup of Sunday")
    assert (sealed.code, sealed.err) == (0, "")
    assert "\nsealed       row 7 by console:owner, " in sealed.out
    assert ": restored the backup of Sunday\n" in sealed.out
    assert " set aside by the seal" in sealed.out
    on_sqlite.place.chat("-m", "Please note: four", "--approve", "all")
    assert on_sqlite.verify().code == 0
    _cut_the_tail(on_sqlite)
    assert on_sqlite.verify().code == 1


def test_a_key_is_rotated_without_a_gap_and_an_old_one_is_let_go_after_a_seal(on_sqlite: Crime) -> None:
    environment = on_sqlite.place.environment
    old = (on_sqlite.place.data / "countersign.db.key").read_text().strip()
    environment["AUDIT_KEY"] = f"{KEY},{old}"
    on_sqlite.place.chat("-m", "Please note: four", "--approve", "all")
    verified = on_sqlite.verify()
    assert verified.code == 0
    assert ": 9 rows, " in verified.out
    environment["AUDIT_KEY"] = KEY
    assert "Rows 1 to 9 have a MAC by the key " in on_sqlite.verify().out
    environment["AUDIT_KEY"] = f"{KEY},{old}"
    assert on_sqlite.countersign("audit", "seal", "--reason", "rotated the key").code == 0
    environment["AUDIT_KEY"] = KEY
    verified = on_sqlite.verify()
    assert (verified.code, verified.err) == (0, "")
    assert ": 9 rows (not here)" in verified.out
    _rewrite_and_rehash(on_sqlite)
    assert on_sqlite.verify().code == 1


def test_a_seal_vouches_for_no_row_that_was_changed(on_sqlite: Crime) -> None:
    with on_sqlite.open_without_triggers() as connection:
        connection.execute("update audit set actor = 'console:boss' where seq = 2")
    sealed = on_sqlite.countersign("audit", "seal", "--reason", "all is well")
    assert sealed.code == 1
    assert "Row 2 was changed." in sealed.out


def test_the_doctor_names_the_first_finding(on_sqlite: Crime) -> None:
    _cut_the_tail(on_sqlite)
    said = on_sqlite.countersign("doctor", "--json")
    (audit,) = [line for each in said.out.splitlines() if (line := json.loads(each))["subject"] == "audit"]
    assert audit["finding"] == "failed"
    assert audit["detail"].startswith("Rows 5 to 9 are missing: ")
