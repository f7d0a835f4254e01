"""One verification of the audit: rows, MACs, checkpoints, turns and grants compared, and every finding said."""

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
)
from bot.domain.timestamps import format_utc
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
    """What is known of the audit outside the database. `head` is a row that the operator gives. `expected` is the file
    that checkpoints are written to, None if there is none; rows older than `stale_after` seconds should be covered.
    """

    places: Sequence[CheckpointLines] = ()
    head: AuditHead | None = None
    expected: Path | None = None
    stale_after: float | None = None


NOTHING_NOTED = Noted()


class Verification:
    """Runs once. `piece` is the number of rows a transaction."""

    def __init__(self, database: Database, piece: int, noted: Noted) -> None:
        self._database = database
        self._piece = piece
        self._noted = noted
        self._findings = Findings()
        self._granted: set[str] = set()

    async def run(self, *, quick: bool) -> AuditReport:
        """Compare everything, or the latest rows and turns."""
        for finding in await self._database.run(_missing_triggers):
            self._findings.add(finding)
        grants = await self._database.run(audit_turns.all_grants)
        after = await self._database.run(_row_before_the_latest) if quick else AuditHead()
        # In a thread: a key that is derived from a password takes a while.
        places = await asyncio.to_thread(_sorted_places, self._database.audit_keys, self._noted.places)
        checkpoints = CheckpointCheck([each for place in places for each in place.sound])
        chain = ChainCheck(self._database.audit_keys, self._findings, after)
        await self._look_up(checkpoints, places, after)
        await self._read_rows(chain, checkpoints, whole=not after.seq)
        if self._noted.head is not None:
            await self._compare_head(self._noted.head, chain.head)
        self._judge_unsound(places, chain.seal)
        told = self._judge_places(places, chain, checkpoints, after)
        await self._judge_coverage(places, chain, checkpoints)
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
            places=told,
            turns=turns,
            findings=tuple(self._findings.kept),
            more=self._findings.more,
        )

    # ------------------------------------------------------------------ rows

    async def _look_up(self, checkpoints: CheckpointCheck, places: Sequence[_SortedPlace], after: AuditHead) -> None:
        numbers = sorted({each.seq for place in places for each in place.sound if 0 < each.seq <= after.seq})
        for seq in numbers[-_LOOKED_UP:]:
            for row in await self._read(seq - 1, 1):
                checkpoints.add(row["seq"], row["hash"])

    async def _read_rows(self, chain: ChainCheck, checkpoints: CheckpointCheck, *, whole: bool) -> None:
        deleted = audit_turns.DeletedTurns()
        behind, taken = chain.head.seq or None, 0
        while rows := (await self._read(behind, self._piece + taken))[taken:]:
            for row in rows:
                last = chain.head.seq
                chain.add(row)
                # Each piece begins with the last row of the one before: a second row of that number is found, too.
                behind, taken = (behind, taken + 1) if chain.head.seq == last else (chain.head.seq - 1, 1)
                checkpoints.add(row["seq"], row["hash"])
                if row["kind"] == "granted":
                    self._granted.add(str(entry_of(row).facts.get("grant", "")))
            if whole:
                deleted.add(rows, await self._gone(rows))
        if (finding := deleted.finding()) is not None:
            self._findings.add(finding)

    async def _read(self, behind: int | None, limit: int) -> Sequence[Row]:
        return await self._database.run(lambda connection: read_on(connection, _ALL, behind, limit))

    async def _gone(self, rows: Sequence[Row]) -> Mapping[int, str]:
        return await self._database.run(lambda connection: audit_turns.rows_of_gone_turns(connection, rows))

    # ------------------------------------------------------------------ outside the database

    async def _compare_head(self, known: AuditHead, last: AuditHead) -> None:
        if known.seq > last.seq:
            what = f"Row {last.seq + 1} is missing: row {known.seq} was known, and {last.seq} is the last."
            self._findings.add(AuditFinding(Fault.MISSING, what, _REMOVED, last.seq + 1, known.seq))
        elif known.seq and [row["hash"] for row in await self._read(known.seq - 1, 1)] != [known.hash]:
            what = f"Row {known.seq} is another than the one that was known: the audit was written anew."
            means = "somebody rewrote rows and calculated their hashes, or this is another database"
            self._findings.add(AuditFinding(Fault.REWRITTEN, what, means, known.seq, last.seq))

    def _judge_unsound(self, places: Sequence[_SortedPlace], seal: AuditSeal | None) -> None:
        for place in places:
            if place.lines.mixed and place.lines.path != self._noted.expected:
                continue  # a log: others write to it, so only what is signed counts
            if place.lines.torn:
                what = f"{_lines(len(place.lines.torn))} of {place.lines.path} cannot be read, the first one is line "
                what += f"{place.lines.torn[0]}."
                means = "a process died while it wrote the line, or somebody changed it"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means, certain=False))
            if place.wrong:
                what = f"{_many(len(place.wrong))} in {place.lines.path} with a MAC that is not of the key, the first "
                what += f"one about row {place.wrong[0].seq}."
                means = "somebody without the key changed the file"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))
            # The operator has vouched for what was before the seal.
            foreign = [each for each in place.foreign if not _is_before(each, seal)]
            if foreign:
                key = f"by the key {foreign[-1].key}, which is not here" if foreign[-1].key else "without a key"
                what = f"{_many(len(foreign))} in {place.lines.path} {key}, the last one about row {foreign[-1].seq}."
                means = "the key was replaced or lost, or somebody without the key wrote to the file"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))

    def _judge_places(
        self, places: Sequence[_SortedPlace], chain: ChainCheck, checkpoints: CheckpointCheck, after: AuditHead
    ) -> tuple[CheckpointPlace, ...]:
        told: list[CheckpointPlace] = []
        failed: list[Checkpoint] = []
        for place in places:
            compared = [each for each in place.sound if not 0 < each.seq <= after.seq or each in checkpoints.looked_up]
            fitting = [each for each in compared if each in checkpoints.fitting]
            others = [each for each in compared if each not in checkpoints.fitting]
            aside = [each for each in others if _is_before(each, chain.seal)]
            failed += [each for each in others if not _is_before(each, chain.seal)]
            last = max(fitting, key=lambda each: (each.seq, each.at), default=None)
            told.append(CheckpointPlace(str(place.lines.path), len(place.sound), len(fitting), len(aside), last))
        self._judge_failed(failed, chain.head, checkpoints.newest)
        return tuple(told)

    def _judge_failed(self, failed: Sequence[Checkpoint], head: AuditHead, newest: Checkpoint | None) -> None:
        cut = max((each for each in failed if each.seq > head.seq), key=lambda each: each.seq, default=None)
        if cut is not None:
            first = head.seq + 1
            rows = f"Row {first} is" if cut.seq == first else f"Rows {first} to {cut.seq} are"
            there = f"row {head.seq} is the last that is there" if head.seq else "there are no rows"
            what = f"{rows} missing: the checkpoint of {format_utc(cut.at)} has row {cut.seq}, and {there}."
            self._findings.add(AuditFinding(Fault.MISSING, what, _REMOVED, first, cut.seq))
        other = sorted((each for each in failed if each.seq <= head.seq), key=lambda each: each.seq)
        if other:
            until = f"row {newest.seq} of {format_utc(newest.at)} is the last that fits" if newest else "none fits"
            what = f"Row {other[0].seq} is another than in the checkpoint of {format_utc(other[0].at)} "
            what += f"({_many(len(other))} that do not fit; {until})."
            means = "somebody rewrote rows, or the bot went on from an older copy of the database"
            self._findings.add(AuditFinding(Fault.REWRITTEN, what, means, other[0].seq, other[-1].seq))

    async def _judge_coverage(
        self, places: Sequence[_SortedPlace], chain: ChainCheck, checkpoints: CheckpointCheck
    ) -> None:
        expected, head = self._noted.expected, chain.head
        if expected is None or not head.seq:
            return
        every = [
            each
            for place in places
            if place.lines.path == expected
            for each in (*place.sound, *place.foreign, *place.wrong)
        ]
        if not every:
            what = f"There is no checkpoint in {expected}, and the audit has {head.seq} rows."
            means = "somebody deleted the file, it was written elsewhere, or the bot has not run since it keeps one"
            self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))
            return
        first = min(every, key=lambda each: each.seq)
        if first.seq > (chain.seal.seq if chain.seal else 0):
            what = f"The checkpoints in {expected} begin with row {first.seq}, of {format_utc(first.at)}: there are no "
            what += "older ones."
            means = "somebody deleted the file and the bot began another, or it ran elsewhere before"
            # Each host that works on a shared database keeps its own file, from whenever it began.
            certain = not self._database.shared
            self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means, 1, first.seq, certain))
        covered = checkpoints.newest.seq if checkpoints.newest else 0
        uncovered = await self._read(covered, 1) if covered < head.seq else ()
        at = await self._database.run(lambda connection: float(connection.execute(sa.select(now())).scalar_one()))
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
            latest = await self._database.run(lambda connection: audit_turns.latest_turns(connection, LATEST_TURNS))
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
        return await self._database.run(lambda connection: audit_turns.page_of_turns(connection, behind, TURNS))

    async def _compare(self, ids: Sequence[str]) -> None:
        for finding in await self._database.run(lambda connection: audit_turns.compare_turns(connection, ids)):
            self._findings.add(finding)

    def _compare_grants(self, grants: Mapping[str, str]) -> None:
        for grant_id, told in grants.items():
            if grant_id not in self._granted:
                what = f"The grant {grant_id} ({told}) exists, and no row says that it was given."
                means = "somebody deleted rows of the audit, or wrote the grant into the database by hand"
                self._findings.add(AuditFinding(Fault.GRANT, what, means))


