"""`countersign audit`: export it, see whether it is whole, note its last row; and the same for the doctor and the log.

It works beside a running bot: the audit is read piece by piece, and what is added meanwhile is read, too.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from bot.app.database import current, fitting_database
from bot.commands.audit_lines import csv_head, csv_line, json_line
from bot.commands.moments import MOMENT, read_moment
from bot.commands.phrases import counted
from bot.domain.audit import AuditEntry, AuditHead, AuditQuery, Misfit, Whole
from bot.domain.checks import Check
from bot.domain.checks import Finding as Verdict
from bot.engine.schedule import DAY_SECONDS, Job
from bot.errors import DatabaseError, SettingsError
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.storage.audit_trail import SqlAuditTrail
    from bot.storage.database import Database

log = logging.getLogger(__name__)

FAILED = 1
DOCTOR_SECONDS = 5.0
"""How long the doctor reads: longer than that takes an audit of a hundred thousand rows and more."""
_RESTORE = "restore a backup beside it and compare, and find out who has access to the database"


class Format(StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    CSV = "csv"


async def export(settings: Settings, written_as: Format, since: str, until: str) -> int:
    """Write rows to standard output, oldest first; the exit code. Raises CountersignError."""
    now = time.time()
    query = AuditQuery(since=_moment("--since", since, now), until=_moment("--until", until, now))
    line = _line_of(written_as)
    async with _opened_trail(settings) as trail, aclosing(trail.entries(query)) as entries:
        if written_as is Format.CSV:
            sys.stdout.write(f"{csv_head()}\n")
        async for entry in entries:
            sys.stdout.write(f"{line(entry)}\n")
    return 0


async def verify(settings: Settings, known: str) -> int:
    """Say whether every row is what it was; the exit code. Raises CountersignError."""
    head = _head(known)
    async with _opened_trail(settings) as trail:
        match await trail.verify(head):
            case Whole(last):
                sys.stdout.write(f"{counted(last.seq, 'row')}, all of them whole. The last one is {last}\n")
                return 0
            case Misfit() as misfit:
                sys.stderr.write(f"countersign: {_told(misfit)} Fix: {_RESTORE}\n")
                return FAILED


async def head(settings: Settings) -> int:
    """Write the number and hash of the last row; the exit code. Raises CountersignError."""
    async with _opened_trail(settings) as trail:
        sys.stdout.write(f"{await trail.head()}\n")
    return 0


async def examine_audit(database: Database) -> Check:
    """The doctor's look at it: all of it, unless that takes too long."""
    trail = await _trail_of(database)
    began_at = time.monotonic()
    try:
        async with asyncio.timeout(DOCTOR_SECONDS):
            found = await trail.verify()
    except TimeoutError:
        detail = f"It is long: not all of its {counted((await trail.head()).seq, 'row')} were read."
        return Check("whole", Verdict.SKIPPED, detail, "run `countersign audit verify`")
    seconds = time.monotonic() - began_at
    match found:
        case Whole(last):
            return Check(
                "whole", Verdict.WELL, f"{counted(last.seq, 'row')}, each follows the one before.", "", seconds
            )
        case Misfit() as misfit:
            return Check("whole", Verdict.BROKEN, _told(misfit), _RESTORE, seconds)


def daily_head(database: Database) -> Job:
    """Notes the last row in the log once a day: with a log that is kept elsewhere, rows cut off the end show."""

    async def note() -> None:
        log.info("the last row of the audit is %s", await (await _trail_of(database)).head())

    return Job("audit head", DAY_SECONDS, note)


@asynccontextmanager
async def _opened_trail(settings: Settings) -> AsyncIterator[SqlAuditTrail]:
    found, _ = await current(settings)
    if not found:
        raise DatabaseError("There is no database yet, and so no audit.", "start the bot once, or check DATABASE_URL")
    async with fitting_database(settings, migrate=False) as database:
        yield await _trail_of(database)


async def _trail_of(database: Database) -> SqlAuditTrail:
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.audit_trail")
    trail: SqlAuditTrail = module.SqlAuditTrail(database)
    return trail


def _line_of(written_as: Format) -> Callable[[AuditEntry], str]:
    match written_as:
        case Format.JSONL:
            return json_line
        case Format.CSV:
            return csv_line


def _told(misfit: Misfit) -> str:
    return f"The audit does not fit from row {misfit.seq} on: {misfit.reason}."


def _moment(option: str, text: str, now: float) -> float | None:
    if not text:
        return None
    try:
        return read_moment(text, now)
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
