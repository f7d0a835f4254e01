"""One verification of the audit: rows, MACs, checkpoints, turns and grants."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.domain.audit import (
    AuditFinding,
    AuditHead,
    AuditQuery,
    AuditReport,
    AuditSeal,
    Checkpoint,
    CheckpointPlace,
    Fault,
    MacCheck,
    format_utc,
)
from bot.storage import audit_turns
from bot.storage.audit_chain import ChainCheck, CheckpointCheck, Findings
from bot.storage.audit_keys import AuditKeys
from bot.storage.audit_rows import Row, entry_of, read_head, read_on
from bot.storage.checkpoints import CheckpointLines
from bot.storage.clock import now
from bot.storage.database import Database

TURNS = 50
"""Turns a transaction."""
LATEST_ROWS = 20_000
LATEST_TURNS = 500
"""The limits of a quick verification."""
_LOOKED_UP = 200
"""Checkpoints of earlier rows that a quick verification compares."""

_ALL = AuditQuery()
_REMOVED = "somebody deleted rows at the end, or an older copy of the database was put in place"
_TRIGGERS = {
    "sqlite": ("audit_is_never_changed", "audit_is_never_deleted"),
    "postgresql": ("audit_is_append_only",),
}
_triggers_of = {
    "sqlite": sa.text("select name from sqlite_master where type = 'trigger' and tbl_name = 'audit'"),
    "postgresql": sa.text(
        "select tgname from pg_trigger where tgrelid = 'audit'::regclass and not tgisinternal and tgenabled <> 'D'"
    ),
}


@dataclass(frozen=True, slots=True)
class Noted:
    """Knowledge of the audit from outside the database. `head` is a row given by the operator. `expected` is the
    checkpoint file that this host writes, `None` without one. Rows older than `stale_after` seconds should be covered.
    """

    places: Sequence[CheckpointLines] = ()
    head: AuditHead | None = None
    expected: Path | None = None
    stale_after: float | None = None


NOTHING_NOTED = Noted()


class Verification:
    """One run of a verification. `batch_size` is the number of rows for each transaction."""

    def __init__(self, database: Database, batch_size: int, noted: Noted) -> None:
        self._database = database
        self._batch_size = batch_size
        self._noted = noted
        self._findings = Findings()
        self._granted: set[str] = set()

    async def run(self, *, quick: bool) -> AuditReport:
        """Compare everything, or the latest rows and turns."""
        for finding in await self._database.read(_missing_triggers):
            self._findings.add(finding)
        grants = await self._database.read(audit_turns.all_grants)
        after = await self._database.read(_row_before_the_latest) if quick else AuditHead()
        # In a thread, because deriving a key from a password takes time.
        files = await asyncio.to_thread(_sort_files, self._database.audit_keys, self._noted.places)
        checkpoints = CheckpointCheck([checkpoint for file in files for checkpoint in file.sound])
        chain = ChainCheck(self._database.audit_keys, self._findings, after)
        await self._look_up(checkpoints, files, after)
        await self._read_rows(chain, checkpoints, whole=not after.seq)
        if self._noted.head is not None:
            await self._compare_head(self._noted.head, chain.head)
        self._judge_unsound(files, chain.seal)
        results = self._compare_files(files, chain, checkpoints, after)
        await self._judge_coverage(files, chain, checkpoints)
        turns = await self._compare_turns(quick=quick)
        if not after.seq:
            self._compare_grants(grants)
        return AuditReport(
            head=chain.head,
            rows=chain.rows,
            whole=not after.seq,
            first_at=chain.first_at,
            last_at=chain.last_at,
            keys=chain.key_uses(),
            unsigned=chain.unsigned,
            seal=chain.seal,
            places=results,
            turns=turns,
            findings=tuple(self._findings.listed),
            more=self._findings.more,
        )

    # ------------------------------------------------------------------ rows

    async def _look_up(self, checkpoints: CheckpointCheck, files: Sequence[_SortedFile], after: AuditHead) -> None:
        numbers = sorted(
            {checkpoint.seq for file in files for checkpoint in file.sound if 0 < checkpoint.seq <= after.seq}
        )
        for seq in numbers[-_LOOKED_UP:]:
            for row in await self._read(seq - 1, 1):
                checkpoints.add(row["seq"], row["hash"])

    async def _read_rows(self, chain: ChainCheck, checkpoints: CheckpointCheck, *, whole: bool) -> None:
        deleted = audit_turns.DeletedTurns()
        behind, skipped = chain.head.seq or None, 0
        while rows := (await self._read(behind, self._batch_size + skipped))[skipped:]:
            for row in rows:
                last = chain.head.seq
                chain.add(row)
                # Each batch starts with the previous batch's last row, so that a duplicate of that number is detected.
                behind, skipped = (behind, skipped + 1) if chain.head.seq == last else (chain.head.seq - 1, 1)
                checkpoints.add(row["seq"], row["hash"])
                if row["kind"] == "granted":
                    self._granted.add(str(entry_of(row).facts.get("grant", "")))
            if whole:
                deleted.add(rows, await self._gone(rows))
        if (finding := deleted.finding()) is not None:
            self._findings.add(finding)

    async def _read(self, behind: int | None, limit: int) -> Sequence[Row]:
        return await self._database.read(lambda connection: read_on(connection, _ALL, behind, limit))

    async def _gone(self, rows: Sequence[Row]) -> Mapping[int, str]:
        return await self._database.read(lambda connection: audit_turns.rows_of_gone_turns(connection, rows))

    # ------------------------------------------------------------------ outside the database

    async def _compare_head(self, expected: AuditHead, last: AuditHead) -> None:
        if expected.seq > last.seq:
            what = f"Row {last.seq + 1} is missing: row {expected.seq} was known, and {last.seq} is the last."
            self._findings.add(AuditFinding(Fault.MISSING, what, _REMOVED, last.seq + 1, expected.seq))
        elif expected.seq and [row["hash"] for row in await self._read(expected.seq - 1, 1)] != [expected.hash]:
            what = f"Row {expected.seq} differs from the known one: the audit was rewritten."
            means = "somebody rewrote rows and calculated their hashes, or this is another database"
            self._findings.add(AuditFinding(Fault.REWRITTEN, what, means, expected.seq, last.seq))

    def _judge_unsound(self, files: Sequence[_SortedFile], seal: AuditSeal | None) -> None:
        for file in files:
            if file.lines.mixed and file.lines.path != self._noted.expected:
                continue  # a log, which others write to: only signed checkpoints count
            if file.lines.torn:
                what = (
                    f"{_line_count(len(file.lines.torn))} of {file.lines.path} cannot be read, the first one is line "
                )
                what += f"{file.lines.torn[0]}."
                means = "a process died while it wrote the line, or somebody changed it"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means, certain=False))
            if file.wrong:
                what = f"{_many(len(file.wrong))} in {file.lines.path} with a MAC that is not of the key, the first "
                what += f"one about row {file.wrong[0].seq}."
                means = "somebody without the key changed the file"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))
            # The operator has accepted everything before the seal.
            foreign = [checkpoint for checkpoint in file.foreign if not _is_before(checkpoint, seal)]
            if foreign:
                key = f"by the key {foreign[-1].key}, which is not here" if foreign[-1].key else "without a key"
                what = f"{_many(len(foreign))} in {file.lines.path} {key}, the last one about row {foreign[-1].seq}."
                means = "the key was replaced or lost, or somebody without the key wrote to the file"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))

    def _compare_files(
        self, files: Sequence[_SortedFile], chain: ChainCheck, checkpoints: CheckpointCheck, after: AuditHead
    ) -> tuple[CheckpointPlace, ...]:
        results: list[CheckpointPlace] = []
        failed: list[Checkpoint] = []
        for file in files:
            compared = [
                checkpoint
                for checkpoint in file.sound
                if not 0 < checkpoint.seq <= after.seq or checkpoint in checkpoints.looked_up
            ]
            fitting = [checkpoint for checkpoint in compared if checkpoint in checkpoints.fitting]
            others = [checkpoint for checkpoint in compared if checkpoint not in checkpoints.fitting]
            aside = [other for other in others if _is_before(other, chain.seal)]
            failed += [other for other in others if not _is_before(other, chain.seal)]
            last = max(fitting, key=lambda checkpoint: (checkpoint.seq, checkpoint.at), default=None)
            results.append(CheckpointPlace(str(file.lines.path), len(file.sound), len(fitting), len(aside), last))
        self._judge_failed(failed, chain.head, checkpoints.newest)
        return tuple(results)

    def _judge_failed(self, failed: Sequence[Checkpoint], head: AuditHead, newest: Checkpoint | None) -> None:
        cut = max((row for row in failed if row.seq > head.seq), key=lambda row: row.seq, default=None)
        if cut is not None:
            first = head.seq + 1
            rows = f"Row {first} is" if cut.seq == first else f"Rows {first} to {cut.seq} are"
            there = f"row {head.seq} is the last that is there" if head.seq else "there are no rows"
            what = f"{rows} missing: the checkpoint of {format_utc(cut.at)} has row {cut.seq}, and {there}."
            self._findings.add(AuditFinding(Fault.MISSING, what, _REMOVED, first, cut.seq))
        other = sorted((row for row in failed if row.seq <= head.seq), key=lambda row: row.seq)
        if other:
            until = f"row {newest.seq} of {format_utc(newest.at)} is the last that fits" if newest else "none fits"
            what = f"Row {other[0].seq} is another than in the checkpoint of {format_utc(other[0].at)} "
            what += f"({_many(len(other))} that do not fit; {until})."
            means = "somebody rewrote rows, or the bot went on from an older copy of the database"
            self._findings.add(AuditFinding(Fault.REWRITTEN, what, means, other[0].seq, other[-1].seq))

    async def _judge_coverage(
        self, files: Sequence[_SortedFile], chain: ChainCheck, checkpoints: CheckpointCheck
    ) -> None:
        expected, head = self._noted.expected, chain.head
        if expected is None or not head.seq:
            return
        every = [
            checkpoint
            for file in files
            if file.lines.path == expected
            for checkpoint in (*file.sound, *file.foreign, *file.wrong)
        ]
        if not every:
            what = f"There is no checkpoint in {expected}, and the audit has {head.seq} rows."
            means = "somebody deleted the file, it was written elsewhere, or the bot has not run since it keeps one"
            self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))
            return
        first = min(every, key=lambda checkpoint: checkpoint.seq)
        if first.seq > (chain.seal.seq if chain.seal else 0):
            what = f"The checkpoints in {expected} begin with row {first.seq}, of {format_utc(first.at)}: there are no "
            what += "older ones."
            means = "somebody deleted the file and the bot began another, or it ran elsewhere before"
            # Each host of a shared database writes its own file, from its first start.
            certain = not self._database.shared
            self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means, 1, first.seq, certain))
        covered = checkpoints.newest.seq if checkpoints.newest else 0
        uncovered = await self._read(covered, 1) if covered < head.seq else ()
        at = await self._database.read(lambda connection: float(connection.execute(sa.select(now())).scalar_one()))
        if self._noted.stale_after is None or not uncovered or not isinstance(uncovered[0]["at"], float):
            return
        if at - uncovered[0]["at"] > self._noted.stale_after:
            since = format_utc(uncovered[0]["at"])
            what = f"No checkpoint covers rows {covered + 1} to {head.seq}, which began on {since}."
            means = "the bot was killed or could not write checkpoints (see its log), or somebody cut the file"
            self._findings.add(AuditFinding(Fault.NOT_COVERED, what, means, covered + 1, head.seq, certain=False))

    # ------------------------------------------------------------------ turns and grants

    async def _compare_turns(self, *, quick: bool) -> int:
        if quick:
            latest = await self._database.read(lambda connection: audit_turns.latest_turns(connection, LATEST_TURNS))
            for first in range(0, len(latest), TURNS):
                await self._compare(latest[first : first + TURNS])
            return len(latest)
        count, behind = 0, ""
        while ids := await self._page(behind):
            await self._compare(ids)
            count += len(ids)
            behind = ids[-1]
        return count

    async def _page(self, behind: str) -> Sequence[str]:
        return await self._database.read(lambda connection: audit_turns.page_of_turns(connection, behind, TURNS))

    async def _compare(self, ids: Sequence[str]) -> None:
        for finding in await self._database.read(lambda connection: audit_turns.compare_turns(connection, ids)):
            self._findings.add(finding)

    def _compare_grants(self, grants: Mapping[str, str]) -> None:
        for grant_id, description in grants.items():
            if grant_id not in self._granted:
                what = f"The grant {grant_id} ({description}) exists, and no row says that it was given."
                means = "somebody deleted rows of the audit, or wrote the grant into the database by hand"
                self._findings.add(AuditFinding(Fault.GRANT, what, means))


@dataclass(frozen=True, slots=True)
class _SortedFile:
    """The checkpoints of one file by their MACs: `sound` ones count, `foreign` ones have another key, or none."""

    lines: CheckpointLines
    sound: Sequence[Checkpoint]
    wrong: Sequence[Checkpoint]
    foreign: Sequence[Checkpoint]


def _sort_files(keys: AuditKeys, files: Sequence[CheckpointLines]) -> Sequence[_SortedFile]:
    # Without a key, a missing MAC is expected.
    sound = MacCheck.GOOD if keys.ids else MacCheck.MISSING
    return [_sort_file(keys, file, sound) for file in files]


def _sort_file(keys: AuditKeys, lines: CheckpointLines, sound: MacCheck) -> _SortedFile:
    checked = [(checkpoint, keys.check_checkpoint(checkpoint)) for checkpoint in lines.checkpoints]
    return _SortedFile(
        lines,
        [checkpoint for checkpoint, check in checked if check is sound],
        [checkpoint for checkpoint, check in checked if check is MacCheck.WRONG],
        [checkpoint for checkpoint, check in checked if check not in (sound, MacCheck.WRONG)],
    )


def _missing_triggers(connection: sa.Connection) -> Sequence[AuditFinding]:
    there = set(connection.execute(_triggers_of[connection.dialect.name]).scalars())
    means = "somebody took it off to change or delete rows"
    return [
        AuditFinding(Fault.TRIGGERS, f"The trigger {name}, which refuses changes of rows, is gone.", means)
        for name in _TRIGGERS[connection.dialect.name]
        if name not in there
    ]


def _row_before_the_latest(connection: sa.Connection) -> AuditHead:
    """Return the row before the first one of a quick verification."""
    last: Any = read_head(connection).seq
    if not isinstance(last, int) or last <= LATEST_ROWS:
        return AuditHead()
    rows = read_on(connection, _ALL, last - LATEST_ROWS - 1, 1)
    return AuditHead(rows[0]["seq"], str(rows[0]["hash"])) if rows else AuditHead()


def _is_before(checkpoint: Checkpoint, seal: AuditSeal | None) -> bool:
    return seal is not None and checkpoint.at <= seal.at


def _many(count: int) -> str:
    return "1 checkpoint" if count == 1 else f"{count} checkpoints"


def _line_count(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
