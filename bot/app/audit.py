"""`countersign audit`: export, verify, seal, print the last row; and the audit check of the doctor.

The commands work beside a running bot: the audit is read in batches, rows added meanwhile included.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bot.admin.audit_search import csv_head, csv_line, json_line
from bot.admin.text_format import MOMENT, parse_time, pluralize
from bot.app.database import checkpoint_file, current, open_checked_database, open_migrated_database
from bot.domain.audit import (
    SEALED,
    AuditHead,
    AuditQuery,
    AuditReport,
    CheckpointPlace,
    format_utc,
)
from bot.errors import DatabaseError, SettingsError
from bot.examination import Check, CheckStatus
from bot.platforms.console.local_user import LocalUser, login_name
from bot.rendering.text_safety import single_line
from bot.settings import Settings
from bot.storage.address import read_address

if TYPE_CHECKING:
    from bot.storage.audit_verification import ExternalRecords, SqlAuditTrail
    from bot.storage.checkpoints import CheckpointLines
    from bot.storage.database import Database

# -------------------- audit report

MOST_FINDINGS = 12
"""Findings in the text report. The JSON has all of them."""
_LONGEST = 400


def report_json(report: AuditReport) -> str:
    """Return the report as one JSON object."""
    facts = asdict(report)
    head = facts.pop("head")
    return json.dumps({"fits": report.fits, "head": f"{head['seq']}:{head['hash']}", **facts})


def report_text(report: AuditReport) -> str:
    """Return the report in lines."""
    return "\n".join(_lines(report))


def _lines(report: AuditReport) -> Iterator[str]:
    if not report.head.seq:
        yield "The audit has no rows."
    else:
        limited = "" if report.whole else "the latest "
        since, until = (format_utc(at) if at is not None else "?" for at in (report.first_at, report.last_at))
        yield f"{limited}{pluralize(report.rows, 'row')}, {since} to {until} UTC"
        yield f"last row     {report.head}"
        yield f"keys         {_keys(report)}"
    if report.seal is not None:
        seal, by = report.seal, single_line(report.seal.actor, 80)
        yield f"sealed       row {seal.seq} by {by}, {format_utc(seal.at)}: {single_line(seal.reason, 120)}"
    for place in report.places:
        yield f"checkpoints  {_place(place)}"
    if not report.places:
        yield "checkpoints  none: rows that were cut off at the end cannot be found"
    yield f"turns        {report.turns} compared"
    for finding in report.findings[:MOST_FINDINGS]:
        yield f"{'✗' if finding.certain else '!'} {single_line(finding.what, _LONGEST)}"
        yield f"  It may mean: {finding.means}."
    if (more := len(report.findings) - MOST_FINDINGS + report.more) > 0:
        yield f"  and {pluralize(more, 'finding')} more: --json has them"
    if not report.findings:
        yield "✓ Everything fits."


def _keys(report: AuditReport) -> str:
    texts = [f"{use.id}: {pluralize(use.rows, 'row')}{'' if use.known else ' (not here)'}" for use in report.keys]
    if report.unsigned:
        texts.append(f"no key: {pluralize(report.unsigned, 'row')}")
    return ", ".join(texts)


def _place(place: CheckpointPlace) -> str:
    fitting = "all fit" if place.fitting == place.found else f"{place.fitting} fit"
    aside = f", {place.set_aside} set aside by the seal" if place.set_aside else ""
    last = f", the last is of row {place.last.seq}, {format_utc(place.last.at)}" if place.last else ""
    return f"{single_line(place.path, _LONGEST)}: {place.found}, {fitting}{aside}{last}"


FAILED = 1
DOCTOR_SECONDS = 10.0
"""Seconds that the doctor's audit check may take."""
_GRACE_SECONDS = 60.0
_RESTORE = "compare it with a backup, and find out who has access to the database; see docs/audit.md"


async def export(settings: Settings, since: str, until: str, *, as_csv: bool) -> int:
    """Write rows to standard output as CSV or JSON Lines, oldest first. Return the exit code. Raises
    CountersignError.
    """
    now = time.time()
    query = AuditQuery(since=_parse_time_option("--since", since, now), until=_parse_time_option("--until", until, now))
    line = csv_line if as_csv else json_line
    async with _opened_trail(settings) as trail, aclosing(trail.entries(query)) as entries:
        if as_csv:
            sys.stdout.write(f"{csv_head()}\n")
        async for entry in entries:
            sys.stdout.write(f"{line(entry)}\n")
    return 0


async def verify(settings: Settings, known: str, checkpoints: Sequence[Path], *, as_json: bool) -> int:
    """Verify the audit against its keys and all checkpoints, and print a report. Return the exit code. Raises
    CountersignError.
    """
    external = await asyncio.to_thread(_external_records, settings, checkpoints, _head(known))
    async with _opened_trail(settings) as trail:
        report = await trail.verify(external)
    sys.stdout.write(f"{report_json(report) if as_json else report_text(report)}\n")
    if report.fits:
        return 0
    many = pluralize(sum(finding.certain for finding in report.findings) + report.more, "finding")
    sys.stderr.write(f"countersign: The audit does not fit ({many}). Fix: {_RESTORE}\n")
    return FAILED