@dataclass(frozen=True, slots=True)
class _SortedPlace:
    """The checkpoints of one place by their MACs: `sound` ones count, `foreign` ones have another key, or none."""

    lines: CheckpointLines
    sound: Sequence[Checkpoint]
    wrong: Sequence[Checkpoint]
    foreign: Sequence[Checkpoint]


def _sorted_places(keys: AuditKeys, places: Sequence[CheckpointLines]) -> Sequence[_SortedPlace]:
    # Without a key no MAC can be expected.
    sound = MacCheck.GOOD if keys.ids else MacCheck.MISSING
    return [_sorted(keys, place, sound) for place in places]


def _sorted(keys: AuditKeys, lines: CheckpointLines, sound: MacCheck) -> _SortedPlace:
    checked = [(each, keys.check_checkpoint(each)) for each in lines.checkpoints]
    return _SortedPlace(
        lines,
        [each for each, check in checked if check is sound],
        [each for each, check in checked if check is MacCheck.WRONG],
        [each for each, check in checked if check not in (sound, MacCheck.WRONG)],
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
    """The row before the first one that a quick verification reads."""
    last: Any = read_head(connection).seq
    if not isinstance(last, int) or last <= LATEST_ROWS:
        return AuditHead()
    rows = read_on(connection, _ALL, last - LATEST_ROWS - 1, 1)
    return AuditHead(rows[0]["seq"], str(rows[0]["hash"])) if rows else AuditHead()


def _is_before(checkpoint: Checkpoint, seal: AuditSeal | None) -> bool:
    return seal is not None and checkpoint.at <= seal.at


def _many(count: int) -> str:
    return "1 checkpoint" if count == 1 else f"{count} checkpoints"


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
