"""The report of a verification of the audit, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from bot.commands.text_format import pluralize
from bot.domain.audit import AuditFinding, AuditReport, CheckpointPlace, KeyUse
from bot.domain.timestamps import format_utc
from bot.rendering.text_safety import single_line

MOST_FINDINGS = 12
"""Findings that the report for people shows. The JSON has all of them."""
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
        yield from _finding(finding)
    if (more := len(report.findings) - MOST_FINDINGS + report.more) > 0:
        yield f"  and {pluralize(more, 'finding')} more: --json has them"
    if not report.findings:
        yield "✓ Everything fits."


def _keys(report: AuditReport) -> str:
    told = [_key(use) for use in report.keys]
    if report.unsigned:
        told.append(f"no key: {pluralize(report.unsigned, 'row')}")
    return ", ".join(told)


def _key(use: KeyUse) -> str:
    return f"{use.id}: {pluralize(use.rows, 'row')}{'' if use.known else ' (not here)'}"


def _place(place: CheckpointPlace) -> str:
    fitting = "all fit" if place.fitting == place.found else f"{place.fitting} fit"
    aside = f", {place.set_aside} set aside by the seal" if place.set_aside else ""
    last = f", the last is of row {place.last.seq}, {format_utc(place.last.at)}" if place.last else ""
    return f"{single_line(place.path, _LONGEST)}: {place.found}, {fitting}{aside}{last}"


def _finding(finding: AuditFinding) -> Iterator[str]:
    yield f"{'✗' if finding.certain else '!'} {single_line(finding.what, _LONGEST)}"
    yield f"  It may mean: {finding.means}."
