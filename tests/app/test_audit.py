"""The daily line in the log, by which a cut-off end of the audit shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.app.audit import daily_head
from bot.domain.audit import AuditHead
from bot.storage import audit
from bot.storage.audit_trail import SqlAuditTrail
from bot.storage.sqlite import open_sqlite
from tests.migrated import migrated


async def test_the_log_has_the_last_row_of_the_audit_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bot.app.audit")
    database = open_sqlite(await migrated(tmp_path / "a.db"))
    await database.run(lambda connection: audit.record(connection, "x", "test:ana"))
    job = daily_head(database)
    assert job.every == 86_400
    await job.do()
    known = AuditHead.parse(caplog.messages[-1].removeprefix("the last row of the audit is "))
    assert known == await SqlAuditTrail(database).head()
    await database.close()