async def seal(settings: Settings, reason: str) -> int:
    """Add a row by which the operator vouches for all earlier rows and checkpoints. Return the exit code. Raises
    CountersignError.
    """
    if not reason.strip():
        raise SettingsError("--reason is empty.", "say why the rows before can be trusted")
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.audit")
    person = LocalUser(login_name()).author.principal
    await _require_database(settings)
    async with open_migrated_database(settings, migrate=False) as database:
        if not await asyncio.to_thread(database.audit_keys.prepare):
            raise SettingsError(
                "There is no key to seal the audit with.", "set AUDIT_KEY; `countersign secrets generate-key` makes one"
            )
        await database.run(lambda connection: module.record(connection, SEALED, person, reason=reason.strip()))
    return await verify(settings, "", (), as_json=False)


async def head(settings: Settings) -> int:
    """Print the number and hash of the last row. Return the exit code. Raises CountersignError."""
    async with _opened_trail(settings) as trail:
        sys.stdout.write(f"{await trail.head()}\n")
    return 0


async def latest_report(settings: Settings, database: Database) -> AuditReport:
    """Verify the latest rows against their keys and the checkpoints of this machine. Reads a bounded number of them."""
    trail = await _trail_of(database)
    return await trail.verify(await asyncio.to_thread(_external_records, settings, (), None), quick=True)


async def examine_audit(settings: Settings, database: Database) -> Check:
    """Check the latest rows, checkpoints and turns. Reads a bounded number of them."""
    trail = await _trail_of(database)
    began_at = time.monotonic()
    try:
        async with asyncio.timeout(DOCTOR_SECONDS):
            external = await asyncio.to_thread(_external_records, settings, (), None)
            report = await trail.verify(external, quick=True)
    except TimeoutError:
        detail = f"It took more than {DOCTOR_SECONDS:g} s to look at the latest rows."
        return Check("whole", CheckStatus.SKIPPED, detail, "run `countersign audit verify`")
    seconds = time.monotonic() - began_at
    rows = pluralize(report.rows, "row") if report.whole else f"The latest {pluralize(report.rows, 'row')}"
    for certain, verdict in ((True, CheckStatus.BROKEN), (False, CheckStatus.DOUBTFUL)):
        for finding in report.findings:
            if finding.certain is certain:
                return Check("whole", verdict, finding.what, f"run `countersign audit verify`; {_RESTORE}", seconds)
    if not database.audit_keys.ids and report.rows:
        detail = f"{rows}, each follows the one before. They have no MACs, because there is no key."
        return Check("whole", CheckStatus.DOUBTFUL, detail, "set AUDIT_KEY", seconds)
    return Check("whole", CheckStatus.WELL, f"{rows}, each follows the one before and fits what is known.", "", seconds)


@asynccontextmanager
async def _opened_trail(settings: Settings) -> AsyncIterator[SqlAuditTrail]:
    await _require_database(settings)
    async with open_checked_database(settings) as database:
        yield await _trail_of(database)


async def _require_database(settings: Settings) -> None:
    version, _ = await current(settings)
    if not version:
        raise DatabaseError("There is no database yet, and so no audit.", "start the bot once, or check DATABASE_URL")


async def _trail_of(database: Database) -> SqlAuditTrail:
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.audit_verification")
    trail: SqlAuditTrail = module.SqlAuditTrail(database)
    return trail


def _external_records(settings: Settings, more: Sequence[Path], head: AuditHead | None) -> ExternalRecords:
    """Read the checkpoints of the bot's file, of a chat's log and of `more` files. Raises SettingsError if one of
    `more` cannot be read.
    """
    module = importlib.import_module("bot.storage.checkpoints")
    verification = importlib.import_module("bot.storage.audit_verification")
    expected = checkpoint_file(settings)
    log_file = read_address(settings.database_url, settings.data_folder).folder / "countersign.log"
    places: list[CheckpointLines] = []
    for path in (expected, log_file.with_name("countersign.log.1"), log_file):
        if path is None:
            continue
        try:
            checkpoints = module.read_checkpoints(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(path, error) from error
        places += [checkpoints] if checkpoints.checkpoints or checkpoints.torn or path == expected else []
    for path in more:
        try:
            places.append(module.read_checkpoints(path))
        except OSError as error:
            raise _unreadable(path, error) from error
    interval = settings.audit_checkpoint_interval
    late = None if interval is None else 2 * interval + _GRACE_SECONDS
    external: ExternalRecords = verification.ExternalRecords(places, head, expected, late)
    return external


def _unreadable(path: Path, error: OSError) -> SettingsError:
    reason = error.strerror or type(error).__name__
    return SettingsError(f"The checkpoints in {path} cannot be read: {reason}.", "check the file and its permissions")


def _parse_time_option(option: str, text: str, now: float) -> float | None:
    if not text:
        return None
    try:
        return parse_time(text, now)
    except (ValueError, OverflowError):
        raise SettingsError(f"{option} is {text!r:.40}, which is no point in time.", f"write {MOMENT}") from None


def _head(text: str) -> AuditHead | None:
    if not text:
        return None
    try:
        return AuditHead.parse(text)
    except ValueError:
        raise SettingsError(
            f"--head is {text!r:.100}, which is no row.", "write NUMBER:HASH, as `countersign audit head` prints it"
        ) from None
