"""Findings of a verification of the audit, as sentences; empty if the audit matches its turns."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from bot.storage.audit_chain import AuditKeys, ChainCheck, Findings
from bot.storage.audit_verification import SqlAuditTrail, compare_turns, page_of_turns
from bot.storage.database import Database
from bot.storage.tables import audit


async def audit_findings(database: Database) -> list[str]:
    """Verify the audit as the command line does."""
    return [finding.what for finding in (await SqlAuditTrail(database).verify()).findings]


def findings_within(connection: sa.Connection) -> list[str]:
    """Compare rows and turns within one transaction."""
    findings = Findings()
    chain = ChainCheck(AuditKeys(), findings)
    for row in audit_rows(connection):
        chain.add(row)
    turns = compare_turns(connection, page_of_turns(connection, "", 10_000))
    return [finding.what for finding in (*findings.listed, *turns)]


def audit_rows(connection: sa.Connection) -> list[dict[str, Any]]:
    """Return all rows of the audit, oldest first."""
    return [dict(row) for row in connection.execute(sa.select(audit).order_by(audit.c.seq)).mappings()]
