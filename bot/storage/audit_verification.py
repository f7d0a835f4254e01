"""Export and verification of the audit: rows, MACs, checkpoints, and the turns, approvals and grants they refer to.

Each batch is its own transaction, so that a long audit takes little memory and does not block the bot. Rows that are
added meanwhile are read too. A mismatch of a turn is compared again under the turn's lock, because another process may
have written between two statements.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import DecisionType
from bot.domain.audit import (
    AuditEntry,
    AuditFinding,
    AuditHead,
    AuditQuery,
    AuditReport,
    AuditSeal,
    Checkpoint,
    CheckpointPlace,
    Fault,
    format_utc,
)
from bot.domain.turns import StepStatus
from bot.storage.audit import Row, call_facts, entry_of, parse_facts, read_after, read_head
from bot.storage.audit_chain import ChainCheck, Findings
from bot.storage.checkpoints import CheckpointCheck, CheckpointLines, SortedCheckpoints, sort_checkpoints
from bot.storage.database import Database, Store, now, report
from bot.storage.tables import approval_of_step, approvals, audit, decisions, grants, steps, turns
from bot.storage.turn_log.states import lock_turn

BATCH_SIZE = 500
"""Rows read in one transaction."""
TURNS = 50
"""Turns compared in one transaction."""
LATEST_ROWS = 20_000
LATEST_TURNS = 500
"""The limits of a quick verification."""
_EARLIER_CHECKPOINTS = 200
"""Checkpoints of earlier rows that a quick verification compares."""

_ALL = AuditQuery()
_FROM_AN_APPROVAL = (StepStatus.READY, StepStatus.STARTED, StepStatus.ASKING)
_SENT = (StepStatus.DONE, StepStatus.FAILED, StepStatus.UNKNOWN)
_ENDS = ("ran", "not run")
_NOT_APPROVED = ("decided", "not shown", "expired", *_ENDS)
_ABOUT_A_CALL = ("asked", "decided", "signed", "revised", "expired", "not shown", *_ENDS)
_DELETED = "somebody deleted rows of the audit, or wrote to the turn by hand"
_FORGED = "somebody wrote to the turn by hand"
_REMOVED = "somebody deleted rows at the end, or an older copy of the database was put in place"
_TRIGGERS = {"sqlite": ("audit_is_never_changed", "audit_is_never_deleted"), "postgresql": ("audit_is_append_only",)}
_triggers_of = {
    "sqlite": sa.text("select name from sqlite_master where type = 'trigger' and tbl_name = 'audit'"),
    "postgresql": sa.text(
        "select tgname from pg_trigger where tgrelid = 'audit'::regclass and not tgisinternal and tgenabled <> 'D'"
    ),
}

_in_turns: sa.BindParameter[str] = bindparam("ids", expanding=True)
_page = sa.select(turns.c.id).where(turns.c.id > bindparam("behind")).order_by(turns.c.id).limit(bindparam("limit"))
_latest = sa.select(turns.c.id).order_by(turns.c.created_at.desc()).limit(bindparam("limit"))
_calls = (
    sa.select(
        *steps.c["turn_id", "n", "status", "started_at"],
        # As text, because an unreadable body must not end the verification.
        sa.cast(steps.c.body, sa.Text).label("body"),
        sa.cast(approvals.c.revised_arguments, sa.Text).label("revised"),
        approvals.c.id.label("approval"),
        approvals.c.fingerprint,
    )
    .outerjoin(approvals, approval_of_step)
    .where(steps.c.turn_id.in_(_in_turns), steps.c.kind == "tool")
)
_numbers = sa.select(steps.c.turn_id, steps.c.n).where(steps.c.turn_id.in_(_in_turns))
_decisions = (
    sa.select(approvals.c.turn_id, approvals.c.n, decisions)
    .join(approvals, approvals.c.id == decisions.c.approval_id)
    .where(approvals.c.turn_id.in_(_in_turns))
)
_rows = (
    sa.select(*audit.c["seq", "turn_id", "kind", "actor", "body"])
    .where(audit.c.turn_id.in_(_in_turns))
    .order_by(audit.c.seq)
)
_grants = sa.select(grants.c.id, grants.c.tool, grants.c.server_name, grants.c.granted_by)
_earlier = audit.alias("earlier")

# The first audit rows of deleted turns, among rows first..last.
_first_of_deleted = sa.select(audit.c.seq, audit.c.conversation).where(
    audit.c.seq.between(bindparam("first"), bindparam("last")),
    audit.c.turn_id != "",
    ~sa.exists().where(turns.c.id == audit.c.turn_id),
    ~sa.exists().where(_earlier.c.turn_id == audit.c.turn_id, _earlier.c.seq < audit.c.seq),
)


@dataclass(frozen=True, slots=True)
class ExternalRecords:
    """Records of the audit outside the database. `head` is a row given by the operator. `expected` is the
    checkpoint file that this host writes, `None` without one. Rows older than `stale_after` seconds should be covered.
    """

    places: Sequence[CheckpointLines] = ()
    head: AuditHead | None = None
    expected: Path | None = None
    stale_after: float | None = None


NO_EXTERNAL_RECORDS = ExternalRecords()


class SqlAuditTrail(Store):
    """Reader and verifier of the whole audit."""

    def __init__(self, database: Database, batch_size: int = BATCH_SIZE) -> None:
        super().__init__(database)
        self._batch_size = batch_size

    @report
    def head(self, connection: sa.Connection) -> AuditHead:
        """Return the number and hash of the last row."""
        return read_head(connection)

    async def entries(self, query: AuditQuery) -> AsyncGenerator[AuditEntry, None]:
        """Yield all matching rows, oldest first."""
        rows = await self._read(None, self._batch_size, query)
        while rows:
            for row in rows:
                yield entry_of(row)
            rows = await self._read(rows[-1]["seq"], self._batch_size, query) if len(rows) == self._batch_size else ()

    async def verify(self, external: ExternalRecords = NO_EXTERNAL_RECORDS, *, quick: bool = False) -> AuditReport:
        """Verify the chain of rows, their MACs, the checkpoints in `external`, and the turns they refer to. `quick`
        limits this to the latest rows and turns.
        """
        return await Verification(self._database, self._batch_size, external).run(quick=quick)

    @report
    def _read(
        self, connection: sa.Connection, behind: int | None, limit: int, query: AuditQuery = _ALL
    ) -> Sequence[Row]:
        return read_after(connection, query, behind, limit)


class Verification(SqlAuditTrail):
    """One run of a verification. `batch_size` is the number of rows for each transaction."""

    def __init__(self, database: Database, batch_size: int, external: ExternalRecords) -> None:
        super().__init__(database, batch_size)
        self._external = external
        self._findings = Findings()
        self._granted: set[str] = set()

    async def run(self, *, quick: bool) -> AuditReport:
        """Compare everything, or the latest rows and turns."""
        for finding in await self._database.read(_missing_triggers):
            self._findings.add(finding)
        grants = await self._grants()
        after = await self._database.read(_row_before_the_latest) if quick else AuditHead()
        # In a thread, because deriving a key from a password takes time.
        files = await asyncio.to_thread(sort_checkpoints, self._database.audit_keys, self._external.places)
        checkpoints = CheckpointCheck([checkpoint for file in files for checkpoint in file.sound])
        chain = ChainCheck(self._database.audit_keys, self._findings, after)
        earlier = {checkpoint.seq for file in files for checkpoint in file.sound if 0 < checkpoint.seq <= after.seq}
        for seq in sorted(earlier)[-_EARLIER_CHECKPOINTS:]:
            for row in await self._read(seq - 1, 1):
                checkpoints.add(row["seq"], row["hash"])
        await self._read_rows(chain, checkpoints, whole=not after.seq)
        if self._external.head is not None:
            await self._compare_head(self._external.head, chain.head)
        self._check_files(files, chain.seal)
        results = self._compare_files(files, chain, checkpoints, after)
        await self._check_coverage(files, chain, checkpoints)
        turns = await self._compare_turns(quick=quick)
        if not after.seq:
            for grant_id, description in grants.items():
                if grant_id not in self._granted:
                    what = f"The grant {grant_id} ({description}) exists, and no row says that it was given."
                    means = "somebody deleted rows of the audit, or wrote the grant into the database by hand"
                    self._findings.add(AuditFinding(Fault.GRANT, what, means))
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

    async def _read_rows(self, chain: ChainCheck, checkpoints: CheckpointCheck, *, whole: bool) -> None:
        deleted = DeletedTurns()
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
                deleted.add(rows, await self._deleted_turns(rows))
        if (finding := deleted.finding()) is not None:
            self._findings.add(finding)

    @report
    def _deleted_turns(self, connection: sa.Connection, rows: Sequence[Row]) -> Mapping[int, str]:
        """Return the conversations of the rows that are the first ones of deleted turns, by row number."""
        numbers = [row["seq"] for row in rows if isinstance(row["seq"], int)]
        if not numbers:
            return {}
        deleted = connection.execute(_first_of_deleted, {"first": numbers[0], "last": numbers[-1]})
        return {row.seq: row.conversation for row in deleted}

    # ------------------------------------------------------------------ outside the database

    async def _compare_head(self, expected: AuditHead, last: AuditHead) -> None:
        if expected.seq > last.seq:
            what = f"Row {last.seq + 1} is missing: row {expected.seq} was known, and {last.seq} is the last."
            self._findings.add(AuditFinding(Fault.MISSING, what, _REMOVED, last.seq + 1, expected.seq))
        elif expected.seq and [row["hash"] for row in await self._read(expected.seq - 1, 1)] != [expected.hash]:
            what = f"Row {expected.seq} differs from the known one: the audit was rewritten."
            means = "somebody rewrote rows and calculated their hashes, or this is another database"
            self._findings.add(AuditFinding(Fault.REWRITTEN, what, means, expected.seq, last.seq))

    def _check_files(self, files: Sequence[SortedCheckpoints], seal: AuditSeal | None) -> None:
        for file in files:
            if file.lines.mixed and file.lines.path != self._external.expected:
                continue  # a log, which other programs write to: only checkpoints with a MAC count
            if file.lines.torn:
                torn = file.lines.torn
                lines = "1 line" if len(torn) == 1 else f"{len(torn)} lines"
                what = f"{lines} of {file.lines.path} cannot be read, the first one is line {torn[0]}."
                means = "a process died while it wrote the line, or somebody changed it"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means, certain=False))
            if file.wrong:
                what = f"{_checkpoint_count(len(file.wrong))} in {file.lines.path} with a MAC that is not of the key, "
                what += f"the first one about row {file.wrong[0].seq}."
                means = "somebody without the key changed the file"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))
            # The operator has accepted everything before the seal.
            foreign = [checkpoint for checkpoint in file.foreign if not _is_before(checkpoint, seal)]
            if foreign:
                key = f"by the key {foreign[-1].key}, which is not here" if foreign[-1].key else "without a key"
                count = _checkpoint_count(len(foreign))
                what = f"{count} in {file.lines.path} {key}, the last one about row {foreign[-1].seq}."
                means = "the key was replaced or lost, or somebody without the key wrote to the file"
                self._findings.add(AuditFinding(Fault.CHECKPOINT, what, means))

    def _compare_files(
        self, files: Sequence[SortedCheckpoints], chain: ChainCheck, checkpoints: CheckpointCheck, after: AuditHead
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
        self._check_failed(failed, chain.head, checkpoints.newest)
        return tuple(results)

    def _check_failed(self, failed: Sequence[Checkpoint], head: AuditHead, newest: Checkpoint | None) -> None:
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
            what += f"({_checkpoint_count(len(other))} that do not fit; {until})."
            means = "somebody rewrote rows, or the bot went on from an older copy of the database"
            self._findings.add(AuditFinding(Fault.REWRITTEN, what, means, other[0].seq, other[-1].seq))

    async def _check_coverage(
        self, files: Sequence[SortedCheckpoints], chain: ChainCheck, checkpoints: CheckpointCheck
    ) -> None:
        expected, head = self._external.expected, chain.head
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
        if self._external.stale_after is None or not uncovered or not isinstance(uncovered[0]["at"], float):
            return
        if at - uncovered[0]["at"] > self._external.stale_after:
            since = format_utc(uncovered[0]["at"])
            what = f"No checkpoint covers rows {covered + 1} to {head.seq}, which began on {since}."
            means = "the bot was killed or could not write checkpoints (see its log), or somebody cut the file"
            self._findings.add(AuditFinding(Fault.NOT_COVERED, what, means, covered + 1, head.seq, certain=False))

    # ------------------------------------------------------------------ turns and grants

    async def _compare_turns(self, *, quick: bool) -> int:
        if quick:
            latest = await self._database.read(
                lambda connection: connection.execute(_latest, {"limit": LATEST_TURNS}).scalars().all()
            )
            for first in range(0, len(latest), TURNS):
                await self._compare(latest[first : first + TURNS])
            return len(latest)
        count, behind = 0, ""
        while ids := await self._database.read(partial(page_of_turns, behind=behind, limit=TURNS)):
            await self._compare(ids)
            count += len(ids)
            behind = ids[-1]
        return count

    async def _compare(self, ids: Sequence[str]) -> None:
        for finding in await self._database.read(partial(compare_turns, ids=ids)):
            self._findings.add(finding)

    @report
    def _grants(self, connection: sa.Connection) -> Mapping[str, str]:
        """Return a description of each stored grant, by id."""
        return {
            row.id: f"{row.server_name}.{row.tool}, as granted by {row.granted_by}"
            for row in connection.execute(_grants)
        }


def _missing_triggers(connection: sa.Connection) -> Sequence[AuditFinding]:
    present = set(connection.execute(_triggers_of[connection.dialect.name]).scalars())
    means = "somebody took it off to change or delete rows"
    return [
        AuditFinding(Fault.TRIGGERS, f"The trigger {name}, which refuses changes of rows, is gone.", means)
        for name in _TRIGGERS[connection.dialect.name]
        if name not in present
    ]


def _row_before_the_latest(connection: sa.Connection) -> AuditHead:
    """Return the row before the first one of a quick verification."""
    last: Any = read_head(connection).seq
    if not isinstance(last, int) or last <= LATEST_ROWS:
        return AuditHead()
    rows = read_after(connection, _ALL, last - LATEST_ROWS - 1, 1)
    return AuditHead(rows[0]["seq"], str(rows[0]["hash"])) if rows else AuditHead()


def _is_before(checkpoint: Checkpoint, seal: AuditSeal | None) -> bool:
    return seal is not None and checkpoint.at <= seal.at


def _checkpoint_count(count: int) -> str:
    return "1 checkpoint" if count == 1 else f"{count} checkpoints"


def page_of_turns(connection: sa.Connection, behind: str, limit: int) -> Sequence[str]:
    """Return the ids of turns behind one, in the order of ids."""
    return connection.execute(_page, {"behind": behind, "limit": limit}).scalars().all()


def compare_turns(connection: sa.Connection, ids: Sequence[str]) -> Sequence[AuditFinding]:
    """Compare these turns with the rows about them."""
    if not ids or not (suspects := _compare(connection, ids)):
        return ()
    findings: list[AuditFinding] = []
    for turn_id in suspects:
        if lock_turn(connection, turn_id) is not None:
            findings += _compare(connection, [turn_id]).get(turn_id, ())
    return findings


class DeletedTurns:
    """Comparison of deleted turns with the deletions in the audit, batch by batch. Retention is recorded as a count:
    the deletions on record must be at least as many as the missing turns.
    """

    def __init__(self) -> None:
        self._deleted: defaultdict[str, int] = defaultdict(int)
        self._recorded = 0
        self._first = 0

    def add(self, rows: Sequence[Mapping[str, Any]], deleted: Mapping[int, str]) -> None:
        """Add the next rows, and the conversations of the first rows of deleted turns by row number."""
        for row in rows:
            if row["seq"] in deleted:
                self._deleted[deleted[row["seq"]]] += 1
                self._first = self._first or row["seq"]
            if row["kind"] == "deleted conversation":
                self._deleted.pop(row["conversation"], None)
            elif row["kind"] == "deleted old turns":
                count = (parse_facts(row["body"]) or {}).get("count")
                self._recorded += count if isinstance(count, int) else 0

    def finding(self) -> AuditFinding | None:
        """Return a finding if more turns are missing than were deleted, else `None`."""
        unexplained = sum(self._deleted.values()) - self._recorded
        if unexplained <= 0:
            return None
        many = "1 turn is" if unexplained == 1 else f"{unexplained} turns are"
        return AuditFinding(
            Fault.DELETED_TURNS,
            f"{many} gone that the audit has rows of, and no row says that they were deleted.",
            "somebody deleted turns by hand, or restored them from an older backup than the audit",
            self._first,
            self._first,
        )


def _compare(connection: sa.Connection, ids: Sequence[str]) -> dict[str, list[AuditFinding]]:
    calls = connection.execute(_calls, {"ids": ids}).all()
    numbers = {(row.turn_id, row.n) for row in connection.execute(_numbers, {"ids": ids})}
    decided = connection.execute(_decisions, {"ids": ids}).all()
    rows = [_CallEntry(row) for row in connection.execute(_rows, {"ids": ids})]
    by_call: defaultdict[tuple[str, object], list[_CallEntry]] = defaultdict(list)
    for row in rows:
        by_call[row.turn_id, row.facts.get("step")].append(row)
    findings: dict[str, list[AuditFinding]] = {}

    def add(turn_id: str, what: str, means: str, row: _CallEntry | None = None) -> None:
        seq = row.seq if row else 0
        findings.setdefault(turn_id, []).append(AuditFinding(Fault.TURN, what, means, seq, seq))

    for call in calls:
        for what, means, about in _call_mismatches(call, by_call[call.turn_id, call.n]):
            add(call.turn_id, what, means, about)
    for decision in decided:
        if not any(row.is_decision(decision) for row in by_call[decision.turn_id, decision.n]):
            where = f"step {decision.n} of turn {decision.turn_id}"
            add(
                decision.turn_id,
                f"{decision.principal} said {decision.decision} to {where}, and no row says so.",
                "somebody deleted rows of the audit, or wrote a decision into the database by hand",
            )
    for row in rows:
        step = row.facts.get("step")
        if row.kind in _ABOUT_A_CALL and (row.turn_id, step) not in numbers:
            what = f"Row {row.seq} ({row.kind}) is about step {step} of turn {row.turn_id}, which has no such step."
            add(row.turn_id, what, "somebody deleted steps of the turn by hand", row)
    return findings


class _CallEntry:
    """A row of the audit about a call."""

    def __init__(self, row: Any) -> None:
        self.seq: int = row.seq
        self.turn_id: str = row.turn_id
        self.kind: str = row.kind
        self.actor: str = row.actor
        self.facts = parse_facts(row.body) or {}

    def is_decision(self, decision: Any) -> bool:
        facts = (decision.approval_id, decision.revision, decision.decision)
        return (
            self.kind in ("decided", "signed")
            and self.actor == decision.principal
            and (self.facts.get("approval"), self.facts.get("revision"), self.facts.get("verdict")) == facts
        )


_Mismatch = tuple[str, str, _CallEntry | None]


def _call_mismatches(call: Any, rows: Sequence[_CallEntry]) -> Iterable[_Mismatch]:
    where = f"step {call.n} of turn {call.turn_id}"
    if call.approval is not None:
        yield from _approval_mismatches(call, where, rows)
    if call.started_at is None or call.status not in _SENT:
        return
    ends = [row for row in rows if row.kind in _ENDS]
    if not ends:
        yield f"A call was sent ({where}), and no row says how it ended.", _DELETED, None
    elif not any(row.facts.get("status") == call.status for row in ends):
        mismatch = f"Row {ends[-1].seq} says that the call ended as {ends[-1].facts.get('status')}"
        yield f"{mismatch}; the turn says {call.status} ({where}).", _FORGED, ends[-1]
    else:
        sent = call_facts(call).get("fingerprint", "")
        if sent and not any(row.facts.get("fingerprint", sent) == sent for row in ends):
            what = f"Row {ends[-1].seq} is about other arguments than {where} has."
            yield what, "somebody changed the call in the turn by hand", ends[-1]


def _approval_mismatches(call: Any, where: str, rows: Sequence[_CallEntry]) -> Iterable[_Mismatch]:
    own_rows = [row for row in rows if row.facts.get("approval") == call.approval]
    if not any(row.kind == "asked" for row in own_rows):
        yield f"An approval was asked for ({where}), and no row says so.", _DELETED, None
    decided = [row for row in own_rows if row.kind == "decided"]
    approved = [row for row in decided if row.facts.get("verdict") == DecisionType.APPROVE]
    if call.status in _FROM_AN_APPROVAL or (call.started_at is not None and call.status in _SENT):
        if not approved:
            means = "somebody deleted rows of the audit, or approved the call in the database by hand"
            yield f"A call went on that needs an approval ({where}), and no row says that it was approved.", means, None
        elif not any(row.facts.get("fingerprint") == call.fingerprint for row in approved):
            what = f"Row {approved[-1].seq} approves other arguments than those of {where}."
            yield what, "somebody changed the approval by hand", approved[-1]
    elif call.status in (StepStatus.DENIED, StepStatus.EXPIRED):
        if not any(row.kind in _NOT_APPROVED for row in rows):
            yield f"A call was turned down or expired ({where}), and no row says so.", _DELETED, None
    elif call.status == StepStatus.AWAITING and decided:
        what = f"Row {decided[-1].seq} says that it was decided; the turn says that it waits ({where})."
        yield what, "somebody wrote to the turn by hand, or restored it from an older backup", decided[-1]
